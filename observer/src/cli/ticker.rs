//! What both live commands wait for: signals, the ring, the log, the next reading.

use std::{os::fd::AsRawFd as _, time::Duration};

use anyhow::{Context as _, Result};
use aya_log::EbpfLogger;
use tokio::{
    io::{Interest, unix::AsyncFd},
    runtime::{Builder, Runtime},
    signal::unix::{Signal, SignalKind, signal},
    time::{Instant, MissedTickBehavior, interval_at, sleep_until},
};

use crate::session::Session;

/// A descriptor that somebody else owns and keeps open; only waited for.
struct Watched(i32);

impl std::os::fd::AsRawFd for Watched {
    fn as_raw_fd(&self) -> i32 {
        self.0
    }
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Time for a reading.
    Reading,
    /// Ended accounts are waiting, or may be.
    Pump,
    /// A child changed its state.
    Child,
    /// A signal for us.
    Signal(i32),
}

/// The signals that are events from the time on that this is made, and no longer end the process.
pub struct Signals {
    ours: Vec<(i32, Signal)>,
    child: Signal,
}

/// The runtime that a command waits in, and its signals: those that end it, and `more`. To be made before anything is
/// measured that one of them could lose.
///
/// # Errors
/// When the kernel gives no descriptors.
pub fn runtime(more: &[SignalKind]) -> Result<(Runtime, Signals)> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let inside = runtime.enter();
    let ends = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
    let ours = ends
        .iter()
        .chain(more)
        .map(|kind| Ok((kind.as_raw_value(), signal(*kind)?)))
        .collect::<Result<Vec<_>>>()
        .context("cannot take signals")?;
    let child = signal(SignalKind::child()).context("cannot take SIGCHLD")?;
    drop(inside);
    Ok((runtime, Signals { ours, child }))
}

/// The sources of events.
pub struct Ticker {
    signals: Signals,
    ring: AsyncFd<Watched>,
    log: Option<EbpfLogger<&'static dyn log::Log>>,
    pumped: Instant,
    reading: tokio::time::Interval,
}

impl Ticker {
    /// Sets up the sources. Must run inside the runtime.
    pub fn new(session: &mut Session, interval: Duration, signals: Signals) -> Result<Self> {
        // MapNotFound: no log call survived in the object.
        let log = EbpfLogger::init(session.probe_mut().ebpf_mut()).ok();
        let ring = Watched(session.probe().ring().as_raw_fd());
        // SAFETY: the ring's descriptor belongs to the session, which outlives the ticker, and never changes.
        let ring = unsafe { register(ring) }.context("cannot wait for the ring")?;
        Ok(Self { signals, ring, log, pumped: Instant::now(), reading: every(interval) })
    }

    /// From now on a reading comes this often.
    pub fn set_interval(&mut self, interval: Duration) {
        self.reading = every(interval);
    }

    /// Waits for the next event, `patience` at most. Nothing is lost if the wait is given up.
    pub async fn next(&mut self, patience: Duration) -> Event {
        let Self { signals: Signals { ours, child }, ring, log, pumped, reading } = self;
        let any_signal = std::future::poll_fn(|context| {
            for (number, signal) in ours.iter_mut() {
                if signal.poll_recv(context).is_ready() {
                    return std::task::Poll::Ready(*number);
                }
            }
            std::task::Poll::Pending
        });
        tokio::select! {
            biased;
            number = any_signal => Event::Signal(number),
            _ = child.recv() => Event::Child,
            ready = ring.readable() => {
                if let Ok(mut ready) = ready {
                    ready.clear_ready();
                }
                Event::Pump
            }
            _ = reading.tick() => Event::Reading,
            () = sleep_until(*pumped + patience) => {
                *pumped = Instant::now();
                if let Some(log) = log {
                    log.flush();
                }
                Event::Pump
            }
        }
    }
}

fn every(period: Duration) -> tokio::time::Interval {
    let mut ticks = interval_at(Instant::now() + period, period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    ticks
}

/// # Safety
/// The descriptor must stay open and the same for the life of the result.
unsafe fn register(fd: Watched) -> std::io::Result<AsyncFd<Watched>> {
    // SAFETY: by this function's own contract.
    unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }.map_err(std::io::Error::from)
}

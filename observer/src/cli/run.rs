//! `observer run -- CMD`: observe a command from before its exec to its end, and say how right the kernel is.

use std::{ffi::OsString, io::IsTerminal as _, process::ExitCode, time::Duration};

use anyhow::Result;
use observer_common::names::target;
use tokio::signal::unix::SignalKind;

use super::{
    ProbeArgs, RunArgs,
    output::{self, Output},
    ticker::{self, Event, Signals, Ticker},
};
use crate::{
    model::Report,
    session::{
        Options, Session,
        child::{self, Child, Ended},
        target::Target,
    },
    view::verdict,
};

/// How often a long run is read although nobody asks: so that counters are near when it ends.
const READING: Duration = Duration::from_secs(1);

/// Runs the command.
pub fn main(args: &RunArgs) -> Result<ExitCode> {
    child::check(&args.command)?;
    let mut output = Output::open(&args.output, true)?;
    let observed = observe(&args.command, args.no_follow, &args.output.probe, Some(&mut output))?;
    // Detached at the end only: it takes 10 ms, by which what is read now would be late.
    let (report, ended, _session) = match observed {
        Ok(observed) => observed,
        Err(code) => return Ok(code),
    };
    match output.finish(&report) {
        Err(error) if !output::is_closed_pipe(&error) => {
            output::warn(&format!("observer: {error:#}"));
        }
        _ => {}
    }
    Ok(exit_code(&ended))
}

/// Runs `command` and observes it to its end; `output` gets the header before it runs, and what ended tasks are not
/// in the report. `Err` is the exit status of one that could not be run.
pub fn observe(
    command: &[OsString],
    no_follow: bool,
    probe: &ProbeArgs,
    mut output: Option<&mut Output>,
) -> Result<Result<(Report, Ended, Session), ExitCode>> {
    child::check(command)?;
    // Forked first: the fork copies one thread and no map, and the command starts with clean signals.
    let mut child = Child::spawn(command)?;
    let target = Target { no_follow, ..Target::default() };
    let hands_out = output.as_ref().is_some_and(|output| output.wants_evicted());
    let mut session = Session::start(&Options { hands_out, ..super::options(target, probe) })?;
    session.probe_mut().add_target(child.pid(), target::PROCESS)?;
    let pass_on = [SignalKind::quit(), SignalKind::user_defined1(), SignalKind::user_defined2()];
    let (runtime, signals) = ticker::runtime(&pass_on)?;
    session.observe()?;
    if let Some(output) = &mut output {
        output.header(session.header())?;
    }
    if let Err((status, words)) = child.release(&command[0])? {
        output::warn(&format!("observer: {words}"));
        return Ok(Err(ExitCode::from(u8::try_from(status).unwrap_or(super::exit::FAILURE))));
    }
    let ended = runtime.block_on(attend(&mut session, &child, signals, &mut output))?;
    session.finish()?;
    if let Some(output) = &mut output {
        output.ended(&mut session);
    }
    let mut report = session.report();
    report.rusage_ns = Some((ended.user_ns, ended.system_ns));
    report.sentences = verdict::sentences(&report);
    Ok(Ok((report, ended, session)))
}

/// The command's own exit status.
#[must_use]
pub fn exit_code(ended: &Ended) -> ExitCode {
    ExitCode::from(u8::try_from(ended.status & 0xff).unwrap_or(super::exit::FAILURE))
}

/// Until the command has ended. Signals are passed on; the terminal sends its own to both.
async fn attend(
    session: &mut Session,
    child: &Child,
    signals: Signals,
    output: &mut Option<&mut Output>,
) -> Result<Ended> {
    let mut ticker = Ticker::new(session, READING, signals)?;
    let on_terminal = std::io::stdin().is_terminal();
    loop {
        if let Some(ended) = child.try_wait()? {
            return Ok(ended);
        }
        match ticker.next(session.patience()).await {
            Event::Pump => session.pump()?,
            Event::Reading => session.snapshot()?,
            Event::Child => continue,
            Event::Signal(number) => {
                let from_terminal = number == libc::SIGINT || number == libc::SIGQUIT;
                if !(from_terminal && on_terminal) {
                    child.signal(number);
                }
            }
        }
        if let Some(output) = output {
            output.ended(session);
        }
    }
}

//! Loads that need no truth: `cargo xtask bench load ...`, used by the benchmarks themselves.

use std::{
    hint::black_box,
    io::{Read as _, Write as _, pipe},
    process::{Command, Stdio},
    sync::{Arc, Barrier},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};

/// Threads of one process: a process may have 65,530 mappings (vm.max_map_count), a thread needs four, two of
/// them for its signal stack.
const THREADS: usize = 10_000;
/// The smallest stack that a thread may have.
const STACK_BYTES: usize = 32 * 1024;

/// The loads.
#[derive(clap::Subcommand, Clone, Debug)]
pub enum Load {
    /// A loop of getppid
    Getppid {
        /// Calls
        count: u64,
    },
    /// Threads that sleep, and wake up every ten seconds
    Idle {
        /// Threads
        tasks: usize,
        /// How long
        seconds: u64,
    },
    /// Threads in a ring, each of which wakes the next one
    Ring {
        /// Threads
        tasks: usize,
        /// Bytes that go round at a time
        tokens: usize,
        /// How long
        seconds: u64,
    },
    /// Threads of which each wakes each
    Mesh {
        /// Threads
        tasks: usize,
        /// How long
        seconds: u64,
    },
    /// Processes that are forked, exit and are waited for
    Forks {
        /// Each second
        rate: u64,
        /// How long
        seconds: u64,
    },
}

/// Runs it to its end.
///
/// # Errors
/// When there can be no more threads.
pub fn run(load: &Load) -> Result<()> {
    match *load {
        Load::Getppid { count } => {
            for _ in 0..count {
                // SAFETY: a syscall without arguments.
                black_box(unsafe { libc::syscall(libc::SYS_getppid) });
            }
            Ok(())
        }
        Load::Idle { tasks, seconds } => idle(tasks, seconds),
        Load::Ring { tasks, tokens, seconds } => pass(tasks, seconds, tokens, |from, _| from + 1),
        // Each thread hands its tokens to the others in turn, so that every pair comes up.
        Load::Mesh { tasks, seconds } => {
            pass(tasks, seconds, tasks / 2, move |from, turn| from + 1 + turn % (tasks - 1))
        }
        Load::Forks { rate, seconds } => forks(rate, seconds),
    }
}

fn spawn(work: impl FnOnce() + Send + 'static) -> Result<thread::JoinHandle<()>> {
    thread::Builder::new().stack_size(STACK_BYTES).spawn(work).context("no more threads")
}

fn idle(tasks: usize, seconds: u64) -> Result<()> {
    if tasks > THREADS {
        let rest = (tasks - THREADS).to_string();
        let mut other = Command::new(std::env::current_exe()?)
            .args(["bench", "load", "idle", &rest, &seconds.to_string()])
            .stdin(Stdio::null())
            .spawn()?;
        idle(THREADS, seconds)?;
        ensure!(other.wait()?.success(), "a part of the load failed");
        return Ok(());
    }
    let end = Instant::now() + Duration::from_secs(seconds);
    let sleepers: Vec<_> = (0..tasks)
        .map(|_| {
            spawn(move || {
                while let Some(left) = end.checked_duration_since(Instant::now()) {
                    thread::sleep(left.min(Duration::from_secs(10)));
                }
            })
        })
        .collect::<Result<_>>()?;
    sleepers
        .into_iter()
        .try_for_each(|one| one.join().map_err(|_| anyhow::anyhow!("a thread died")))
}

/// Tokens go from thread to thread; `next` says to whom, from the thread's number and its turn.
fn pass(
    tasks: usize,
    seconds: u64,
    tokens: usize,
    next: impl Fn(usize, usize) -> usize + Send + Sync + Copy + 'static,
) -> Result<()> {
    ensure!(tasks >= 2, "at least two threads");
    let pipes = (0..tasks).map(|_| pipe()).collect::<Result<Vec<_>, _>>();
    let (readers, writers): (Vec<_>, Vec<_>) = pipes.context("no more pipes")?.into_iter().unzip();
    let writers = Arc::new(writers);
    let begin = Arc::new(Barrier::new(tasks + 1));
    for (number, mut reader) in readers.into_iter().enumerate() {
        let (writers, begin) = (writers.clone(), begin.clone());
        spawn(move || {
            begin.wait();
            let (mut token, mut turn) = ([0], 0);
            while reader.read_exact(&mut token).is_ok() {
                let to = next(number, turn) % writers.len();
                turn += 1;
                if (&writers[to]).write_all(&token).is_err() {
                    return;
                }
            }
        })?;
    }
    begin.wait();
    for token in 0..tokens {
        (&writers[token * tasks / tokens]).write_all(&[0])?;
    }
    thread::sleep(Duration::from_secs(seconds));
    // The threads end with the process.
    Ok(())
}

fn forks(rate: u64, seconds: u64) -> Result<()> {
    let begin = Instant::now();
    for number in 0..rate * seconds {
        let due = begin + Duration::from_nanos(number * 1_000_000_000 / rate.max(1));
        if let Some(early) = due.checked_duration_since(Instant::now()) {
            thread::sleep(early);
        }
        // SAFETY: this process has one thread; the child does nothing but exit.
        match unsafe { libc::fork() } {
            0 => {
                // SAFETY: ends the child without running anything of this program.
                unsafe { libc::_exit(0) }
            }
            pid => {
                ensure!(pid > 0, "no more processes: {}", std::io::Error::last_os_error());
                // SAFETY: a child of ours; no status is asked for.
                unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
            }
        }
    }
    println!("{} forks in {:.1} s", rate * seconds, begin.elapsed().as_secs_f64());
    Ok(())
}

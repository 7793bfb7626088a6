//! `forks`: many children that do next to nothing.

use std::collections::VecDeque;

use anyhow::{Context as _, Result, ensure};
use nix::sys::signal::{SigHandler, Signal, signal};
use serde_json::Value;

use super::clock::{Amount, Clock};
use super::memory::Shared;
use super::os::{Child, Place};
use super::report::{Report, Window};

/// Counters shared with the children.
const STARTED: usize = 0;
const USER_NS: usize = 1;
const GAP_NS: usize = 2;

/// Options of `forks`.
#[derive(clap::Args, Clone, Debug)]
pub struct ForksArgs {
    /// Children in total
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub count: u64,
    /// Children at a time
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub parallel: u64,
    /// User time of each child, microseconds (0: it exits at once)
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=60_000_000))]
    pub burn_us: u64,
    /// Ignore SIGCHLD: the kernel reaps each child the moment it exits, nobody waits for it
    #[arg(long)]
    pub no_wait: bool,
    #[command(flatten)]
    /// Where to run
    pub place: Place,
}

/// Forks the children, and returns when all of them have ended.
///
/// # Errors
/// If the CPU is not allowed, there can be no more processes, or a child did not do its work.
pub fn run(args: &ForksArgs) -> Result<Value> {
    args.place.apply()?;
    let clock = Clock::measure()?;
    let shared = Shared::new()?;
    if args.no_wait {
        // SAFETY: no handler function is installed.
        unsafe { signal(Signal::SIGCHLD, SigHandler::SigIgn) }.context("cannot ignore SIGCHLD")?;
    }

    let window = Window::open()?;
    let ended = fork_all(args, &clock, &shared);
    let closed = window.close()?;
    if args.no_wait {
        // SAFETY: no handler function is installed.
        unsafe { signal(Signal::SIGCHLD, SigHandler::SigDfl) }.context("cannot reset SIGCHLD")?;
    }
    ended?;
    let started = shared.get(STARTED);
    ensure!(started == args.count, "{started} of {} children did their work", args.count);

    let report = Report::new("forks")
        .with("count", args.count)
        .with("parallel", args.parallel)
        .with("waited_for", !args.no_wait)
        .with("burn_us", args.burn_us)
        .with("children_user_ns", clock.known(shared.get(USER_NS)))
        .with("children_gap_ns", clock.known(shared.get(GAP_NS)));
    Ok(closed.add_to(report).with_clock(&clock).finish())
}

fn fork_all(args: &ForksArgs, clock: &Clock, shared: &Shared) -> Result<()> {
    let mut running = VecDeque::new();
    for _ in 0..args.count {
        if running.len() as u64 >= args.parallel {
            end_oldest(&mut running, args.no_wait)?;
        }
        running.push_back(Child::fork(|| {
            shared.add(STARTED, 1);
            if args.burn_us > 0 {
                let tally = clock.burn(Amount::UserNs(args.burn_us * 1_000));
                shared.add(USER_NS, tally.user_ns);
                shared.add(GAP_NS, tally.gap_ns);
            }
            0
        })?);
    }
    while !running.is_empty() {
        end_oldest(&mut running, args.no_wait)?;
    }
    Ok(())
}

fn end_oldest(running: &mut VecDeque<Child>, no_wait: bool) -> Result<()> {
    let Some(child) = running.pop_front() else {
        return Ok(());
    };
    if no_wait {
        child.wait_gone();
        return Ok(());
    }
    let code = child.wait()?.code;
    ensure!(code == 0, "a child ended with status {code}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(count: u64, parallel: u64, burn_us: u64, no_wait: bool) -> ForksArgs {
        ForksArgs { count, parallel, burn_us, no_wait, place: Place::default() }
    }

    #[test]
    fn all_children_work_and_are_reaped() {
        let report = run(&args(20, 3, 500, false)).unwrap();
        assert_eq!(report["count"], 20);
        let user_ns = report["children_user_ns"].as_u64().unwrap();
        assert!((10_000_000..11_000_000).contains(&user_ns), "{report}");
    }

    /// Ignores SIGCHLD in the whole process, so only in a process of its own (see below).
    #[test]
    #[ignore = "changes the disposition of SIGCHLD: run by no_wait_leaves_nothing_behind"]
    fn alone_no_wait() {
        let report = run(&args(20, 4, 0, true)).unwrap();
        assert_eq!(
            (report["count"].as_u64(), report["waited_for"].as_bool()),
            (Some(20), Some(false))
        );
        let left = nix::sys::wait::waitpid(None, None);
        assert_eq!(left, Err(nix::errno::Errno::ECHILD));
    }

    #[test]
    fn no_wait_leaves_nothing_behind() {
        super::super::test_alone(module_path!(), "alone_no_wait");
    }
}

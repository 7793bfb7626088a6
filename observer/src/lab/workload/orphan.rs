//! `orphan`: a child that runs on after its parent has exited.

use std::fs::File;
use std::os::fd::AsRawFd as _;

use anyhow::{Context as _, Result, ensure};
use nix::unistd::{ForkResult, fork};
use serde_json::Value;

use super::clock::{Amount, Clock, now_ns};
use super::memory::Shared;
use super::os::{Child, Place, exit_now};
use super::report::Report;
use super::spin::LONGEST_MS;

/// Counter shared with the intermediate process.
const ORPHAN_PID: usize = 0;

/// Options of `orphan`.
#[derive(clap::Args, Clone, Debug)]
pub struct OrphanArgs {
    /// User time of the child, milliseconds
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=LONGEST_MS))]
    pub ms: u64,
    /// Fork twice: the child's parent is gone before this program reports
    #[arg(long)]
    pub double_fork: bool,
    #[command(flatten)]
    /// Where to run
    pub place: Place,
}

/// Leaves a child running and returns at once. The child ends by itself after its user time, the
/// truth of which is `orphan_user_ns` (it exceeds that by less than one gap threshold).
///
/// # Errors
/// If the CPU is not allowed or there can be no more processes.
pub fn run(args: &OrphanArgs) -> Result<Value> {
    args.place.apply()?;
    let clock = Clock::measure()?;
    let burn_ns = args.ms * 1_000_000;
    let start_ns = now_ns();
    let orphan_pid =
        if args.double_fork { fork_twice(&clock, burn_ns)? } else { fork_orphan(&clock, burn_ns)? };
    Ok(Report::new("orphan")
        .with("double_fork", args.double_fork)
        .with("orphan_pid", orphan_pid)
        .with("orphan_user_ns", clock.known(burn_ns))
        .with("start_ns", start_ns)
        .with_clock(&clock)
        .finish())
}

/// Forks the child that stays; not a [`Child`], which would not.
fn fork_orphan(clock: &Clock, burn_ns: u64) -> Result<i32> {
    let nowhere = File::options().read(true).write(true).open("/dev/null");
    let nowhere = nowhere.context("cannot open /dev/null")?;
    // SAFETY: the child takes no lock, allocates nothing, and leaves by _exit.
    match unsafe { fork() }.context("cannot fork")? {
        ForkResult::Parent { child } => Ok(child.as_raw()),
        ForkResult::Child => {
            // Whoever reads this program's output waits for the end of the pipe: do not hold it.
            for standard in 0..=2 {
                // SAFETY: dup2 of a file this process owns onto its own standard streams, which
                // nothing in this child uses.
                unsafe { libc::dup2(nowhere.as_raw_fd(), standard) };
            }
            let _ = clock.burn(Amount::UserNs(burn_ns));
            exit_now(0)
        }
    }
}

fn fork_twice(clock: &Clock, burn_ns: u64) -> Result<i32> {
    let shared = Shared::new()?;
    let between = Child::fork(|| match fork_orphan(clock, burn_ns) {
        Ok(pid) => {
            shared.set(ORPHAN_PID, u64::from(pid.unsigned_abs()));
            0
        }
        Err(_) => 1,
    })?;
    let code = between.wait()?.code;
    ensure!(code == 0, "the process in between could not fork (status {code})");
    i32::try_from(shared.get(ORPHAN_PID)).context("the orphan's pid is out of range")
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::time::{Duration, Instant};

    use super::*;

    fn orphan(double_fork: bool) -> (i32, PathBuf) {
        let report = run(&OrphanArgs { ms: 100, double_fork, place: Place::default() }).unwrap();
        assert_eq!(report["orphan_user_ns"], 100_000_000);
        let pid = i32::try_from(report["orphan_pid"].as_i64().unwrap()).unwrap();
        (pid, PathBuf::from(format!("/proc/{pid}/stat")))
    }

    fn parent_of(stat: &str) -> i32 {
        let after_comm = stat.rsplit_once(')').unwrap().1;
        after_comm.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    #[test]
    fn runs_on_and_ends_by_itself() {
        let (pid, stat) = orphan(false);
        let text = std::fs::read_to_string(&stat).unwrap();
        assert_eq!(parent_of(&text), nix::unistd::getpid().as_raw());
        // Here its parent lives on, and can see that it ends.
        let ended = nix::sys::wait::waitpid(nix::unistd::Pid::from_raw(pid), None).unwrap();
        assert!(matches!(ended, nix::sys::wait::WaitStatus::Exited(_, 0)), "{ended:?}");
    }

    #[test]
    fn forked_twice_it_belongs_to_someone_else() {
        let (_, stat) = orphan(true);
        let text = std::fs::read_to_string(&stat).unwrap();
        assert_ne!(parent_of(&text), nix::unistd::getpid().as_raw());
        let patience = Instant::now() + Duration::from_secs(30);
        // Gone, or a zombie that its new parent does not reap.
        while std::fs::read_to_string(&stat).is_ok_and(|text| !text.contains(") Z")) {
            assert!(Instant::now() < patience, "the orphan does not end");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

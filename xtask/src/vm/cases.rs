//! What is run in a test kernel, and what must come out.

mod cycles;
mod matrix;
mod oracle;
mod refusals;
mod totals;

use std::collections::BTreeMap;

use anyhow::{Result, bail, ensure};
use xtask::wire::End;

use super::{matrix::Suite, records};
use crate::counts::Counts;

/// What a case left behind.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// How the command ended.
    pub end: End,
    /// Guest time from start to end.
    pub took_ms: u64,
    /// What it wrote to standard output.
    pub stdout: String,
    /// What it wrote to standard error.
    pub stderr: String,
    /// The files that the case asked for and that were there.
    pub files: BTreeMap<String, Vec<u8>>,
}

/// Judges an outcome: how many tests it stands for, or what is wrong.
pub type Check = fn(&Outcome) -> Result<Counts>;

/// One command of the guest with its check.
#[derive(Clone, Debug)]
pub struct Case {
    /// One word.
    pub name: String,
    /// For the guest's `/bin/sh -c`.
    pub command: String,
    /// Seconds of guest time.
    pub timeout_s: u64,
    /// Files to bring to the host.
    pub files: Vec<String>,
    /// True when the guest must have observer.
    pub needs_observer: bool,
    /// What must hold.
    pub check: Check,
}

const TIMEOUT_S: u64 = 120;
const ONE_PASSED: Counts = Counts { passed: 1, failed: 0, skipped: 0 };

/// The cases of a suite.
pub fn of_suite(suite: Suite) -> Vec<Case> {
    match suite {
        Suite::Matrix => matrix::cases(),
        Suite::Refusals => refusals::cases(),
        Suite::Oracle => oracle::cases(),
        Suite::OracleByHost => oracle::cases_by_host(),
    }
}

/// All suites' cases.
pub fn all() -> Vec<Case> {
    // OracleByHost has none of its own.
    [Suite::Matrix, Suite::Refusals, Suite::Oracle].into_iter().flat_map(of_suite).collect()
}

/// A shell line that uses observer.
fn observer(name: &str, command: &str, files: &[&str], check: Check) -> Case {
    Case {
        name: name.to_owned(),
        command: command.to_owned(),
        timeout_s: TIMEOUT_S,
        files: files.iter().map(|file| (*file).to_owned()).collect(),
        needs_observer: true,
        check,
    }
}

/// A known-answer program under `observer run`, with `before` in front of both.
fn observed(name: &str, before: &str, workload: &str, check: Check) -> Case {
    let command = format!(
        "{before} observer run --format jsonl -o {} -- observer workload {workload}",
        records::FILE
    );
    observer(name, command.trim_start(), &[records::FILE], check)
}

/// A shell line from the command line; it must end with status 0.
pub fn ad_hoc(number: usize, command: &str) -> Case {
    Case {
        name: format!("command-{number}"),
        command: command.to_owned(),
        timeout_s: TIMEOUT_S,
        files: Vec::new(),
        needs_observer: command.contains("observer"),
        check: exit_zero,
    }
}

/// A test program of observer/tests/live_*.rs at this path of the guest.
pub fn live(name: &str, program: &str) -> Case {
    Case {
        name: name.to_owned(),
        command: format!("{program} --ignored --test-threads=1"),
        // Emulation is some ten times slower than the machine that these tests are written for.
        timeout_s: 600,
        files: Vec::new(),
        needs_observer: true,
        check: libtest,
    }
}

fn exit_zero(outcome: &Outcome) -> Result<Counts> {
    match &outcome.end {
        End::Exit(0) => Ok(ONE_PASSED),
        End::Exit(code) => bail!("exit status {code}"),
        End::Signal(signal) => bail!("ended by signal {signal}"),
        End::Timeout => bail!("killed after {:.0} s", outcome.took_ms as f64 / 1e3),
        End::NotStarted(why) => bail!("could not be started: {why}"),
    }
}

/// All of a test program's tests passed, and there were some.
fn libtest(outcome: &Outcome) -> Result<Counts> {
    let mut counts = Counts::default();
    outcome.stdout.lines().for_each(|line| counts.add_line(line));
    exit_zero(outcome)?;
    ensure!(counts.ran() > 0, "it ran no test");
    Ok(counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_in_a_suite_and_commands_are_one_line() {
        for suite in [Suite::Matrix, Suite::Refusals, Suite::Oracle, Suite::OracleByHost] {
            let cases = of_suite(suite);
            let names: std::collections::BTreeSet<_> = cases.iter().map(|c| &c.name).collect();
            assert_eq!(names.len(), cases.len());
            assert!(cases.iter().all(|case| !case.command.contains('\n')));
        }
    }

    fn outcome(end: End, stdout: &str) -> Outcome {
        let stdout = stdout.to_owned();
        Outcome { end, took_ms: 1500, stdout, stderr: String::new(), files: BTreeMap::new() }
    }

    #[test]
    fn only_status_zero_is_success() {
        assert_eq!(exit_zero(&outcome(End::Exit(0), "")).unwrap(), ONE_PASSED);
        for (end, reason) in [
            (End::Exit(3), "exit status 3"),
            (End::Signal(9), "ended by signal 9"),
            (End::Timeout, "killed after 2 s"),
            (End::NotStarted("no sh".into()), "could not be started: no sh"),
        ] {
            assert_eq!(exit_zero(&outcome(end, "")).unwrap_err().to_string(), reason);
        }
    }

    #[test]
    fn a_test_program_must_run_tests() {
        let line = "test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out\n";
        let counts = libtest(&outcome(End::Exit(0), line)).unwrap();
        assert_eq!(counts, Counts { passed: 3, failed: 0, skipped: 0 });
        assert!(libtest(&outcome(End::Exit(0), "")).is_err());
        assert!(libtest(&outcome(End::Exit(101), line)).is_err());
    }
}

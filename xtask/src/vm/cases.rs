//! What is run in a test kernel, and what must come out.

use std::collections::BTreeMap;

use anyhow::{Context, Result, anyhow, bail, ensure};
use serde_json::Value;
use xtask::wire::End;

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

/// The cases that run on every kernel.
pub fn smoke() -> Vec<Case> {
    const SPIN: &str = "busybox sh -c 'i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done'";
    vec![
        observer("doctor", "observer doctor", &[], exit_zero),
        observer(
            "run-jsonl",
            &format!("observer run --format jsonl -o /tmp/out.jsonl -- {SPIN}"),
            &["/tmp/out.jsonl"],
            |outcome| {
                exit_zero(outcome)?;
                let file = outcome.files.get("/tmp/out.jsonl").context("no /tmp/out.jsonl")?;
                jsonl_of_a_run(file).context("/tmp/out.jsonl").map(|()| ONE_PASSED)
            },
        ),
    ]
}

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

/// Checks the output of `observer run` against the schema: a header, a trailer, and a task that ran.
fn jsonl_of_a_run(bytes: &[u8]) -> Result<()> {
    let text = str::from_utf8(bytes).context("not UTF-8")?;
    let mut lines = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let value: Value = serde_json::from_str(line)
            .map_err(|error| anyhow!("line {number} is not JSON: {error}"))?;
        lines.push(value);
    }
    let first = lines.first().context("it is empty")?;
    ensure!(first["type"] == "header", "the first line is no header: {first}");
    ensure!(first["schema"] == "observer/1", "the schema is {}", first["schema"]);
    let last = lines.last().context("it is empty")?;
    ensure!(last["type"] == "trailer", "the last line is no trailer: {last}");
    let ran = |line: &&Value| line["type"] == "task" && line["oncpu_ns"].as_u64() > Some(0);
    ensure!(lines.iter().any(|line| ran(&line)), "no task has oncpu_ns above 0");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = r#"{"type":"header","schema":"observer/1"}"#;
    const TASK: &str = r#"{"type":"task","tid":1,"oncpu_ns":5}"#;
    const IDLE: &str = r#"{"type":"task","tid":2,"oncpu_ns":0}"#;
    const UNMEASURED: &str = r#"{"type":"task","tid":3,"oncpu_ns":null}"#;
    const TRAILER: &str = r#"{"type":"trailer"}"#;

    #[test]
    fn the_output_of_a_run_is_checked() {
        let check = |lines: &[&str]| jsonl_of_a_run(lines.join("\n").as_bytes());
        check(&[HEADER, IDLE, TASK, TRAILER]).unwrap();
        for (lines, reason) in [
            (&[] as &[&str], "it is empty"),
            (&[TASK, TRAILER], "no header"),
            (&[r#"{"type":"header","schema":"observer/2"}"#, TASK, TRAILER], "observer/2"),
            (&[HEADER, TASK], "no trailer"),
            (&[HEADER, IDLE, UNMEASURED, TRAILER], "no task"),
            (&[HEADER, r#"{"type":"ta"#, TRAILER], "line 2 is not JSON"),
        ] {
            let error = check(lines).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
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

//! Known answers: programs that know what they did, measured by observer, compared.

use std::{ffi::OsStr, process::Command};

use anyhow::{Context as _, Result, anyhow, bail};
use serde_json::Value;

/// A program with a known answer.
#[derive(Clone, Copy, Debug)]
pub struct Test {
    /// What it shows.
    pub name: &'static str,
    /// `observer workload ...`.
    pub arguments: &'static [&'static str],
    judge: fn(&Run) -> Result<Verdict>,
}

/// What came out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// As it should be.
    Holds(String),
    /// Not as it should be.
    Fails(String),
    /// It cannot be told here, and why.
    Skipped(String),
}

/// One observed run: the program's own truth, and observer's records.
pub struct Run {
    /// observer's `header`.
    pub header: Value,
    /// What the program says of itself.
    pub truth: Value,
    /// observer's `task` records.
    pub tasks: Vec<Value>,
    /// observer's `pair` records.
    pub pairs: Vec<Value>,
    /// observer's `trailer`.
    pub trailer: Value,
}

/// The self-test.
pub const TESTS: [Test; 6] = [
    Test { name: "user spin", arguments: &["spin", "--ms", "400"], judge: spin },
    Test { name: "syscall loop", arguments: &["syscalls", "--ms", "300"], judge: syscalls },
    Test { name: "sleep", arguments: &["sleep", "--ms", "200"], judge: sleep },
    Test {
        name: "ptraced pair",
        arguments: &["ptrace", "--syscalls", "2000", "--work-us", "50"],
        judge: pair,
    },
    Test { name: "page faults", arguments: &["faults", "--pages", "20000"], judge: faults },
    Test { name: "cycles", arguments: &["cycles", "--rounds", "2000"], judge: cycles },
];

/// Runs one test.
pub fn check(test: &Test, observer: &OsStr) -> Result<Verdict> {
    (test.judge)(&run(observer, test.arguments)?)
}

/// Observes a known-answer program: `observer run -- observer workload ...`.
pub fn run(observer: &OsStr, arguments: &[&str]) -> Result<Run> {
    run_with(observer, &[], arguments)
}

/// The same with options of `observer run`.
pub fn run_with(observer: &OsStr, options: &[&str], arguments: &[&str]) -> Result<Run> {
    let file = std::env::temp_dir().join(format!("observer-known-{}.jsonl", std::process::id()));
    let output = Command::new(observer)
        .args(["run", "--format", "jsonl", "-o"])
        .arg(&file)
        .args(options)
        .arg("--")
        .arg(observer)
        .arg("workload")
        .args(arguments)
        .output()
        .with_context(|| format!("cannot start {}", observer.display()))?;
    let records = std::fs::read_to_string(&file);
    // It may not have been written.
    let _ = std::fs::remove_file(&file);
    if !output.status.success() {
        bail!("{}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let truth = serde_json::from_slice(&output.stdout).context("the program's own report")?;
    let (mut tasks, mut pairs) = (Vec::new(), Vec::new());
    let (mut header, mut trailer) = (Value::Null, Value::Null);
    for line in records?.lines() {
        let record: Value = serde_json::from_str(line)?;
        match record["type"].as_str() {
            Some("task") => tasks.push(record),
            Some("pair") => pairs.push(record),
            Some("header") => header = record,
            Some("trailer") => trailer = record,
            _ => {}
        }
    }
    Ok(Run { header, truth, tasks, pairs, trailer })
}

impl Run {
    /// A number of the truth.
    pub fn known(&self, field: &str) -> Option<f64> {
        self.truth[field].as_f64()
    }

    /// A border's figure in the header, ns: `field` is `crossing_costs_ns` or `crossing_spreads_ns`. `None` where it
    /// could not be calibrated.
    pub fn border_ns(&self, field: &str, kind: &str) -> Option<u64> {
        self.header[field].as_array()?.iter().find(|pair| pair[0] == kind)?[1].as_u64()
    }

    /// The record of a thread, by default of the program's only one.
    pub fn task(&self, tid: Option<u64>) -> Result<&Value> {
        match tid {
            Some(tid) => self.tasks.iter().find(|task| task["tid"].as_u64() == Some(tid)),
            None => self.tasks.first(),
        }
        .ok_or_else(|| anyhow!("observer has no record of the program"))
    }
}

/// A number of a record.
pub fn number(record: &Value, field: &str) -> Result<f64> {
    record[field].as_f64().ok_or_else(|| anyhow!("{field} was not measured"))
}

/// `measured` lies within `share` of `truth`, with `slack_ns` on top (what the program did outside its window).
fn judge(what: &str, measured_ns: f64, truth_ns: f64, share: f64, slack_ns: f64) -> Verdict {
    let low_ns = truth_ns * (1.0 - share);
    let high_ns = truth_ns * (1.0 + share) + slack_ns;
    let text = format!(
        "{what}: measured {:.3} ms, own clock {:.3} to {:.3} ms",
        measured_ns / 1e6,
        truth_ns / 1e6,
        (truth_ns + slack_ns) / 1e6
    );
    if (low_ns..=high_ns).contains(&measured_ns) {
        Verdict::Holds(text)
    } else {
        Verdict::Fails(text)
    }
}

/// What the program did outside its window: it is in the account, and mostly user time. The start it has
/// timed itself; the end is less than a quarter of it (3 % where it was seen to matter, in an emulated machine).
fn before_ns(run: &Run) -> f64 {
    1.25 * run.known("thread_cpu_before_ns").unwrap_or(0.0) + 1e6
}

/// Where the borders of interrupts and preemptions could not be calibrated they stay in the user time: at most what
/// the program's clock missed in the kernel.
fn borders_ns(run: &Run) -> f64 {
    let is_known = |kind| run.border_ns("crossing_costs_ns", kind).is_some();
    if is_known("interrupt") && is_known("preemption") {
        return 0.0;
    }
    run.known("kernel_gap_ns").unwrap_or(0.0)
}

fn no_clock() -> Result<Verdict> {
    Ok(Verdict::Skipped("this machine's clock needs a syscall: no independent truth".to_owned()))
}

fn spin(run: &Run) -> Result<Verdict> {
    let Some(user_ns) = run.known("user_ns") else { return no_clock() };
    let truth_ns = user_ns + run.known("host_gap_ns").unwrap_or(0.0);
    let measured_ns = number(run.task(None)?, "user_ns")?;
    Ok(judge("user", measured_ns, truth_ns, 0.005, before_ns(run) + borders_ns(run)))
}

/// User and system are cut from one length, so the tolerance is a share of that length. The goal is 2 %; half of
/// this loop is borders, booked at a constant cost, and a machine whose speed changes between the calibration and
/// the run misses it: up to 12 % is said, not failed.
fn syscalls(run: &Run) -> Result<Verdict> {
    let (Some(user_ns), Some(wall_ns)) = (run.known("user_ns"), run.known("wall_ns")) else {
        return no_clock();
    };
    let measured_ns = number(run.task(None)?, "user_ns")?;
    let slack_ns = before_ns(run);
    let off = ((user_ns - measured_ns).max(measured_ns - user_ns - slack_ns).max(0.0)) / wall_ns;
    let mut text = format!(
        "user: measured {:.3} ms, own clock {:.3} to {:.3} ms of {:.0}: off by {:.1} % (goal 2 %)",
        measured_ns / 1e6,
        user_ns / 1e6,
        (user_ns + slack_ns) / 1e6,
        wall_ns / 1e6,
        off * 100.0,
    );
    if let Ok(share) = user_share_by_cycles(run.task(None)?) {
        // All that is not in it is what the borders really cost.
        let oncpu_ns = number(run.task(None)?, "oncpu_ns")?;
        text.push_str(&format!("; by cycles {:.3} ms", share * oncpu_ns / 1e6));
    }
    Ok(if off <= 0.12 { Verdict::Holds(text) } else { Verdict::Fails(text) })
}

fn sleep(run: &Run) -> Result<Verdict> {
    let task = run.task(None)?;
    // Start and exit are all that it does; the exit is less than the start. Asleep it must cost nothing.
    let slack_ns = 1.5 * before_ns(run) + 2e6;
    Ok(judge("on CPU", number(task, "oncpu_ns")?, 0.0, 0.0, slack_ns))
}

/// Judges a ptraced pair, or the same tracee without a tracer: the identity, and the tracee's user time against its
/// own clock.
///
/// # Errors
/// If a figure was not measured.
pub fn pair(run: &Run) -> Result<Verdict> {
    let tid = run.truth["tracee_tid"].as_u64().ok_or_else(|| anyhow!("no tracee"))?;
    let task = run.task(Some(tid))?;
    let Some(user_ns) = run.known("user_ns") else { return no_clock() };
    let residual_ns = number(task, "residual_ns")?.abs();
    let limit_ns = (number(task, "oncpu_ns")? * 0.001).max(0.2e6);
    if residual_ns > limit_ns {
        return Ok(Verdict::Fails(format!("the identity is off by {:.3} ms", residual_ns / 1e6)));
    }
    // What the host takes is user time in a guest, except next to an interrupt.
    let host_ns = run.known("host_gap_ns").unwrap_or(0.0);
    Ok(judge("tracee's user", number(task, "user_ns")?, user_ns, 0.02, before_ns(run) + host_ns))
}

fn faults(run: &Run) -> Result<Verdict> {
    let task = run.task(None)?;
    if task["unclassified_ns"].is_null() {
        let why = "the begin of a page fault is not seen here: faults count as user time";
        return Ok(Verdict::Skipped(why.to_owned()));
    }
    let unclassified_ns = number(task, "unclassified_ns")?;
    let oncpu_ns = number(task, "oncpu_ns")?;
    let text =
        format!("unclassified {:.3} of {:.3} ms on CPU", unclassified_ns / 1e6, oncpu_ns / 1e6);
    if unclassified_ns > 0.05 * oncpu_ns {
        return Ok(Verdict::Skipped(format!("the end of a page fault is not seen here; {text}")));
    }
    Ok(Verdict::Holds(text))
}

fn user_share_by_cycles(task: &Value) -> Result<f64> {
    let (user, system) = (number(task, "cycles_user")?, number(task, "cycles_system")?);
    Ok(user / (user + system))
}

/// The cycles of a thread against those that its own counters say, and its user share by cycles against that by time.
fn cycles(run: &Run) -> Result<Verdict> {
    if run.header["cycles"] != "counted" {
        let why = run.header["cycles_reason"].as_str().unwrap_or("not counted");
        return Ok(Verdict::Skipped(why.to_owned()));
    }
    let (Some(own_user), Some(own_system)) = (run.known("cycles_user"), run.known("cycles_system"))
    else {
        let why = run.truth["cycles_reason"].as_str().unwrap_or("no counters of its own");
        return Ok(Verdict::Skipped(format!("the program cannot count its own: {why}")));
    };
    let task = run.task(run.truth["tid"].as_u64())?;
    let off = |field: &str, own: f64| Ok::<_, anyhow::Error>(number(task, field)? / own - 1.0);
    let (user, system) = (off("cycles_user", own_user)?, off("cycles_system", own_system)?);
    let by_cycles = user_share_by_cycles(task)?;
    let by_time = number(task, "user_ns")? / number(task, "oncpu_ns")?;
    let discarded = number(task, "cycles_discarded")?;
    let text = format!(
        "its own count off by {:+.2} % user, {:+.2} % system; user share {:.1} % by cycles, {:.1} % by time; {discarded} \
         runs discarded",
        user * 100.0,
        system * 100.0,
        by_cycles * 100.0,
        by_time * 100.0,
    );
    let holds =
        user.abs() < 0.02 && system.abs() < 0.02 && (by_cycles / by_time - 1.0).abs() < 0.05;
    Ok(match (holds, discarded) {
        (true, _) => Verdict::Holds(text),
        // Another user of the PMU: what is left out is said, and can be compared with nothing.
        (false, 1.0..) => Verdict::Skipped(text),
        (false, _) => Verdict::Fails(text),
    })
}

//! Live on this kernel, as root: known answers, the identity, controls, and life cycles.

#![expect(
    clippy::expect_used,
    reason = "a helper outside of a test function fails the test that calls it"
)]

use std::{
    ffi::OsStr,
    io::{BufRead as _, BufReader, Read as _},
    process::{Command, Stdio},
};

use observer::lab::known::{self, Run, Verdict, number};

fn program() -> &'static OsStr {
    OsStr::new(env!("CARGO_BIN_EXE_observer"))
}

fn run(arguments: &[&str]) -> Run {
    known::run(program(), arguments).expect("the run is observed")
}

/// `reported - measured` is what the ledger says, within max(0.2 ms, 0.1 %), for every task of the run.
fn assert_identity(run: &Run) {
    for task in &run.tasks {
        let residual_ns = number(task, "residual_ns").expect("measured").abs();
        let limit_ns = (number(task, "oncpu_ns").expect("measured") * 0.001).max(0.2e6);
        assert!(residual_ns <= limit_ns, "residual {residual_ns} ns of {task}");
    }
}

fn sum(run: &Run, field: &str) -> f64 {
    run.tasks.iter().map(|task| number(task, field).expect("measured")).sum()
}

#[test]
#[ignore = "root"]
fn known_answers_come_out_right() {
    for test in known::TESTS {
        // The machine may pause a run for longer than any tolerance: the best of three counts.
        let outcomes: Vec<_> = (0..3).map(|_| known::check(&test, program())).collect();
        if let ("cycles", [Ok(Verdict::Skipped(why)), ..]) = (test.name, outcomes.as_slice()) {
            eprintln!("SKIPPED: {}: {why}", test.name);
            continue;
        }
        let good = outcomes.iter().any(|outcome| matches!(outcome, Ok(Verdict::Holds(_))));
        assert!(good, "{}: {outcomes:?}", test.name);
    }
}

#[test]
#[ignore = "root"]
fn a01_a_ptraced_pair_on_one_cpu_is_the_positive_control() {
    // Who else wants the CPU makes the tracer's own wakeups preempt too, and the shift go both ways: the most
    // lopsided of three runs counts.
    let shares: Vec<f64> = (0..3).filter_map(|_| share_that_the_tracee_loses()).collect();
    if shares.is_empty() {
        // A lazy kernel: no request for a wakeup between equals.
        eprintln!("SKIPPED: this kernel does not skip clock updates between equals");
        return;
    }
    assert!(
        shares.iter().any(|share| *share > 0.05),
        "the tracee lost only {shares:?} of its time"
    );
}

/// One run of a traced pair: checked, and the share of the tracee's on-CPU time that skips moved away from it, net.
fn share_that_the_tracee_loses() -> Option<f64> {
    let run = run(&["ptrace", "--policy", "other", "--syscalls", "5000", "--work-us", "0"]);
    assert_identity(&run);
    let tid = |field: &str| run.truth[field].as_u64().expect("a tid");
    let tracer = run.task(Some(tid("tracer_tid"))).expect("the tracer");
    let tracee = run.task(Some(tid("tracee_tid"))).expect("the tracee");
    assert_eq!(tracee["tracer_tid"].as_u64(), Some(tid("tracer_tid")));
    let stops = number(tracee, "ptrace_stops").expect("measured");
    let expected = run.known("stops").expect("counted");
    assert!((stops - expected).abs() <= 3.0, "{stops} stops seen, {expected} made");
    if tracer["skip_in"].as_u64() < Some(1000) {
        return None;
    }
    let lost_ns = number(tracee, "skip_out_ns").expect("measured")
        - number(tracee, "skip_in_ns").expect("measured");
    Some(lost_ns / number(tracee, "oncpu_ns").expect("measured"))
}

#[test]
#[ignore = "root"]
fn a_fifo_pair_is_the_negative_control() {
    let run = run(&["ptrace", "--policy", "fifo", "--syscalls", "5000", "--work-us", "0"]);
    assert_identity(&run);
    let tid = run.truth["tracee_tid"].as_u64().expect("a tid");
    let tracee = run.task(Some(tid)).expect("the tracee");
    let shift_ns = number(tracee, "skip_in_ns").expect("measured")
        - number(tracee, "skip_out_ns").expect("measured");
    let oncpu_ns = number(tracee, "oncpu_ns").expect("measured");
    assert!(shift_ns.abs() < 0.01 * oncpu_ns, "shift {shift_ns} of {oncpu_ns} ns");
}

#[test]
#[ignore = "root"]
fn a_storm_of_forks_is_counted_whole() {
    let run = run(&["forks", "--count", "20000", "--parallel", "8"]);
    assert_eq!(number(&run.trailer, "map_full").expect("measured"), 0.0);
    assert_eq!(number(&run.trailer, "lost_events").expect("measured"), 0.0);
    // The children and their parent.
    assert_eq!(run.tasks.len(), 20_001);
    assert!(run.tasks.iter().all(|task| task["state"] == "exited"));
    assert!(run.tasks.iter().all(|task| number(task, "oncpu_ns").expect("measured") > 0.0));
}

#[test]
#[ignore = "root"]
fn a09_threads_that_exit_one_by_one_stay_in_the_sum() {
    let run = run(&["threads", "--count", "50", "--burn-ms", "500"]);
    assert_identity(&run);
    assert_eq!(run.tasks.len(), 51);
    let reported_ns = sum(&run, "reported_runtime_ns");
    let measured_ns = sum(&run, "oncpu_ns");
    assert!((reported_ns - measured_ns).abs() < 0.02 * measured_ns);
}

#[test]
#[ignore = "root"]
fn e01_exec_from_a_thread_keeps_the_account() {
    let run = run(&["exec-thread", "--ms", "200"]);
    let heir = run.tasks.iter().find(|task| task["former_tid"].is_u64()).expect("the link is kept");
    assert_eq!(heir["tid"], heir["tgid"], "it is the leader now");
    assert!(number(heir, "oncpu_ns").expect("measured") > 190e6, "both parts: {heir}");
}

#[test]
#[ignore = "root"]
fn b33_hostile_names_reach_the_file_escaped() {
    let run = run(&["hostile-comm", "--name-hex", "1b5b33316d0a9b", "--ms", "20"]);
    assert_eq!(run.tasks[0]["comm"], "\\x1b[31m\\x0a\\x9b");
}

#[test]
#[ignore = "root"]
fn a_task_that_runs_since_before_the_start_is_measured_up_to_the_reading() {
    let mut spinner = Command::new(program())
        .args(["workload", "spin", "--ms", "60000"])
        .stdout(Stdio::null())
        .spawn()
        .expect("starts");
    std::thread::sleep(std::time::Duration::from_millis(300));
    let pid = spinner.id().to_string();
    let output = Command::new(program())
        .args(["--pid", &pid, "-i", "0.5", "-n", "2", "--format", "jsonl"])
        .output()
        .expect("starts");
    spinner.kill().expect("kill");
    spinner.wait().expect("wait");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let records: Vec<serde_json::Value> = String::from_utf8_lossy(&output.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    let task = records.iter().find(|record| record["type"] == "task").expect("a task");
    let trailer = records.last().expect("a trailer");
    let oncpu_ns = number(task, "oncpu_ns").expect("measured");
    let wait_ns = number(task, "wait_ns").expect("measured");
    let elapsed_ns = number(trailer, "elapsed_ns").expect("measured");
    // A spinning task either runs or waits for a CPU.
    assert!((oncpu_ns + wait_ns - elapsed_ns).abs() < 0.02 * elapsed_ns + 10e6, "{task} {trailer}");
    let residual_ns = number(task, "residual_ns").expect("measured");
    assert!(residual_ns.abs() <= (0.001 * oncpu_ns).max(0.2e6), "residual {residual_ns} ns");
    let intervals = records.iter().filter(|record| record["type"] == "interval").count();
    assert_eq!(intervals, 2);
}

#[test]
#[ignore = "root"]
fn each_cpus_owners_add_up_to_the_elapsed_time() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let status = Command::new(program())
        .args(["--all", "-i", "0.5", "-n", "2", "--format", "jsonl", "-o"])
        .arg(file.path())
        .status()
        .expect("starts");
    assert!(status.success());
    let text = std::fs::read_to_string(file.path()).expect("read");
    let mut cpus = 0;
    for line in text.lines() {
        let record: serde_json::Value = serde_json::from_str(line).expect("JSON");
        if record["type"] == "cpu" {
            cpus += 1;
            let residual_ns = number(&record, "residual_ns").expect("measured").abs();
            let elapsed_ns = number(&record, "elapsed_ns").expect("measured");
            // One that books while it is read shows a part of an event.
            assert!(residual_ns <= (0.0001 * elapsed_ns).max(100e3), "{record}");
        }
    }
    assert!(cpus >= 1);
}

#[test]
#[ignore = "root"]
fn run_passes_on_the_status_of_the_command() {
    for (script, expected) in [("exit 0", 0), ("exit 7", 7), ("kill -TERM $$", 143)] {
        let status = Command::new(program())
            .args(["run", "--", "sh", "-c", script])
            .stderr(Stdio::null())
            .status()
            .expect("starts");
        assert_eq!(status.code(), Some(expected), "{script}");
    }
    let output =
        Command::new(program()).args(["run", "--", "/nonexistent/x"]).output().expect("starts");
    assert_eq!(output.status.code(), Some(127));
    assert_eq!(String::from_utf8_lossy(&output.stderr).lines().count(), 1);
}

/// From the first record on there is something to lose.
#[test]
#[ignore = "root"]
fn a_signal_right_after_the_header_ends_with_the_figures() {
    for _ in 0..10 {
        let mut observer = Command::new(program())
            .args(["--pid", &std::process::id().to_string(), "--format", "jsonl", "-o", "-"])
            .stdout(Stdio::piped())
            .spawn()
            .expect("starts");
        let mut records = BufReader::new(observer.stdout.take().expect("a pipe"));
        let mut text = String::new();
        records.read_line(&mut text).expect("a header");
        let pid = nix::unistd::Pid::from_raw(i32::try_from(observer.id()).expect("a pid"));
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT).expect("it runs");
        records.read_to_string(&mut text).expect("text");
        let status = observer.wait().expect("wait");
        assert!(status.success(), "{status}: {text}");
        let last: serde_json::Value =
            serde_json::from_str(text.lines().last().expect("a line")).expect("JSON");
        assert_eq!(last["type"], "trailer", "{text}");
    }
}

#[test]
#[ignore = "root"]
fn nothing_stays_attached_after_sigkill() {
    let programs = || aya::programs::loaded_programs().filter_map(Result::ok).count();
    // The kernel frees the programs of the test before this one after a grace period.
    let before = (0..20)
        .map(|_| {
            std::thread::sleep(std::time::Duration::from_millis(200));
            programs()
        })
        .min()
        .unwrap_or(0);
    let mut child = Command::new(program())
        .args(["run", "--", "sleep", "30"])
        .stderr(Stdio::null())
        .spawn()
        .expect("starts");
    std::thread::sleep(std::time::Duration::from_secs(2));
    assert!(programs() > before, "it was attached");
    child.kill().expect("kill");
    child.wait().expect("wait");
    // The kernel frees programs after a grace period.
    for _ in 0..50 {
        if programs() <= before {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    panic!("{} programs before, {} after", before, programs());
}

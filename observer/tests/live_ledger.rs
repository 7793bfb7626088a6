//! Live on this kernel, as root: who shifted whose time, who woke whom, who stopped whom.

#![expect(
    clippy::expect_used,
    reason = "a helper outside of a test function fails the test that calls it"
)]

use std::{ffi::OsStr, process::Command};

use observer::lab::known::{self, Run, number};
use serde_json::Value;

fn program() -> &'static OsStr {
    OsStr::new(env!("CARGO_BIN_EXE_observer"))
}

fn workload(options: &[&str], arguments: &[&str]) -> Run {
    known::run_with(program(), options, arguments).expect("the run is observed")
}

/// Records of a shell's run.
fn shell(script: &str) -> Vec<Value> {
    let file = std::env::temp_dir().join(format!("observer-shell-{}.jsonl", std::process::id()));
    let status = Command::new(program())
        .args(["run", "--format", "jsonl", "-o"])
        .arg(&file)
        .args(["--", "sh", "-c", script])
        .status()
        .expect("observer starts");
    assert!(status.success(), "{status}");
    let text = std::fs::read_to_string(&file).expect("the records");
    std::fs::remove_file(&file).expect("it is ours");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

fn of<'a>(records: &'a [Value], kind: &str) -> Vec<&'a Value> {
    records.iter().filter(|record| record["type"] == kind).collect()
}

fn integer(record: &Value, field: &str) -> u64 {
    record[field].as_u64().unwrap_or_else(|| unreachable!("{field} was not measured: {record}"))
}

fn sum(records: &[&Value], field: &str) -> u64 {
    records.iter().map(|record| integer(record, field)).sum()
}

/// What all switches to a task (`to`) or away from it (`from`) moved.
fn moved(pairs: &[&Value], side: &str, tid: u64) -> u64 {
    pairs
        .iter()
        .filter(|pair| pair["kind"] == "wake" && pair[side].as_u64() == Some(tid))
        .map(|pair| integer(pair, "skip_ns") + integer(pair, "path_ns"))
        .sum()
}

/// To the ns: each shift of a task is in exactly one of its pairs.
fn assert_pairs_add_up(run: &Run) {
    let pairs: Vec<&Value> = run.pairs.iter().collect();
    for task in &run.tasks {
        let tid = integer(task, "tid");
        let into = integer(task, "skip_in_ns") + integer(task, "path_in_ns");
        let out = integer(task, "skip_out_ns") + integer(task, "path_out_ns");
        assert_eq!(moved(&pairs, "to_tid", tid), into, "into {task}");
        assert_eq!(moved(&pairs, "from_tid", tid), out, "out of {task}");
    }
}

#[test]
#[ignore = "root"]
fn the_pairs_of_a_task_add_up_to_its_shifts() {
    for arguments in [
        &["ptrace", "--syscalls", "5000", "--work-us", "0"][..],
        &["pingpong", "--count", "5000"],
        &["threads", "--count", "8", "--burn-ms", "50"],
    ] {
        let run = workload(&[], arguments);
        assert_eq!(number(&run.trailer, "pairs_folded").expect("counted"), 0.0);
        assert_pairs_add_up(&run);
    }
}

#[test]
#[ignore = "root"]
fn what_finds_no_room_is_in_the_sum_of_the_rest() {
    let run = workload(&["--max-pairs", "2"], &["threads", "--count", "8", "--burn-ms", "50"]);
    assert!(number(&run.trailer, "pairs_folded").expect("counted") > 0.0);
    let wakes: Vec<&Value> = run.pairs.iter().filter(|pair| pair["kind"] == "wake").collect();
    assert!(wakes.iter().any(|pair| pair["to_comm"] == "(other)"));
    // A switch between two observed tasks is in both their books and in one pair: so the bound is one-sided.
    let tasks: Vec<&Value> = run.tasks.iter().collect();
    let into = sum(&tasks, "skip_in_ns") + sum(&tasks, "path_in_ns");
    let out = sum(&tasks, "skip_out_ns") + sum(&tasks, "path_out_ns");
    let pairs = sum(&wakes, "skip_ns") + sum(&wakes, "path_ns");
    assert!(pairs >= into.max(out) && pairs <= into + out, "{pairs} of {into} in, {out} out");
    let woken: u64 = sum(&wakes, "count");
    assert!(woken >= sum(&tasks, "wakeups"), "{woken} of {}", sum(&tasks, "wakeups"));
}

#[test]
#[ignore = "root"]
fn b09_the_waker_is_who_wakes_and_not_the_other_way_round() {
    // Writes once for each byte; the reader writes nothing.
    let records = shell(
        "i=0; while [ $i -lt 300 ]; do echo x; i=$((i+1)); sleep 0.001; done | cat >/dev/null",
    );
    let pairs = of(&records, "pair");
    let wakes = |from: &str, to: &str| -> u64 {
        pairs
            .iter()
            .filter(|pair| pair["kind"] == "wake" && pair["from_comm"] == from)
            .filter(|pair| pair["to_comm"] == to)
            .map(|pair| integer(pair, "count"))
            .sum()
    };
    let (right, wrong) = (wakes("sh", "cat"), wakes("cat", "sh"));
    assert!(right >= 250, "sh woke cat {right} times of 300");
    assert!(wrong <= 5, "cat woke sh {wrong} times");
    let by_write: u64 = pairs
        .iter()
        .filter(|pair| pair["from_comm"] == "sh" && pair["to_comm"] == "cat")
        .flat_map(|pair| pair["origins"].as_array().expect("a list"))
        .filter(|origin| origin["name"] == "write")
        .map(|origin| integer(origin, "count"))
        .sum();
    assert!(by_write >= 250, "{by_write} of {right} came from write");
}

#[test]
#[ignore = "root"]
fn b10_a_timer_wakes_and_not_the_task_that_it_interrupts() {
    // The loop has the CPU to itself but for the sleeper's timer.
    let records = shell(
        "taskset -c 0 sh -c 'while :; do :; done' & loop=$!; \
         taskset -c 0 sh -c 'i=0; while [ $i -lt 50 ]; do sleep 0.002; i=$((i+1)); done'; \
         kill $loop",
    );
    let pairs = of(&records, "pair");
    let sleepers: Vec<&&Value> =
        pairs.iter().filter(|pair| pair["kind"] == "wake" && pair["to_comm"] == "sleep").collect();
    let by_timer: u64 = sleepers
        .iter()
        .filter(|pair| pair["from_context"] == "hardirq" || pair["from_context"] == "softirq")
        .map(|pair| integer(pair, "count"))
        .sum();
    assert!(by_timer >= 45, "{by_timer} of 50 sleeps were ended by an interrupt");
    let loops = of(&records, "task")
        .into_iter()
        .max_by_key(|task| integer(task, "oncpu_ns"))
        .expect("the loop");
    let by_loop: u64 = sleepers
        .iter()
        .filter(|pair| pair["from_tid"] == loops["tid"])
        .map(|pair| integer(pair, "count"))
        .sum();
    assert_eq!(by_loop, 0, "the loop wakes no sleeper: {loops}");
}

#[test]
#[ignore = "root"]
fn every_wakeup_is_in_a_pair_with_its_latency() {
    let run = workload(&[], &["pingpong", "--count", "5000"]);
    for task in &run.tasks {
        let tid = task["tid"].as_u64();
        let wakes: Vec<&Value> = run
            .pairs
            .iter()
            .filter(|pair| pair["kind"] == "wake" && pair["to_tid"].as_u64() == tid)
            .collect();
        // A new task's first run counts in the pair and is no wakeup from a sleep.
        let (count, wakeups) = (sum(&wakes, "count"), integer(task, "wakeups"));
        assert!((wakeups..=wakeups + 1).contains(&count), "{count} in pairs, {wakeups} wakeups");
        let timed = sum(&wakes, "latency_count");
        assert!(timed * 100 >= count * 98, "{timed} of {count} latencies");
        for pair in wakes {
            let buckets = pair["latency_buckets"].as_array().expect("a list");
            let in_buckets: u64 = buckets.iter().filter_map(|bucket| bucket[1].as_u64()).sum();
            assert_eq!(in_buckets, integer(pair, "latency_count"));
            let by_context: u64 = ["by_task", "by_softirq", "by_hardirq", "by_idle"]
                .iter()
                .map(|field| integer(pair, field))
                .sum();
            assert_eq!(by_context, integer(pair, "count"));
        }
    }
}

/// A ptraced pair under a policy: stops, skips tracee -> tracer, and what they moved.
fn traced(policy: &str) -> (u64, u64, u64) {
    let run =
        workload(&[], &["ptrace", "--policy", policy, "--syscalls", "15000", "--work-us", "0"]);
    assert_pairs_add_up(&run);
    let tid = |field: &str| run.truth[field].as_u64();
    let (tracer, tracee) = (tid("tracer_tid"), tid("tracee_tid"));
    let stops = run.known("stops").expect("counted") as u64;
    let trace = run
        .pairs
        .iter()
        .find(|pair| pair["kind"] == "ptrace" && pair["to_tid"].as_u64() == tracee)
        .expect("the tracer and its tracee");
    assert_eq!(trace["from_tid"].as_u64(), tracer);
    let seen = integer(trace, "count");
    assert!(seen.abs_diff(stops) <= 3, "{seen} of {stops} stops");
    let kinds = &trace["stops_by_kind"];
    let syscalls = integer(kinds, "syscall_entry") + integer(kinds, "syscall_exit");
    assert!(syscalls.abs_diff(stops) <= 3, "{kinds}");
    let handed = integer(trace, "handoffs");
    assert!(handed * 10 >= stops * 9, "{handed} of {stops} handed over on the one CPU");
    let back: Vec<&Value> = run
        .pairs
        .iter()
        .filter(|pair| pair["kind"] == "wake")
        .filter(|pair| pair["from_tid"].as_u64() == tracee && pair["to_tid"].as_u64() == tracer)
        .collect();
    (stops, sum(&back, "skips"), sum(&back, "skip_ns"))
}

#[test]
#[ignore = "root"]
fn the_shift_follows_the_policy() {
    let share = |policy| {
        let (stops, skips, _) = traced(policy);
        skips as f64 / stops as f64
    };
    // Whoever else wants the CPU ends slices, which asks for skips too: with BATCH and IDLE up to half of all
    // switches on a busy machine. So the least of three runs counts.
    let least = |policy| (0..3).map(|_| share(policy)).fold(1.0, f64::min);
    let shares = [share("other"), least("batch"), least("idle"), least("fifo")];
    println!("skips per stop, other, batch, idle, fifo: {shares:.3?}");
    let [other, batch, idle, fifo] = shares;
    assert!(fifo < 0.01, "equal priorities do not preempt");
    if other < 0.1 {
        eprintln!("SKIPPED: this kernel does not skip clock updates between equals");
        return;
    }
    assert!(other > 0.8 && batch < other / 2.0 && idle < other / 10.0, "{shares:?}");
}

#[test]
#[ignore = "root"]
fn what_the_tracee_loses_the_tracer_gains() {
    let run = workload(&[], &["ptrace", "--syscalls", "15000", "--work-us", "0"]);
    let tid = |field: &str| run.truth[field].as_u64();
    let moved_between = |from, to| -> i64 {
        run.pairs
            .iter()
            .filter(|pair| pair["kind"] == "wake" && pair["from_tid"].as_u64() == from)
            .filter(|pair| pair["to_tid"].as_u64() == to)
            .map(|pair| (integer(pair, "skip_ns") + integer(pair, "path_ns")) as i64)
            .sum()
    };
    let (tracer, tracee) = (tid("tracer_tid"), tid("tracee_tid"));
    let taken_ns = moved_between(tracee, tracer) - moved_between(tracer, tracee);
    assert!(taken_ns.abs() > 0, "60,000 switches move something");
    // What others gave and took (on a busy machine there are some), and what the kernel left out, is not between
    // the two.
    let pairs: Vec<&Value> = run.pairs.iter().collect();
    let between = |task: &Value, taken_ns: i64| -> i64 {
        let tid = integer(task, "tid");
        let all_ns = moved(&pairs, "to_tid", tid) as i64 - moved(&pairs, "from_tid", tid) as i64;
        let others_ns = all_ns - taken_ns;
        task["delta_runtime_ns"].as_i64().expect("measured") - others_ns
            + integer(task, "left_out_ns") as i64
    };
    let gain_ns = between(run.task(tracer).expect("the tracer"), taken_ns);
    let loss_ns = -between(run.task(tracee).expect("the tracee"), -taken_ns);
    for (what, ns) in [("gain", gain_ns), ("loss", loss_ns)] {
        let tolerance_ns = (taken_ns.abs() / 100).max(200_000);
        assert!((ns - taken_ns).abs() <= tolerance_ns, "{what} {ns}, taken {taken_ns}");
    }
}

#[test]
#[ignore = "root"]
fn two_ways_to_a_skipped_clock_agree() {
    let arguments = ["ptrace", "--syscalls", "5000", "--work-us", "0"];
    let run = workload(&["--hooks", "auto,update_rq_clock"], &arguments);
    assert_pairs_add_up(&run);
    let count = |field| number(&run.trailer, field).expect("counted");
    let compared = count("clocks_compared");
    if compared == 0.0 {
        let hook = run.header["hooks"]
            .as_array()
            .and_then(|hooks| hooks.iter().find(|hook| hook["name"] == "update_rq_clock"))
            .expect("in the table");
        assert_ne!(hook["state"], "active", "it is there, so it must compare");
        eprintln!("SKIPPED: update_rq_clock cannot be met here: {}", hook["reason"]);
        return;
    }
    let (apart_ns, disagreed) = (count("clocks_apart_ns") / compared, count("clocks_disagreed"));
    println!("{compared} switches: {apart_ns:.0} ns apart on average, {disagreed} disagreed");
    assert!(disagreed <= compared * 0.01, "{disagreed} of {compared} switches");
}

#[test]
#[ignore = "root"]
fn e07_a_job_control_stop_is_no_ptrace_stop() {
    let records = shell("(sleep 0.3; kill -CONT $$) & kill -STOP $$; wait");
    let stopped: Vec<&Value> =
        of(&records, "task").into_iter().filter(|task| integer(task, "job_stops") > 0).collect();
    assert_eq!(stopped.len(), 1, "the shell alone");
    let ns = integer(stopped[0], "job_stopped_ns");
    assert!((200_000_000..5_000_000_000).contains(&ns), "stopped for {ns} ns");
    assert_eq!(integer(stopped[0], "ptrace_stops"), 0);
    assert!(of(&records, "pair").iter().all(|pair| pair["kind"] == "wake"));
}

#[test]
#[ignore = "root"]
fn a_cpu_has_no_time_that_nobody_owns() {
    let records = shell("sleep 0.05 & ls -R /usr/lib >/dev/null; wait");
    for cpu in of(&records, "cpu") {
        // A CPU that books an event while it is read shows a part of it.
        let residual_ns = cpu["residual_ns"].as_i64().expect("measured").unsigned_abs();
        assert!(residual_ns <= (integer(cpu, "elapsed_ns") / 10_000).max(100_000), "{cpu}");
    }
}

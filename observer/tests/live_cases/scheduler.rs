//! Group b: what observers of the scheduler get wrong: idle, waits, open ends, losses.

use std::collections::HashSet;

use serde_json::Value;

use crate::support::{
    Beside, assert_account, integer, observe, of_tid, program, read, signed, sum, table, workload,
};

#[test]
#[ignore = "root"]
fn b02_b04_idle_is_the_cpus_and_never_a_task() {
    let records = observe(&["--all", "-i", "0.5", "-n", "1"], &[]);
    for task in records.tasks() {
        assert_ne!(integer(task, "tid"), 0, "{task}");
        let name = task["comm"].as_str().expect("a text");
        assert!(!name.starts_with("swapper"), "{task}");
        assert!(
            integer(task, "oncpu_ns") <= integer(records.one("trailer"), "elapsed_ns") * 11 / 10
        );
    }
    for pair in records.of("pair") {
        for side in ["from_tid", "to_tid"] {
            assert_ne!(pair[side].as_u64(), Some(0), "idle has no id: {pair}");
        }
    }
    // An interrupt's hook may come between two instructions of another one.
    assert!(integer(records.one("trailer"), "clock_backwards") <= 10);
}

#[test]
#[ignore = "root"]
fn b06_b07_waits_are_counted_once_and_nobody_waits_longer_than_it_lives() {
    // Eight that burn and exit together; `workload` asserts the bound for each task.
    let run = workload(&["forks", "--count", "8", "--parallel", "8", "--burn-us", "100000"]);
    for task in &run.tasks {
        // A wait begins with a wakeup, a preemption, a birth, or a signal that keeps a task from its sleep.
        let begins = integer(task, "wakeups")
            + integer(task, "switches_involuntary")
            + integer(task, "switches_voluntary")
            + 1;
        assert!(integer(task, "waits") <= begins, "{task}");
    }
    assert!(integer(&run.trailer, "clock_backwards") <= 10);
}

#[test]
#[ignore = "root"]
fn b13_busy_tasks_are_preempted_and_only_the_sleeper_is_woken() {
    let program = program().to_str().expect("a path in UTF-8");
    let script = "for i in 1 2; do \"$0\" workload spin --ms 300 --cpu 0 >/dev/null & done; \
        \"$0\" workload mixed --ms 300 --work-us 20 --every-us 2000 --cpu 0 >/dev/null; wait";
    let records = observe(&["run"], &["sh", "-c", script, program]);
    let mut tasks = records.tasks();
    tasks.retain(|task| task["comm"] == "observer");
    tasks.sort_by_key(|task| integer(task, "oncpu_ns"));
    let [sleeper, first, second] = tasks[..] else { unreachable!("three programs: {tasks:?}") };
    for spinner in [first, second] {
        let (preempted, woken) =
            (integer(spinner, "switches_involuntary"), integer(spinner, "wakeups"));
        assert!(preempted > woken, "preempted {preempted} times, woken {woken}: {spinner}");
        assert!(integer(spinner, "waits") >= preempted, "each time it waits: {spinner}");
    }
    // One wakeup for each stretch that it slept before.
    let (woken, slept) = (integer(sleeper, "wakeups"), integer(sleeper, "switches_voluntary"));
    assert!(woken > 10 && woken.abs_diff(slept) <= slept / 10 + 5, "{sleeper}");
    // Each of its wakeups came from somewhere: no pair has an empty waker for one.
    let pairs = records.of("pair");
    let to_sleeper = pairs.iter().filter(|pair| pair["to_tid"] == sleeper["tid"]);
    for pair in to_sleeper.filter(|pair| pair["kind"] == "wake") {
        let contexts = ["by_task", "by_softirq", "by_hardirq", "by_idle"];
        let by_context: u64 = contexts.iter().map(|field| integer(pair, field)).sum();
        assert_eq!(by_context, integer(pair, "count"), "{pair}");
    }
}

#[test]
#[ignore = "root"]
fn b18_a_sleep_over_both_ends_is_there_and_costs_nothing() {
    let sleeper = Beside::start(&["sleep", "--ms", "60000"]);
    let pid = sleeper.pid().to_string();
    let records = observe(&["--pid", &pid, "-i", "0.3", "-n", "2"], &[]);
    let tasks = records.tasks();
    let [task] = tasks[..] else { unreachable!("one task") };
    assert_eq!((integer(task, "oncpu_ns"), integer(task, "reported_runtime_ns")), (0, 0));
    assert_eq!(task["state"], "running");
}

#[test]
#[ignore = "root"]
fn b18_a_run_over_both_ends_is_measured_in_between() {
    let spinner = Beside::start(&["spin", "--ms", "60000"]);
    let pid = spinner.pid().to_string();
    let records = observe(&["--pid", &pid, "-i", "0.3", "-n", "2"], &[]);
    let (task, trailer) = (records.tasks()[0], records.one("trailer"));
    let elapsed_ns = integer(trailer, "elapsed_ns");
    let accounted_ns = integer(task, "oncpu_ns") + integer(task, "wait_ns");
    assert!(accounted_ns.abs_diff(elapsed_ns) <= elapsed_ns / 50 + 10_000_000, "{task} {trailer}");
    assert!(integer(task, "reported_runtime_ns") <= elapsed_ns * 51 / 50, "not since its birth");
}

#[test]
#[ignore = "root"]
fn b18_a_stop_over_both_ends_lasts_at_least_the_session() {
    // Held for a minute, and so is the job-control stop.
    let hold = ["--hold-ms", "60000", "--burn-ms", "1"];
    let stops = Beside::start(&[&["stops", "detach"], &hold[..]].concat());
    let pid = stops.child().to_string();
    let records = observe(&["--pid", &pid, "-i", "0.5", "-n", "1"], &[]);
    let elapsed_ns = integer(records.one("trailer"), "elapsed_ns");
    let tasks = records.tasks();
    let [tracee] = tasks[..] else { unreachable!("one task") };
    let stopped_ns = integer(tracee, "ptrace_stopped_ns");
    assert!(stopped_ns >= elapsed_ns * 9 / 10, "{stopped_ns} of {elapsed_ns} ns: {tracee}");
    assert!(stopped_ns <= elapsed_ns * 11 / 10, "what lies before the session is not in it");
    assert_eq!(tracee["tracer_tid"].as_u64(), Some(u64::from(stops.pid())));
    assert_account(tracee);
}

#[test]
#[ignore = "root"]
fn b26_what_finds_no_room_is_counted() {
    let program = program().to_str().expect("a path in UTF-8");
    let forks = [program, "workload", "forks", "--count", "64", "--parallel", "64"];
    let records =
        observe(&["run", "--max-tasks", "8"], &[&forks[..], &["--burn-us", "2000"]].concat());
    let (seen, lost) = (records.tasks().len() as u64, integer(records.one("trailer"), "map_full"));
    assert_eq!(seen + lost, 65, "{seen} observed, {lost} without room");
    assert!(lost > 0, "64 at a time do not fit into 8");
    let table = table(&["--max-tasks", "8"], &forks);
    assert!(!table.contains("lost: nothing"), "{table}");
}

#[test]
#[ignore = "root"]
fn b30_only_cpus_that_exist_are_reported() {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/online").expect("the list");
    let online: observer::kernel::CpuList = text.parse().expect("a list");
    let records = observe(&["--all", "-i", "0.3", "-n", "1"], &[]);
    assert_eq!(integer(records.one("header"), "cpus"), online.count());
    for cpu in records.of("cpu") {
        let number = u32::try_from(integer(cpu, "cpu")).expect("a number of a CPU");
        assert!(online.contains(number), "{cpu}");
    }
}

#[test]
#[ignore = "root"]
fn b37_what_members_that_ended_had_stays_in_their_group() {
    let program = program().to_str().expect("a path in UTF-8");
    let forks = [program, "workload", "forks", "--count", "20", "--parallel", "5"];
    let command = [&forks[..], &["--burn-us", "5000"]].concat();
    let records = observe(&["run", "--by", "comm"], &command);
    let groups = records.of("group");
    assert_eq!(sum(groups.iter().copied(), "members"), 21);
    assert_eq!(sum(groups.iter().copied(), "exited"), 21);
    assert_eq!(sum(groups, "oncpu_ns"), sum(records.tasks(), "oncpu_ns"));
}

#[test]
#[ignore = "root"]
fn b37_of_many_that_ended_each_has_one_record_and_every_sum_is_exact() {
    // More than are kept one by one, and more than the processes that keep their groups.
    let count = 14_000;
    let program = program().to_str().expect("a path in UTF-8");
    let number = count.to_string();
    let forks = [program, "workload", "forks", "--count", &number, "--parallel", "8"];
    let records = observe(&["run", "--by", "process"], &forks);
    let (tasks, groups) = (records.tasks(), records.of("group"));
    let trailer = records.one("trailer");
    assert_eq!(tasks.len() as u64 + integer(trailer, "map_full"), count + 1);
    let accounts: HashSet<u64> = tasks.iter().map(|task| integer(task, "account")).collect();
    assert_eq!(accounts.len(), tasks.len(), "nobody twice");
    assert!(tasks.iter().all(|task| task["state"] == "exited"));
    let residual_ns: i64 = tasks.iter().map(|task| signed(task, "residual_ns")).sum();
    assert_eq!(residual_ns, signed(trailer, "residual_ns"));
    assert!(groups.iter().any(|group| group["key"] == "(ended)"), "{} groups", groups.len());
    assert_eq!(sum(groups.iter().copied(), "members"), tasks.len() as u64);
    assert_eq!(sum(groups.iter().copied(), "exited"), tasks.len() as u64);
    for field in ["oncpu_ns", "user_ns", "reported_runtime_ns", "skip_in_ns", "wakeups"] {
        assert_eq!(
            sum(groups.iter().copied(), field),
            sum(tasks.iter().copied(), field),
            "{field}"
        );
    }
    let parent = groups.iter().find(|group| group["key"] == tasks_leader(&tasks));
    assert_eq!(parent.map(|group| integer(group, "members")), Some(1));
    let table = table(&["--top", "3"], &forks);
    let all = format!("all {} tasks", count + 1);
    let others = format!("{} other tasks", count - 2);
    assert!(table.contains(&all) && table.contains(&others), "{table}");
}

/// The process that forked the others: the one with most time.
fn tasks_leader(tasks: &[&Value]) -> String {
    let most = tasks.iter().max_by_key(|task| integer(task, "oncpu_ns")).expect("a task");
    integer(most, "tgid").to_string()
}

#[test]
#[ignore = "root"]
fn b09_each_switch_of_a_pingpong_is_somebodys() {
    let run = workload(&["pingpong", "--count", "2000", "--cpu", "0"]);
    let (first, second) = (integer(&run.truth, "tid"), integer(&run.truth, "second_tid"));
    for (from, to) in [(first, second), (second, first)] {
        let pair = run.pairs.iter().find(|pair| {
            pair["kind"] == "wake"
                && pair["from_tid"].as_u64() == Some(from)
                && pair["to_tid"].as_u64() == Some(to)
        });
        let pair = pair.expect("they wake each other");
        // One that has not gone to sleep yet needs no wakeup, but on one CPU there is a switch for each byte.
        assert!((1_990..=2_010).contains(&integer(pair, "switches")), "{pair}");
        assert!(integer(pair, "count") <= 2_010, "{pair}");
    }
    // The kernel's own counts of the second one.
    let task = of_tid(&run, second);
    let voluntary = integer(&run.truth, "second_switches_voluntary");
    assert!(integer(task, "switches_voluntary").abs_diff(voluntary) <= 2, "{task} {voluntary}");
}

/// Totals have no hook that sees a skip asked for; the session within has.
#[test]
#[ignore = "root"]
fn totals_tell_the_skips_that_the_hooks_of_wakeups_see() {
    let folder = tempfile::TempDir::new().unwrap();
    let inner = folder.path().join("inner.jsonl");
    let program = program().to_str().unwrap();
    for workload in [
        &["ptrace", "--syscalls", "4000", "--cpu", "0"][..],
        &["pingpong", "--count", "4000", "--cpu", "0"],
    ] {
        let within = [program, "run", "-o", inner.to_str().unwrap(), "--", program, "workload"];
        let command = [&within[..], workload].concat();
        let totals = observe(&["run", "--no-split"], &command);
        assert!(totals.tasks().iter().all(|task| task["wakeups"].is_null()), "a hook of wakeups");
        let exact = read(&inner);
        let mut compared = 0;
        for task in exact.iter().filter(|task| task["type"] == "task") {
            let told = totals.tasks().into_iter().find(|other| {
                (&other["tid"], &other["start_ns"]) == (&task["tid"], &task["start_ns"])
            });
            let told = told.expect("both observe it");
            for (count, moved) in [("skip_in", "skip_in_ns"), ("skip_out", "skip_out_ns")] {
                let (skips, told_skips) = (integer(task, count), integer(told, count));
                // One in fifty: another wakeup or the tick moved the clock in between.
                assert!(skips.abs_diff(told_skips) <= 10 + skips / 50, "{told} {task}");
                let (ns, told_ns) = (integer(task, moved), integer(told, moved));
                assert!(ns.abs_diff(told_ns) <= 100_000 + ns / 10, "{told} {task}");
                compared += skips;
            }
        }
        assert!(compared > 1_000, "{workload:?}: {compared} skips");
    }
}

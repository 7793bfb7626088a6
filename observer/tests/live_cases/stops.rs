//! Group e: ptrace stops of every kind.

use observer::lab::known::Run;
use serde_json::Value;

use crate::support::{assert_user, cpus, integer, of_tid, sum, trace_of, workload};

/// The only tracee of a case.
fn tracee(run: &Run) -> (&Value, &Value) {
    let truth = &run.truth["tracee"];
    (of_tid(run, integer(truth, "tid")), truth)
}

/// Stops: as many as the tracer saw, of the kinds that it saw, at least as long as it held them, by that tracer.
fn assert_stops(run: &Run, task: &Value) {
    let truth = &run.truth;
    assert_eq!(task["ptrace_stops"], truth["stops"], "{task}");
    assert_eq!(task["tracer_tid"], truth["tracer_tid"], "{task}");
    let stopped_ns = integer(task, "ptrace_stopped_ns");
    let held_ns = integer(truth, "held_ns");
    assert!(stopped_ns >= held_ns, "stopped {stopped_ns}, held {held_ns} ns");
    assert!(stopped_ns <= integer(truth, "wall_ns"), "{task}");
    let pair = trace_of(run, integer(task, "tid"));
    assert_eq!(pair["from_tid"], truth["tracer_tid"]);
    let (seen, made) = (&pair["stops_by_kind"], &truth["stops_by_kind"]);
    let (booked, stops) = (integer(pair, "count"), integer(truth, "stops"));
    let unbooked = stops.saturating_sub(booked);
    assert!(booked <= stops && unbooked <= unseen(run), "{booked} of {stops} stops: {pair}");
    if unbooked > 0 || made.is_null() {
        return;
    }
    assert_eq!(pair["stopped_ns"], task["ptrace_stopped_ns"], "{pair}");
    for kind in ["signal", "event", "group", "exit"] {
        assert_eq!(seen[kind], made[kind], "{kind}: {pair}");
    }
    let syscalls = integer(seen, "syscall_entry") + integer(seen, "syscall_exit");
    assert_eq!(syscalls, integer(made, "syscall"), "{pair}");
}

/// Some machines do not run the program of a switch for every task. That is counted, and made good where the end of
/// `__schedule` has a hook (6.18); elsewhere a stop may lack in the books of its pair.
fn unseen(run: &Run) -> u64 {
    let hooks = run.header["hooks"].as_array().expect("a list");
    let mut good = hooks.iter().filter(|hook| hook["name"] == "sched_exit_tp");
    let is_made_good = good.any(|hook| hook["state"] == "active");
    if is_made_good { 0 } else { integer(&run.trailer, "missed_switches") }
}

/// A stop costs its tracee no CPU time: it has its burn and what is short beside a held stop.
fn assert_no_cpu_in_stops(run: &Run, task: &Value, truth: &Value) {
    let gaps_ns = truth["gap_ns"].as_u64().unwrap_or(0);
    let burned_ns = truth["user_ns"].as_u64().unwrap_or(u64::MAX / 2);
    let held_ns = integer(&run.truth, "held_ns");
    assert!(integer(task, "oncpu_ns") <= burned_ns + gaps_ns + held_ns / 2, "{task}");
}

#[test]
#[ignore = "root"]
fn e05_an_exit_stop_is_a_ptrace_stop_and_no_cpu_time() {
    let run = workload(&["stops", "exit-event"]);
    let (task, truth) = tracee(&run);
    assert_stops(&run, task);
    assert_no_cpu_in_stops(&run, task, truth);
    assert_user(task, truth, 0);
    assert_eq!(task["state"], "exited", "closed after its stop: {task}");
}

#[test]
#[ignore = "root"]
fn e05_a_killed_tracee_may_be_held_in_its_exit_stop() {
    let run = workload(&["stops", "kill-at-exit"]);
    let (task, truth) = tracee(&run);
    assert_stops(&run, task);
    assert_no_cpu_in_stops(&run, task, truth);
    assert_user(task, truth, 0);
    if run.truth["moved_by_second_kill"] == false {
        let held_ns = integer(&run.truth, "held_ns");
        assert!(held_ns >= 300_000_000, "SIGKILL does not end the stop: {held_ns}");
    }
}

#[test]
#[ignore = "root"]
fn e07_a_group_stop_is_the_tracers_and_a_job_control_stop_is_not() {
    let run = workload(&["stops", "group-stop"]);
    let (seized, truth) = tracee(&run);
    assert_stops(&run, seized);
    assert_user(seized, truth, 0);
    assert_eq!(integer(seized, "job_stops"), 0, "{seized}");

    let truth = &run.truth["untraced"];
    let untraced = of_tid(&run, integer(truth, "tid"));
    assert_user(untraced, truth, 0);
    assert_eq!((integer(untraced, "job_stops"), integer(untraced, "ptrace_stops")), (1, 0));
    assert!(untraced["tracer_tid"].is_null(), "{untraced}");
    let (stopped_ns, held_ns) =
        (integer(untraced, "job_stopped_ns"), integer(&run.truth, "job_held_ns"));
    assert!(stopped_ns >= held_ns * 9 / 10, "stopped {stopped_ns}, held {held_ns} ns");
}

#[test]
#[ignore = "root"]
fn e06_a_detached_tracee_burns_on_its_own() {
    let run = workload(&["stops", "detach", "--hold-ms", "200"]);
    let (task, truth) = tracee(&run);
    assert_stops(&run, task);
    assert_user(task, truth, 0);
}

/// The tracer is killed; its tracee is stopped or runs, and is killed with it or not.
fn tracer_dies(arguments: &[&str]) -> Run {
    let run = workload(&[&["stops", "tracer-dies", "--hold-ms", "200"], arguments].concat());
    let task = of_tid(&run, integer(&run.truth, "tracee_tid"));
    assert_stops(&run, task);
    assert_eq!(task["job_stops"], run.truth["job_stops"], "{task}");
    assert_eq!(task["state"], "exited");
    if run.truth["tracee"].is_object() {
        assert_user(task, &run.truth["tracee"], 0);
    }
    let tracer = of_tid(&run, integer(&run.truth, "tracer_tid"));
    assert_eq!(tracer["state"], "exited");
    assert!(integer(tracer, "updated_ns") <= integer(task, "updated_ns"), "the tracer dies first");
    run
}

#[test]
#[ignore = "root"]
fn e06_a_stop_ends_with_its_tracer() {
    for attach in ["traceme", "attach", "seize"] {
        let run = tracer_dies(&["--attach", attach]);
        // It ran on: its own time after the stop is in the account (see assert_user).
        assert_eq!(run.truth["tracee_killed"], false);
        tracer_dies(&["--attach", attach, "--exitkill"]);
    }
}

#[test]
#[ignore = "root"]
fn e06_a_tracee_that_runs_outlives_its_tracer_unless_it_is_killed_with_it() {
    for attach in ["traceme", "attach", "seize"] {
        tracer_dies(&["--attach", attach, "--running"]);
        let run = tracer_dies(&["--attach", attach, "--running", "--exitkill"]);
        assert_eq!(run.truth["tracee_killed"], true);
    }
}

#[test]
#[ignore = "root"]
fn e14_only_the_traced_thread_has_stops() {
    let run = workload(&["stops", "one-thread"]);
    let traced = integer(&run.truth, "traced_tid");
    for truth in run.truth["threads"].as_array().expect("a list") {
        let task = of_tid(&run, integer(truth, "tid"));
        assert_eq!(task["tgid"], run.truth["process"]);
        assert_user(task, truth, 0);
        if task["tid"].as_u64() == Some(traced) {
            assert_stops(&run, task);
            continue;
        }
        assert_eq!(integer(task, "ptrace_stops"), 0, "{task}");
        assert_eq!(integer(task, "ptrace_stopped_ns"), 0, "{task}");
        assert!(task["tracer_tid"].is_null(), "{task}");
        let traces = run.pairs.iter().filter(|pair| pair["kind"] == "ptrace");
        assert_eq!(traces.filter(|pair| pair["to_tid"] == task["tid"]).count(), 0);
    }
}

#[test]
#[ignore = "root"]
fn e13_the_number_of_stops_does_not_depend_on_their_kind() {
    let user_ns = [&[][..], &["--exit-stops"]].map(|option| {
        let run = workload(&[&["stops", "seccomp"], option].concat());
        let (task, truth) = tracee(&run);
        assert_stops(&run, task);
        // Not above by what is not known: a tracer on another CPU that is awake is not woken by a stop, and without
        // hooks of its own a stop then begins for us at the switch.
        let own_ns = truth["user_ns"].as_u64().unwrap_or(0);
        assert!(integer(task, "user_ns") >= own_ns * 98 / 100, "own {own_ns} ns: {task}");
        let stops = if option.is_empty() { 1 } else { 2 };
        // And the SIGSTOP that begins it.
        let traced = integer(&run.truth, "traced_syscalls");
        assert_eq!(integer(task, "ptrace_stops"), traced * stops + 1);
        integer(task, "user_ns")
    });
    println!("user time with one stop per traced call, with two: {user_ns:?} ns");
}

#[test]
#[ignore = "root"]
fn e01_exec_from_a_thread_under_a_tracer_keeps_both_accounts() {
    let run = workload(&["stops", "exec-thread"]);
    let (leader_tid, former_tid) = (&run.truth["tracee_tid"], &run.truth["former_tid"]);
    let (heirs, leaders): (Vec<&Value>, Vec<&Value>) = run
        .tasks
        .iter()
        .filter(|task| task["tid"] == *leader_tid)
        .partition(|task| task["former_tid"] == *former_tid);
    let ([heir], [leader]) = (&heirs[..], &leaders[..]) else {
        unreachable!("one old leader and one thread that took its id: {heirs:?} {leaders:?}")
    };
    assert!(run.tasks.iter().all(|task| task["tid"] != *former_tid), "the old id is gone");
    assert_eq!(heir["tgid"], heir["tid"]);
    assert_eq!((&heir["state"], &leader["state"]), (&"exited".into(), &"exited".into()));
    // The clone event is the old leader's; the thread's first stop and the exec event are the heir's.
    assert_eq!((integer(leader, "ptrace_stops"), integer(heir, "ptrace_stops")), (1, 2));
    let stops: u64 = sum([*leader, *heir], "ptrace_stops");
    assert_eq!(stops, integer(&run.truth, "stops"));
    assert!([leader, heir].iter().all(|task| task["tracer_tid"] == run.truth["tracer_tid"]));

    let truth = &run.truth["tracee"];
    let before = &truth["before_exec"];
    let Some(own_ns) = truth["total_user_ns"].as_u64() else { return };
    // The start of the second program lies between the two burns.
    let start_ns =
        integer(truth, "thread_cpu_before_ns").saturating_sub(integer(before, "user_ns"));
    let gaps_ns = integer(truth, "gap_ns") + integer(before, "gap_ns");
    let user_ns = integer(heir, "user_ns");
    let range = own_ns * 98 / 100..=own_ns * 102 / 100 + gaps_ns + start_ns * 5 / 4 + 2_000_000;
    assert!(range.contains(&user_ns), "user {user_ns} ns, own {range:?}: {heir}");
}

#[test]
#[ignore = "root"]
fn e03_execs_from_threads_leave_no_account_behind() {
    // Two sessions' worth of slots would not hold what 40 leaked ones took.
    let script = "i=0; while [ $i -lt 40 ]; do \"$0\" workload exec-thread --ms 2 >/dev/null; i=$((i+1)); done";
    let program = crate::support::program().to_str().expect("a path in UTF-8");
    let records =
        crate::support::observe(&["run", "--max-tasks", "64"], &["sh", "-c", script, program]);
    let trailer = records.one("trailer");
    assert_eq!((integer(trailer, "map_full"), integer(trailer, "lost_events")), (0, 0));
    let heirs: Vec<&Value> =
        records.tasks().into_iter().filter(|task| task["former_tid"].is_u64()).collect();
    assert_eq!(heirs.len(), 40);
    for heir in heirs {
        assert_eq!(heir["state"], "exited");
        assert!(integer(heir, "user_ns") >= 2_000_000 * 98 / 100, "both halves: {heir}");
        assert!(integer(heir, "system_ns") > 0, "syscalls are still seen: {heir}");
    }
}

#[test]
#[ignore = "root"]
fn the_tracer_is_the_thread_that_attached_and_not_the_one_that_waits() {
    let run = workload(&["stops", "other-waiter"]);
    let (task, truth) = tracee(&run);
    assert_stops(&run, task);
    assert_user(task, truth, 0);
    assert_ne!(task["tracer_tid"], run.truth["waiter_tid"]);
}

/// A ptraced pair, or the same tracee alone: the tracee's record and what it knows of itself.
fn pair(arguments: &[&str]) -> (Run, Value) {
    let run = workload(&[&["ptrace"], arguments].concat());
    let tid = integer(&run.truth, "tracee_tid");
    let mut task = of_tid(&run, tid).clone();
    let tracer = of_tid(&run, integer(&run.truth, "tracer_tid"));
    let window_ns =
        integer(tracer, "oncpu_ns").saturating_sub(integer(&run.truth, "thread_cpu_before_ns"));
    task["tracer_oncpu_ns"] = window_ns.into();
    (run, task)
}

#[test]
#[ignore = "root"]
fn e10_what_tracing_costs_is_split_between_kernel_stops_and_tracer() {
    let heavy = ["--syscalls", "5000", "--work-us", "0"];
    let (_, traced) = pair(&heavy);
    let (_, alone) = pair(&[&heavy[..], &["--untraced"]].concat());
    assert!(integer(&traced, "ptrace_stops") >= 10_000, "{traced}");
    assert_eq!(integer(&alone, "ptrace_stops"), 0);
    assert!(integer(&traced, "ptrace_stopped_ns") > 0, "the wait in the stops: {traced}");
    // Ten thousand stops against none: that much is sure on any machine.
    let ratio = integer(&traced, "system_ns") as f64 / integer(&alone, "system_ns") as f64;
    assert!(ratio > 2.0, "the kernel's part grows: {ratio:.1}");
    assert!(integer(&traced, "tracer_oncpu_ns") > integer(&alone, "tracer_oncpu_ns"));
    println!(
        "5000 syscalls, traced and alone: user {:.2} and {:.2} ms, system {:.2} and {:.2}, stopped {:.2}, tracer {:.2}",
        ms(&traced, "user_ns"),
        ms(&alone, "user_ns"),
        ms(&traced, "system_ns"),
        ms(&alone, "system_ns"),
        ms(&traced, "ptrace_stopped_ns"),
        ms(&traced, "tracer_oncpu_ns"),
    );
}

fn ms(record: &Value, field: &str) -> f64 {
    integer(record, field) as f64 / 1e6
}

#[test]
#[ignore = "root"]
fn e10_computing_costs_the_same_under_a_tracer() {
    let compute = ["--syscalls", "20", "--work-us", "5000"];
    for option in [&[][..], &["--untraced"]] {
        let (run, task) = pair(&[&compute[..], option].concat());
        // Each against its own clock: two runs may differ, their accounts may not.
        assert_user(&task, &run.truth, integer(&run.truth, "tracee_cpu_before_ns"));
    }
}

#[test]
#[ignore = "root"]
fn e10_the_stops_are_the_same_on_one_cpu_and_across_two() {
    if cpus() < 2 {
        println!("SKIPPED: one CPU");
        return;
    }
    for (tracer, handed_over) in [("0", true), ("1", false)] {
        let arguments =
            ["--syscalls", "2000", "--work-us", "5", "--tracee-cpu", "0", "--tracer-cpu", tracer];
        let (run, task) = pair(&arguments);
        assert_eq!(task["ptrace_stops"].as_u64(), run.truth["stops"].as_u64().map(|it| it + 1));
        let trace = trace_of(&run, integer(&task, "tid"));
        // Its tracer may have waited for the stop before the tracee has left its CPU.
        let kinds = &trace["stops_by_kind"];
        let syscalls = integer(kinds, "syscall_entry") + integer(kinds, "syscall_exit");
        let lack = integer(&run.truth, "syscall_stops").abs_diff(syscalls);
        assert!(lack <= unseen(&run), "{lack} of them lack: {trace} {}", run.trailer);
        let (handed, across) = (integer(trace, "handoffs"), integer(trace, "handoffs_across"));
        assert_eq!(handed + across, integer(trace, "count"), "{trace}");
        // Not all: somebody else may come between the two on their CPU. And the first stop can come before the
        // tracer has gone to its own.
        assert!(if handed_over { handed > across * 4 } else { handed <= 1 }, "{trace}");
    }
}

#[test]
#[ignore = "root"]
fn e11_kernel_time_comes_from_the_syscalls_and_not_from_ticks() {
    let run = workload(&["syscalls", "--count", "20000"]);
    let task = &run.tasks[0];
    let (system_ns, own_ns) = (integer(task, "system_ns"), run.truth["system_ns"].as_u64());
    println!(
        "system: measured {system_ns}, own {own_ns:?}, reported {} ns",
        integer(task, "reported_system_ns")
    );
    // Its start is in there too. That no call is missed is what is asserted: half of their own cost at least.
    assert!(system_ns * 2 >= own_ns.unwrap_or(0), "{task}");

    let run = workload(&["sleep", "--ms", "1000"]);
    let task = &run.tasks[0];
    let wall_ns = integer(&run.truth, "wall_ns");
    assert!(wall_ns >= 1_000_000_000);
    assert!(integer(task, "oncpu_ns") < wall_ns / 10, "a sleep costs nothing: {task}");
}

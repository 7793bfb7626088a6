use super::*;

fn hold() -> HoldArgs {
    HoldArgs { hold_ms: 30, burn_ms: 10 }
}

fn case(case: Case) -> Value {
    run(&StopsArgs { case }).unwrap()
}

fn field(report: &Value, name: &str) -> u64 {
    report[name].as_u64().unwrap_or_else(|| panic!("no {name} in {report}"))
}

/// It burned what was asked for, and knows it.
fn assert_burned(truth: &Value, ms: u64) {
    let user_ns = field(truth, "user_ns");
    assert!((ms * 1_000_000..ms * 1_100_000).contains(&user_ns), "{truth}");
    assert!(field(truth, "tid") > 0);
}

#[test]
fn an_exit_stop_is_held() {
    let report = case(Case::ExitEvent(hold()));
    assert_eq!(report["stops_by_kind"]["exit"], 1, "{report}");
    assert_eq!(field(&report, "stops"), 1);
    assert!(field(&report, "held_ns") >= 30_000_000, "{report}");
    assert!(field(&report, "held_ns") <= field(&report, "wall_ns"));
    assert_burned(&report["tracee"], 10);
}

#[test]
fn a_killed_tracee_stops_at_its_exit_too() {
    let report = case(Case::KillAtExit(hold()));
    assert_eq!(report["stops_by_kind"]["exit"], 1, "{report}");
    if report["moved_by_second_kill"] == false {
        assert!(field(&report, "held_ns") >= 30_000_000, "{report}");
    }
    assert_burned(&report["tracee"], 10);
}

#[test]
fn a_group_stop_and_a_job_control_stop() {
    let report = case(Case::GroupStop(hold()));
    // SIGSTOP, its group stop, the end of that, SIGCONT.
    assert_eq!(report["stops_by_kind"]["signal"], 2, "{report}");
    assert_eq!(report["stops_by_kind"]["group"], 2, "{report}");
    assert!(field(&report, "held_ns") >= 30_000_000, "{report}");
    assert!(field(&report, "job_held_ns") >= 30_000_000, "{report}");
    assert_burned(&report["tracee"], 10);
    assert_burned(&report["untraced"], 10);
    assert_ne!(report["tracee"]["tid"], report["untraced"]["tid"]);
}

#[test]
fn a_detached_tracee_runs_on() {
    let report = case(Case::Detach(hold()));
    assert_eq!(field(&report, "stops"), 1, "{report}");
    assert!(field(&report, "held_ns") >= 30_000_000, "{report}");
    assert_burned(&report["tracee"], 10);
}

/// Makes this process the parent of orphans, which another test must not see.
#[test]
#[ignore = "adopts orphans: run by a_tracer_that_dies_leaves_its_tracee_or_kills_it"]
fn alone_tracer_dies() {
    for attach in [dies::Means::Traceme, dies::Means::Attach, dies::Means::Seize] {
        for (running, exitkill) in [(false, false), (false, true), (true, false), (true, true)] {
            let args = dies::DiesArgs { attach, running, exitkill, hold: hold() };
            let report = case(Case::TracerDies(args));
            assert_eq!(report["tracee_killed"], exitkill, "{report}");
            if !running {
                assert!(field(&report, "held_ns") >= 30_000_000, "{report}");
            }
            if !exitkill {
                assert_burned(&report["tracee"], 10);
            }
        }
    }
}

#[test]
fn a_tracer_that_dies_leaves_its_tracee_or_kills_it() {
    super::super::test_alone(module_path!(), "alone_tracer_dies");
}

#[test]
fn one_thread_of_three_is_stopped() {
    let args = threads::OneThreadArgs { stops: 4, hold_ms: 3, burn_ms: 5 };
    let report = case(Case::OneThread(args));
    assert_eq!(field(&report, "stops"), 4, "{report}");
    assert!(field(&report, "held_ns") >= 12_000_000, "{report}");
    let threads = report["threads"].as_array().unwrap();
    assert_eq!(threads.len(), 3);
    assert_eq!(threads[1]["tid"], report["traced_tid"]);
    for thread in threads {
        assert!(field(thread, "user_ns") >= 5_000_000, "{report}");
    }
}

#[test]
fn the_waiter_need_not_be_the_tracer() {
    let args = threads::OtherWaiterArgs { syscalls: 20, burn_ms: 5 };
    let report = case(Case::OtherWaiter(args));
    // Both sides of each call, the first stop, and the entry of what ends the tracee.
    assert!((42..60).contains(&field(&report, "stops")), "{report}");
    assert_ne!(report["tracer_tid"], report["waiter_tid"]);
    assert_burned(&report["tracee"], 5);
}

#[test]
fn one_call_of_ten_stops() {
    for (exit_stops, syscalls) in [(false, 0), (true, 10)] {
        let args = seccomp::SeccompArgs { syscalls: 100, exit_stops, burn_ms: 4 };
        let report = case(Case::Seccomp(args));
        assert_eq!(report["stops_by_kind"]["event"], 10, "{report}");
        assert_eq!(report["stops_by_kind"]["syscall"], syscalls, "{report}");
        // The first one is the SIGSTOP that begins it.
        assert_eq!(report["stops_by_kind"]["signal"], 1, "{report}");
        assert_burned(&report["tracee"], 4);
    }
}

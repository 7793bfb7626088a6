use super::*;
use crate::view::samples::{self, report, task};

fn said(tasks: Vec<TaskFigures>) -> Vec<String> {
    sentences(&report(tasks))
}

fn pair() -> (TaskFigures, TaskFigures) {
    let tracer = TaskFigures {
        tid: 123,
        delta_runtime_ns: 20_000_000,
        skip_in_ns: Some(20_000_000),
        skip_in: Some(900),
        ..task("strace", 100_000_000)
    };
    let tracee = TaskFigures {
        tid: 124,
        ptrace_stops: 950,
        tracer_tid: Some(123),
        switches_voluntary: 990,
        switches_involuntary: 10,
        delta_runtime_ns: -19_000_000,
        skip_out_ns: Some(19_000_000),
        skip_out: Some(900),
        ..task("ls", 76_000_000)
    };
    (tracer, tracee)
}

#[test]
fn a_traced_pair() {
    let (tracer, tracee) = pair();
    assert_eq!(
        said(vec![tracer, tracee]),
        [
            "Tracer strace (123) was billed 20.000 ms (20.0 %) too much and tracee ls (124) 19.000 ms (25.0 %) too \
          little: 900 of 1000 switches away from the tracee skipped the clock update."
        ]
    );
}

#[test]
fn a_traced_pair_the_other_way_round() {
    let (mut tracer, mut tracee) = pair();
    tracer.delta_runtime_ns = -20_000_000;
    (tracer.skip_in_ns, tracer.skip_out_ns) = (tracer.skip_out_ns, tracer.skip_in_ns);
    tracee.delta_runtime_ns = 19_000_000;
    (tracee.skip_in_ns, tracee.skip_out_ns) = (tracee.skip_out_ns, tracee.skip_in_ns);
    (tracee.skip_in, tracee.skip_out) = (tracee.skip_out, tracee.skip_in);
    assert_eq!(
        said(vec![tracer, tracee]),
        [
            "Tracer strace (123) was billed 20.000 ms (20.0 %) too little and tracee ls (124) 19.000 ms (25.0 %) \
          too much: 900 switches to the tracee skipped the clock update."
        ]
    );
}

#[test]
fn a_tracer_that_is_not_observed() {
    let (_, tracee) = pair();
    assert_eq!(
        said(vec![tracee]),
        [
            "Tracee ls (124) was billed 19.000 ms (25.0 %) too little: 900 of 1000 switches away from the tracee \
          skipped the clock update. The side of tracer 123 is not observed; `observer --tid 123` shows it."
        ]
    );
}

#[test]
fn several_tracees_of_one_tracer_share_a_sentence() {
    let (tracer, tracee) = pair();
    let small = TaskFigures { tid: 125, delta_runtime_ns: -18_000_000, ..tracee.clone() };
    let said = said(vec![tracer, small, tracee]);
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].contains("its 2 tracees (ls (124) and others) 37.000 ms (24.3 %) too little"));
    assert!(said[0].contains("1800 of 2000 switches away from the tracees"));
}

#[test]
fn what_nothing_explains_is_not_put_down_to_the_tracer() {
    let (tracer, tracee) = pair();
    let lost = TaskFigures {
        tid: 126,
        skip_out_ns: Some(1_000_000),
        delta_runtime_ns: 39_000_000,
        residual_ns: Some(40_000_000),
        ..tracee.clone()
    };
    let said = said(vec![tracer, tracee, lost]);
    assert_eq!(said.len(), 2, "{said:?}");
    assert!(
        said[0].contains("its 2 tracees (ls (124) and others) 20.000 ms (13.2 %) too little"),
        "{said:?}"
    );
    assert_eq!(
        said[1],
        "ls (126) was billed 40.000 ms (52.6 %) too much: no measured cause explains it."
    );
}

/// The same pair, with its pairs recorded.
fn recorded() -> Report {
    let (tracer, tracee) = pair();
    let sides = (samples::party("strace", 123), samples::party("ls", 124));
    let mut report = report(vec![tracer, tracee]);
    report.pairs = vec![
        samples::wake(sides.1.clone(), sides.0.clone(), 900, 19_000_000),
        samples::traced(sides.0, sides.1, 950),
    ];
    report
}

#[test]
fn the_first_line_of_a_traced_command_says_who_took_what() {
    let mut recorded = recorded();
    let said = sentences(&recorded);
    assert_eq!(said.len(), 1, "and nothing twice: {said:?}");
    assert!(
        said[0].starts_with(
            "Tracer strace (123) took 19.000 ms (25.0 %) of tracee ls (124): 900 of 920"
        )
    );
    // Also where it is next to nothing, and others moved more: the tracee's skips were towards idle.
    recorded.pairs[0].skip_ns = Some(100);
    let said = sentences(&recorded);
    assert!(
        said[0].starts_with("Tracer strace (123) took 0.000 ms (0.0 %) of tracee ls"),
        "{said:?}"
    );
    assert!(
        said[1].starts_with("strace (123) was billed 20.000 ms (20.0 %) that others (or idle)")
    );
    assert!(said[2].starts_with("19.000 ms (25.0 %) that ls (124) used were billed to others"));
}

#[test]
fn a_quiet_traced_pair_does_not_hide_another_ones_skips() {
    let (tracer, tracee) = pair();
    let victim = TaskFigures {
        tid: 7,
        skip_in_ns: Some(9_000_000),
        skip_in: Some(40),
        delta_runtime_ns: 9_000_000,
        ..task("cat", 50_000_000)
    };
    let said = said(vec![tracer, victim, tracee]);
    assert_eq!(said.len(), 2);
    assert!(said[0].starts_with("Tracer strace"));
    assert_eq!(
        said[1],
        "cat (7) was billed 9.000 ms (18.0 %) that others (or idle) used: 40 switches to it skipped the clock update."
    );
}

#[test]
fn skips_that_take_away() {
    let task = TaskFigures {
        skip_out_ns: Some(9_000_000),
        skip_out: Some(40),
        switches_voluntary: 50,
        delta_runtime_ns: -9_000_000,
        ..task("cat", 50_000_000)
    };
    assert_eq!(
        said(vec![task]),
        [
            "9.000 ms (18.0 %) that cat (100) used were billed to others: 40 of its 50 switches away skipped the clock \
          update."
        ]
    );
}

fn split_task() -> TaskFigures {
    TaskFigures {
        user_ns: Some(60_000_000),
        system_ns: Some(40_000_000),
        delta_user_split_ns: Some(12_000_000),
        delta_user_ns: Some(12_000_000),
        raw_utime_ns: 72_000_000,
        raw_stime_ns: 28_000_000,
        reported_user_ns: 72_000_000,
        reported_system_ns: 28_000_000,
        ..task("cc", 100_000_000)
    }
}

#[test]
fn a_split_by_ticks() {
    let start = "The user/system split of cc (100) reports ";
    let case = |change: fn(&mut TaskFigures)| {
        let mut task = split_task();
        change(&mut task);
        let said = said(vec![task]);
        assert_eq!(said.len(), 1, "{said:?}");
        said[0].strip_prefix(start).unwrap_or_else(|| panic!("{said:?}")).to_owned()
    };
    assert_eq!(
        case(|_| ()),
        "12.000 ms (12.0 %) of system time as user: it rests on 25 ticks (± 4 ms per tick), which scatter by ± 9.798 ms."
    );
    assert_eq!(
        case(|task| {
            (task.delta_user_ns, task.delta_user_split_ns) = (Some(-12_000_000), Some(-12_000_000));
        }),
        "12.000 ms (12.0 %) of user time as system: it rests on 25 ticks (± 4 ms per tick), which scatter by ± 9.798 ms."
    );
    assert!(
        case(|task| (task.raw_stime_ns, task.reported_system_ns) = (0, 0)).ends_with(
            "none of its 18 ticks hit the kernel, so all of its time is reported as user."
        )
    );
    assert!(
        case(|task| {
            (task.raw_utime_ns, task.reported_user_ns) = (0, 0);
            (task.delta_user_ns, task.delta_user_split_ns) = (Some(-60_000_000), Some(-60_000_000));
        })
        .ends_with("none of its 7 ticks hit user mode, so all of its time is reported as system.")
    );
    assert!(
        case(|task| {
            (task.raw_utime_ns, task.raw_stime_ns, task.reported_system_ns) = (0, 0, 0);
        })
        .ends_with("no tick (4 ms) hit it, so all of its time is reported as user.")
    );
    // A task that was found alive: no system tick since, but earlier ones still count.
    assert!(
        case(|task| task.raw_stime_ns = 0)
            .ends_with("it rests on 18 ticks (± 5.556 ms per tick), which scatter by ± 11.547 ms.")
    );
}

#[test]
fn a_split_that_nobody_knows_is_not_put_down_to_the_ticks() {
    let task = TaskFigures {
        user_ns: Some(0),
        crossings: Some(46_000),
        crossing_ns: Some(20_000_000),
        crossing_cut_ns: Some(7_000_000),
        ..split_task()
    };
    assert_eq!(
        said(vec![task]),
        [
            "How cc (100) divides into user and system is not known better than the kernel says: by calibration the \
             46000 borders that no hook sees took 27.000 ms, which is 7.000 ms more than there was."
        ]
    );
}

#[test]
fn a_split_within_one_tick_is_not_called_wrong() {
    let task = TaskFigures {
        delta_user_ns: Some(3_900_000),
        delta_user_split_ns: Some(3_900_000),
        ..split_task()
    };
    assert_eq!(
        said(vec![task]),
        [
            "The user/system split of cc (100) differs by 3.900 ms (3.9 %) from what was measured: within resolution (one \
          tick is worth 4 ms)."
        ]
    );
}

#[test]
fn a_kernel_that_times_crossings_has_no_ticks_to_blame() {
    for mode in ["native", "vtime active"] {
        let mut report = report(vec![split_task()]);
        report.header.accounting = mode.to_owned();
        let said = sentences(&report);
        assert!(
            said[0].ends_with(&format!("this kernel times each crossing ({mode}).")),
            "{said:?}"
        );
    }
}

#[test]
fn interrupts_that_are_billed() {
    let task = TaskFigures {
        hardirq_ns: Some(1_000_000),
        softirq_ns: Some(2_000_000),
        left_out_ns: Some(500_000),
        ..task("dd", 100_000_000)
    };
    assert_eq!(
        said(vec![task.clone()]),
        [
            "2.500 ms (2.5 %) of what dd (100) is billed as system time are interrupts that came while it ran, not \
          its own work."
        ]
    );
    let left_out = TaskFigures { left_out_ns: Some(3_000_000), ..task };
    assert_eq!(
        said(vec![left_out]),
        [
            "3.000 ms (3.0 %) on the CPU of dd (100) went to interrupts or to the hypervisor (steal) and are left out \
          of its bill."
        ]
    );
}

#[test]
fn bounds_of_the_unclassified() {
    let task = TaskFigures {
        user_ns: Some(60_000_000),
        unclassified_ns: Some(10_000_000),
        ..task("cp", 100_000_000)
    };
    assert_eq!(
        said(vec![task]),
        [
            "10.000 ms (10.0 %) of cp (100) after page faults are user or system, not known which: its user time lies \
          between 60.000 ms and 70.000 ms."
        ]
    );
}

#[test]
fn the_path_and_what_nothing_explains() {
    let path = TaskFigures { path_out_ns: Some(7_000_000), ..task("a", 100_000_000) };
    assert!(
        said(vec![path])[0]
            .starts_with("a (100) was billed 7.000 ms (7.0 %) too little on the path")
    );
    let residual = TaskFigures { residual_ns: Some(-7_000_000), ..task("a", 100_000_000) };
    assert_eq!(
        said(vec![residual]),
        ["a (100) was billed 7.000 ms (7.0 %) too little: no measured cause explains it."]
    );
    let blind = TaskFigures {
        residual_ns: None,
        skip_in_ns: None,
        skip_out_ns: None,
        path_in_ns: None,
        left_out_ns: None,
        delta_runtime_ns: 7_000_000,
        ..task("a", 100_000_000)
    };
    assert_eq!(
        said(vec![blind]),
        ["a (100) was billed 7.000 ms (7.0 %) too much: its causes are not measured here."]
    );
}

#[test]
fn descendants_that_nobody_waited_for() {
    let mut report = report(vec![
        TaskFigures { state: "exited", ..task("sh", 10_000_000) },
        task("daemon", 50_000_000),
    ]);
    report.rusage_ns = Some((9_000_000, 1_000_000));
    assert_eq!(
        sentences(&report)[1],
        "wait4 reports only 10.000 ms: 50.000 ms more were used by descendants that were not waited for (1 is still \
         running)."
    );
    report.rusage_ns = Some((55_000_000, 1_000_000));
    assert_eq!(sentences(&report).len(), 1, "4 ms are not worth a sentence");
}

#[test]
fn losses_are_said_whatever_else_there_is() {
    let mut report = report((0..9).map(|tid| TaskFigures { tid, ..split_task() }).collect());
    report.trailer.map_full = 3;
    report.trailer.recursion_misses = Some(2);
    let said = sentences(&report);
    assert_eq!(said.len(), 6);
    assert!(said[4].ends_with("(4 smaller findings are not listed.)"), "{said:?}");
    assert_eq!(
        said[5],
        "Incomplete: 3 tasks were not observed (no free slot: raise --max-tasks), 2 hook runs were left out by the \
         kernel."
    );
}

#[test]
fn agreement_names_the_largest_difference() {
    let small = TaskFigures { delta_user_ns: Some(-321_000), ..task("a", 100_000_000) };
    assert_eq!(
        said(vec![small.clone(), task("b", 5)]),
        ["Reported and measured agree within 0.321 ms for every task (a tick is 4 ms)."]
    );
    let no_split = TaskFigures {
        delta_user_ns: None,
        delta_system_ns: None,
        delta_user_split_ns: None,
        delta_runtime_ns: 1_000,
        ..small
    };
    assert!(
        said(vec![no_split])[0].starts_with("Reported and measured run time agree within 0.001 ms")
    );
    assert_eq!(said(vec![]), ["No observed task has run."]);
    assert_eq!(said(vec![task("a", 0)]), ["No observed task has run."]);
}

#[test]
fn what_is_small_in_every_sense_is_not_said() {
    // 5 ms of 10 s: more than a tick, but half a per mille.
    let long = TaskFigures { skip_in_ns: Some(5_000_000), ..task("a", 10_000_000_000) };
    assert!(said(vec![long])[0].starts_with("Reported and measured agree"));
    // 0.9 ms of 2 ms.
    let short = TaskFigures { skip_in_ns: Some(900_000), ..task("a", 2_000_000) };
    assert!(said(vec![short])[0].starts_with("Reported and measured agree"));
}

#[test]
fn hostile_names_and_extreme_numbers_are_safe() {
    let hostile = TaskFigures {
        comm: b"\x1b[31m\n\x9b\x07\x1b]0;".to_vec(),
        skip_in_ns: Some(u64::MAX),
        path_out_ns: Some(u64::MAX),
        residual_ns: Some(i64::MIN),
        left_out_ns: Some(u64::MAX),
        unclassified_ns: Some(u64::MAX),
        delta_user_split_ns: Some(i64::MIN),
        raw_utime_ns: u64::MAX,
        raw_stime_ns: u64::MAX,
        delta_runtime_ns: i64::MIN,
        ..task("", u64::MAX)
    };
    let mut report = report(vec![hostile.clone(), hostile]);
    report.rusage_ns = Some((u64::MAX, u64::MAX));
    report.header.tick_ns = 0;
    let said = sentences(&report);
    assert!(!said.is_empty());
    assert!(said.iter().all(|text| !text.chars().any(char::is_control)), "{said:?}");
}

#[test]
fn tasks_that_are_sums_count_in_what_agrees_and_in_what_nobody_waited_for() {
    let mut report = report(vec![task("a", 5_000_000)]);
    report.tasks[0].delta_runtime_ns = 1_000;
    report.folded = vec![crate::model::Folded {
        members: 9,
        // Their sum is small, one of them was not.
        figures: TaskFigures { reported_user_ns: 70_000_000, ..TaskFigures::default() },
        apart_ns: 3_000_000,
        parts_apart_ns: Some(8_000_000),
        ..Default::default()
    }];
    assert!(agreement(&report).contains("within 8.000 ms"), "{}", agreement(&report));
    report.folded[0].parts_apart_ns = None;
    for task in &mut report.tasks {
        (task.delta_user_ns, task.delta_system_ns) = (None, None);
    }
    assert!(agreement(&report).contains("within 3.000 ms"), "{}", agreement(&report));
    report.rusage_ns = Some((1_000_000, 0));
    assert!(sentences(&report).iter().any(|words| words.contains("not waited for")));
}

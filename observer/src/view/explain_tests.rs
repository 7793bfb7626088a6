use unicode_width::UnicodeWidthStr as _;

use super::*;
use crate::{
    model::{PairFigures, Party, pair::Skip},
    view::samples::{self, party, report, wake},
};

/// A tracer that took 19 of 76 ms, on a kernel of the given release and mode.
fn traced(kernel: &str, preempt: &str, accounting: &str) -> Report {
    let tracee = TaskFigures {
        tid: 124,
        ptrace_stops: 950,
        ptrace_stopped_ns: 19_000_000,
        tracer_tid: Some(123),
        skip_out: Some(900),
        skip_out_ns: Some(19_000_000),
        reported_runtime_ns: 57_000_000,
        delta_runtime_ns: -19_000_000,
        ..samples::task("ls", 76_000_000)
    };
    let mut report = report(vec![tracee]);
    report.header.kernel = kernel.to_owned();
    report.header.preempt = preempt.to_owned();
    report.header.accounting = accounting.to_owned();
    let (strace, ls) = (party("strace", 123), party("ls", 124));
    report.pairs =
        vec![wake(ls.clone(), strace.clone(), 900, 19_000_000), samples::traced(strace, ls, 950)];
    report
}

/// The only paragraph about a task.
fn only(report: &Report) -> String {
    let mut paragraphs = paragraphs(report);
    paragraphs.retain(|paragraph| !paragraph.starts_with("For a reliable number here, take "));
    assert_eq!(paragraphs.len(), 1, "{paragraphs:?}");
    paragraphs.remove(0)
}

#[test]
fn a_traced_command() {
    assert_eq!(
        only(&traced("6.18.44", "none", "tick")),
        "ls (124): the kernel reports 19.000 ms (25.0 %) less run time than it used (57.000 ms for 76.000 ms). \
         19.000 ms of it went to its tracer strace (123): 900 of 920 switches from it to the tracer skipped the clock \
         update, since a wakeup had asked for the switch already: what ran from then on is billed to the next task. \
         It was stopped 950 times by tracer 123, for 19.000 ms in all, which is no CPU time. For a report that is \
         nearer, give both one real-time priority (chrt -f 1, as root), since equal priorities do not preempt each \
         other; chrt -b 0 needs no root and skips less; or boot with preempt=lazy: a wakeup between ordinary tasks \
         then asks for no skip."
    );
}

#[test]
fn the_same_advice_is_given_once() {
    let mut report = traced("6.18.44", "none", "tick");
    report.tasks.push(TaskFigures {
        tid: 123,
        skip_in_ns: Some(19_000_000),
        delta_runtime_ns: 19_000_000,
        ..samples::task("strace", 100_000_000)
    });
    let said = paragraphs(&report);
    assert_eq!(said.iter().filter(|text| text.contains("chrt -f 1")).count(), 1, "{said:?}");
    assert!(said[1].contains(
        "19.000 ms of it came from its tracee ls (124): 900 of 920 switches from the tracee to it"
    ));
    assert!(said[1].ends_with("For a report that is nearer, see above."), "{said:?}");
    assert_eq!(said.len(), 3);
}

#[test]
fn lazy_preemption_is_advised_only_where_the_kernel_has_it_and_another_mode_runs() {
    let advises = |kernel, preempt| only(&traced(kernel, preempt, "tick")).contains("preempt=lazy");
    assert!(advises("6.18.44", "full"));
    assert!(advises("6.13.0-rc1", "voluntary"));
    assert!(!advises("6.12.90", "full"), "it knows no lazy");
    assert!(!advises("6.18.44", "lazy"), "it runs already");
    assert!(!advises("6.18.44", "unknown"), "the mode is not known");
    assert!(!advises("6.18.44", "rt"));
    assert!(!advises("", "none"), "the release is not known");
}

#[test]
fn a_task_that_only_stood_in_the_way_is_not_told_to_change_its_policy() {
    let mut report = traced("6.18.44", "none", "tick");
    // The tracee was switched out for the tracer, but somebody else had woken that.
    report.pairs[0].count = 0;
    let said = only(&report);
    assert!(said.contains("went to its tracer strace (123)"), "{said}");
    assert!(!said.contains("chrt") && !said.contains("preempt=lazy"), "{said}");
}

#[test]
fn what_idle_moved_is_not_put_down_to_a_task() {
    let mut report = traced("6.18.44", "none", "tick");
    report.tasks[0].delta_runtime_ns = 21_000_000;
    report.tasks[0].reported_runtime_ns = 97_000_000;
    (report.tasks[0].skip_in_ns, report.tasks[0].skip_out_ns) = (Some(21_000_000), Some(0));
    let idle = Party { comm: b"idle".to_vec(), ..Party::default() };
    let skip_idle = Skip { count: 1_000, ns: 20_000_000 };
    report.pairs = vec![PairFigures {
        skip_wakeup: Skip::default(),
        skip_idle,
        ..wake(idle, party("ls", 124), 1_000, 20_000_000)
    }];
    let said = only(&report);
    assert!(said.contains("(27.6 %) more run time than it used"), "{said}");
    assert!(
        said.contains(
            "20.000 ms of it came from idle: 1000 of 1020 switches from there to it skipped"
        ),
        "{said}"
    );
    assert!(said.contains("what it takes to leave idle is billed to the task"), "{said}");
    for advice in ["chrt", "taskset", "preempt=lazy"] {
        assert!(!said.contains(advice), "{advice}: {said}");
    }
    // With a waker there is an advice, if it could have run elsewhere.
    report.pairs.push(wake(party("strace", 123), party("ls", 124), 0, 0));
    let said = only(&report);
    assert!(said.contains("pin it and strace (123), which wakes it, to one CPU"), "{said}");
    report.header.cpus = 1;
    assert!(!only(&report).contains("taskset"));
}

#[test]
fn a_yield_has_an_advice_of_its_own() {
    let mut report = traced("6.18.44", "none", "tick");
    let pair = &mut report.pairs[0];
    (pair.skip_wakeup, pair.skip_yield) = (Skip::default(), pair.skip_wakeup);
    let said = only(&report);
    assert!(said.contains("skipped the clock update at a sched_yield"), "{said}");
    assert!(said.contains("instead of sched_yield") && !said.contains("chrt"), "{said}");
}

#[test]
fn without_pairs_nobody_is_named() {
    let mut report = traced("6.18.44", "none", "tick");
    report.pairs.clear();
    let said = only(&report);
    assert!(!said.contains("strace"), "{said}");
    assert!(
        said.contains(
            "19.000 ms moved with 900 switches away from it whose clock update was skipped"
        ),
        "{said}"
    );
    assert!(!said.contains("chrt"), "the reason of the skips is not known: {said}");
}

#[test]
fn what_nothing_explains_is_not_explained() {
    let mut report = traced("6.18.44", "none", "tick");
    (report.tasks[0].skip_out_ns, report.tasks[0].residual_ns) = (Some(0), Some(-19_000_000));
    let said = only(&report);
    assert!(said.contains("No measured cause explains 19.000 ms: measure again"), "{said}");
    (report.tasks[0].skip_out_ns, report.tasks[0].path_out_ns) = (None, None);
    let said = only(&report);
    assert!(said.contains("Its causes are not measured here."), "{said}");
}

/// All of a task's system time is reported as user time.
fn split(ticks: u64, delta_ns: i64, accounting: &str) -> String {
    let task = TaskFigures {
        user_ns: Some(50_000_000),
        system_ns: Some(50_000_000),
        raw_utime_ns: ticks * 4_000_000,
        delta_user_ns: Some(delta_ns),
        delta_user_total_ns: Some(0),
        delta_user_split_ns: Some(delta_ns),
        ..samples::task("cc", 100_000_000)
    };
    let mut report = report(vec![task]);
    report.header.accounting = accounting.to_owned();
    only(&report)
}

#[test]
fn a07_a_split_is_called_what_it_is() {
    let within = split(25, 3_900_000, "tick");
    assert!(within.starts_with("cc (100): its run time is right within 0.000 ms."), "{within}");
    assert!(
        within.contains(
            "counts 3.900 ms (3.9 %) of system time as user: it rests on 25 ticks, each worth 4 ms. That is within \
             resolution."
        ),
        "{within}"
    );
    let chance = split(25, -12_000_000, "tick");
    assert!(chance.contains("So many samples scatter by ± 10.000 ms: that is chance."), "{chance}");
    assert!(chance.contains("run longer"), "{chance}");
    let beyond = split(25, 40_000_000, "tick");
    assert!(beyond.contains("more than chance would make of so many samples"), "{beyond}");
    assert!(!beyond.contains("run longer"), "{beyond}");
    let none = split(0, 50_000_000, "tick");
    assert!(
        none.contains("no tick hit it") && none.contains("more than its resolution (± 4 ms)"),
        "{none}"
    );
    for text in [within, chance, beyond, none] {
        assert!(!text.contains("wrong") && !text.contains("mismatch"), "{text}");
    }
}

#[test]
fn a_split_that_nobody_knows_is_not_recommended() {
    let mut report = traced("6.18.44", "none", "tick");
    let task = &mut report.tasks[0];
    (task.user_ns, task.delta_user_ns) = (Some(0), Some(21_000_000));
    (task.delta_user_total_ns, task.delta_user_split_ns) = (Some(0), Some(21_000_000));
    (task.crossings, task.crossing_ns, task.crossing_cut_ns) =
        (Some(90_000), Some(20_000_000), Some(7_000_000));
    let said = paragraphs(&report);
    assert!(
        said[0].contains("How ls (124) divides into user and system is not known better"),
        "{said:?}"
    );
    assert!(!said[0].contains("than was measured") && !said[0].contains("nohz_full"), "{said:?}");
    assert!(
        said[1].contains("take the run time (user and system are not known here) from"),
        "{said:?}"
    );
    report.tasks.push(TaskFigures {
        tid: 7,
        delta_runtime_ns: 9_000_000,
        ..samples::task("a", 90_000_000)
    });
    let said = paragraphs(&report);
    assert!(
        said[2].contains("take the run time, and user and system where they are known, from"),
        "{said:?}"
    );
}

#[test]
fn what_calibration_took_is_said_where_it_is_more_than_what_is_left() {
    let task = TaskFigures {
        user_ns: Some(5_000_000),
        crossings: Some(90_000),
        crossing_ns: Some(40_000_000),
        raw_utime_ns: 40_000_000,
        delta_user_ns: Some(30_000_000),
        delta_user_total_ns: Some(0),
        delta_user_split_ns: Some(30_000_000),
        ..samples::task("cc", 100_000_000)
    };
    let said = only(&report(vec![task]));
    assert!(
        said.contains("rests on 90000 borders that no hook sees, 40.000 ms by calibration"),
        "{said}"
    );
    assert!(!said.contains("more than chance"), "{said}");
}

#[test]
fn nohz_full_is_advised_as_the_kernel_can() {
    let tick = split(25, 40_000_000, "tick");
    assert!(tick.contains("in a kernel with CONFIG_VIRT_CPU_ACCOUNTING_GEN"), "{tick}");
    let dormant = split(25, 40_000_000, "vtime dormant");
    assert!(
        dormant.contains("run it on a CPU booted with nohz_full=, where this kernel"),
        "{dormant}"
    );
    for accounting in ["vtime active", "native"] {
        let said = split(25, 40_000_000, accounting);
        assert!(!said.contains("nohz_full"), "{said}");
    }
}

#[test]
fn what_agrees_is_one_sentence() {
    let said = only(&report(vec![samples::task("quiet", 9_000_000)]));
    assert!(said.starts_with("Reported and measured agree within 0.000 ms"), "{said}");
    assert_eq!(only(&report(vec![])), "No observed task has run.");
}

#[test]
fn the_largest_difference_comes_first_and_the_rest_is_counted() {
    let tasks = (1..=9)
        .map(|index: i64| TaskFigures {
            tid: index as u32,
            delta_runtime_ns: index * 5_000_000,
            ..samples::task("t", 50_000_000)
        })
        .collect();
    let mut report = report(tasks);
    report.trailer.lost_events = 2;
    let said = paragraphs(&report);
    assert_eq!(said.len(), MOST + 3);
    assert!(said[0].starts_with("t (9): ") && said[5].starts_with("t (4): "));
    assert_eq!(said[6], "3 more tasks with smaller differences are left out.");
    assert!(said[7].starts_with("For a reliable number here, take user, system and total from"));
    assert_eq!(said[8], "Incomplete: 2 readings were missed.");
}

#[test]
fn every_line_fits_and_steers_nothing() {
    let mut report = traced("6.18.44\x1b[2J", "none", "tick");
    report.tasks[0].comm = b"\x1b[31m\n evil".to_vec();
    report.pairs[0].to.comm = b"\x1b]0;x\x07".to_vec();
    for width in [60, 80, 120, 200] {
        for line in render(&report, width).lines() {
            assert!(line.width() <= width, "{width}: {line}");
            assert!(!line.chars().any(char::is_control), "{line:?}");
        }
    }
}

use unicode_width::UnicodeWidthStr as _;

use super::*;
use crate::{
    model::{Folded, HookLine, TaskFigures},
    view::samples,
};

const HOSTILE: [&[u8]; 6] = [
    b"bash",
    b"\x1b[31m\n\x07 evil",
    "日本語の名".as_bytes(),
    "e\u{301}e\u{301}e\u{301}e\u{301}e\u{301}".as_bytes(),
    "\u{202e}live".as_bytes(),
    b"\xff\xfe\xff\xfe\xff\xfe\xff\xfe\xff\xfe\xff\xfe\xff\xfe\xff",
];

fn hook(name: &str, state: &str, lost: &str) -> HookLine {
    HookLine {
        name: name.to_owned(),
        refines: false,
        function: None,
        via: "tp_btf".to_owned(),
        state: state.to_owned(),
        reason: (state != "active").then(|| "the kernel has no such\ntracepoint".to_owned()),
        lost: (state != "active").then(|| lost.to_owned()),
    }
}

fn look(width: usize, top: usize, color: bool) -> Look<'static> {
    Look { width, top, pairs: 5, groups: &[], color }
}

/// A report whose numbers have the given size.
fn report(largest_ns: u64) -> Report {
    let tasks = HOSTILE
        .iter()
        .enumerate()
        .map(|(index, name)| TaskFigures {
            tid: 4_194_300 + index as u32,
            comm: name.to_vec(),
            state: if index % 2 == 0 { "exited" } else { "running" },
            user_ns: Some(largest_ns / 2),
            unclassified_ns: Some(if index == 1 { largest_ns / 8 } else { 0 }),
            delta_user_ns: Some(-(largest_ns as i64) / 4),
            skip_in_ns: Some(largest_ns / 3),
            ..samples::task("", largest_ns - index as u64)
        })
        .collect();
    let mut report = samples::report(tasks);
    report.sentences = vec!["a sentence of many words ".repeat(12) + &"w".repeat(130)];
    report.header.hooks = vec![hook("sched_switch", "active", ""), hook("a", "absent", "x")];
    report.header.kernel = "6.18.44-a-very-long-name-of-a-vendor-s-kernel\x1b[2J".to_owned();
    report.trailer.map_full = 3;
    report
}

#[test]
fn every_line_fits_and_steers_nothing() {
    for largest_ns in [2_000, 80_000_000, 7_000_000_000, 123_456_789_012, u64::MAX / 4] {
        let report = report(largest_ns);
        for width in [60, 61, 79, 80, 100, 119, 120, 132, 160, 250] {
            for top in [1, 3, 10] {
                let text = render(&report, &look(width, top, false));
                for line in text.lines() {
                    assert!(
                        line.width() <= width,
                        "{largest_ns} {width}: {}: {line}",
                        line.width()
                    );
                    assert!(!line.chars().any(char::is_control), "{line:?}");
                }
                assert!(!text.contains('\u{202e}'));
            }
        }
    }
}

#[test]
fn colour_only_adds() {
    let report = report(80_000_000);
    for width in [60, 80, 120, 200] {
        let colored = render(&report, &look(width, 3, true));
        assert!(colored.contains("\x1b[31m"), "a large difference is red");
        let mut plain = String::new();
        let mut rest = colored.as_str();
        while let Some((before, after)) = rest.split_once('\x1b') {
            plain.push_str(before);
            rest = after.split_once('m').unwrap().1;
        }
        plain.push_str(rest);
        let trim = |text: &str| text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n");
        assert_eq!(trim(&plain), trim(&render(&report, &look(width, 3, false))));
    }
}

#[test]
fn one_task_on_80_columns() {
    let mut report = samples::report(vec![TaskFigures {
        tid: 30197,
        state: "exited",
        user_ns: Some(10_827_000),
        system_ns: Some(50_000_000),
        hardirq_ns: Some(6_000_000),
        softirq_ns: Some(293_000),
        unclassified_ns: Some(512_000),
        reported_user_ns: 11_964_000,
        reported_system_ns: 71_864_000,
        reported_runtime_ns: 83_828_000,
        delta_user_ns: Some(1_137_000),
        delta_system_ns: Some(15_571_000),
        delta_runtime_ns: 16_196_000,
        skip_in_ns: Some(16_300_000),
        skip_out_ns: None,
        path_out_ns: None,
        ..samples::task("ls", 67_632_000)
    }]);
    report.header.hooks = vec![
        hook("sched_switch", "active", ""),
        hook("irq_a", "absent", "vector time"),
        hook("irq_b", "absent", "vector time"),
        hook("irq_c", "absent", "vector time"),
        hook("irq_d", "absent", "vector time"),
        hook("sys_enter", "refused", "the split"),
    ];
    report.sentences = vec!["Because.".to_owned()];
    let expected = "\
observer 0.1.0 · Linux 6.18.44 x86_64 · accounting tick, HZ 250 (± 4 ms)
  preempt none · 1 of 6 hooks active
irq_a, irq_b, irq_c and 1 more absent (the kernel has no such tracepoint); what
  is lost: vector time
sys_enter refused (the kernel has no such tracepoint); what is lost: the split

TASK               ms     measured reported difference        %  clock skip
ls                 user     10.827   11.964     +1.137  +10.5 %  in  16.300
30197              system   56.293   71.864    +15.571  +27.7 %  out      -
exited             total    67.632   83.828    +16.196  +23.9 %
                           ± 0.512 unclassified: user or system

CAUSES, ms                          ls 30197
clock skip                                 -
switch path                                -
interrupts, steal left out                 -
residual (unexplained)                     -
= difference of run time             +16.196
user share of that                     0.000
split of user and system              +1.137
= difference of user time             +1.137
ticks behind the split                    16
quantum of the split                 ± 5.239
scatter of so many ticks             ± 7.685
the split is               within resolution

Because.

observer itself: 12.300 ms CPU, hooks ran 12345 times (1.200 ms) in 100.000 ms;
  lost: nothing; residual +0.012 ms (unexplained)
";
    assert_eq!(render(&report, &look(80, 20, false)), expected);
}

#[test]
fn ended_tasks_that_are_sums_are_in_the_rest_and_in_the_whole() {
    let folded = |members, oncpu_ns| Folded {
        members,
        figures: TaskFigures { state: "exited", ..samples::task("gone", oncpu_ns) },
        ..Folded::default()
    };
    let (folded, tasks) = ([folded(7_000, 900), folded(2, 40)], [samples::task("a", 5)]);
    let named = |top, tasks: &[TaskFigures]| -> Vec<(String, u64)> {
        let rows = rows(tasks, &folded, &[], top);
        rows.into_iter().map(|row| (row.name, row.figures.oncpu_ns)).collect()
    };
    let row = |name: &str, ns| (name.to_owned(), ns);
    assert_eq!(
        named(20, &tasks),
        [row("a", 5), row("7002 other ended tasks", 940), row("all 7003 tasks", 945)]
    );
    let two = [samples::task("a", 5), samples::task("b", 4)];
    assert_eq!(
        named(1, &two),
        [row("a", 5), row("7003 other tasks", 944), row("all 7004 tasks", 949)]
    );
}

#[test]
fn one_line_per_task_on_wide_terminals() {
    let report = report(80_000_000);
    for width in [120, 140, 200] {
        let text = render(&report, &look(width, 10, false));
        let rows = text.lines().take_while(|line| !line.starts_with("CAUSES"));
        let rows = rows.filter(|line| line.contains("41943")).count();
        assert_eq!(rows, HOSTILE.len(), "{text}");
        assert!(text.contains("4194300* bash"), "{text}");
        assert!(text.contains("4194303  e"), "{text}");
        assert!(text.contains("± 10.000"), "{text}");
    }
    assert!(render(&report, &look(200, 10, false)).contains(" -50.0 %"), "where there is room");
    assert!(!render(&report, &look(120, 10, false)).contains(" %"));
}

#[test]
fn the_rest_is_summed_exactly() {
    let report = report(123_456_789_013);
    let rows = rows(&report.tasks, &[], &[], 4);
    assert_eq!(rows.len(), 6);
    assert_eq!(rows[4].name, "2 other tasks");
    assert_eq!(rows[4].figures.oncpu_ns, 2 * 123_456_789_013 - 4 - 5);
    assert_eq!(rows[4].figures.user_ns, Some(123_456_789_012));
    assert_eq!(rows[5].name, "all 6 tasks");
    assert_eq!(rows[5].figures.oncpu_ns, 6 * 123_456_789_013 - 15);
    assert_eq!(rows[5].figures.delta_user_ns, Some(-6 * (123_456_789_013 / 4)));
    let one = super::rows(&report.tasks[..1], &[], &[], 20);
    assert_eq!(one.len(), 1);
    assert_eq!(super::rows(&report.tasks[..2], &[], &[], 1)[1].name, "1 other task");
}

#[test]
fn hooks_that_an_option_left_out_share_a_line() {
    let off = |name: &str, reason: &str, refines| HookLine {
        state: "off".to_owned(),
        reason: Some(reason.to_owned()),
        refines,
        ..hook(name, "off", "the split")
    };
    let mut report = report(1_000);
    report.header.hooks = vec![
        hook("sched_switch", "active", ""),
        off("sys_enter", "left out by --no-split", false),
        off("sys_exit", "left out by --no-split: totals do without it", false),
        off("sched_waking", "left out by --without", false),
        off("update_rq_clock", "attached only on request", true),
    ];
    let text = render(&report, &look(80, 1, false));
    assert!(
        text.contains("\nhooks off: 2 left out by --no-split; 1 left out by --without\n"),
        "{text}"
    );
    assert!(!text.contains("what is lost") && !text.contains("refine"), "{text}");
}

#[test]
fn a_sum_lacks_what_one_task_lacks() {
    let some = samples::task("a", 5_000_000);
    let none = TaskFigures { user_ns: None, skip_in_ns: None, ..samples::task("b", 3_000_000) };
    let rows = rows(&[some, none], &[], &[], 1);
    let all = &rows[2].figures;
    assert_eq!((all.user_ns, all.skip_in_ns, all.skip_out_ns), (None, None, Some(0)));
    let block = Block::new(&rows[2], Scale::FINE);
    assert_eq!((&*block.lines[0].own, &*block.lines[0].percent), ("-", "-"));
}

#[test]
fn the_largest_number_chooses_the_decimals() {
    assert!(render(&report(99_000_000), &look(80, 1, false)).contains(" 99.000 "));
    assert!(render(&report(123_456_789_012), &look(80, 1, false)).contains(" 123456.8 "));
}

#[test]
fn groups_have_rows_of_their_own_and_the_sum_is_that_of_all_tasks() {
    let mut tasks = vec![
        samples::task("a", 5_000_000),
        samples::task("b", 3_000_000),
        samples::task("a", 1_000_000),
    ];
    tasks[2].state = "exited";
    let groups =
        crate::model::group::groups(&tasks, &[], crate::model::By::Comm, &Default::default());
    let rows = rows(&tasks, &[], &groups, 1);
    let shown: Vec<(&str, &str, u64)> =
        rows.iter().map(|row| (&*row.name, &*row.note, row.figures.oncpu_ns)).collect();
    assert_eq!(
        shown,
        [
            ("a", "2 tasks", 6_000_000),
            ("1 other group", "", 3_000_000),
            ("all 3 tasks", "", 9_000_000)
        ]
    );
    let report = samples::report(tasks);
    let text = render(&report, &Look { groups: &groups, ..look(80, 20, false) });
    assert!(text.contains("\n2 tasks            total "), "{text}");
}

#[test]
fn tasks_are_sorted_by_time_on_the_cpu() {
    let tasks = vec![samples::task("small", 1_000), samples::task("large", 9_000)];
    let names: Vec<String> = rows(&tasks, &[], &[], 5).into_iter().map(|row| row.name).collect();
    assert_eq!(names, ["large", "small", "all 2 tasks"]);
}

#[test]
fn losses_are_named_with_their_remedy() {
    let mut report = samples::report(vec![]);
    report.trailer.map_full = 7;
    report.trailer.lost_events = 2;
    report.trailer.recursion_misses = Some(5);
    report.trailer.clock_jumps = 1;
    report.trailer.residual_ns = None;
    let text = render(&report, &look(400, 1, false));
    let losses = "lost: 7 tasks not observed (no free slot: raise --max-tasks), 2 readings missed, 5 hook runs left \
                  out by the kernel, 1 clock jumps; residual not measured";
    assert!(text.contains(losses), "{text}");
    report.trailer = Trailer { recursion_misses: None, hook_ns: None, ..Trailer::default() };
    let text = render(&report, &look(200, 1, false));
    assert!(text.contains("(time not measured)"), "{text}");
    assert!(text.contains("lost: nothing known"), "{text}");
}

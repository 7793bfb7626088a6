//! The view as a user sees it: snapshots, and what keys do.

use insta::assert_snapshot;
use unicode_width::UnicodeWidthStr as _;

use super::{
    Action, Effect, Press, csv,
    keys::BINDINGS,
    samples::{MS, SECOND, model, reading, screen, task, tasks, type_keys},
    state::Tab,
};
use crate::model::TaskFigures;

#[test]
fn tasks_at_each_width() {
    for columns in [60, 80, 120, 250] {
        assert_snapshot!(format!("tasks_{columns}"), screen(&mut model(columns, 16)));
    }
}

#[test]
fn detail_of_a_task_and_of_a_pair() {
    let mut shown = model(124, 46);
    type_keys(&mut shown, "\n");
    assert_snapshot!("detail_task", screen(&mut shown));
    type_keys(&mut shown, "\t");
    assert_snapshot!("detail_pair", screen(&mut shown));
    let mut narrow = model(60, 20);
    type_keys(&mut narrow, "\n");
    assert_snapshot!("detail_narrow", screen(&mut narrow));
}

#[test]
fn a_long_count_of_switches_is_shown_whole() {
    let mut shown = model(60, 30);
    let task = TaskFigures { skip_in: Some(1_234_567), ..task(7, b"busy", 900, 40) };
    shown.take(reading(3, vec![task]));
    type_keys(&mut shown, "\n");
    assert!(screen(&mut shown).contains(" 1234567\n"), "{}", screen(&mut shown));
}

#[test]
fn cycles_are_shown_where_they_are_counted() {
    let counted = |tid, name: &[u8], times: u64, discarded| TaskFigures {
        tgid: 7,
        cycles_user: Some(900_000_000 * times),
        cycles_system: Some(100_000_000 * times),
        cycles_discarded: Some(discarded),
        ..task(tid, name, 400 * times, 0)
    };
    let mut shown = model(124, 40);
    for second in [3, 4] {
        let tasks = vec![counted(7, b"busy", second, 0), counted(8, b"too", 2 * second, second)];
        let mut reading = reading(second, tasks);
        reading.report.pairs[1].wakeup_cost_cycles = Some(4_200 * second);
        shown.take(reading);
    }
    type_keys(&mut shown, "jj\n");
    // What the second between the two readings added; by time, three quarters are user.
    assert_snapshot!("detail_cycles", screen(&mut shown));
    // A process is the sum of its threads.
    type_keys(&mut shown, "p");
    let text = screen(&mut shown);
    for words in ["cycles 2700000000 user, 300000000 system", "runs without known cycles 1"] {
        assert!(text.contains(words), "{text}");
    }
    type_keys(&mut shown, "\t");
    assert!(screen(&mut shown).contains("cycles in these wakeups 16800"), "{}", screen(&mut shown));
    let without = screen(&mut {
        let mut shown = model(124, 60);
        type_keys(&mut shown, "\n");
        shown
    });
    assert!(!without.contains("cycles"), "{without}");
}

#[test]
fn the_other_tabs() {
    let mut shown = model(130, 12);
    type_keys(&mut shown, "\t");
    assert_snapshot!("pairs", screen(&mut shown));
    type_keys(&mut shown, "\t");
    assert_snapshot!("cpus", screen(&mut shown));
    type_keys(&mut shown, "\t");
    assert_snapshot!("hooks", screen(&mut shown));
}

#[test]
fn help_names_every_key() {
    let mut shown = model(100, 60);
    type_keys(&mut shown, "?");
    let text = screen(&mut shown);
    assert_snapshot!("help", text);
    for binding in BINDINGS {
        assert!(text.contains(binding.keys) && text.contains(binding.words), "{binding:?}");
    }
}

#[test]
fn a_tree_of_processes_and_threads() {
    let mut shown = model(80, 16);
    type_keys(&mut shown, "t");
    assert_snapshot!("tree", screen(&mut shown));
    type_keys(&mut shown, "tp");
    assert_snapshot!("processes", screen(&mut shown));
}

/// The rows of the table, from the titles on.
fn names(text: &str) -> Vec<String> {
    let lines = text.lines().skip_while(|line| !line.contains("NAME")).skip(1);
    lines
        .take_while(|line| !line.trim().is_empty() && !line.contains(" sum "))
        .filter_map(|line| line.split_whitespace().nth(1).map(str::to_owned))
        .collect()
}

#[test]
fn every_line_fits_and_nothing_steers_the_terminal() {
    for columns in (0..260).step_by(17) {
        for lines in [0, 1, 4, 5, 6, 9, 12, 24, 50] {
            for keys in ["", "\n", "t\n", "p\n", "\t", "\t\n", "\t\t", "\t\t\t", "?", "/x", "c\n"] {
                let mut shown = model(columns, lines);
                type_keys(&mut shown, keys);
                let text = screen(&mut shown);
                for line in text.lines() {
                    assert!(line.width() <= usize::from(columns), "{columns} {keys:?}: {line:?}");
                    assert!(!line.chars().any(char::is_control), "{line:?}");
                }
            }
        }
    }
}

#[test]
fn hostile_names_keep_the_columns_straight() {
    let names: [&[u8]; 6] = [
        b"plain",
        "日本語の名前です".as_bytes(),
        "e\u{301}e\u{301}e\u{301}".as_bytes(),
        b"\x1b]0;title\x07",
        "❤\u{fe0f}❤\u{fe0f}".as_bytes(),
        "\u{301}\u{301}".as_bytes(),
    ];
    for columns in [60, 80, 120] {
        let mut shown = model(columns, 20);
        let rows: Vec<TaskFigures> =
            (1..).zip(names).map(|(tid, name)| task(tid, name, 100, 7)).collect();
        shown.take(reading(3, Vec::new()));
        shown.take(reading(4, rows));
        let text = screen(&mut shown);
        // All rows show the same figures, so all end in the same column with the same text.
        let rows: Vec<&str> = text.lines().filter(|line| line.contains("+7.000")).collect();
        assert_eq!(rows.len(), 6, "{text}");
        for row in &rows {
            let start = row.find("+7.000").map(|byte| row[..byte].width());
            let first = rows[0].find("+7.000").map(|byte| rows[0][..byte].width());
            assert_eq!(start, first, "{text}");
        }
    }
}

#[test]
fn the_choice_sticks_to_the_task() {
    let mut shown = model(80, 16);
    type_keys(&mut shown, "jj");
    assert_eq!(names(&screen(&mut shown))[1], "strace");
    let chosen = shown.cursor.chosen().copied();
    // Now strace is the busiest, and comes first.
    shown.take(reading(3, {
        let mut tasks = tasks(2);
        tasks[1] = task(200, b"strace", 900, 19);
        tasks
    }));
    assert_eq!(names(&screen(&mut shown))[0], "strace");
    assert_eq!((shown.cursor.chosen().copied(), shown.chosen_row()), (chosen, Some(0)));
    type_keys(&mut shown, "p");
    let row = shown.chosen_row().and_then(|row| shown.rows.row(row));
    assert_eq!(row.map(|(_, _, task)| task.tid), Some(200));
}

#[test]
fn sorting_reversing_and_filtering() {
    let mut shown = model(120, 16);
    assert_eq!(names(&screen(&mut shown))[..2], ["cc1", "strace"]);
    type_keys(&mut shown, "r");
    assert_eq!(names(&screen(&mut shown)).last().map(String::as_str), Some("cc1"));
    // From cpu% on: the reported figures, then the difference.
    type_keys(&mut shown, "ssss");
    assert!(screen(&mut shown).contains("sort diff ms ▼"));
    assert_eq!(names(&screen(&mut shown))[0], "strace");
    type_keys(&mut shown, "/CC");
    assert_eq!(names(&screen(&mut shown)), ["cc1"]);
    type_keys(&mut shown, "\x1b");
    assert_eq!(names(&screen(&mut shown)).len(), 5);
    type_keys(&mut shown, "/201\n");
    assert_eq!(names(&screen(&mut shown)), ["cc1"]);
    type_keys(&mut shown, "\x1b");
    assert_eq!(names(&screen(&mut shown)).len(), 5);
}

#[test]
fn every_column_sorts_at_every_width() {
    for columns in [60, 120, 250] {
        let mut shown = model(columns, 16);
        for tab in 0..2 {
            let first = screen(&mut shown);
            let mut count = 0;
            loop {
                type_keys(&mut shown, "s");
                count += 1;
                if screen(&mut shown) == first {
                    break;
                }
                assert!(count < 30, "{columns}");
            }
            assert!(count > 4, "{tab}");
            type_keys(&mut shown, "\t");
        }
    }
}

#[test]
fn ended_tasks_stay_until_purged() {
    let mut shown = model(80, 16);
    assert!(screen(&mut shown).contains("x as"));
    type_keys(&mut shown, "x");
    let text = screen(&mut shown);
    assert!(!text.contains("x as") && text.contains("1 row hidden"), "{text}");
    shown.take(reading(3, tasks(3)));
    assert!(!screen(&mut shown).contains("x as"));
    type_keys(&mut shown, "p");
    assert!(!screen(&mut shown).contains("x as"));
}

#[test]
fn a_pause_shows_what_came_meanwhile_at_its_end() {
    let mut shown = model(120, 16);
    type_keys(&mut shown, " ");
    let before = screen(&mut shown);
    assert!(before.contains("PAUSED"));
    shown.take(reading(3, tasks(3)));
    shown.take(reading(4, tasks(4)));
    assert_eq!(screen(&mut shown), before);
    type_keys(&mut shown, " ");
    // Two seconds' worth of difference: twice 18 ms.
    let text = screen(&mut shown);
    assert!(text.contains("-36.000") && text.contains("last 2.0 s"), "{text}");
}

#[test]
fn interval_and_cumulative() {
    let mut shown = model(120, 16);
    assert!(screen(&mut shown).contains("-18.000"));
    type_keys(&mut shown, "c");
    let text = screen(&mut shown);
    assert!(text.contains("-36.000") && text.contains("since the begin"), "{text}");
}

#[test]
fn the_end_of_the_target_and_a_lost_hook_are_said() {
    for columns in [60, 120] {
        let mut shown = model(columns, 16);
        shown.end();
        assert!(screen(&mut shown).contains("ENDED"));
        let mut next = reading(3, tasks(3));
        next.hooks[0].line.state = "refused".to_owned();
        shown.take(next);
        assert!(screen(&mut shown).contains("LOST HOOK: sched_switch"));
    }
    let mut next = reading(3, tasks(3));
    next.report.trailer.map_full = 7;
    let mut shown = model(60, 16);
    shown.take(next);
    assert!(screen(&mut shown).contains("lost: 7 tasks"));
}

#[test]
fn keys_ask_for_what_is_outside() {
    let mut shown = model(80, 16);
    assert_eq!(shown.press(Press::Char('q')), Effect::Quit);
    assert_eq!(shown.press(Press::Ctrl('c')), Effect::Quit);
    assert_eq!(shown.press(Press::Ctrl('z')), Effect::Suspend);
    assert_eq!(shown.press(Press::Char('e')), Effect::Export);
    assert_eq!(
        shown.press(Press::Char('-')),
        Effect::Interval(std::time::Duration::from_millis(500))
    );
    assert_eq!(shown.act(Action::Slower), Effect::Interval(std::time::Duration::from_secs(1)));
    // While a filter is typed, q is a letter; Ctrl-C still ends.
    type_keys(&mut shown, "/q");
    assert_eq!(shown.rows.wanted().filter, "q");
    assert_eq!(shown.press(Press::Ctrl('c')), Effect::Quit);
}

#[test]
fn the_export_is_what_is_shown() {
    let mut shown = model(60, 16);
    type_keys(&mut shown, "/cc1\n");
    let text = String::from_utf8(csv(&shown)).unwrap();
    assert_eq!(
        text,
        "TID,NAME,usr%,sys%,cpu%,rusr%,rsys%,diff ms\n201,cc1,30.0,10.0,40.0,28.2,10.0,-18.000\n"
    );
    for tab in Tab::ALL {
        assert_eq!(shown.tab(), tab);
        let text = csv(&shown);
        let mut reader = csv::Reader::from_reader(text.as_slice());
        assert!(reader.records().all(|record| record.is_ok()));
        type_keys(&mut shown, "\t");
    }
}

#[test]
fn figures_of_a_reused_tid_begin_at_zero() {
    let mut shown = model(80, 16);
    let again = TaskFigures { start_ns: 77, ..task(201, b"new", 100, 0) };
    shown.take(reading(3, vec![again]));
    let text = screen(&mut shown);
    let row = text.lines().find(|line| line.contains("new")).unwrap_or_default();
    assert!(row.contains("10.0"), "{text}");
}

#[test]
fn a_tree_with_a_loop_of_parents_shows_everybody_once() {
    let mut shown = model(80, 20);
    let one = TaskFigures { parent_tgid: 2, start_ns: 5, ..task(1, b"one", 5, 0) };
    let two = TaskFigures { parent_tgid: 1, start_ns: 5, ..task(2, b"two", 5, 0) };
    let own = TaskFigures { parent_tgid: 3, ..task(3, b"own", 5, 0) };
    shown.take(reading(3, vec![one, two, own]));
    type_keys(&mut shown, "t");
    assert_eq!(shown.rows.len(), 3);
}

#[test]
fn pages_and_ends() {
    let mut shown = model(80, 16);
    let many = |second: u64| -> Vec<TaskFigures> {
        (1..=500).map(|tid| task(tid, b"many", 1000 - u64::from(tid) + second, 0)).collect()
    };
    shown.take(reading(3, many(3)));
    let page = shown.page();
    assert_eq!(shown.rows.len(), 500);
    type_keys(&mut shown, "G");
    assert_eq!(shown.chosen_row(), Some(499));
    shown.press(Press::PageUp);
    assert_eq!(shown.chosen_row(), Some(499 - page));
    type_keys(&mut shown, "g");
    assert_eq!(shown.chosen_row(), Some(0));
    shown.press(Press::PageDown);
    shown.press(Press::Down);
    assert_eq!(shown.chosen_row(), Some(page + 1));
    // The chosen row stays on the screen when that gets smaller.
    shown.resize(60, 9);
    let window = shown.cursor.window(500, shown.page());
    assert!(window.contains(&(page + 1)), "{window:?}");
}

#[test]
fn sums_are_of_what_is_shown() {
    let mut shown = model(80, 16);
    let (then, now) = shown.rows.sum();
    let grown = now.oncpu_ns - then.map_or(0, |then| then.oncpu_ns);
    assert_eq!(grown, (400 + 150 + 20 + 2) * MS);
    type_keys(&mut shown, "/strace\n");
    let (_, now) = shown.rows.sum();
    assert_eq!(now.oncpu_ns, 2 * 150 * MS);
    assert_eq!(shown.span_ns(), SECOND);
}

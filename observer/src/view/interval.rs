//! Plain lines for each interval: what was added to each task since the last reading.

use std::collections::HashMap;

use super::{
    table::system,
    text::{Scale, cut, pad, squeeze, squeeze_count},
};
use crate::model::{TaskFigures, report::escape};

/// Below this, other columns give way to the name; a thread name has at most 15 bytes.
const NAME_LEAST: usize = 8;
const NAME_MOST: usize = 15;

/// The columns to the right of the name, in their order.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Column {
    User,
    System,
    Cpu,
    ReportedUser,
    ReportedSystem,
    ReportedCpu,
    Difference,
    SkipIn,
    SkipOut,
    Waits,
}

const COLUMNS: [Column; 10] = [
    Column::User,
    Column::System,
    Column::Cpu,
    Column::ReportedUser,
    Column::ReportedSystem,
    Column::ReportedCpu,
    Column::Difference,
    Column::SkipIn,
    Column::SkipOut,
    Column::Waits,
];

/// What gives way first on a narrow terminal; the reported CPU time follows from the difference.
const GIVE_WAY: [Column; 4] = [Column::ReportedCpu, Column::Waits, Column::SkipOut, Column::SkipIn];

impl Column {
    const fn title(self) -> &'static str {
        match self {
            Self::User => "usr%",
            Self::System => "sys%",
            Self::Cpu => "cpu%",
            Self::ReportedUser => "rusr%",
            Self::ReportedSystem => "rsys%",
            Self::ReportedCpu => "rcpu%",
            Self::Difference => "diff ms",
            Self::SkipIn => "in ms",
            Self::SkipOut => "out ms",
            Self::Waits => "waits",
        }
    }

    const fn width(self) -> usize {
        match self {
            Self::Difference => 8,
            Self::SkipIn | Self::SkipOut => 6,
            _ => 5,
        }
    }
}

/// The titles of the columns of [`interval_block`], one line.
#[must_use]
pub fn interval_title(width: usize) -> String {
    let (columns, name_width) = columns(width);
    let mut text = String::new();
    let cells = columns.iter().map(|column| (column.title().to_owned(), column.width()));
    push_line(&mut text, "INT", "TID", &pad("NAME", name_width), cells);
    text
}

/// One interval: `before` and `now` are successive readings, `elapsed_ns` apart.
///
/// `number` counts from 0; the first column shows it from 1, as the `interval` of the files does.
/// Percentages are of one CPU; those with an `r` are what the kernel reports; `diff ms` is reported minus measured run time; `in` and `out` are the clock skips. Tasks
/// with nothing new are left out, unless there is only one. Lines fit `width` from 60 cells on.
#[must_use]
pub fn interval_block(
    before: &[TaskFigures],
    now: &[TaskFigures],
    elapsed_ns: u64,
    number: u64,
    width: usize,
) -> String {
    let (columns, name_width) = columns(width);
    let mut text = String::new();
    // An account's opening tells two tasks with one tid apart as well as their start does, and stays the same
    // when an exec gives a thread the tid and the start of its leader (de_thread, fs/exec.c).
    // The account tells groups apart, which have no tid.
    let known: HashMap<(u64, u32, u64), &TaskFigures> =
        before.iter().map(|task| ((task.account, task.tid, task.opened_ns), task)).collect();
    let none = TaskFigures::default();
    let shown = (number + 1).to_string();
    let mut is_empty = true;
    for task in now {
        let then = [Some(task.tid), task.former_tid]
            .into_iter()
            .flatten()
            .find_map(|tid| known.get(&(task.account, tid, task.opened_ns)).copied())
            .unwrap_or(&none);
        if now.len() > 1 && is_idle(then, task) {
            continue;
        }
        is_empty = false;
        let name = pad(&escape(&task.comm), name_width);
        let cells = columns
            .iter()
            .map(|column| (cell(*column, then, task, elapsed_ns.max(1)), column.width()));
        let tid = if task.tid == 0 { "-".to_owned() } else { task.tid.to_string() };
        push_line(&mut text, &shown, &tid, &name, cells);
    }
    if is_empty {
        let words = cut("no observed task ran", width.saturating_sub(14));
        push_line(&mut text, &shown, "-", &words, std::iter::empty());
    }
    text
}

/// The line for tasks that began to be too many before the interval was over; its groups have them, if there are any.
#[must_use]
pub fn interval_unshown(number: u64, count: u64, width: usize) -> String {
    let mut text = String::new();
    let words = format!("{count} more tasks ended: in the sums at the end");
    let words = cut(&words, width.saturating_sub(14));
    push_line(&mut text, &(number + 1).to_string(), "-", &words, std::iter::empty());
    text
}

/// The columns that fit, and the room for the name.
fn columns(width: usize) -> (Vec<Column>, usize) {
    let mut columns = COLUMNS.to_vec();
    let mut give_way = GIVE_WAY.into_iter();
    loop {
        let others = 5 + 8 + columns.iter().map(|column| 1 + column.width()).sum::<usize>();
        let room = width.saturating_sub(others);
        if room >= NAME_LEAST {
            return (columns, room.min(NAME_MOST));
        }
        match give_way.next() {
            Some(least) => columns.retain(|column| *column != least),
            None => return (columns, room),
        }
    }
}

fn push_line(
    text: &mut String,
    number: &str,
    tid: &str,
    name: &str,
    cells: impl Iterator<Item = (String, usize)>,
) {
    let mut line = format!("{number:>4} {tid:>7} {name}");
    for (cell, width) in cells {
        line.push_str(&format!(" {cell:>width$}"));
    }
    text.push_str(line.trim_end());
    text.push('\n');
}

fn is_idle(then: &TaskFigures, now: &TaskFigures) -> bool {
    now.oncpu_ns == then.oncpu_ns
        && now.reported_runtime_ns == then.reported_runtime_ns
        && now.waits.unwrap_or(0) == then.waits.unwrap_or(0)
}

fn cell(column: Column, then: &TaskFigures, now: &TaskFigures, elapsed_ns: u64) -> String {
    let width = column.width();
    let grown = |pick: fn(&TaskFigures) -> Option<u64>| {
        pick(now).map(|new| new.saturating_sub(pick(then).unwrap_or(0)))
    };
    let percent = |pick: fn(&TaskFigures) -> Option<u64>| {
        grown(pick)
            .map_or("-".to_owned(), |ns| squeeze(ns as f64 * 100.0 / elapsed_ns as f64, width))
    };
    let ms = |pick: fn(&TaskFigures) -> Option<u64>| {
        grown(pick).map_or("-".to_owned(), |ns| {
            let fine = format!("{:.2}", ns as f64 / 1e6);
            if fine.len() <= width { fine } else { squeeze(ns as f64 / 1e6, width) }
        })
    };
    match column {
        Column::User => percent(|task| task.user_ns),
        Column::System => percent(system),
        Column::Cpu => percent(|task| Some(task.oncpu_ns)),
        Column::ReportedUser => percent(|task| Some(task.reported_user_ns)),
        Column::ReportedSystem => percent(|task| Some(task.reported_system_ns)),
        Column::ReportedCpu => percent(|task| Some(task.reported_runtime_ns)),
        Column::Difference => {
            let delta_ns = now.delta_runtime_ns.saturating_sub(then.delta_runtime_ns);
            let fine = Scale::FINE.signed(Some(delta_ns));
            if fine.len() <= width { fine } else { squeeze(delta_ns as f64 / 1e6, width) }
        }
        Column::SkipIn => ms(|task| task.skip_in_ns),
        Column::SkipOut => ms(|task| task.skip_out_ns),
        Column::Waits => {
            grown(|task| task.waits).map_or("-".to_owned(), |count| squeeze_count(count, width))
        }
    }
}

#[cfg(test)]
mod tests {
    use unicode_width::UnicodeWidthStr as _;

    use super::*;

    fn task(tid: u32, oncpu_ns: u64) -> TaskFigures {
        TaskFigures {
            tid,
            comm: b"spin\x1b[2J\n\xe6\x97".to_vec(),
            state: "running",
            opened_ns: 5,
            oncpu_ns,
            user_ns: Some(oncpu_ns),
            reported_runtime_ns: oncpu_ns * 2,
            delta_runtime_ns: oncpu_ns as i64,
            ..TaskFigures::default()
        }
    }

    #[test]
    fn shows_what_was_added() {
        let before = [TaskFigures { comm: b"a".to_vec(), ..task(7, 1_000_000_000) }];
        let now = [TaskFigures {
            comm: b"a".to_vec(),
            skip_in_ns: Some(3_000_000),
            waits: Some(12),
            ..task(7, 1_250_000_000)
        }];
        let text = interval_block(&before, &now, 500_000_000, 0, 100);
        assert_eq!(
            interval_title(100) + &text,
            " INT     TID NAME             usr%  sys%  cpu% rusr% rsys% rcpu%  diff ms  in ms out ms waits\n\
             \u{20}  1       7 a                50.0     -  50.0   0.0   0.0 100.0 +250.000   3.00      -    12\n"
        );
        let later = interval_block(&before, &now, 500_000_000, 1, 100);
        assert!(later.starts_with("   2       7 a"), "{later}");
    }

    #[test]
    fn a_reused_tid_is_another_task_and_an_exec_is_not() {
        let before = [task(7, 900)];
        let reused = TaskFigures { opened_ns: 6, ..task(7, 100_000_000) };
        let text = interval_block(&before, &[reused], 1_000_000_000, 1, 100);
        assert!(text.contains(" 10.0 "), "{text}");
        let moved =
            TaskFigures { tid: 3, former_tid: Some(7), start_ns: 9, ..task(7, 100_000_900) };
        let text = interval_block(&before, &[moved], 1_000_000_000, 1, 100);
        assert!(text.contains(" 10.0 "), "{text}");
        assert!(text.contains("+100.000"), "{text}");
    }

    #[test]
    fn groups_are_told_apart_without_a_tid() {
        let group =
            |account, name: &[u8], ns| TaskFigures { account, comm: name.to_vec(), ..task(0, ns) };
        let before = [group(1, b"sh", 100_000_000), group(2, b"cc", 500_000_000)];
        let now = [group(1, b"sh", 200_000_000), group(2, b"cc", 700_000_000)];
        let text = interval_block(&before, &now, 1_000_000_000, 1, 100);
        let lines: Vec<Vec<&str>> =
            text.lines().map(|line| line.split_whitespace().take(4).collect()).collect();
        assert_eq!(lines, [["2", "-", "sh", "10.0"], ["2", "-", "cc", "20.0"]], "{text}");
    }

    #[test]
    fn idle_tasks_are_left_out_unless_alone() {
        let both = [task(1, 50), task(2, 60)];
        let text = interval_block(&both, &both, 1_000, 1, 80);
        assert_eq!(text, "   2       - no observed task ran\n");
        let one = interval_block(&both[..1], &both[..1], 1_000, 1, 80);
        assert!(one.contains("  0.0"), "{one}");
        let moved = [task(1, 50), task(2, 90)];
        assert_eq!(interval_block(&both, &moved, 1_000, 1, 80).lines().count(), 1);
    }

    #[test]
    fn every_line_fits() {
        let huge = TaskFigures {
            skip_in_ns: Some(u64::MAX / 2),
            waits: Some(u64::MAX),
            user_ns: Some(u64::MAX),
            delta_runtime_ns: i64::MIN,
            ..task(4_194_304, i64::MAX as u64)
        };
        for width in [60, 80, 100, 120, 200] {
            for now in [vec![task(4_194_304, 900_000_000)], vec![huge.clone()], vec![]] {
                let text =
                    interval_title(width) + &interval_block(&[], &now, 1_000_000_000, 0, width);
                for line in text.lines() {
                    assert!(line.width() <= width, "{width}: {line}");
                    assert!(!line.chars().any(char::is_control), "{line:?}");
                }
            }
        }
    }
}

//! The causes of the differences, as a sum that can be checked by eye.

use std::{cmp::Reverse, fmt::Write as _};

use super::{
    rows::Row,
    text::{Scale, cut, who},
    verdict::matters,
};
use crate::model::{Causes, Header, TaskFigures, causes::Source};

/// `interrupts, steal left out`.
const LABEL: usize = 26;
/// `within resolution`.
const COLUMN: usize = 17;
/// Lines with a PMU, and how many of them are for it.
const LINES: usize = 15;
const BY_CYCLES: usize = 2;
/// More would not be read.
const MOST: usize = 5;

/// A column per row of the table that matters, the largest difference first; if none matters, the largest one.
/// Empty where nothing ran.
///
/// Each figure is rounded so that the parts as shown add up to the sum as shown; one may so be off by one in its
/// last digit.
pub fn block(header: &Header, rows: &[Row], width: usize) -> String {
    let mut rows: Vec<&Row> =
        rows.iter().filter(|row| row.is_one && (size(&row.figures) != 0)).collect();
    rows.sort_by_key(|row| Reverse(size(&row.figures)));
    let weighty =
        rows.iter().filter(|row| matters(header, size(&row.figures), row.figures.oncpu_ns)).count();
    let room = (width.saturating_sub(LABEL) / (1 + COLUMN)).clamp(1, MOST);
    rows.truncate(weighty.clamp(1, room));
    if rows.is_empty() {
        return String::new();
    }
    let largest_ns = rows.iter().map(|row| size(&row.figures)).max().unwrap_or(0);
    let scale = Scale::for_largest(largest_ns);
    let source = Source::of(header);
    let columns: Vec<Vec<String>> = rows.iter().map(|row| column(row, source, scale)).collect();
    let mut text = String::new();
    // The last lines are for a machine with a PMU.
    let has_cycles = rows.iter().any(|row| row.figures.user_percent_by_cycles().is_some());
    let lines = if has_cycles { LINES } else { LINES - BY_CYCLES };
    for (index, label) in labels(scale).iter().take(lines).enumerate() {
        let _ = write!(text, "{label:<LABEL$}");
        for column in &columns {
            let cell = &column[index];
            let fill = COLUMN.saturating_sub(unicode_width::UnicodeWidthStr::width(cell.as_str()));
            let _ = write!(text, " {}{cell}", " ".repeat(fill));
        }
        text.push('\n');
    }
    text
}

fn labels(scale: Scale) -> [String; LINES] {
    [
        format!("CAUSES, {}", scale.unit),
        "clock skip".to_owned(),
        "switch path".to_owned(),
        "interrupts, steal left out".to_owned(),
        "residual (unexplained)".to_owned(),
        "= difference of run time".to_owned(),
        "user share of that".to_owned(),
        "split of user and system".to_owned(),
        "= difference of user time".to_owned(),
        "ticks behind the split".to_owned(),
        "quantum of the split".to_owned(),
        "scatter of so many ticks".to_owned(),
        "the split is".to_owned(),
        "user share, by the clock".to_owned(),
        "user share, by cycles".to_owned(),
    ]
}

fn column(row: &Row, source: Source, scale: Scale) -> Vec<String> {
    let causes = Causes::of(&row.figures, source);
    let none = || "-".to_owned();
    let mut cells = vec![who(&row.name, row.tid, COLUMN)];
    match causes.parts {
        Some(parts) => {
            let skip_ns = parts.skip_ns.unwrap_or(0);
            let parts_ns = [skip_ns, parts.path_ns, parts.left_out_ns, parts.residual_ns];
            let (sum, shown) = scale.add_up(parts_ns);
            cells.extend(shown.into_iter().chain([sum]).map(|steps| scale.signed_steps(steps)));
            if parts.skip_ns.is_none() {
                // Nobody told it apart from the path below.
                cells[1] = none();
            }
        }
        None => {
            cells.extend([none(), none(), none(), none()]);
            cells.push(scale.signed_steps(scale.add_up([causes.total_ns]).0));
        }
    }
    match causes.user {
        Some(user) => {
            let (sum, shown) = scale.add_up([user.total_part_ns, user.split_part_ns]);
            cells.extend(shown.into_iter().chain([sum]).map(|steps| scale.signed_steps(steps)));
        }
        None => cells.extend([none(), none(), none()]),
    }
    cells.push(causes.ticks.map_or_else(none, |ticks| ticks.to_string()));
    cells.push(format!("± {}", scale.show(Some(causes.quantum_ns))));
    cells.push(
        causes.ticks.map_or_else(none, |_| format!("± {}", scale.show(Some(causes.scatter_ns)))),
    );
    cells.push(match causes.split_is() {
        Some(word) => word.name().to_owned(),
        None if causes.user_is_bound => "not known".to_owned(),
        None => none(),
    });
    let percent = |share: Option<f64>| share.map_or_else(none, |share| format!("{share:.1} %"));
    cells.push(percent(row.figures.user_percent_by_time()));
    cells.push(percent(row.figures.user_percent_by_cycles()));
    // No figure of 64 bits is wider in any scale, but the column must hold whatever comes.
    cells.into_iter().map(|cell| cut(&cell, COLUMN)).collect()
}

fn size(task: &TaskFigures) -> u64 {
    task.delta_runtime_ns.unsigned_abs().max(task.delta_user_ns.map_or(0, i64::unsigned_abs))
}

#[cfg(test)]
mod tests {
    use unicode_width::UnicodeWidthStr as _;

    use super::*;
    use crate::view::{
        rows::rows,
        samples::{report, task},
    };

    fn ls() -> TaskFigures {
        TaskFigures {
            tid: 124,
            skip_in_ns: Some(1_000_400),
            skip_out_ns: Some(20_000_000),
            path_in_ns: Some(2_400),
            left_out_ns: Some(12_600),
            delta_runtime_ns: -19_009_400,
            residual_ns: Some(400),
            delta_user_ns: Some(-7_000_500),
            delta_user_total_ns: Some(-9_000_250),
            delta_user_split_ns: Some(1_999_750),
            ..task("ls", 76_000_000)
        }
    }

    fn shown(tasks: Vec<TaskFigures>, width: usize) -> String {
        let report = report(tasks);
        block(&report.header, &rows(&report.tasks, &[], &[], 20), width)
    }

    #[test]
    fn the_parts_add_up_as_shown() {
        let expected = "\
CAUSES, ms                            ls 124
clock skip                           -19.000
switch path                           +0.002
interrupts, steal left out            -0.012
residual (unexplained)                +0.001
= difference of run time             -19.009
user share of that                    -9.000
split of user and system              +1.999
= difference of user time             -7.001
ticks behind the split                    19
quantum of the split                 ± 4.000
scatter of so many ticks             ± 0.000
the split is               within resolution
";
        let text = shown(vec![ls(), task("quiet", 5)], 80);
        let words = |text: &str| -> Vec<String> {
            text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
        };
        assert_eq!(words(&text), words(expected), "{text}");
        let figure = |line: &str| -> i64 {
            line.split_whitespace().last().unwrap().replace('.', "").parse().unwrap()
        };
        let figures: Vec<i64> = text.lines().skip(1).take(8).map(figure).collect();
        assert_eq!(figures[..4].iter().sum::<i64>(), figures[4]);
        assert_eq!(figures[5..7].iter().sum::<i64>(), figures[7]);
    }

    #[test]
    fn what_matters_has_a_column_and_else_the_largest_has_one() {
        let strace = TaskFigures { delta_runtime_ns: 20_000_000, ..task("strace", 100_000_000) };
        let both = shown(vec![strace, ls(), task("quiet", 5)], 80);
        let title: Vec<&str> = both.lines().next().unwrap().split_whitespace().collect();
        assert_eq!(title, ["CAUSES,", "ms", "strace", "100", "ls", "124"]);
        assert!(both.contains("+20.000"), "the residual is all of it: {both}");
        let small = TaskFigures { delta_runtime_ns: 3, ..task("small", 9_000_000) };
        assert!(shown(vec![task("quiet", 5), small], 80).contains("small 100"));
        assert_eq!(shown(vec![task("quiet", 5)], 80), "", "nothing differs");
        assert_eq!(shown(vec![], 80), "");
    }

    #[test]
    fn what_is_not_measured_is_not_shown_as_zero() {
        let bare = TaskFigures { skip_in_ns: None, path_in_ns: None, delta_user_ns: None, ..ls() };
        let text = shown(vec![bare], 80);
        let last = |line: usize| text.lines().nth(line).unwrap().split_whitespace().last().unwrap();
        assert_eq!((last(1), last(4), last(5), last(8), last(12)), ("-", "-", "-19.009", "-", "-"));
    }

    #[test]
    fn where_skips_are_not_told_apart_the_path_has_them() {
        let unseen = TaskFigures {
            skip_in_ns: None,
            skip_out_ns: None,
            path_in_ns: Some(0),
            path_out_ns: Some(19_000_000),
            ..ls()
        };
        let text = shown(vec![unseen], 80);
        let last = |line: usize| text.lines().nth(line).unwrap().split_whitespace().last().unwrap();
        assert_eq!((last(1), last(2), last(5)), ("-", "-19.000", "-19.009"));
    }

    #[test]
    fn shares_by_cycles_are_shown_where_they_are_counted() {
        let counted = TaskFigures {
            cycles_user: Some(740),
            cycles_system: Some(260),
            user_ns: Some(57_000_000),
            ..ls()
        };
        let text = shown(vec![counted, TaskFigures { tid: 125, ..ls() }], 80);
        let cells = |label: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(label)).unwrap();
            line.split_whitespace().collect::<Vec<_>>().join(" ")
        };
        assert_eq!(cells("user share, by the clock"), "75.0 % 100.0 %");
        assert_eq!(cells("user share, by cycles"), "74.0 % -");
        assert!(!shown(vec![ls()], 80).contains("user share, by"));
    }

    #[test]
    fn a_split_that_nobody_knows_is_not_judged() {
        let bound = TaskFigures { crossing_cut_ns: Some(5_000_000), user_ns: Some(0), ..ls() };
        assert!(shown(vec![bound], 80).trim_end().ends_with(" not known"));
    }

    #[test]
    fn every_line_fits() {
        let huge = TaskFigures {
            comm: "日本語の名前の長い".as_bytes().to_vec(),
            tid: 4_194_303,
            skip_in_ns: Some(u64::MAX),
            skip_out_ns: Some(0),
            delta_user_ns: Some(i64::MIN),
            delta_runtime_ns: i64::MIN,
            reported_runtime_ns: u64::MAX,
            raw_utime_ns: u64::MAX,
            ..ls()
        };
        for width in [60, 61, 79, 80, 100, 120, 200] {
            let text =
                shown(vec![huge.clone(), ls(), huge.clone(), ls(), ls(), huge.clone()], width);
            assert_eq!(text.lines().count(), 13);
            for line in text.lines() {
                assert!(line.width() <= width, "{width}: {line}");
            }
        }
    }
}

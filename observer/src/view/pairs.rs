//! The pairs below the table: who woke whom, who traced whom, and whose time went to whom.

use std::cmp::Reverse;

use super::text::{Scale, cut, pad, squeeze, squeeze_count, who};
use crate::model::{PairFigures, PairKind, Party, report::escape};

/// Between the two sides of a pair.
const ARROW: &str = " -> ";
/// A thread name of 15 bytes, a blank, and a tid.
const SIDE_MOST: usize = 15 + 1 + 7;
/// Room for where the wakeups came from.
const ORIGIN: usize = 18;

/// A column to the right of the two sides.
struct Column {
    title: &'static str,
    width: usize,
    cell: fn(&PairFigures, usize) -> String,
}

const WAKE: [Column; 6] = [
    Column { title: "count", width: 6, cell: |pair, width| squeeze_count(pair.count, width) },
    Column {
        title: "preem.",
        width: 6,
        cell: |pair, width| squeeze_count(pair.preemptions, width),
    },
    Column { title: "skips", width: 6, cell: |pair, width| maybe_count(pair.skips, width) },
    Column { title: "moved ms", width: 8, cell: |pair, width| ms(moved(pair), width) },
    Column { title: "p50 µs", width: 6, cell: |pair, width| us(pair.latency_ns(0.5), width) },
    Column { title: "p99 µs", width: 6, cell: |pair, width| us(pair.latency_ns(0.99), width) },
];

const PTRACE: [Column; 6] = [
    Column { title: "stops", width: 6, cell: |pair, width| squeeze_count(pair.count, width) },
    Column { title: "stopped ms", width: 10, cell: |pair, width| ms(pair.stopped_ns, width) },
    Column { title: "hand-offs", width: 9, cell: |pair, width| maybe_count(pair.handoffs, width) },
    Column {
        title: "other",
        width: 5,
        cell: |pair, width| maybe_count(pair.handoffs_across, width),
    },
    Column { title: "p50 µs", width: 6, cell: |pair, width| us(pair.latency_ns(0.5), width) },
    Column { title: "p99 µs", width: 6, cell: |pair, width| us(pair.latency_ns(0.99), width) },
];

/// At most `most` pairs of each kind, in lines of at most `width` cells (from 60 on); empty without pairs.
///
/// Wake pairs are those that moved most time, then the most frequent; ptrace pairs those with the longest stops.
#[must_use]
pub fn block(pairs: &[PairFigures], most: usize, width: usize) -> String {
    if most == 0 {
        return String::new();
    }
    let of_kind = |kind: PairKind| -> Vec<&PairFigures> {
        let mut pairs: Vec<&PairFigures> = pairs.iter().filter(|pair| pair.kind == kind).collect();
        pairs.sort_by_key(|pair| Reverse((pair.shifted_ns(), pair.stopped_ns, pair.count)));
        pairs
    };
    let mut text = String::new();
    let traced = of_kind(PairKind::Ptrace);
    kind(&mut text, "TRACER -> TRACEE", &PTRACE, &traced, most, width);
    let wake = of_kind(PairKind::Wake);
    kind(&mut text, "FROM -> TO (wakeup, switch)", &WAKE, &wake, most, width);
    text
}

fn kind(
    text: &mut String,
    title: &str,
    columns: &[Column; 6],
    pairs: &[&PairFigures],
    most: usize,
    width: usize,
) {
    if pairs.is_empty() {
        return;
    }
    if !text.is_empty() {
        text.push('\n');
    }
    let figures: usize = columns.iter().map(|column| 1 + column.width).sum();
    let room = width.saturating_sub(figures);
    let with_origin = room >= 2 * SIDE_MOST + ARROW.len() + 2 + ORIGIN
        && pairs.iter().any(|pair| !pair.origins.is_empty());
    let sides = room.min(2 * SIDE_MOST + ARROW.len());
    let mut line = pad(title, sides);
    for column in columns {
        line.push_str(&format!(" {:>1$}", column.title, column.width));
    }
    if with_origin {
        line.push_str("  woken by");
    }
    push(text, &line);
    let (shown, rest) = pairs.split_at(most.min(pairs.len()));
    for pair in shown {
        let from = (sides - ARROW.len()) / 2;
        let to = sides - ARROW.len() - from;
        let mut line =
            pad(&format!("{}{ARROW}{}", side(&pair.from, from), side(&pair.to, to)), sides);
        for column in columns {
            line.push_str(&format!(" {:>1$}", (column.cell)(pair, column.width), column.width));
        }
        if with_origin && let Some(origin) = pair.origins.first() {
            let share = origin.count as f64 * 100.0 / pair.count.max(1) as f64;
            let name = crate::view::text::clean(&origin.name);
            line.push_str(&format!("  {}", cut(&format!("{name} {share:.0} %"), ORIGIN)));
        }
        push(text, &line);
    }
    if !rest.is_empty() {
        let moved_ns = rest.iter().fold(0, |sum: u64, pair| sum.saturating_add(pair.shifted_ns()));
        let plural = if rest.len() == 1 { "" } else { "s" };
        let moved = if pairs[0].kind == PairKind::Wake {
            format!(", {} ms moved", Scale::FINE.show(Some(moved_ns)))
        } else {
            String::new()
        };
        push(text, &cut(&format!("{} more pair{plural}{moved}", rest.len()), width));
    }
}

fn push(text: &mut String, line: &str) {
    text.push_str(line.trim_end());
    text.push('\n');
}

fn side(party: &Party, width: usize) -> String {
    who(&escape(&party.comm), party.tid, width)
}

/// `None` where neither skips nor ordinary switches are seen.
fn moved(pair: &PairFigures) -> Option<u64> {
    (pair.skip_ns.is_some() || pair.path_ns.is_some()).then(|| pair.shifted_ns())
}

fn maybe_count(count: Option<u64>, width: usize) -> String {
    count.map_or_else(|| "-".to_owned(), |count| squeeze_count(count, width))
}

fn ms(ns: Option<u64>, width: usize) -> String {
    let fine = Scale::FINE.show(ns);
    if fine.len() <= width { fine } else { squeeze(ns.unwrap_or(0) as f64 / 1e6, width) }
}

fn us(ns: Option<u64>, width: usize) -> String {
    ns.map_or_else(|| "-".to_owned(), |ns| squeeze(ns as f64 / 1e3, width))
}

#[cfg(test)]
mod tests {
    use unicode_width::UnicodeWidthStr as _;

    use super::*;
    use crate::{
        model::pair::Origin,
        view::samples::{party, traced, wake},
    };

    fn pairs() -> Vec<PairFigures> {
        let (strace, ls) = (party("strace", 123), party("ls", 124));
        let idle = Party { comm: b"idle".to_vec(), ..Party::default() };
        vec![
            wake(strace.clone(), ls.clone(), 0, 0),
            wake(ls.clone(), strace.clone(), 940, 19_000_000),
            wake(idle, ls.clone(), 3, 150_000),
            traced(strace, ls, 950),
        ]
    }

    #[test]
    fn the_pairs_on_80_columns() {
        let expected = "\
TRACER -> TRACEE                  stops stopped ms hand-offs other p50 µs p99 µs
strace 123 -> ls 124                950     19.000       950     0      -      -

FROM -> TO (wakeup, switch)           count preem.  skips moved ms p50 µs p99 µs
ls 124 -> strace 123                    950    940    940   19.000    0.1    0.9
idle -> ls 124                           13      3      3    0.150    0.1    0.9
1 more pair, 0.000 ms moved
";
        assert_eq!(block(&pairs(), 2, 80), expected);
        assert_eq!(block(&pairs(), 0, 80), "");
        assert_eq!(block(&[], 5, 80), "");
    }

    #[test]
    fn what_woke_is_said_where_there_is_room() {
        let mut pairs = pairs();
        pairs[1].origins = vec![Origin { name: "wait4\x1b".to_owned(), count: 940, cost_ns: 0 }];
        assert!(block(&pairs, 5, 160).contains("wait4  99 %"), "{}", block(&pairs, 5, 160));
        assert!(!block(&pairs, 5, 80).contains("wait4"));
    }

    #[test]
    fn what_is_not_measured_is_not_zero() {
        let bare = PairFigures { skips: None, skip_ns: None, path_ns: None, ..pairs()[1].clone() };
        let bare = PairFigures { latency: Vec::new(), ..bare };
        let text = block(&[bare], 5, 80);
        assert!(text.ends_with("950    940      -        -      -      -\n"), "{text}");
    }

    #[test]
    fn every_line_fits() {
        let hostile = Party { tid: Some(4_194_303), ..party("日本語\x1b[2J", 0) };
        let huge = PairFigures {
            count: u64::MAX,
            preemptions: u64::MAX,
            skips: Some(u64::MAX),
            skip_ns: Some(u64::MAX),
            stopped_ns: Some(u64::MAX),
            handoffs: Some(u64::MAX),
            handoffs_across: Some(u64::MAX),
            latency: vec![(u64::MAX, 1)],
            latency_max_ns: u64::MAX,
            origins: vec![Origin { name: "o".repeat(50), count: u64::MAX, cost_ns: 0 }],
            ..wake(hostile.clone(), hostile.clone(), 1, 1)
        };
        let other = PairFigures { kind: PairKind::Ptrace, ..huge.clone() };
        let pairs = vec![huge.clone(), other, huge];
        for width in [60, 61, 79, 80, 100, 120, 200] {
            for line in block(&pairs, 1, width).lines() {
                assert!(line.width() <= width, "{width}: {} {line}", line.width());
                assert!(!line.chars().any(char::is_control), "{line:?}");
            }
        }
    }
}

//! What the kernel says of each cgroup, beside the sums over its observed tasks.

use super::text::{Scale, cut, pad, wrap};
use crate::model::{Group, group::CgroupUse};

const NAME_MOST: usize = 40;

/// The first `top` cgroups, in lines of at most `width` cells (from 60 on); empty if none has figures.
#[must_use]
pub fn cgroups(groups: &[Group], top: usize, width: usize) -> String {
    let known: Vec<(&Group, CgroupUse)> =
        groups.iter().take(top).filter_map(|group| Some((group, group.cgroup?))).collect();
    let Some(largest_ns) = known
        .iter()
        .map(|(group, used)| used.usage_ns.max(group.figures.reported_runtime_ns))
        .max()
    else {
        return String::new();
    };
    let scales = [Scale::for_largest(largest_ns), Scale::COARSE, Scale::SECONDS, Scale::WHOLE];
    let mut text = String::new();
    for scale in scales {
        text = table(&known, scale, width);
        if text.lines().all(|line| unicode_width::UnicodeWidthStr::width(line) <= width) {
            break;
        }
    }
    wrap(
        &mut text,
        "cpu.stat is of the whole cgroup: with all below it, and with tasks that are not observed. Its figures and \
         those of the tasks may differ by the read gap per busy CPU.",
        width,
    );
    text
}

fn table(known: &[(&Group, CgroupUse)], scale: Scale, width: usize) -> String {
    let titles = ["tasks' sum", "usage", "user", "system", "read gap"];
    let rows: Vec<[String; 5]> = known
        .iter()
        .map(|(group, used)| {
            [
                group.figures.reported_runtime_ns,
                used.usage_ns,
                used.user_ns,
                used.system_ns,
                used.read_gap_ns,
            ]
            .map(|ns| scale.show(Some(ns)))
        })
        .collect();
    let widths: Vec<usize> = (0..titles.len())
        .map(|column| {
            rows.iter()
                .map(|row| row[column].len())
                .chain([titles[column].len()])
                .max()
                .unwrap_or(0)
        })
        .collect();
    let figures: usize = widths.iter().map(|width| 1 + width).sum();
    let name = width.saturating_sub(figures).clamp(4, NAME_MOST);
    let line = |first: &str, cells: [&str; 5]| {
        let cells = cells.iter().zip(&widths).map(|(cell, width)| format!(" {cell:>width$}"));
        format!("{}{}\n", pad(first, name), cells.collect::<String>())
    };
    let mut text = line(&cut(&format!("cpu.stat, {}", scale.unit), name), titles);
    for ((group, _), row) in known.iter().zip(&rows) {
        text.push_str(&line(&group.name, row.each_ref().map(String::as_str)));
    }
    text
}

#[cfg(test)]
mod tests {
    use unicode_width::UnicodeWidthStr as _;

    use super::*;
    use crate::model::{By, TaskFigures};

    fn group(name: &str, runtime_ns: u64, cgroup: Option<CgroupUse>) -> Group {
        Group {
            by: By::Cgroup,
            key: name.to_owned(),
            name: name.to_owned(),
            members: 1,
            exited: 0,
            figures: TaskFigures { reported_runtime_ns: runtime_ns, ..TaskFigures::default() },
            cgroup,
        }
    }

    #[test]
    fn the_kernels_figures_stand_beside_the_sum() {
        let used = CgroupUse {
            usage_ns: 31_000_000,
            user_ns: 10_000_000,
            system_ns: 21_000_000,
            read_gap_ns: 45_000,
        };
        let text = cgroups(&[group("/a", 30_000_000, Some(used)), group("/b", 1, None)], 9, 80);
        let first_two: Vec<Vec<&str>> =
            text.lines().take(2).map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(first_two[1], ["/a", "30.000", "31.000", "10.000", "21.000", "0.045"]);
        assert!(!text.contains("/b"));
        assert_eq!(cgroups(&[group("/b", 1, None)], 9, 80), "");
    }

    #[test]
    fn every_line_fits() {
        let ns = 987_654_321_987_654_321;
        let used = CgroupUse { usage_ns: ns, user_ns: ns, system_ns: ns, read_gap_ns: ns };
        let long = group(&"/日本語".repeat(30), ns, Some(used));
        for width in [60, 80, 120, 200] {
            for line in cgroups(std::slice::from_ref(&long), 3, width).lines() {
                assert!(line.width() <= width, "{width}: {line}");
            }
        }
    }
}

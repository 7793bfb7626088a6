//! From figures to short text: what was added since the reading before, or all of it.

use super::grid::Cell;
use crate::{
    model::TaskFigures,
    view::text::{Scale, squeeze},
};

/// What a number is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Time as a share of one CPU.
    Percent,
    /// Time in milliseconds.
    Ms,
    /// A difference of times in milliseconds.
    SignedMs,
    /// Time per second of the view, in nanoseconds.
    NsPerSecond,
    /// A time in microseconds, not a sum.
    Micros,
    /// How often.
    Count,
    /// A name that is a number.
    Id,
}

/// A number in `width` cells; `-` is not measured.
pub fn show(kind: Kind, value: Option<i128>, span_ns: u64, width: usize) -> String {
    let Some(value) = value else { return "-".to_owned() };
    let span = span_ns.max(1) as f64;
    let fine =
        |text: String, rough: f64| if text.len() <= width { text } else { squeeze(rough, width) };
    match kind {
        Kind::Percent => squeeze(value as f64 * 100.0 / span, width),
        Kind::Ms => {
            let ms = value as f64 / 1e6;
            fine(format!("{ms:.2}"), ms)
        }
        Kind::SignedMs => {
            let value = i64::try_from(value).unwrap_or(if value < 0 { i64::MIN } else { i64::MAX });
            fine(Scale::FINE.signed(Some(value)), value as f64 / 1e6)
        }
        Kind::NsPerSecond => {
            let rate = value as f64 * 1e9 / span;
            fine(format!("{rate:.0}"), rate)
        }
        Kind::Micros => squeeze(value as f64 / 1e3, width),
        Kind::Count | Kind::Id => fine(value.to_string(), value as f64),
    }
}

/// The same as a cell.
pub fn cell<'a>(kind: Kind, value: Option<i128>, span_ns: u64, width: u16) -> Cell<'a> {
    show(kind, value, span_ns, usize::from(width)).into()
}

/// What a figure has grown by; what shrank (a crossing that was booked late) has not grown.
pub fn grown<T>(then: Option<&T>, now: &T, pick: impl Fn(&T) -> Option<u64>) -> Option<i128> {
    let before = then.and_then(&pick).unwrap_or(0);
    Some((i128::from(pick(now)?) - i128::from(before)).max(0))
}

/// What a difference has changed by.
pub fn moved<T>(then: Option<&T>, now: &T, pick: impl Fn(&T) -> Option<i64>) -> Option<i128> {
    let before = then.and_then(&pick).unwrap_or(0);
    Some(i128::from(pick(now)?) - i128::from(before))
}

/// As the kernel reports it: interrupts are system time.
pub fn system_ns(task: &TaskFigures) -> Option<u64> {
    let interrupts_ns = task.hardirq_ns.unwrap_or(0).saturating_add(task.softirq_ns.unwrap_or(0));
    Some(task.system_ns?.saturating_add(interrupts_ns))
}

/// Adds `task` to `sum`, which began as a copy of another task: what is not known of one is not known of both.
pub fn add(sum: &mut TaskFigures, task: &TaskFigures) {
    let known = |sum: &mut Option<u64>, more: Option<u64>| {
        *sum = sum.zip(more).map(|(a, b)| a.saturating_add(b));
    };
    let signed = |sum: &mut Option<i64>, more: Option<i64>| {
        *sum = sum.zip(more).map(|(a, b)| a.saturating_add(b));
    };
    let plain = |sum: &mut u64, more: u64| *sum = sum.saturating_add(more);
    plain(&mut sum.oncpu_ns, task.oncpu_ns);
    known(&mut sum.user_ns, task.user_ns);
    known(&mut sum.system_ns, task.system_ns);
    known(&mut sum.hardirq_ns, task.hardirq_ns);
    known(&mut sum.softirq_ns, task.softirq_ns);
    known(&mut sum.unclassified_ns, task.unclassified_ns);
    known(&mut sum.crossings, task.crossings);
    known(&mut sum.crossing_ns, task.crossing_ns);
    plain(&mut sum.reported_user_ns, task.reported_user_ns);
    plain(&mut sum.reported_system_ns, task.reported_system_ns);
    plain(&mut sum.reported_runtime_ns, task.reported_runtime_ns);
    plain(&mut sum.raw_utime_ns, task.raw_utime_ns);
    plain(&mut sum.raw_stime_ns, task.raw_stime_ns);
    signed(&mut sum.delta_user_ns, task.delta_user_ns);
    signed(&mut sum.delta_system_ns, task.delta_system_ns);
    sum.delta_runtime_ns = sum.delta_runtime_ns.saturating_add(task.delta_runtime_ns);
    signed(&mut sum.delta_user_split_ns, task.delta_user_split_ns);
    signed(&mut sum.delta_user_total_ns, task.delta_user_total_ns);
    known(&mut sum.skip_in, task.skip_in);
    known(&mut sum.skip_in_ns, task.skip_in_ns);
    known(&mut sum.skip_out, task.skip_out);
    known(&mut sum.skip_out_ns, task.skip_out_ns);
    known(&mut sum.path_in_ns, task.path_in_ns);
    known(&mut sum.path_out_ns, task.path_out_ns);
    known(&mut sum.left_out_ns, task.left_out_ns);
    signed(&mut sum.residual_ns, task.residual_ns);
    known(&mut sum.wait_ns, task.wait_ns);
    known(&mut sum.waits, task.waits);
    known(&mut sum.wakeups, task.wakeups);
    known(&mut sum.wakes_made, task.wakes_made);
    known(&mut sum.wakeup_cost_ns, task.wakeup_cost_ns);
    plain(&mut sum.switches_voluntary, task.switches_voluntary);
    plain(&mut sum.switches_involuntary, task.switches_involuntary);
    plain(&mut sum.migrations, task.migrations);
    plain(&mut sum.ptrace_stops, task.ptrace_stops);
    plain(&mut sum.ptrace_stopped_ns, task.ptrace_stopped_ns);
    known(&mut sum.cycles_user, task.cycles_user);
    known(&mut sum.cycles_system, task.cycles_system);
    known(&mut sum.cycles_discarded, task.cycles_discarded);
    sum.tracer_tid = sum.tracer_tid.or(task.tracer_tid);
    if task.state != "exited" {
        sum.state = task.state;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_fit_their_column() {
        let second = 1_000_000_000;
        assert_eq!(show(Kind::Percent, Some(255_000_000), second, 5), "25.5");
        assert_eq!(show(Kind::Percent, None, second, 5), "-");
        assert_eq!(show(Kind::Percent, Some(5), 0, 5), "500.0");
        assert_eq!(show(Kind::Ms, Some(1_234_567), second, 6), "1.23");
        assert_eq!(show(Kind::Ms, Some(12_345_678_901), second, 6), "12346");
        assert_eq!(show(Kind::SignedMs, Some(-1_234_567), second, 8), "-1.235");
        assert_eq!(show(Kind::SignedMs, Some(123_456_789_012), second, 8), "123456.8");
        assert_eq!(show(Kind::NsPerSecond, Some(3_000_000), 2 * second, 7), "1500000");
        assert_eq!(show(Kind::Count, Some(1_234_567_890), second, 6), "1e9");
        for kind in [Kind::Percent, Kind::Ms, Kind::SignedMs, Kind::NsPerSecond, Kind::Count] {
            for value in [i128::from(u64::MAX), i128::from(i64::MIN), 0, 1] {
                assert!(show(kind, Some(value), second, 6).len() <= 6, "{kind:?} {value}");
            }
        }
    }

    #[test]
    fn a_sum_knows_only_what_all_know() {
        let one = TaskFigures {
            oncpu_ns: 5,
            user_ns: Some(5),
            state: "exited",
            ..TaskFigures::default()
        };
        let mut sum = one.clone();
        add(&mut sum, &TaskFigures { state: "running", ..one.clone() });
        assert_eq!((sum.oncpu_ns, sum.user_ns, sum.state), (10, Some(10), "running"));
        add(&mut sum, &TaskFigures { user_ns: None, ..one });
        assert_eq!((sum.oncpu_ns, sum.user_ns), (15, None));
    }
}

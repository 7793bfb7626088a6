//! Why a bill is wrong: causes that add up to the difference, to the nanosecond.

use super::figure::moved;
use crate::model::TaskFigures;

/// One cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cause {
    /// Its name.
    pub name: &'static str,
    /// What it added to the bill, ns; `None` is not measured.
    pub ns: Option<i128>,
    /// Switches.
    pub count: Option<i128>,
}

/// The causes of the difference in run time; their sum is [`difference`].
pub fn run_time(then: Option<&TaskFigures>, now: &TaskFigures) -> [Cause; 6] {
    let grown = |pick: fn(&TaskFigures) -> Option<u64>| change(then, now, pick);
    let taken = |pick: fn(&TaskFigures) -> Option<u64>| grown(pick).map(|ns| -ns);
    let cause = |name, ns, count| Cause { name, ns, count };
    [
        cause("clock skip, to it", grown(|task| task.skip_in_ns), grown(|task| task.skip_in)),
        cause("clock skip, away", taken(|task| task.skip_out_ns), grown(|task| task.skip_out)),
        cause("switch path, to it", grown(|task| task.path_in_ns), None),
        cause("switch path, away", taken(|task| task.path_out_ns), None),
        cause("irq and steal", taken(|task| task.left_out_ns), None),
        cause("residual", moved(then, now, |task| task.residual_ns), None),
    ]
}

/// Reported minus measured run time.
pub fn difference(then: Option<&TaskFigures>, now: &TaskFigures) -> i128 {
    moved(then, now, |task| Some(task.delta_runtime_ns)).unwrap_or(0)
}

/// The two parts of the difference in user time, and their sum.
pub fn user_time(then: Option<&TaskFigures>, now: &TaskFigures) -> [Cause; 3] {
    let moved = |pick: fn(&TaskFigures) -> Option<i64>| moved(then, now, pick);
    let cause = |name, ns| Cause { name, ns, count: None };
    [
        cause("share of run time", moved(|task| task.delta_user_total_ns)),
        cause("split by ticks", moved(|task| task.delta_user_split_ns)),
        cause("user, rep. - meas.", moved(|task| task.delta_user_ns)),
    ]
}

/// With its sign: the sum must hold also where a counter was corrected downwards.
fn change(
    then: Option<&TaskFigures>,
    now: &TaskFigures,
    pick: fn(&TaskFigures) -> Option<u64>,
) -> Option<i128> {
    Some(i128::from(pick(now)?) - i128::from(then.and_then(pick).unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(values: [u64; 5], residual_ns: i64) -> TaskFigures {
        let [skip_in, skip_out, path_in, path_out, left_out] = values;
        let delta = i128::from(skip_in) - i128::from(skip_out) + i128::from(path_in)
            - i128::from(path_out)
            - i128::from(left_out)
            + i128::from(residual_ns);
        TaskFigures {
            skip_in_ns: Some(skip_in),
            skip_out_ns: Some(skip_out),
            path_in_ns: Some(path_in),
            path_out_ns: Some(path_out),
            left_out_ns: Some(left_out),
            residual_ns: Some(residual_ns),
            delta_runtime_ns: i64::try_from(delta).unwrap(),
            ..TaskFigures::default()
        }
    }

    proptest::proptest! {
        #[test]
        fn the_causes_add_up(
            now in proptest::array::uniform5(0_u64..1 << 50),
            then in proptest::array::uniform5(0_u64..1 << 50),
            residuals in (-1_000_000_i64..1_000_000, -1_000_000_i64..1_000_000),
        ) {
            let (now, then) = (task(now, residuals.0), task(then, residuals.1));
            for then in [None, Some(&then)] {
                let sum: i128 = run_time(then, &now).iter().filter_map(|cause| cause.ns).sum();
                proptest::prop_assert_eq!(sum, difference(then, &now));
            }
        }
    }

    #[test]
    fn what_is_not_measured_stays_unknown() {
        let causes = run_time(None, &TaskFigures::default());
        assert!(causes.iter().all(|cause| cause.ns.is_none()));
    }
}

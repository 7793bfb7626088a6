//! Whether costs that were kept still hold. Nothing here looks at a machine.
//!
//! Two facts decide. Whoever else uses the machine only ever adds: a lower reading contradicts a kept cost however
//! busy the machine is now, a higher one only if its batches agree with each other. And a host changes its speed: by a
//! third within a tenth of a second here (somebody else on the other half of the core), twofold within hours. So a
//! higher reading counts only if the long measurement after it still finds it.

use observer_common::task::crossing;

use super::cost::Cost;
use crate::model::Crossings;

/// A cost is no better than this part of itself, of an interrupt (its batches are few and long) than a third.
///
/// Looks at a quiet machine differ by less; somebody else on the other half of the core makes more.
const PART: u64 = 6;

fn part(kind: usize) -> u64 {
    if kind == crossing::INTERRUPT || kind == crossing::PREEMPTION { 3 } else { PART }
}

/// Nobody else used this CPU's caches: the batches lay together.
fn is_steady(kind: usize, cost: Cost) -> bool {
    cost.spread_ps.saturating_mul(part(kind)) <= cost.ps
}

/// Every kind is known, and steady.
pub fn is_good(crossings: &Crossings) -> bool {
    (0..crossing::COUNT)
        .all(|kind| Cost::of(crossings, kind).is_some_and(|cost| is_steady(kind, cost)))
}

/// A reading contradicts a cost: it is lower, or higher and steady, by more than the cost's tolerance.
fn contradicts(kind: usize, cost: Cost, reading: Cost) -> bool {
    let tolerance_ps = cost.ps / part(kind);
    let is_lower = reading.ps < cost.ps - tolerance_ps;
    let is_higher = reading.ps > cost.ps.saturating_add(tolerance_ps);
    is_lower || (is_higher && is_steady(kind, reading))
}

/// What was kept is not contradicted by a look at some of the kinds.
pub fn holds(kept: &Crossings, look: &Crossings) -> bool {
    (0..crossing::COUNT).all(|kind| {
        let known = Cost::of(kept, kind).zip(Cost::of(look, kind));
        known.is_none_or(|(kept, look)| !contradicts(kind, kept, look))
    })
}

/// What to use from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Judged {
    /// The costs.
    pub costs: Crossings,
    /// The look and the measurement agree that what was kept is wrong.
    pub is_to_keep: bool,
}

/// After a look that contradicts what was kept, and a measurement of every kind: if that contradicts it too, its costs
/// are used, but for a kind that it found busy and not lower. They are kept only if the look does not contradict them
/// in turn; else three readings say three things, and the next start looks again.
pub fn between(kept: &Crossings, look: &Crossings, measured: &Crossings) -> Judged {
    let mut costs = *kept;
    if holds(kept, measured) {
        return Judged { costs, is_to_keep: false };
    }
    for kind in 0..crossing::COUNT {
        let Some(now) = Cost::of(measured, kind) else { continue };
        let is_lower = Cost::of(kept, kind).is_none_or(|kept| now.ps < kept.ps);
        if is_lower || is_steady(kind, now) {
            now.put(&mut costs, kind);
        }
    }
    let is_to_keep = is_good(&costs) && holds(&costs, look);
    Judged { costs, is_to_keep }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STOP: usize = crossing::STOP;

    /// By kind, ps; the spread is a part of the cost.
    fn all(costs_ns: [u64; crossing::COUNT], spread: u64) -> Crossings {
        Crossings {
            cost_ps: costs_ns.map(|ns| Some(ns * 1000)),
            spread_ps: costs_ns.map(|ns| Some(ns * 1000 / spread)),
        }
    }

    /// What a look sees of it.
    fn seen(of: &Crossings) -> Crossings {
        let mut look = Crossings::default();
        for kind in [crossing::SYSCALL, crossing::STOP] {
            Cost::of(of, kind).unwrap().put(&mut look, kind);
        }
        look
    }

    fn with(of: &Crossings, kind: usize, ns: u64, spread_ns: u64) -> Crossings {
        let mut other = *of;
        Cost { ps: ns * 1000, spread_ps: spread_ns * 1000 }.put(&mut other, kind);
        other
    }

    fn quiet() -> Crossings {
        all([140, 1200, 3000, 6000, 310], 50)
    }

    #[test]
    fn a_kept_cost_that_is_a_little_off_is_kept() {
        for stop_ns in [1140, 1260] {
            let kept = with(&quiet(), STOP, stop_ns, 20);
            assert!(holds(&kept, &seen(&quiet())), "{stop_ns}");
        }
    }

    #[test]
    fn a_kept_cost_that_is_half_off_is_thrown_away() {
        for stop_ns in [600, 1800] {
            let kept = with(&quiet(), STOP, stop_ns, 20);
            assert!(!holds(&kept, &seen(&quiet())), "{stop_ns}");
            let judged = between(&kept, &seen(&quiet()), &quiet());
            assert_eq!(judged, Judged { costs: quiet(), is_to_keep: true }, "{stop_ns}");
        }
    }

    #[test]
    fn a_busy_look_does_not_contradict_a_lower_cost() {
        let busy = with(&seen(&quiet()), STOP, 2000, 400);
        assert!(holds(&quiet(), &busy));
        let steady = with(&seen(&quiet()), STOP, 2000, 60);
        assert!(!holds(&quiet(), &steady));
    }

    #[test]
    fn a_busy_look_that_is_lower_does_contradict() {
        let kept = with(&quiet(), STOP, 2176, 60);
        let busy = with(&seen(&quiet()), STOP, 1200, 600);
        assert!(!holds(&kept, &busy));
        let judged = between(&kept, &busy, &quiet());
        assert_eq!(judged, Judged { costs: quiet(), is_to_keep: true });
    }

    #[test]
    fn a_slow_moment_that_has_passed_changes_nothing() {
        let slow = with(&seen(&quiet()), crossing::SYSCALL, 190, 3);
        assert!(!holds(&quiet(), &slow));
        let again = with(&quiet(), STOP, 1230, 20);
        let judged = between(&quiet(), &slow, &again);
        assert_eq!(judged, Judged { costs: quiet(), is_to_keep: false });
    }

    #[test]
    fn a_busy_measurement_does_not_replace_a_lower_cost() {
        let slow = with(&seen(&quiet()), STOP, 2000, 60);
        let busy = all([300, 2500, 9000, 18_000, 700], 2);
        let judged = between(&quiet(), &slow, &busy);
        assert_eq!(judged, Judged { costs: quiet(), is_to_keep: false });
    }

    #[test]
    fn a_host_that_has_become_slower_is_followed_in_every_kind() {
        let slower = all([280, 2400, 6000, 12_000, 620], 50);
        let judged = between(&quiet(), &seen(&slower), &slower);
        assert_eq!(judged, Judged { costs: slower, is_to_keep: true });
    }

    #[test]
    fn kinds_that_are_a_little_off_go_with_the_one_that_is_wrong() {
        let kept = with(&with(&quiet(), STOP, 1900, 20), crossing::FAULT, 350, 20);
        let busy = with(&quiet(), crossing::INTERRUPT, 7000, 3000);
        assert_eq!(between(&kept, &seen(&quiet()), &quiet()).costs, quiet());
        let judged = between(&kept, &seen(&quiet()), &busy);
        assert_eq!(judged, Judged { costs: quiet(), is_to_keep: true }, "but not a busy one");
    }

    #[test]
    fn of_three_readings_that_differ_the_last_is_used_and_none_kept() {
        let kept = with(&quiet(), STOP, 2400, 20);
        let look = with(&seen(&quiet()), STOP, 800, 20);
        let judged = between(&kept, &look, &quiet());
        assert_eq!(judged, Judged { costs: quiet(), is_to_keep: false });
    }

    #[test]
    fn a_kind_that_cannot_be_seen_now_stays_as_it_was() {
        assert!(holds(&quiet(), &Crossings::default()));
        let kept = with(&quiet(), STOP, 1900, 20);
        let judged = between(&kept, &seen(&quiet()), &seen(&quiet()));
        assert_eq!(judged, Judged { costs: quiet(), is_to_keep: true });
    }

    #[test]
    fn only_what_is_whole_and_steady_is_good() {
        assert!(is_good(&quiet()));
        assert!(!is_good(&seen(&quiet())));
        assert!(!is_good(&with(&quiet(), STOP, 1200, 300)));
        assert!(is_good(&with(&quiet(), crossing::INTERRUPT, 6000, 1900)));
        assert!(!is_good(&with(&quiet(), crossing::INTERRUPT, 6000, 2100)));
    }
}

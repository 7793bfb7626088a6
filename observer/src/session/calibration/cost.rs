//! What batches say of the costs. Nothing here looks at a machine.

use observer_common::task::crossing;

use crate::model::Crossings;

/// What one batch added to the user time of its subject.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    user_ps: u64,
    borders: u64,
    /// Borders of syscalls that are in it too.
    syscalls: u64,
}

impl Batch {
    /// `user_ns` over so many borders of its kind.
    pub fn of(user_ns: u64, borders: u64) -> Self {
        Self { user_ps: user_ns.saturating_mul(1000), borders, syscalls: 0 }
    }

    /// With so many borders of syscalls in it.
    pub fn with_syscalls(self, syscalls: u64) -> Self {
        Self { syscalls, ..self }
    }

    fn cost_ps(&self, syscall_ps: u64) -> Option<u64> {
        let of_syscalls = self.syscalls.saturating_mul(syscall_ps);
        self.user_ps.saturating_sub(of_syscalls).checked_div(self.borders)
    }
}

/// What one border costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    /// The lower quartile of the batches, ps: whoever else uses the machine only ever adds.
    pub ps: u64,
    /// Half of the range between the quartiles, ps.
    pub spread_ps: u64,
}

impl Cost {
    /// Of a kind, where it is known.
    pub fn of(crossings: &Crossings, kind: usize) -> Option<Self> {
        Some(Self { ps: crossings.cost_ps[kind]?, spread_ps: crossings.spread_ps[kind]? })
    }

    /// Notes it as the cost of a kind.
    pub fn put(self, crossings: &mut Crossings, kind: usize) {
        crossings.cost_ps[kind] = Some(self.ps);
        crossings.spread_ps[kind] = Some(self.spread_ps);
    }

    fn of_batches(mut batches_ps: Vec<u64>) -> Option<Self> {
        batches_ps.sort_unstable();
        let quarter = batches_ps.len() / 4;
        let low_ps = *batches_ps.get(quarter)?;
        let high_ps = *batches_ps.iter().rev().nth(quarter)?;
        // How far they lie apart one alone does not say.
        let spread_ps = if batches_ps.len() > 1 { (high_ps - low_ps) / 2 } else { low_ps };
        Some(Self { ps: low_ps, spread_ps })
    }

    fn half(self) -> Self {
        Self { ps: self.ps / 2, spread_ps: self.spread_ps / 2 }
    }
}

/// The costs by these batches by kind. A kind without any stays unknown.
pub fn costs(batches: &[Vec<Batch>; crossing::COUNT]) -> Crossings {
    let cost = |kind: usize, syscall_ps: u64| {
        Cost::of_batches(batches[kind].iter().filter_map(|it| it.cost_ps(syscall_ps)).collect())
    };
    let syscall_ps = cost(crossing::SYSCALL, 0).map_or(0, |cost| cost.ps);
    let mut crossings = Crossings::default();
    for kind in 0..crossing::COUNT {
        let cost = match kind {
            // Out of user mode and back: the same entry and exit code as an interrupt, whose two sides are counted
            // as one.
            crossing::PREEMPTION => cost(crossing::INTERRUPT, syscall_ps).map(Cost::half),
            _ => cost(kind, syscall_ps),
        };
        if let Some(cost) = cost {
            cost.put(&mut crossings, kind);
        }
    }
    crossings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(batches_ps: &[u64]) -> Option<Cost> {
        Cost::of_batches(batches_ps.to_vec())
    }

    #[test]
    fn a_busy_machine_does_not_move_the_cost() {
        let quiet = of(&[101, 100, 99, 100, 102, 98, 100]).unwrap();
        let busy = of(&[900, 100, 99, 100, 150, 98, 5_000]).unwrap();
        assert_eq!(quiet.ps, busy.ps);
        assert!(busy.spread_ps > 20 * quiet.spread_ps.max(1), "and the spread says that it was");
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[7]), Some(Cost { ps: 7, spread_ps: 7 }));
    }

    #[test]
    fn a_round_that_was_slow_does_not_move_the_cost() {
        // Two of four rounds may be: the lower quartile is the third of eight.
        let slow_rounds = of(&[100, 101, 170, 171, 172, 169, 102, 103]).unwrap();
        assert_eq!(slow_rounds, Cost { ps: 102, spread_ps: 34 });
        assert!(slow_rounds.spread_ps * 6 > slow_rounds.ps, "but it is not steady");
    }

    #[test]
    fn syscalls_in_a_batch_of_stops_are_taken_off_and_a_preemption_is_half_an_interrupt() {
        let mut batches: [Vec<Batch>; crossing::COUNT] = Default::default();
        batches[crossing::SYSCALL] = vec![Batch::of(2_000, 20)];
        batches[crossing::STOP] = vec![Batch::of(13_000, 10).with_syscalls(10)];
        batches[crossing::INTERRUPT] = vec![Batch::of(60_000, 10)];
        batches[crossing::FAULT] = vec![Batch::of(60_000, 0)];
        let cost_ps = costs(&batches).cost_ps;
        let expected = [Some(100_000), Some(1_200_000), Some(3_000_000), Some(6_000_000), None];
        assert_eq!(cost_ps, expected);
    }
}

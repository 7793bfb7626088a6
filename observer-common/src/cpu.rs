//! The state of one CPU: who owns it, in which mode, since when.
//!
//! A CPU always has exactly one owner and one mode. Each event at time t charges `t - since` to them and then
//! changes one of them. So the sum over all owners and modes is the elapsed time, exactly, whatever the order
//! of events and whatever was lost.

use crate::{
    bill::RunQueue,
    clock::ClockOffset,
    cycles::Meter,
    names::HOOKS,
    switch::Handover,
    task::{Task, mode},
};

/// Who owns a CPU.
pub mod owner {
    /// The idle task of that CPU.
    pub const IDLE: usize = 0;
    /// Tasks that are not observed, all in one.
    pub const OTHER: usize = 1;
    /// An observed task: the one in the CPU's slot.
    pub const TASK: usize = 2;
    /// How many there are.
    pub const COUNT: usize = 3;

    /// What an unobserved task is: pid 0 is the idle task of every CPU.
    #[must_use]
    #[inline(always)]
    pub fn of_unobserved(tid: u32) -> usize {
        if tid == 0 { IDLE } else { OTHER }
    }
}

/// Slot 0 is nobody's: the CPU's owner is idle or an unobserved task.
pub const NO_SLOT: u32 = 0;

/// Runs by hook.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Runs(pub [u64; HOOKS]);

impl Default for Runs {
    fn default() -> Self {
        Self([0; HOOKS])
    }
}

/// The state of one CPU, written by that CPU alone (but for `request`, see [`crate::wakeup`]).
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cpu {
    /// The slot of the observed task that owns the CPU, or [`NO_SLOT`].
    pub slot: u32,
    /// See [`owner`]; meaningful once `since_ns` is set.
    pub owner: u32,
    /// The owner's mode below any interrupt.
    pub base_mode: u32,
    /// Depth of hard interrupts.
    pub hardirq: u32,
    /// Depth of soft interrupts.
    pub softirq: u32,
    /// A wakeup asked the next `__schedule` on this CPU to skip its clock update. Written by wakers.
    pub request: u32,
    /// `sched_entry_tp` saw the request (1) or its absence (0) at the begin of the `__schedule` that runs.
    pub entry_request: u32,
    /// What interrupted last: see [`crate::pair::origin`].
    pub irq_origin: u32,
    /// Begin of the interval that is open, by our clock; 0 = no event yet.
    pub since_ns: u64,
    /// The first event, by our clock.
    pub started_ns: u64,
    /// Time by owner and mode.
    pub owner_ns: [[u64; mode::COUNT]; owner::COUNT],
    /// The offset between our clock and this run queue's.
    pub offset: ClockOffset,
    /// Typical staleness of an ordinary switch: moving average, 1/8.
    pub path_ns: u64,
    /// What switches moved to (+) and from (-) idle and the unobserved tasks of this CPU.
    pub shift_ns: [i64; owner::TASK],
    /// Switches between owners of which at least one is observed.
    pub switches: u64,
    /// Of those, the ones whose clock update was skipped.
    pub skips: u64,
    /// Events whose time lay before the one booked last.
    pub clock_backwards: u64,
    /// Stalenesses thrown away because a clock had jumped.
    pub clock_jumps: u64,
    /// Ends without a begin.
    pub unmatched: u64,
    /// Tasks that could not be observed because no slot was free.
    pub map_full: u64,
    /// Ends of tasks that found the ring full (found again by the sweep, not lost).
    pub ring_full: u64,
    /// Switch-ins whose slot belonged to another task.
    pub stale_slots: u64,
    /// Switches whose program did not run: found by the next one, or at the end of `__schedule`.
    pub missed_switches: u64,
    /// Address of the task that the last switch gave the CPU to; 0 = no switch yet.
    pub current: u64,
    /// The wakee of the wakeup that runs on this CPU, by its address, and when that began.
    pub waking: u64,
    /// See `waking`.
    pub waking_since_ns: u64,
    /// When `update_rq_clock` last took effect on this run queue, by our clock; 0 = no hook sees it. Written by
    /// whoever holds the run queue's lock.
    pub clock_updated_ns: u64,
    /// Calls of it that a skip request made void.
    pub clock_skipped: u64,
    /// `clock_skipped` at the last switch.
    pub clock_skipped_mark: u64,
    /// Switches at which a skip was requested and no void update was seen, or the other way round.
    pub disagreed: u64,
    /// Switches at which both ways to the staleness were compared, how far they lay apart, and the most.
    pub compared: u64,
    /// See `compared`.
    pub compared_apart_ns: u64,
    /// See `compared`.
    pub compared_max_ns: u64,
    /// What the last switch left to the ledger.
    pub handover: Handover,
    /// Events of pairs that found no room in the table: they are in the sum of the rest.
    pub pairs_folded: u64,
    /// Runs by hook, those that found nothing to do included.
    pub runs: Runs,
    /// The PMU's counters, where they are read.
    pub meter: Meter,
}

impl Cpu {
    /// The mode that time is charged to now.
    #[must_use]
    #[inline(always)]
    pub fn mode(&self) -> usize {
        if self.hardirq != 0 {
            mode::HARDIRQ
        } else if self.softirq != 0 {
            mode::SOFTIRQ
        } else {
            // The mask bounds the index for the verifier; every mode lies below it.
            (self.base_mode & 7) as usize
        }
    }

    /// True in a hard or soft interrupt.
    #[must_use]
    #[inline(always)]
    pub fn in_interrupt(&self) -> bool {
        self.hardirq | self.softirq != 0
    }

    /// Charges the open interval to the owner, in `mode`, and opens the next one.
    ///
    /// `task` is the account in the CPU's slot; without it the time goes to idle or the unobserved.
    #[inline(always)]
    pub fn charge_as(&mut self, now_ns: u64, task: Option<&mut Task>, mode: usize) {
        if self.since_ns == 0 {
            self.since_ns = now_ns;
            self.started_ns = now_ns;
            return;
        }
        if now_ns < self.since_ns {
            self.clock_backwards += 1;
            return;
        }
        let elapsed_ns = now_ns - self.since_ns;
        self.since_ns = now_ns;
        if mode >= mode::COUNT {
            return;
        }
        if let Some(task) = task {
            task.mode_ns[mode] += elapsed_ns;
            task.updated_ns = now_ns;
            self.owner_ns[owner::TASK][mode] += elapsed_ns;
        } else if self.owner == owner::IDLE as u32 {
            self.owner_ns[owner::IDLE][mode] += elapsed_ns;
        } else {
            self.owner_ns[owner::OTHER][mode] += elapsed_ns;
        }
    }

    /// Charges the open interval in the mode that the CPU is in.
    #[inline(always)]
    pub fn charge(&mut self, now_ns: u64, task: Option<&mut Task>) {
        let mode = self.mode();
        self.charge_as(now_ns, task, mode);
    }

    /// Takes a sample of the offset at a moment when the run queue's clock is young, or may be.
    #[inline(always)]
    pub fn learn_offset(&mut self, now_ns: u64, rq: &RunQueue) {
        self.offset.sample(now_ns, (now_ns as i64).wrapping_sub(rq.clock_ns as i64));
    }

    /// Elapsed time up to the last event.
    #[must_use]
    pub fn elapsed_ns(&self) -> u64 {
        self.since_ns.saturating_sub(self.started_ns)
    }

    /// What was booked since an earlier reading of the same CPU; the longest of all times stays.
    #[must_use]
    pub fn after(mut self, before: &Self) -> Self {
        self.started_ns = before.since_ns;
        let then = before.owner_ns.iter().flatten();
        self.owner_ns
            .iter_mut()
            .flatten()
            .zip(then)
            .for_each(|(now, then)| *now = now.saturating_sub(*then));
        self.runs
            .0
            .iter_mut()
            .zip(before.runs.0)
            .for_each(|(now, then)| *now = now.saturating_sub(then));
        for (now, then) in [
            (&mut self.switches, before.switches),
            (&mut self.skips, before.skips),
            (&mut self.clock_backwards, before.clock_backwards),
            (&mut self.clock_jumps, before.clock_jumps),
            (&mut self.unmatched, before.unmatched),
            (&mut self.map_full, before.map_full),
            (&mut self.ring_full, before.ring_full),
            (&mut self.stale_slots, before.stale_slots),
            (&mut self.missed_switches, before.missed_switches),
            (&mut self.pairs_folded, before.pairs_folded),
            (&mut self.meter.discarded, before.meter.discarded),
            (&mut self.clock_skipped, before.clock_skipped),
            (&mut self.compared, before.compared),
            (&mut self.disagreed, before.disagreed),
            (&mut self.compared_apart_ns, before.compared_apart_ns),
        ] {
            *now = now.saturating_sub(then);
        }
        self
    }

    /// What the owners and modes add up to; equal to [`Cpu::elapsed_ns`].
    #[must_use]
    pub fn accounted_ns(&self) -> u64 {
        self.owner_ns.iter().flatten().fold(0, |sum, ns| sum.saturating_add(*ns))
    }

    /// The run queue's clock as it would be if it were updated now, from the offset.
    #[must_use]
    #[inline(always)]
    pub fn run_queue_now_ns(&self, now_ns: u64, rq: &RunQueue) -> u64 {
        match self.offset.get() {
            Some(offset_ns) => (now_ns as i64 - offset_ns) as u64,
            None => rq.clock_ns,
        }
    }
}

const _: () = assert!(size_of::<Cpu>().is_multiple_of(64), "a CPU does not share a cache line");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_reading_less_an_earlier_one_is_what_came_between() {
        let mut cpu = Cpu::default();
        cpu.charge(1_000, None);
        cpu.charge(1_500, None);
        cpu.unmatched = 3;
        cpu.runs.0[2] = 7;
        let before = cpu;
        cpu.charge(1_900, None);
        cpu.unmatched = 4;
        cpu.runs.0[2] = 9;
        let between = cpu.after(&before);
        assert_eq!((between.elapsed_ns(), between.accounted_ns()), (400, 400));
        assert_eq!((between.unmatched, between.runs.0[2]), (1, 2));
    }
}

//! The state of one CPU: who owns it, in which mode, since when.
//!
//! A CPU always has exactly one owner and one mode. Each event at time t charges `t - since` to them and then
//! changes one of them. So the sum over all owners and modes is the elapsed time, exactly, whatever the order
//! of events and whatever was lost.

use crate::{
    bill::RunQueue,
    clock::ClockOffset,
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

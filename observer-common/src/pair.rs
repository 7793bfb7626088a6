//! Who woke whom, and whose time went to whom at a switch.
//!
//! A pair has one writer at a time: the CPU on which its observed wakee is switched in (it runs on one CPU at a
//! time), or, where only the waker or previous task is observed, the CPU on which that one runs. So plain
//! additions are enough.

use crate::{
    glob::COMM_LEN,
    latency::Latency,
    switch::Shift,
    task::{Task, flag, mode},
};

/// Who takes part in a pair, as one number.
pub mod party {
    /// Not observed: known by tid and start.
    pub const UNOBSERVED: u64 = 1 << 63;
    /// No task: a hard interrupt.
    pub const HARDIRQ: u64 = UNOBSERVED | 1;
    /// No task: a soft interrupt.
    pub const SOFTIRQ: u64 = UNOBSERVED | 2;
    /// The idle task of any CPU.
    pub const IDLE: u64 = UNOBSERVED;
    /// Bits of the start time that go with an unobserved tid: it is used again after these have changed.
    const START_BITS: u32 = 40;

    /// An observed task, by its account: the slot, and the low half of the opening time.
    #[must_use]
    #[inline(always)]
    pub fn observed(slot: u32, opened_ns: u64) -> u64 {
        (slot as u64) << 32 | opened_ns & 0xffff_ffff
    }

    /// A task that is not observed; tid 0 is idle.
    #[must_use]
    #[inline(always)]
    pub fn unobserved(tid: u32, start_ns: u64) -> u64 {
        if tid == 0 {
            return IDLE;
        }
        UNOBSERVED | (tid as u64 & 0x3f_ffff) << START_BITS | start_ns & ((1 << START_BITS) - 1)
    }

    /// The tid of a party that is not observed; `None` for idle and interrupts.
    #[must_use]
    pub fn tid(party: u64) -> Option<u32> {
        let tid = (party >> START_BITS) as u32 & 0x3f_ffff;
        (party & UNOBSERVED != 0 && tid != 0).then_some(tid)
    }

    /// True for the account of an observed task.
    #[must_use]
    #[inline(always)]
    pub fn is_observed(party: u64) -> bool {
        party & UNOBSERVED == 0
    }
}

/// From whom to whom.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PairKey {
    /// Waker, previous task, tracer: see [`party`].
    pub from: u64,
    /// Wakee, next task, tracee.
    pub to: u64,
}

/// Why a clock update was skipped.
pub mod reason {
    /// A wakeup asked for it while a task ran (`wakeup_preempt`).
    pub const WAKEUP: usize = 0;
    /// A wakeup asked for it while the CPU was idle.
    pub const IDLE: usize = 1;
    /// The previous task yielded (`yield_task_fair`).
    pub const YIELD: usize = 2;
    /// None of these.
    pub const OTHER: usize = 3;
    /// How many there are.
    pub const COUNT: usize = 4;
}

/// In what context a wakeup was made.
pub mod context {
    /// By a task.
    pub const TASK: usize = 0;
    /// In a soft interrupt.
    pub const SOFTIRQ: usize = 1;
    /// In a hard interrupt.
    pub const HARDIRQ: usize = 2;
    /// By the idle loop.
    pub const IDLE: usize = 3;
    /// How many there are.
    pub const COUNT: usize = 4;
}

/// Where a wakeup came from: a syscall's number below [`origin::OTHER`], or one of these.
pub mod origin {
    /// None of the below, and no syscall.
    pub const OTHER: u32 = 0x1000;
    /// The waker exits.
    pub const EXIT: u32 = 0x1001;
    /// The waker is in a page fault.
    pub const FAULT: u32 = 0x1002;
    /// The waker is a kernel thread.
    pub const KERNEL: u32 = 0x1003;
    /// The waker is on its way into a ptrace stop.
    pub const STOP: u32 = 0x1004;
    /// The idle loop.
    pub const IDLE: u32 = 0x1005;
    /// The local timer's interrupt.
    pub const TIMER: u32 = 0x1010;
    /// A device's interrupt.
    pub const DEVICE: u32 = 0x1011;
    /// Another CPU's interrupt: reschedule, function call.
    pub const IPI: u32 = 0x1012;
    /// Interrupt work (`irq_work`).
    pub const WORK: u32 = 0x1013;
    /// A soft interrupt: this plus its vector (`enum` in include/linux/interrupt.h).
    pub const SOFTIRQ: u32 = 0x1020;
    /// A new task (`wake_up_new_task`), made by its parent.
    pub const FORK: u32 = 0x1030;
}

/// Origins that a pair tells apart; the rest is summed in the last one.
pub const ORIGINS: usize = 6;

/// Wakeups from one origin.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// See [`origin`]; meaningful where `count` is not zero.
    pub code: u32,
    /// Explicit padding.
    pub _pad: u32,
    /// Wakeups.
    pub count: u64,
    /// The waker's time in them, where it was seen.
    pub cost_ns: u64,
}

/// A wakeup that its wakee has still to answer by running; kept in the wakee's account.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wake {
    /// Who woke it: see [`party`].
    pub from: u64,
    /// When; 0 = no wakeup is open.
    pub since_ns: u64,
    /// What the wakeup cost the waker; 0 = not seen.
    pub cost_ns: u64,
    /// See [`origin`].
    pub origin: u32,
    /// See [`context`].
    pub context: u32,
    /// The waker's name, if it is not observed.
    pub from_comm: [u8; COMM_LEN],
    /// The waker's process, if it is not observed.
    pub from_tgid: u32,
    /// Explicit padding.
    pub _pad: u32,
}

impl Wake {
    /// A wakeup at a moment, by nobody known.
    #[must_use]
    #[inline(always)]
    pub fn at(since_ns: u64) -> Self {
        Self { since_ns, ..Self::default() }
    }
}

/// The books of a pair.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pair {
    /// Names of the sides that are not observed, as they were when the pair was first seen.
    pub from_comm: [u8; COMM_LEN],
    /// See `from_comm`.
    pub to_comm: [u8; COMM_LEN],
    /// Processes of the sides that are not observed.
    pub from_tgid: u32,
    /// See `from_tgid`.
    pub to_tgid: u32,
    /// Wakeups by [`context`].
    pub wakes: [u64; context::COUNT],
    /// Of them, those that made the wakee run in place of the waker.
    pub preemptions: u64,
    /// Time of the waker inside these wakeups, where it was seen.
    pub cost_ns: u64,
    /// Wakeups whose cost was seen.
    pub costed: u64,
    /// Switches from the one to the other.
    pub switches: u64,
    /// Of them, those with a skipped clock update, by [`reason`].
    pub skips: [u64; reason::COUNT],
    /// What these moved to the next task's bill.
    pub skip_ns: [u64; reason::COUNT],
    /// What ordinary switches moved.
    pub path_ns: u64,
    /// Where the wakeups came from.
    pub origins: [Origin; ORIGINS],
    /// From the wakeup to the switch-in.
    pub latency: Latency,
    /// Cycles of the waker inside these wakeups, where they were counted.
    pub cost_cycles: u64,
}

impl Pair {
    /// A switch from `from` to `to`, and what it moved.
    #[inline(always)]
    pub fn switched(&mut self, shift: &Shift, reason: usize) {
        self.switches += 1;
        self.path_ns += shift.path_ns;
        if shift.skipped {
            let reason = reason & (reason::COUNT - 1);
            self.skips[reason] += 1;
            self.skip_ns[reason] += shift.skip_ns;
        }
    }

    /// A wakeup; `latency_ns` where its wakee has run since.
    #[inline(always)]
    pub fn woken(&mut self, wake: &Wake, latency_ns: Option<u64>) {
        self.wakes[wake.context as usize & (context::COUNT - 1)] += 1;
        if wake.cost_ns != 0 {
            self.cost_ns += wake.cost_ns;
            self.costed += 1;
        }
        if let Some(ns) = latency_ns {
            self.latency.add(ns);
        }
        self.came_from(wake.origin, 1, wake.cost_ns);
    }

    /// The cost of a wakeup that was counted already.
    #[inline(always)]
    pub fn cost(&mut self, code: u32, cost_ns: u64) {
        self.cost_ns += cost_ns;
        self.costed += 1;
        self.came_from(code, 0, cost_ns);
    }

    #[inline(always)]
    fn came_from(&mut self, code: u32, count: u64, cost_ns: u64) {
        let mut index = 0;
        while index < ORIGINS - 1 {
            let origin = &mut self.origins[index];
            if origin.count == 0 || origin.code == code {
                origin.code = code;
                origin.count += count;
                origin.cost_ns += cost_ns;
                return;
            }
            index += 1;
        }
        let rest = &mut self.origins[ORIGINS - 1];
        rest.code = origin::OTHER;
        rest.count += count;
        rest.cost_ns += cost_ns;
    }
}

impl Pair {
    /// Adds another one's books; the names stay.
    pub fn add(&mut self, other: &Self) {
        let add = |sum: &mut u64, part: u64| *sum = sum.saturating_add(part);
        self.wakes.iter_mut().zip(other.wakes).for_each(|(sum, part)| add(sum, part));
        self.skips.iter_mut().zip(other.skips).for_each(|(sum, part)| add(sum, part));
        self.skip_ns.iter_mut().zip(other.skip_ns).for_each(|(sum, part)| add(sum, part));
        add(&mut self.preemptions, other.preemptions);
        add(&mut self.cost_ns, other.cost_ns);
        add(&mut self.costed, other.costed);
        add(&mut self.switches, other.switches);
        add(&mut self.cost_cycles, other.cost_cycles);
        add(&mut self.path_ns, other.path_ns);
        for part in other.origins.iter().filter(|part| part.count != 0) {
            self.came_from(part.code, part.count, part.cost_ns);
        }
        self.latency.merge(&other.latency);
    }
}

/// Why the clock update of a switch was skipped. `by_wakeup`: `sched_wakeup` saw the request on this CPU.
#[must_use]
#[inline(always)]
pub fn reason_of(from_idle: bool, by_wakeup: bool, yielded: bool) -> usize {
    if from_idle {
        reason::IDLE
    } else if by_wakeup {
        reason::WAKEUP
    } else if yielded {
        reason::YIELD
    } else {
        reason::OTHER
    }
}

/// Where a wakeup by an observed task comes from.
#[must_use]
#[inline(always)]
pub fn origin_of(waker: &Task, base_mode: u32) -> u32 {
    if waker.has(flag::KERNEL) {
        origin::KERNEL
    } else if waker.has(flag::EXITING) {
        origin::EXIT
    } else if waker.has(flag::IN_SYSCALL) {
        waker.syscall
    } else if waker.has(flag::STOP_SEEN) {
        origin::STOP
    } else if base_mode == mode::UNCLASSIFIED as u32 {
        origin::FAULT
    } else {
        origin::OTHER
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parties_are_told_apart() {
        let observed = party::observed(7, 0xffff_ffff_1234_5678);
        assert!(party::is_observed(observed) && party::tid(observed).is_none());
        let task = party::unobserved(4_194_303, 123_456_789);
        assert_eq!(party::tid(task), Some(4_194_303));
        assert_ne!(task, party::unobserved(4_194_303, 123_456_790));
        assert_eq!(party::unobserved(0, 99), party::IDLE);
        for nobody in [party::IDLE, party::HARDIRQ, party::SOFTIRQ] {
            assert!(!party::is_observed(nobody) && party::tid(nobody).is_none());
        }
        assert!(party::is_observed(party::observed(4_194_304, u64::MAX)), "the largest slot");
    }

    #[test]
    fn origins_beyond_the_room_are_summed_in_the_last_one() {
        let mut pair = Pair::default();
        for code in 0..10 {
            let wake = Wake { origin: code, cost_ns: 10, ..Wake::default() };
            pair.woken(&wake, Some(2_000));
            pair.woken(&wake, None);
        }
        assert_eq!(pair.origins.iter().map(|origin| origin.count).sum::<u64>(), 20);
        assert_eq!(pair.origins.iter().map(|origin| origin.cost_ns).sum::<u64>(), pair.cost_ns);
        let rest = pair.origins[ORIGINS - 1];
        assert_eq!((rest.code, rest.count), (origin::OTHER, 10));
        assert_eq!((pair.latency.count, pair.wakes[context::TASK]), (10, 20));
    }

    #[test]
    fn a_switch_moves_its_shift_once() {
        let mut pair = Pair::default();
        pair.switched(&Shift { skipped: true, skip_ns: 600, path_ns: 70 }, reason::WAKEUP);
        pair.switched(&Shift { skipped: false, skip_ns: 0, path_ns: 80 }, reason::OTHER);
        assert_eq!(pair.skips, [1, 0, 0, 0]);
        assert_eq!((pair.skip_ns[reason::WAKEUP], pair.path_ns, pair.switches), (600, 150, 2));
    }

    #[test]
    fn an_idle_cpu_is_the_reason_before_any_other() {
        assert_eq!(reason_of(true, true, false), reason::IDLE);
        assert_eq!(reason_of(false, true, true), reason::WAKEUP);
        assert_eq!(reason_of(false, false, true), reason::YIELD);
        assert_eq!(reason_of(false, false, false), reason::OTHER);
    }
}

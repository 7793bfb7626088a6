//! `sched_waking`, `sched_wakeup`, `sched_wakeup_new`.
//!
//! `sched_waking` runs in the waker's context and is the only hook that knows the waker. `sched_wakeup` runs
//! after `wakeup_preempt` (`check_preempt_curr` up to 6.6) under the lock of the run queue, possibly on another
//! CPU, and so sees whether the next clock update was asked to be skipped.

use crate::{
    bill::{RQCF_ACT_SKIP, RQCF_REQ_SKIP, RunQueue},
    cpu::Cpu,
    pair::Wake,
    switch::{Place, TASK_TRACED, end_stop, stops_inside},
    task::{Task, crossing, flag, mode},
};

/// What a waker's own state says at its `sched_waking`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Waker {
    /// Its own `TASK_*` bits: not zero when it is about to stop or to sleep.
    pub state: u64,
    /// Where it came into the kernel.
    pub place: Place,
}

/// True when [`waking`] wants to know the waker's registers and state: it costs a few loads.
#[must_use]
#[inline(always)]
pub fn wants_evidence(cpu: &Cpu) -> bool {
    !cpu.in_interrupt() && cpu.base_mode == mode::USER as u32
}

/// An observed task wakes another one. In an interrupt it is only the task that was interrupted.
#[inline(always)]
pub fn waking(cpu: &mut Cpu, waker: &mut Task, now_ns: u64, seen: &Waker) {
    if cpu.in_interrupt() {
        return;
    }
    waker.begin();
    waker.wakes_made += 1;
    if cpu.base_mode == mode::USER as u32 {
        evidence(cpu, waker, now_ns, seen);
    }
    waker.end();
}

/// The hooks say user mode, but a wakeup is made in the kernel: so the task came in by a way that has no hook.
///
/// Both ptrace syscall stops lie outside `sys_enter`/`sys_exit` (kernel/entry/common.c); the first thing that a
/// stop does is to wake the tracer (`do_notify_parent_cldstop`, kernel/signal.c), with the state already set.
#[inline(always)]
fn evidence(cpu: &mut Cpu, waker: &mut Task, now_ns: u64, seen: &Waker) {
    let stopping = seen.state & TASK_TRACED != 0;
    let interval = match seen.place {
        // After sys_exit, and no user instruction since.
        Place::Syscall => mode::SYSTEM,
        Place::Entry | Place::Exception if stopping => mode::USER,
        // An exception that wakes somebody: where in the interval it began is not known.
        _ => return,
    };
    cpu.charge_as(now_ns, Some(waker), interval);
    if stopping {
        if interval == mode::USER {
            waker.cross(crossing::STOP);
        }
        if stops_inside(mode::USER, seen.place) {
            waker.set(flag::STOP_INSIDE);
        } else {
            waker.clear(flag::STOP_INSIDE);
        }
        waker.set(flag::STOP_SEEN);
        cpu.base_mode = mode::SYSTEM as u32;
    }
}

/// An observed task is being woken. The one that it has not answered yet, if any, is the caller's to book first.
#[inline(always)]
pub fn woken(wakee: &mut Task, wake: &Wake) {
    wakee.wakeups += 1;
    wakee.wake = *wake;
    // The flag stays until the switch-in: it says in which mode the task goes on.
    end_stop(wakee, wake.since_ns);
}

/// A wakeup begins on this CPU.
#[inline(always)]
pub fn begin(cpu: &mut Cpu, wakee: u64, now_ns: u64) {
    cpu.waking = wakee;
    cpu.waking_since_ns = now_ns;
}

/// The wakee is on its run queue: what the wakeup cost, if it began on this CPU.
///
/// One that is delivered through another CPU's wakelist ends there (`sched_ttwu_pending`), and its cost is not
/// known here.
#[must_use]
#[inline(always)]
pub fn end(cpu: &mut Cpu, wakee: u64, now_ns: u64) -> Option<u64> {
    if wakee == 0 || cpu.waking != wakee {
        return None;
    }
    cpu.waking = 0;
    // Not zero: that would mean that it was not seen.
    Some(now_ns.saturating_sub(cpu.waking_since_ns).max(1))
}

/// An observed task was put on a run queue.
#[inline(always)]
pub fn enqueued(wakee: &mut Task, now_ns: u64) {
    if wakee.wait_since_ns == 0 {
        wakee.wait_since_ns = now_ns;
    }
}

/// `update_rq_clock` is called for a run queue whose lock is held.
#[inline(always)]
pub fn clock_update(target: &mut Cpu, now_ns: u64, update_flags: u32) {
    if update_flags & RQCF_ACT_SKIP != 0 {
        target.clock_skipped += 1;
    } else {
        target.clock_updated_ns = now_ns;
    }
}

/// What the wakeup left behind in the target's run queue, whose lock is held.
///
/// The wakeup has just updated that clock (`ttwu_queue`), or it is older: a good sample for the offset.
#[inline(always)]
pub fn requested(target: &mut Cpu, now_ns: u64, rq: &RunQueue) {
    target.learn_offset(now_ns, rq);
    if rq.update_flags & RQCF_REQ_SKIP != 0 {
        target.request = 1;
    }
}

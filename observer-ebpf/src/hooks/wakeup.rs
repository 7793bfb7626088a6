//! `sched_waking`, `sched_wakeup`, `sched_wakeup_new`.

use aya_ebpf::{
    macros::{btf_tracepoint, fentry, fexit},
    programs::{BtfTracePointContext, FEntryContext, FExitContext},
};
use observer_common::{
    bill::RQCF_REQ_SKIP,
    cpu::{Cpu, NO_SLOT},
    names::hook,
    pair::{Wake, origin},
    wakeup::{self, Waker},
};

use super::{cycles, pair};
use crate::{
    kernel::{self, Ptr, config},
    maps,
};

/// `(wakee)`, in the waker's context, under the wakee's `pi_lock`.
#[btf_tracepoint(function = "sched_waking")]
fn sched_waking(ctx: BtfTracePointContext) -> i32 {
    let Some(cpu) = maps::enter(hook::WAKING) else { return 0 };
    let wakee: Ptr = ctx.arg(0);
    let wakee_slot = maps::slot_of(kernel::tid(wakee));
    if cpu.slot | wakee_slot == NO_SLOT {
        return 0;
    }
    let now_ns = maps::now_ns();
    wakeup::begin(cpu, wakee as u64, now_ns);
    cycles::wakeup_begins(cpu);
    if let Some(waker) = maps::owner(cpu) {
        let seen = if config!(split) != 0 && wakeup::wants_evidence(cpu) {
            let (state, place) = kernel::current_state_and_place();
            Waker { state, place }
        } else {
            Waker::default()
        };
        wakeup::waking(cpu, waker, now_ns, &seen);
    }
    let wake = pair::wake_by(cpu, maps::owner(cpu).as_deref(), now_ns);
    woken(cpu, wakee, wakee_slot, &wake);
    0
}

#[inline(always)]
fn woken(cpu: &mut Cpu, wakee: Ptr, slot: u32, wake: &Wake) {
    match maps::task(slot) {
        Some(task) if task.address == wakee as u64 => {
            // One that it has not run for yet.
            pair::answer(cpu, task, slot, None);
            wakeup::woken(task, wake);
        }
        _ => pair::woken_unobserved(cpu, wake, wakee),
    }
}

/// `(wakee)`, after `wakeup_preempt`, under the lock of the run queue that it was put on.
#[btf_tracepoint(function = "sched_wakeup")]
fn sched_wakeup(ctx: BtfTracePointContext) -> i32 {
    let Some(cpu) = maps::enter(hook::WAKEUP) else { return 0 };
    let wakee: Ptr = ctx.arg(0);
    // Before any branch: see `kernel::run_queue`.
    let rq = kernel::run_queue(wakee);
    let slot = maps::slot_of(kernel::tid(wakee));
    // Read once, and only if somebody wants it.
    let mut now_ns = 0;
    if cpu.waking == wakee as u64 {
        now_ns = maps::now_ns();
        if let Some(cost_ns) = wakeup::end(cpu, wakee as u64, now_ns) {
            cost(cpu, wakee, slot, cost_ns);
        }
    }
    enqueued(rq, slot, now_ns);
    0
}

/// What the wakeup that ends here cost its waker.
#[inline(always)]
fn cost(cpu: &mut Cpu, wakee: Ptr, slot: u32, cost_ns: u64) {
    let cycles = cycles::wakeup_ends(cpu);
    let waker = if cpu.in_interrupt() { None } else { maps::owner(cpu) };
    match maps::task(slot) {
        Some(task) if task.address == wakee as u64 => {
            task.wake.cost_ns = cost_ns;
            task.wake_cycles = cycles;
        }
        _ => {
            if let Some(waker) = waker.as_deref() {
                pair::cost_unobserved(cpu, waker, wakee, cost_ns, cycles);
            }
        }
    }
    if let Some(waker) = waker {
        waker.wakeup_cost_ns += cost_ns;
    }
}

/// `(wakee)`: a new task, woken by its parent. Here the tracepoint comes before `wakeup_preempt`, so the request
/// is not seen.
#[btf_tracepoint(function = "sched_wakeup_new")]
fn wakeup_new(ctx: BtfTracePointContext) -> i32 {
    let Some(cpu) = maps::enter(hook::WAKEUP_NEW) else { return 0 };
    let wakee: Ptr = ctx.arg(0);
    let rq = kernel::run_queue(wakee);
    let slot = maps::slot_of(kernel::tid(wakee));
    if cpu.slot | slot != NO_SLOT {
        let mut wake = pair::wake_by(cpu, maps::owner(cpu).as_deref(), maps::now_ns());
        wake.origin = origin::FORK;
        match maps::task(slot) {
            // It is no wakeup from a sleep, so it does not count as one of its `wakeups`.
            Some(task) if task.address == wakee as u64 => task.wake = wake,
            _ => pair::woken_unobserved(cpu, &wake, wakee),
        }
    }
    enqueued(rq, slot, 0);
    0
}

/// `now_ns`: 0 where the clock has not been read yet.
#[inline(always)]
fn enqueued(rq: Ptr, wakee_slot: u32, now_ns: u64) {
    if rq.is_null() {
        if let Some(task) = maps::task(wakee_slot) {
            wakeup::enqueued(task, if now_ns == 0 { maps::now_ns() } else { now_ns });
        }
        return;
    }
    let Some(target) = maps::cpu(kernel::run_queue_cpu(rq)) else { return };
    if target.slot | wakee_slot == NO_SLOT {
        return;
    }
    let now_ns = if now_ns == 0 { maps::now_ns() } else { now_ns };
    if let Some(task) = maps::task(wakee_slot) {
        wakeup::enqueued(task, now_ns);
    }
    wakeup::requested(target, now_ns, &kernel::clocks(rq));
}

/// `(rq, task, flags)`: `wakeup_preempt`, `check_preempt_curr` up to 6.6. Under the run queue's lock. It also sees
/// what a new task asks for, which `sched_wakeup_new` comes too early for.
#[fexit]
fn wakeup_preempt(ctx: FExitContext) -> i32 {
    if maps::enter(hook::PREEMPT).is_none() {
        return 0;
    }
    let rq: Ptr = ctx.arg(0);
    if let Some(target) = maps::cpu(kernel::run_queue_cpu(rq))
        && kernel::update_flags(rq) & RQCF_REQ_SKIP != 0
    {
        target.request = 1;
    }
    0
}

/// `(rq)`: `update_rq_clock`, under the run queue's lock.
#[fentry]
fn clock_update(ctx: FEntryContext) -> i32 {
    if maps::enter(hook::CLOCK).is_none() {
        return 0;
    }
    let rq: Ptr = ctx.arg(0);
    if let Some(target) = maps::cpu(kernel::run_queue_cpu(rq)) {
        wakeup::clock_update(target, maps::now_ns(), kernel::update_flags(rq));
    }
    0
}

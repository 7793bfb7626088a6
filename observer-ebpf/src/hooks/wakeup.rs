//! `sched_waking`, `sched_wakeup`, `sched_wakeup_new`.

use aya_ebpf::{macros::btf_tracepoint, programs::BtfTracePointContext};
use observer_common::{
    cpu::NO_SLOT,
    names::hook,
    wakeup::{self, Waker},
};

use crate::{
    kernel::{self, Ptr},
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
    if let Some(waker) = maps::owner(cpu) {
        let seen = if wakeup::wants_evidence(cpu) {
            let (state, place) = kernel::current_state_and_place();
            Waker { state, place }
        } else {
            Waker::default()
        };
        wakeup::waking(cpu, waker, now_ns, &seen);
    }
    if let Some(task) = maps::task(wakee_slot) {
        wakeup::woken(task, now_ns);
    }
    0
}

/// `(wakee)`, after `wakeup_preempt`, under the lock of the run queue that it was put on.
#[btf_tracepoint(function = "sched_wakeup")]
fn sched_wakeup(ctx: BtfTracePointContext) -> i32 {
    maps::enter(hook::WAKEUP);
    enqueued(ctx.arg(0));
    0
}

/// `(wakee)`: a new task. Here the tracepoint comes before `wakeup_preempt`, so the request is not seen.
#[btf_tracepoint(function = "sched_wakeup_new")]
fn wakeup_new(ctx: BtfTracePointContext) -> i32 {
    maps::enter(hook::WAKEUP_NEW);
    enqueued(ctx.arg(0));
    0
}

#[inline(always)]
fn enqueued(wakee: Ptr) {
    let wakee_slot = maps::slot_of(kernel::tid(wakee));
    let rq = kernel::run_queue(wakee);
    if rq.is_null() {
        if let Some(task) = maps::task(wakee_slot) {
            wakeup::enqueued(task, maps::now_ns());
        }
        return;
    }
    let Some(target) = maps::cpu(kernel::run_queue_cpu(rq)) else { return };
    if target.slot | wakee_slot == NO_SLOT {
        return;
    }
    let now_ns = maps::now_ns();
    if let Some(task) = maps::task(wakee_slot) {
        wakeup::enqueued(task, now_ns);
    }
    wakeup::requested(target, now_ns, &kernel::clocks(rq));
}

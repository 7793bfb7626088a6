//! `sched_switch` and `sched_entry_tp`.

use aya_ebpf::{macros::btf_tracepoint, programs::BtfTracePointContext};
use observer_common::{
    bill::RunQueue,
    cpu::{Cpu, NO_SLOT, owner},
    layout::switch_args,
    names::hook,
    pair::reason_of,
    switch::{self, Arrival, Departure, Handover, Moment, Place, TASK_DEAD, TASK_TRACED, handover},
    task::{Task, flag},
};

use crate::{
    hooks::{cycles, pair},
    kernel::{self, Ptr, config},
    maps,
};

/// `(bool preempt, prev, next[, prev_state])`, after the next task was picked, before the stacks change.
///
/// It calls no function, so that it may go on in another program on arm64 before 6.0: see `Stop::forget`.
#[btf_tracepoint(function = "sched_switch")]
#[inline(always)]
fn sched_switch(ctx: BtfTracePointContext) -> i32 {
    let Some(cpu) = maps::enter(hook::SWITCH) else { return 0 };
    let preempt = ctx.arg::<u64>(0) & 0xff != 0;
    let is_observed = match config!(switch_args) {
        switch_args::STATE_SECOND => {
            switched(cpu, preempt, ctx.arg(2), ctx.arg(3), u64::from(ctx.arg::<u32>(1)))
        }
        switch_args::STATE_LAST => {
            switched(cpu, preempt, ctx.arg(1), ctx.arg(2), u64::from(ctx.arg::<u32>(3)))
        }
        _ => {
            let prev: Ptr = ctx.arg(1);
            switched(cpu, preempt, prev, ctx.arg(2), kernel::state(prev))
        }
    };
    if is_observed && config!(pairs) != 0 {
        pair::go_on(&ctx);
    }
    0
}

/// True if a side of the switch is observed.
#[inline(always)]
fn switched(cpu: &mut Cpu, preempt: bool, prev: Ptr, next: Ptr, prev_state: u64) -> bool {
    let next_tid = kernel::tid(next);
    let next_slot = maps::slot_of(next_tid);
    let next_kind = owner::of_unobserved(next_tid);
    if switch::follow(cpu, prev as u64, next as u64) && config!(has_exit) == 0 {
        make_good(cpu, prev);
    }
    let by_wakeup = cpu.request != 0;
    let requested = if config!(has_entry) != 0 { cpu.entry_request } else { cpu.request };
    cpu.request = 0;

    if cpu.slot | next_slot == NO_SLOT {
        // Nobody here is observed: the flag test that it costs. Only idle or not idle is told apart.
        switch::mark_clock(cpu);
        if cpu.owner != next_kind as u32 || cpu.since_ns == 0 {
            switch::pass(cpu, next_kind, maps::now_ns());
        }
        return false;
    }

    let at = moment(cpu, prev, next, requested != 0);
    cycles::turn(cpu);
    let prev_slot = cpu.slot;
    let from_idle = prev_slot == NO_SLOT && cpu.owner == owner::IDLE as u32;
    let mut left = Handover {
        now_ns: at.now_ns,
        skip_ns: at.shift.skip_ns,
        path_ns: at.shift.path_ns,
        prev_slot,
        next_slot,
        flags: u32::from(at.shift.skipped),
        ..Handover::default()
    };
    let mut yielded = false;
    if prev_state == 0 {
        left.flags |= handover::RUNNABLE;
    }
    match maps::task(prev_slot) {
        Some(task) => {
            yielded = prev_state == 0 && u64::from(task.syscall) == config!(yield_number);
            if depart(cpu, task, prev_slot, &at, prev, preempt, prev_state) {
                left.flags |= handover::STOPS;
            }
        }
        None => switch::depart_unobserved(cpu, &at),
    }
    left.reason = reason_of(from_idle, by_wakeup, yielded) as u32;
    match maps::task(next_slot) {
        Some(task) if task.address == next as u64 => {
            let mut to = Arrival { slot: next_slot, ..Arrival::default() };
            if !task.has(flag::BASED) {
                to.place = kernel::place(next);
                to.bill = kernel::bill(next);
            }
            if task.has(flag::STOPPED) {
                left.flags |= handover::RESUMES;
            }
            switch::arrive(cpu, task, &at, &to);
        }
        Some(_) => {
            cpu.stale_slots += 1;
            left.next_slot = NO_SLOT;
            switch::yield_to(cpu, owner::OTHER, &at);
        }
        None => switch::yield_to(cpu, next_kind, &at),
    }
    cpu.handover = left;
    switch::mark_clock(cpu);
    true
}

/// `prev` got the CPU by a switch that was missed: its run begins when the kernel noted that it did.
#[inline(always)]
fn make_good(cpu: &mut Cpu, prev: Ptr) {
    // Before any branch: see `kernel::run_queue`.
    let rq = kernel::run_queue(prev);
    let now_ns = maps::now_ns();
    let arrived_ns = switch::arrived_ns(cpu, kernel::arrival(prev), now_ns);
    let tid = kernel::tid(prev);
    let slot = maps::slot_of(tid);
    switch::dispossess(cpu, maps::owner(cpu), arrived_ns);
    match maps::task(slot) {
        Some(task) if task.address == prev as u64 && switch::may_arrive_late(task) => {
            let at = Moment {
                now_ns: arrived_ns,
                cpu: maps::cpu_id(),
                // As of now: what was left out of this very run stays in its residual.
                left_out_ns: if rq.is_null() { 0 } else { kernel::clocks(rq).left_out_ns() },
                ..Moment::default()
            };
            switch::arrive_late(cpu, task, &at, slot, now_ns);
        }
        _ => switch::pass(cpu, owner::of_unobserved(tid), now_ns),
    }
}

/// The clocks at this switch, and what it shifts.
#[inline(always)]
fn moment(cpu: &mut Cpu, prev: Ptr, next: Ptr, requested: bool) -> Moment {
    let now_ns = maps::now_ns();
    let mut at = Moment { now_ns, cpu: maps::cpu_id(), ..Moment::default() };
    let rq = kernel::run_queue(prev);
    if !rq.is_null() {
        let clocks: RunQueue = kernel::clocks(rq);
        at.left_out_ns = clocks.left_out_ns();
        let seen = requested
            || config!(has_requests) == 0 && switch::stood_still(&clocks, kernel::queued(next));
        at.shift = switch::shift(cpu, now_ns, &clocks, seen);
    }
    at
}

/// The observed task that owns the CPU stops. True if that is a ptrace stop.
#[inline(always)]
fn depart(
    cpu: &mut Cpu,
    task: &mut Task,
    slot: u32,
    at: &Moment,
    prev: Ptr,
    preempt: bool,
    prev_state: u64,
) -> bool {
    // A pending signal keeps a task on the run queue whose state says otherwise (`__schedule`).
    let kept = prev_state != 0 && kernel::state(prev) == 0;
    let traced = prev_state & TASK_TRACED != 0 && !kept;
    let from = Departure {
        // As the kernel counts nivcsw (__schedule): preempted, or still runnable.
        involuntary: preempt || prev_state == 0,
        state: prev_state,
        place: if switch::wants_place(cpu, task, traced) {
            kernel::place(prev)
        } else {
            Place::Unknown
        },
        kept,
        tracer_tid: if traced { kernel::tracer_tid(prev) } else { 0 },
        bill: kernel::bill(prev),
    };
    switch::depart(cpu, task, at, &from);
    if prev_state & TASK_DEAD != 0 {
        maps::ended(cpu, task, slot);
    } else if task.address == prev as u64 {
        let tid = kernel::tid(prev);
        if tid != task.tid {
            // exec by a thread that is not the leader: it has taken the leader's id (exchange_tids).
            maps::unbind(task.tid, slot);
            maps::bind(tid, slot);
            task.former_tid = task.tid;
            task.tid = tid;
        }
    }
    traced
}

/// `(bool preempt)`, at the begin of `__schedule`: the request is there, exactly (6.18 and later).
#[btf_tracepoint(function = "sched_entry_tp")]
fn sched_entry(_ctx: BtfTracePointContext) -> i32 {
    let Some(cpu) = maps::enter(hook::ENTRY) else { return 0 };
    let rq = kernel::run_queue(kernel::current());
    cpu.entry_request = if rq.is_null() {
        0
    } else {
        kernel::update_flags(rq) & observer_common::bill::RQCF_REQ_SKIP
    };
    0
}

/// `(bool is_switch)`, at the end of `__schedule`, in the context of the task that has the CPU now (6.18 and
/// later). Some machines do not run the switch's program for every task; here it is seen, and made good.
#[btf_tracepoint(function = "sched_exit_tp")]
fn sched_leave(_ctx: BtfTracePointContext) -> i32 {
    let Some(cpu) = maps::enter(hook::LEAVE) else { return 0 };
    let address = kernel::current_address();
    if cpu.current == address || cpu.current == 0 {
        return 0;
    }
    switch::follow(cpu, address, address);
    let current = kernel::current();
    let at = super::lifecycle::moment(kernel::by_number::clocks(address).as_ref());
    let tid = kernel::tid(current);
    let slot = maps::slot_of(tid);
    cycles::turn(cpu);
    switch::dispossess(cpu, maps::owner(cpu), at.now_ns);
    match maps::task(slot) {
        Some(task) if task.address == address => {
            let to = Arrival { slot, place: kernel::place(current), bill: kernel::bill(current) };
            let resumes = task.has(flag::STOPPED);
            switch::arrive(cpu, task, &at, &to);
            pair::arrived(cpu, task, slot, at.now_ns, resumes);
        }
        _ => switch::pass(cpu, owner::of_unobserved(tid), at.now_ns),
    }
    0
}

//! The books of pairs: which one an event goes to.
//!
//! Nothing here runs for a switch or a wakeup of which neither side is observed.

use aya_ebpf::{macros::btf_tracepoint, programs::BtfTracePointContext};
use observer_common::{
    cpu::{Cpu, owner},
    layout::switch_args,
    lifecycle::{PF_IO_WORKER, PF_KTHREAD},
    names::hook,
    pair::{Pair, PairKey, Wake, context, origin, origin_of, party},
    ptrace::{Stop, kind_of},
    switch::handover,
    task::Task,
};

use super::cycles;
use crate::{
    kernel::{self, Ptr, by_number, config},
    maps,
};

/// One side of a switch.
#[derive(Clone, Copy)]
pub struct Side {
    /// See [`party`].
    pub party: u64,
    /// The task, to name it if it is not observed.
    pub task: Ptr,
}

impl Side {
    /// A task whose slot is known.
    #[inline(always)]
    pub fn of(task: Ptr, slot: u32) -> Self {
        let party = match maps::task(slot) {
            Some(account) if account.address == task as u64 => {
                party::observed(slot, account.opened_ns)
            }
            _ => party::unobserved(kernel::tid(task), kernel::start_ns(task)),
        };
        Self { party, task }
    }
}

/// Names the sides of a new pair that are not observed.
#[inline(always)]
fn name(side: &Side, comm: &mut [u8; 16], tgid: &mut u32) {
    if !party::is_observed(side.party) && side.party != party::IDLE {
        kernel::load_comm(side.task, comm);
        *tgid = kernel::tgid(side.task);
    }
}

/// Goes on in [`switch_pairs`] and does not come back; where that could not be loaded, does nothing.
///
/// In one program with the accounting the verifier would look at ten times as many instructions as in both apart. A
/// second program at the tracepoint would cost the kernel another call, also for switches of which no side is observed.
#[inline(always)]
pub fn go_on(ctx: &BtfTracePointContext) {
    // SAFETY: the other program is of the same kind at the same event; nothing here has a destructor to be run.
    unsafe { maps::AFTER_SWITCH.tail_call(ctx, 0) };
}

/// `(preempt, prev, next[, prev_state])`: after the accounting of the same switch, which leaves what it knows.
#[btf_tracepoint(function = "sched_switch")]
fn switch_pairs(ctx: BtfTracePointContext) -> i32 {
    let Some(cpu) = maps::enter(hook::PAIRS) else { return 0 };
    if config!(switch_args) == switch_args::STATE_SECOND {
        switched(cpu, ctx.arg(2), ctx.arg(3));
    } else {
        switched(cpu, ctx.arg(1), ctx.arg(2));
    }
    0
}

#[inline(always)]
fn switched(cpu: &mut Cpu, prev: Ptr, next: Ptr) {
    let left = cpu.handover;
    // First, as it loads pointers: see `kernel::run_queue`.
    if left.flags & handover::STOPS != 0
        && let Some(task) = maps::task(left.prev_slot)
    {
        task.stop = stop_of(prev, next);
    }
    let from = Side::of(prev, left.prev_slot);
    let to = Side::of(next, left.next_slot);
    let key = PairKey { from: from.party, to: to.party };
    let folded_before = cpu.pairs_folded;
    let mut found = maps::pair(cpu, &key);
    let is_folded = cpu.pairs_folded != folded_before;
    if let Some((pair, is_new)) = found.as_mut() {
        if *is_new {
            name(&from, &mut pair.from_comm, &mut pair.from_tgid);
            name(&to, &mut pair.to_comm, &mut pair.to_tgid);
            *is_new = false;
        }
        pair.switched(&left.shift(), left.reason as usize);
    }
    if let Some(task) = maps::task(left.prev_slot) {
        // Woken while it still ran.
        answer(cpu, task, left.prev_slot, None);
    }
    if let Some(task) = maps::task(left.next_slot) {
        if is_open(task) {
            // Mostly the waker has just run itself: then its books with the wakee are at hand.
            let is_same = task.wake.from == key.from
                && party::observed(left.next_slot, task.opened_ns) == key.to;
            let books = if is_same {
                cpu.pairs_folded += u64::from(is_folded);
                found
            } else {
                pair_of(cpu, task, left.next_slot)
            };
            let over = left.flags & handover::RUNNABLE != 0 && task.wake.from == from.party;
            if let Some(books) = books {
                book(books, task, Some(left.now_ns), over);
            }
        }
        if left.flags & handover::RESUMES != 0 {
            resumed(cpu, task, left.next_slot, left.now_ns);
        }
    }
}

/// True if the wakee has not answered its last wakeup yet, and that is booked.
#[inline(always)]
fn is_open(wakee: &Task) -> bool {
    config!(pairs) != 0 && wakee.wake.since_ns != 0
}

/// The books of a wakee with its waker, and whether they are new.
#[inline(always)]
fn pair_of(cpu: &mut Cpu, wakee: &Task, slot: u32) -> Option<(&'static mut Pair, bool)> {
    let key = PairKey { from: wakee.wake.from, to: party::observed(slot, wakee.opened_ns) };
    maps::pair(cpu, &key)
}

/// Books the wakeup that `wakee` has not answered yet, if any; `runs_ns` is when it runs, if it does.
#[inline(always)]
pub fn answer(cpu: &mut Cpu, wakee: &mut Task, slot: u32, runs_ns: Option<u64>) {
    if is_open(wakee)
        && let Some(books) = pair_of(cpu, wakee, slot)
    {
        book(books, wakee, runs_ns, false);
    }
}

/// Books a wakeup; `runs_ns` is when its wakee runs, if it does, and `over` says that the waker ran before it and
/// could have run on.
#[inline(always)]
fn book(books: (&'static mut Pair, bool), wakee: &mut Task, runs_ns: Option<u64>, over: bool) {
    let (pair, is_new) = books;
    if is_new {
        pair.from_comm = wakee.wake.from_comm;
        pair.from_tgid = wakee.wake.from_tgid;
    }
    let latency_ns = runs_ns.map(|now_ns| now_ns.saturating_sub(wakee.wake.since_ns));
    pair.woken(&wakee.wake, latency_ns);
    cycles::answered(pair, wakee);
    pair.preemptions += u64::from(over);
    wakee.wake.since_ns = 0;
}

/// A task has the CPU by a switch that was missed: its wakeup and its stop are over all the same. Who ran before it
/// is not known.
#[inline(always)]
pub fn arrived(cpu: &mut Cpu, task: &mut Task, slot: u32, now_ns: u64, resumes: bool) {
    answer(cpu, task, slot, Some(now_ns));
    if resumes {
        resumed(cpu, task, slot, now_ns);
    }
}

/// Books the stop that ends as its tracee is switched in.
#[inline(always)]
fn resumed(cpu: &mut Cpu, tracee: &Task, slot: u32, now_ns: u64) {
    if tracee.stop.tracer == 0 {
        return;
    }
    let key = PairKey { from: tracee.stop.tracer, to: party::observed(slot, tracee.opened_ns) };
    let Some((trace, is_new)) = maps::trace(cpu, &key) else { return };
    if is_new {
        trace.from_comm = tracee.stop.tracer_comm;
        trace.from_tgid = tracee.stop.tracer_tgid;
    }
    trace.ended(&tracee.stop, now_ns);
}

/// The stop that begins as `tracee` is switched out, `next` being switched in.
#[inline(always)]
fn stop_of(tracee: Ptr, next: Ptr) -> Stop {
    let mut stop = Stop {
        kind: kind_of(
            kernel::stop_code(tracee),
            kernel::ptrace_message(tracee),
            kernel::has_siginfo(tracee),
        ) as u32,
        ..Stop::default()
    };
    let tracer = kernel::tracer(tracee);
    if tracer.is_null() {
        return stop;
    }
    let side = Side::of(tracer, maps::slot_of(kernel::tid(tracer)));
    stop.tracer = side.party;
    stop.handed_over = u32::from(tracer == next);
    name(&side, &mut stop.tracer_comm, &mut stop.tracer_tgid);
    stop
}

/// The wakeup that begins on this CPU: by whom, in what context, from where.
#[inline(always)]
pub fn wake_by(cpu: &Cpu, waker: Option<&Task>, now_ns: u64) -> Wake {
    if config!(pairs) == 0 {
        // By whom is only for the pairs.
        return Wake::at(now_ns);
    }
    let by = |from: u64, context: usize, origin: u32| Wake {
        from,
        since_ns: now_ns,
        origin,
        context: context as u32,
        ..Wake::default()
    };
    if cpu.hardirq != 0 {
        by(party::HARDIRQ, context::HARDIRQ, cpu.irq_origin)
    } else if cpu.softirq != 0 {
        by(party::SOFTIRQ, context::SOFTIRQ, cpu.irq_origin)
    } else if let Some(task) = waker {
        let from = party::observed(cpu.slot, task.opened_ns);
        by(from, context::TASK, origin_of(task, cpu.base_mode))
    } else if cpu.owner == owner::IDLE as u32 {
        by(party::IDLE, context::IDLE, origin::IDLE)
    } else {
        let mut wake = by(0, context::TASK, origin::OTHER);
        unobserved_waker(&mut wake);
        wake
    }
}

/// The current task wakes somebody, and is not observed.
#[inline(always)]
fn unobserved_waker(wake: &mut Wake) {
    if config!(has_task_regs) != 0 {
        let current = kernel::current();
        let side = Side::of(current, 0);
        wake.from = side.party;
        wake.origin = origin_by_registers(current);
        name(&side, &mut wake.from_comm, &mut wake.from_tgid);
    } else {
        let current = kernel::current_address();
        wake.from = party::unobserved(by_number::tid(current), by_number::start_ns(current));
        wake.from_comm = by_number::comm(current);
        wake.from_tgid = by_number::tgid(current);
    }
}

/// The syscall that an unobserved task is in, by its saved registers.
#[inline(always)]
fn origin_by_registers(task: Ptr) -> u32 {
    if kernel::flags(task) & (PF_KTHREAD | PF_IO_WORKER) != 0 {
        return origin::KERNEL;
    }
    match kernel::syscall_number(task) {
        number @ 0..=0xfff => number as u32,
        _ => origin::OTHER,
    }
}

/// A wakeup of a task that is not observed, by one that is. Its end is not seen.
#[inline(always)]
pub fn woken_unobserved(cpu: &mut Cpu, wake: &Wake, wakee: Ptr) {
    if config!(pairs) == 0 || !party::is_observed(wake.from) {
        return;
    }
    let side = Side::of(wakee, 0);
    let key = PairKey { from: wake.from, to: side.party };
    let Some((pair, is_new)) = maps::pair(cpu, &key) else { return };
    if is_new {
        name(&side, &mut pair.to_comm, &mut pair.to_tgid);
    }
    pair.woken(wake, None);
}

/// What such a wakeup cost.
#[inline(always)]
pub fn cost_unobserved(cpu: &mut Cpu, waker: &Task, wakee: Ptr, cost_ns: u64, cycles: u64) {
    if config!(pairs) == 0 {
        return;
    }
    let from = party::observed(cpu.slot, waker.opened_ns);
    let key = PairKey { from, to: Side::of(wakee, 0).party };
    let code = origin_of(waker, cpu.base_mode);
    if let Some((pair, false)) = maps::pair(cpu, &key) {
        pair.cost(code, cost_ns);
        pair.cost_cycles += cycles;
    }
}

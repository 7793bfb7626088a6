//! Hard and soft interrupts.
//!
//! Device interrupts and soft interrupts have generic tracepoints. On x86 the vectors that are not device
//! interrupts (timer, reschedule, function calls, irq work) have their own.

use aya_ebpf::{macros::btf_tracepoint, programs::BtfTracePointContext};
use observer_common::{cpu::owner, irq, names::hook, pair::origin};

use crate::{kernel, maps};

macro_rules! interrupts {
    ($($program:ident, $tracepoint:literal, $index:ident, $book:ident $(($origin:ident))?;)+) => {
        $(
            #[btf_tracepoint(function = $tracepoint)]
            fn $program(_ctx: BtfTracePointContext) -> i32 {
                if let Some(cpu) = maps::enter(hook::$index) {
                    irq::$book(cpu, maps::owner(cpu), maps::now_ns() $(, origin::$origin)?);
                }
                0
            }
        )+
    };
}

interrupts! {
    irq_enter, "irq_handler_entry", IRQ_ENTER, hard_enter(DEVICE);
    irq_exit, "irq_handler_exit", IRQ_EXIT, hard_exit;
    softirq_exit, "softirq_exit", SOFTIRQ_EXIT, soft_exit;
    timer_enter, "local_timer_entry", TIMER_ENTER, hard_enter(TIMER);
    resched_enter, "reschedule_entry", RESCHED_ENTER, hard_enter(IPI);
    resched_exit, "reschedule_exit", RESCHED_EXIT, hard_exit;
    call_enter, "call_function_entry", CALL_ENTER, hard_enter(IPI);
    call_exit, "call_function_exit", CALL_EXIT, hard_exit;
    call1_enter, "call_function_single_entry", CALL1_ENTER, hard_enter(IPI);
    call1_exit, "call_function_single_exit", CALL1_EXIT, hard_exit;
    work_enter, "irq_work_entry", WORK_ENTER, hard_enter(WORK);
    work_exit, "irq_work_exit", WORK_EXIT, hard_exit;
}

/// `(vector)`.
#[btf_tracepoint(function = "softirq_entry")]
fn softirq_enter(ctx: BtfTracePointContext) -> i32 {
    if let Some(cpu) = maps::enter(hook::SOFTIRQ_ENTER) {
        irq::soft_enter(cpu, maps::owner(cpu), maps::now_ns(), ctx.arg::<u64>(0) as u32);
    }
    0
}

/// The tick has just updated the run queue's clock (`sched_tick`): while one task runs for long, this is the
/// only sample of the offset between that clock and ours.
#[btf_tracepoint(function = "local_timer_exit")]
fn timer_exit(_ctx: BtfTracePointContext) -> i32 {
    let Some(cpu) = maps::enter(hook::TIMER_EXIT) else { return 0 };
    let now_ns = maps::now_ns();
    irq::hard_exit(cpu, maps::owner(cpu), now_ns);
    // Not on an idle CPU: there the timer need not be the tick, and the clock may be long stale.
    if cpu.owner != owner::IDLE as u32
        && let Some(rq) = kernel::by_number::clocks(kernel::current_address())
    {
        cpu.learn_offset(now_ns, &rq);
    }
    0
}

//! What the reader calls: find the tasks that exist, and close the open interval of a CPU.

use core::ffi::c_void;

use aya_ebpf::{EbpfContext, macros::raw_tracepoint, programs::RawTracePointContext};
use observer_common::{
    bill::{Bill, RunQueue},
    cpu::{Cpu, NO_SLOT, owner},
    lifecycle,
    names::{hook, target},
    switch::Place,
    task::flag,
};

use crate::{
    hooks::{
        cycles,
        lifecycle::{moment, open, wanted_by_id, wanted_by_rule},
    },
    kernel::{self, Ptr, by_number, config},
    maps,
};

/// The context of an iterator program, for the logger.
struct IterContext(*mut c_void);

impl EbpfContext for IterContext {
    fn as_ptr(&self) -> *mut c_void {
        self.0
    }
}

/// Task iterator: opens an account for each task that the session wants.
#[unsafe(link_section = "iter/task")]
#[unsafe(no_mangle)]
extern "C" fn find_tasks(ctx: *mut c_void) -> i32 {
    let Some(cpu) = maps::enter(hook::FIND) else { return 0 };
    // SAFETY: `struct bpf_iter__task { meta; task; }` (kernel/bpf/task_iter.c); the verifier checks the access.
    let task = unsafe { *ctx.cast::<Ptr>().add(1) };
    if task.is_null() {
        return 0;
    }
    let tid = kernel::tid(task);
    let only = maps::target(target::ONLY);
    if only != 0 && only != tid {
        return 0;
    }
    let extra = match wanted_by_id(task) {
        _ if only != 0 => 0,
        Some(extra) => extra,
        None if wanted_by_rule(task, None) => flag::FOLLOW,
        None => return 0,
    };
    if kernel::is_zombie(task) || maps::slot_of(tid) != NO_SLOT {
        return 0;
    }
    if let Some((account, _slot)) = open(&IterContext(ctx), cpu, task, extra)
        && !kernel::on_cpu(task)
    {
        lifecycle::found(account, &kernel::bill(task));
        lifecycle::found_stopped(account, kernel::state(task), kernel::tracer_tid(task));
    }
    0
}

/// Run by the reader on a chosen CPU (`BPF_PROG_TEST_RUN`), in an interrupt or with interrupts off.
#[raw_tracepoint]
fn read_cpu(_ctx: RawTracePointContext) -> i32 {
    let Some(cpu) = maps::enter(hook::READ) else { return 0 };
    let current = kernel::current_address();
    let tid = by_number::tid(current);
    let clocks = by_number::clocks(current);
    let at = moment(clocks.as_ref());
    let now_ns = at.now_ns;
    cycles::turn(cpu);
    if let Some(rq) = clocks
        && u64::from(by_number::tgid(current)) == config!(self_tgid)
    {
        // The reader itself runs here: its own switch-in has just updated the clock.
        cpu.learn_offset(now_ns, &rq);
    }
    let bill = bill_now(cpu, current, now_ns, clocks.as_ref());
    if let Some(task) = maps::owner(cpu) {
        lifecycle::read(cpu, task, &at, &bill);
        return 0;
    }
    let slot = maps::slot_of(tid);
    match maps::task(slot) {
        Some(task) if task.address == current => {
            lifecycle::adopt(cpu, task, slot, &at, &bill, running_place(current));
        }
        _ => {
            if cpu.since_ns == 0 {
                cpu.owner = owner::of_unobserved(tid) as u32;
                cpu.base_mode = observer_common::task::mode::SYSTEM as u32;
            }
            cpu.charge(now_ns, None);
        }
    }
    0
}

/// Where the interrupted task was. Its own frame lies below the reader's interrupt.
#[inline(always)]
fn running_place(current: u64) -> Place {
    if config!(has_task_regs) != 0 {
        kernel::place(kernel::current())
    } else {
        by_number::place(current)
    }
}

/// The current task's bill as the kernel would make it out now: `task_sched_runtime` (kernel/sched/core.c) adds
/// what has run since `exec_start` by an updated clock.
#[inline(always)]
pub fn bill_now(cpu: &Cpu, current: u64, now_ns: u64, clocks: Option<&RunQueue>) -> Bill {
    let (mut bill, exec_start_ns) = by_number::bill(current);
    if let Some(rq) = clocks {
        bill.runtime_ns += open_run_ns(cpu, now_ns, rq, exec_start_ns);
    }
    bill
}

#[inline(always)]
fn open_run_ns(cpu: &Cpu, now_ns: u64, rq: &RunQueue, exec_start_ns: u64) -> u64 {
    if exec_start_ns == 0 {
        return 0;
    }
    let clock_task_ns = cpu.run_queue_now_ns(now_ns, rq).saturating_sub(rq.left_out_ns());
    clock_task_ns.saturating_sub(exec_start_ns)
}

//! fork, exec, rename, exit, free.

use aya_ebpf::{EbpfContext, macros::btf_tracepoint, programs::BtfTracePointContext};
use aya_log_ebpf::warn;
use observer_common::{
    bill::RunQueue,
    cpu::{Cpu, NO_SLOT},
    glob::COMM_LEN,
    lifecycle,
    names::{hook, target},
    switch::Moment,
    task::{Task, flag, mode, state},
};

use crate::{
    kernel::{self, Ptr, config},
    maps,
};

/// `(parent, child)`: the child has its id and does not run yet. `current` is the parent.
#[btf_tracepoint(function = "sched_process_fork")]
fn process_fork(ctx: BtfTracePointContext) -> i32 {
    let Some(cpu) = maps::enter(hook::FORK) else { return 0 };
    let child: Ptr = ctx.arg(1);
    let followed =
        config!(follow) != 0 && maps::owner(cpu).is_some_and(|task| task.has(flag::FOLLOW));
    if !followed && !wanted_by_rule(child, None) {
        return 0;
    }
    if let Some((task, _slot)) = open(&ctx, cpu, child, flag::BORN | flag::FOLLOW) {
        if config!(child_in_user) != 0 {
            task.base_mode = mode::USER as u32;
        }
        // On a kernel with several run queues the child may have run before this point only if it was woken,
        // and wake_up_new_task comes later.
        task.updated_ns = 0;
    }
    0
}

/// `(task, old_pid, bprm)`: the new program is in place; the thread has become the leader.
#[btf_tracepoint(function = "sched_process_exec")]
fn process_exec(ctx: BtfTracePointContext) -> i32 {
    let Some(cpu) = maps::enter(hook::EXEC) else { return 0 };
    let current: Ptr = ctx.arg(0);
    let slot = cpu.slot;
    match maps::task(slot) {
        Some(task) => {
            let who = kernel::identity(current);
            let former_tid = ctx.arg::<u32>(1);
            maps::unbind(former_tid, slot);
            maps::unbind(task.tid, slot);
            maps::bind(who.tid, slot);
            lifecycle::exec(task, &who, former_tid);
            task.cgroup_id = kernel::cgroup_id(current);
            kernel::copy_comm(task, current);
        }
        None => consider_current(&ctx, cpu, current, kernel::comm_address(current)),
    }
    0
}

/// `(task, new name)`, before the name is in place. Also fires for each exec.
#[btf_tracepoint(function = "task_rename")]
fn task_rename(ctx: BtfTracePointContext) -> i32 {
    let Some(cpu) = maps::enter(hook::RENAME) else { return 0 };
    let task: Ptr = ctx.arg(0);
    let name: u64 = ctx.arg(1);
    let slot = maps::slot_of(kernel::tid(task));
    match maps::task(slot) {
        Some(account) => kernel::copy_name(&mut account.comm, name),
        None if task as u64 == kernel::current_address() => consider_current(&ctx, cpu, task, name),
        None => {}
    }
    0
}

/// `(task[, group_dead])`: it still runs for a while.
#[btf_tracepoint(function = "sched_process_exit")]
fn process_exit(ctx: BtfTracePointContext) -> i32 {
    let Some(cpu) = maps::enter(hook::EXIT) else { return 0 };
    if let Some(task) = maps::owner(cpu) {
        lifecycle::exiting(cpu, task, maps::now_ns());
        // The last moment: cgroup_exit follows.
        task.cgroup_id = kernel::cgroup_id(ctx.arg(0));
    }
    0
}

/// `(task)`: nobody needs it any more. Only a task whose last switch was not seen still has an account.
#[btf_tracepoint(function = "sched_process_free")]
fn process_free(ctx: BtfTracePointContext) -> i32 {
    let Some(cpu) = maps::enter(hook::RELEASE) else { return 0 };
    let task: Ptr = ctx.arg(0);
    let slot = maps::slot_of(kernel::tid(task));
    if let Some(account) = maps::task(slot)
        && account.address == task as u64
        && account.state == state::LIVE
    {
        cpu.unmatched += 1;
        maps::ended(cpu, account, slot);
    }
    0
}

/// Opens an account for `task` and binds its tid to it.
#[inline(always)]
pub fn open(
    ctx: &impl EbpfContext,
    cpu: &mut Cpu,
    task: Ptr,
    extra: u32,
) -> Option<(&'static mut Task, u32)> {
    let first_loss = cpu.map_full == 0;
    let Some(slot) = maps::take_slot(cpu) else {
        if first_loss {
            warn!(ctx, "no free slot: tasks go unobserved from here on (--max-tasks)");
        }
        return None;
    };
    let account = maps::task(slot)?;
    let who = kernel::identity(task);
    lifecycle::open(account, &who, extra, maps::now_ns());
    account.cgroup_id = kernel::cgroup_id(task);
    kernel::copy_comm(account, task);
    // Last: from here on other CPUs find it.
    if !maps::bind(who.tid, slot) {
        account.state = state::FREE;
        maps::return_slot(slot);
        cpu.map_full += 1;
        return None;
    }
    Some((account, slot))
}

/// True when a rule of the session (not its parent) wants the task. `name`: its new name, if it changes.
#[inline(always)]
pub fn wanted_by_rule(task: Ptr, name: Option<u64>) -> bool {
    if config!(all) | config!(by_comm) | config!(by_cgroup) == 0 {
        return false;
    }
    if u64::from(kernel::tgid(task)) == config!(self_tgid) {
        return false;
    }
    if config!(all) != 0 {
        return true;
    }
    config!(by_comm) != 0 && name_matches(name.unwrap_or(kernel::comm_address(task)))
}

#[inline(always)]
fn name_matches(address: u64) -> bool {
    let mut comm = [0_u8; COMM_LEN];
    kernel::copy_name(&mut comm, address);
    maps::glob().is_some_and(|glob| glob.matches(&comm))
}

/// The running task is not observed; does a rule want it now?
#[inline(always)]
fn consider_current(ctx: &impl EbpfContext, cpu: &mut Cpu, task: Ptr, name: u64) {
    if cpu.slot != NO_SLOT {
        return;
    }
    let by_cgroup = config!(by_cgroup) != 0 && maps::current_in_cgroup();
    if !by_cgroup && !wanted_by_rule(task, Some(name)) {
        return;
    }
    if let Some((account, slot)) = open(ctx, cpu, task, flag::FOLLOW) {
        let clocks = kernel::by_number::clocks(task as u64);
        let at = moment(clocks.as_ref());
        let bill = super::read::bill_now(cpu, task as u64, at.now_ns, clocks.as_ref());
        super::cycles::turn(cpu);
        lifecycle::adopt(cpu, account, slot, &at, &bill, kernel::place(task));
    }
}

/// This moment on this CPU, where nothing is shifted.
#[inline(always)]
pub fn moment(clocks: Option<&RunQueue>) -> Moment {
    Moment {
        now_ns: maps::now_ns(),
        cpu: maps::cpu_id(),
        left_out_ns: clocks.map_or(0, RunQueue::left_out_ns),
        ..Moment::default()
    }
}

/// What the session's list of ids says of a task: the flags of its account, or `None`.
#[inline(always)]
pub fn wanted_by_id(task: Ptr) -> Option<u32> {
    let by_process = maps::target(kernel::tgid(task)) & target::PROCESS != 0;
    if by_process {
        return Some(flag::FOLLOW);
    }
    (maps::target(kernel::tid(task)) & target::THREAD != 0).then_some(0)
}

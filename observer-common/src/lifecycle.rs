//! Tasks begin, change their program, are found alive, and end.

use crate::{
    bill::Bill,
    cpu::{Cpu, owner},
    glob::COMM_LEN,
    switch::{self, Moment, Place, TASK_STOPPED, TASK_TRACED},
    task::{Task, flag, mode, state},
};

/// `PF_KTHREAD` (include/linux/sched.h).
pub const PF_KTHREAD: u32 = 0x0020_0000;
/// `PF_IO_WORKER`: an io_uring worker; never goes to user mode.
pub const PF_IO_WORKER: u32 = 0x0000_0010;

/// Who a task is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Identity {
    /// Address of the `task_struct`.
    pub address: u64,
    /// `start_boottime`.
    pub start_ns: u64,
    /// Thread id.
    pub tid: u32,
    /// Process id.
    pub tgid: u32,
    /// Process id of its parent.
    pub parent_tgid: u32,
    /// `PF_*` flags.
    pub flags: u32,
}

/// Opens an account in a free slot. `extra` are the [`flag`]s that go with it.
///
/// The name is written by the caller: it is bytes in kernel memory, copied by a helper.
#[inline(always)]
pub fn open(task: &mut Task, who: &Identity, extra: u32, now_ns: u64) {
    let sequence = task.sequence;
    let comm: [u8; COMM_LEN] = task.comm;
    clear(task);
    task.sequence = sequence;
    task.comm = comm;
    task.begin();
    task.address = who.address;
    task.start_ns = who.start_ns;
    task.tid = who.tid;
    task.tgid = who.tgid;
    task.parent_tgid = who.parent_tgid;
    task.cpu = u32::MAX;
    task.flags = extra;
    task.base_mode = mode::SYSTEM as u32;
    if who.flags & (PF_KTHREAD | PF_IO_WORKER) != 0 {
        task.set(flag::KERNEL);
    }
    task.opened_ns = now_ns;
    task.state = state::LIVE;
    task.end();
}

#[inline(always)]
fn clear(task: &mut Task) {
    let words = size_of::<Task>() / 8;
    let first: *mut u64 = core::ptr::from_mut(task).cast();
    let mut index = 0;
    while index < words {
        // SAFETY: a Task is a whole number of aligned u64 (its alignment is 8 and its size is asserted), all
        // zero is a valid Task, and `index` stays below its size. Volatile keeps the loop from becoming a
        // call to memset, which the bpf target has only as a byte loop.
        unsafe { first.add(index).write_volatile(0) };
        index += 1;
    }
}

/// What the kernel says of a task that does not run, for an account that is not based yet.
///
/// It is overwritten at the first switch-in; a task that never runs keeps it, with a difference of zero.
#[inline(always)]
pub fn found(task: &mut Task, bill: &Bill) {
    task.begin();
    task.bill_begin = *bill;
    task.bill = *bill;
    task.end();
}

/// A task that was found while it does not run may be in a stop: it lasts since the account was opened, at least.
///
/// Its begin was not seen, so it does not count as a stop, and it is in no pair.
#[inline(always)]
pub fn found_stopped(task: &mut Task, task_state: u64, tracer_tid: u32) {
    if task_state & TASK_TRACED != 0 {
        task.stopped_since_ns = task.opened_ns;
        task.tracer_tid = tracer_tid;
        task.set(flag::STOPPED);
    } else if task_state & TASK_STOPPED != 0 {
        task.job_stopped_since_ns = task.opened_ns;
    }
}

/// Gives the CPU to the observed task that is running on it already: found at the start, or by its new name.
#[inline(always)]
pub fn adopt(cpu: &mut Cpu, task: &mut Task, slot: u32, at: &Moment, bill: &Bill, place: Place) {
    cpu.charge(at.now_ns, None);
    task.begin();
    switch::base(task, bill, place);
    task.cpu = at.cpu;
    task.left_out_mark_ns = at.left_out_ns;
    task.updated_ns = at.now_ns;
    task.end();
    cpu.slot = slot;
    cpu.owner = owner::TASK as u32;
    cpu.base_mode = task.base_mode;
}

/// Closes the open interval for a reader: time up to now, and the bill as the kernel would make it out now.
#[inline(always)]
pub fn read(cpu: &mut Cpu, task: &mut Task, at: &Moment, bill: &Bill) {
    task.begin();
    cpu.charge(at.now_ns, Some(task));
    switch::settle(task, at, bill);
    task.end();
}

/// The task begins to exit: from here on it is in the kernel, however it came there.
#[inline(always)]
pub fn exiting(cpu: &mut Cpu, task: &mut Task, now_ns: u64) {
    task.begin();
    cpu.charge(now_ns, Some(task));
    cpu.base_mode = mode::SYSTEM as u32;
    task.set(flag::EXITING);
    task.end();
}

/// A new program. The thread that calls exec becomes the leader: its id changes if it was not.
#[inline(always)]
pub fn exec(task: &mut Task, who: &Identity, former_tid: u32) {
    task.begin();
    task.tid = who.tid;
    task.tgid = who.tgid;
    task.start_ns = who.start_ns;
    if former_tid != who.tid {
        task.former_tid = former_tid;
    }
    // A kernel thread that execs (a usermode helper) goes to user mode.
    if who.flags & (PF_KTHREAD | PF_IO_WORKER) == 0 {
        task.clear(flag::KERNEL);
    }
    task.end();
}

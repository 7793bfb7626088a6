//! User page faults.
//!
//! `exceptions:page_fault_user` marks the begin. The end has no tracepoint: it is taken from the software
//! event that the kernel raises when it accounts the fault (`mm_account_fault`, mm/memory.c, 5.9 and later).
//! Where no end is seen, or the fault failed, the time up to the next evidence is unclassified.

use crate::{
    cpu::Cpu,
    switch::leave_interrupts,
    task::{Task, crossing, mode},
};

/// A fault begins in user mode.
#[inline(always)]
pub fn begin(cpu: &mut Cpu, task: &mut Task, now_ns: u64) {
    task.begin();
    leave_interrupts(cpu);
    cpu.charge(now_ns, Some(task));
    cpu.base_mode = mode::UNCLASSIFIED as u32;
    task.cross(crossing::FAULT);
    task.end();
}

/// A fault was handled. One inside a syscall changes nothing: it is system time already.
#[inline(always)]
pub fn end(cpu: &mut Cpu, task: &mut Task, now_ns: u64) {
    if cpu.base_mode != mode::UNCLASSIFIED as u32 || cpu.in_interrupt() {
        return;
    }
    task.begin();
    cpu.charge_as(now_ns, Some(task), mode::SYSTEM);
    cpu.base_mode = mode::USER as u32;
    task.cross(crossing::FAULT);
    task.end();
}

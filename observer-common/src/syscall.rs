//! `sys_enter` and `sys_exit` (kernel/entry/common.c): the border between user and system.

use crate::{
    cpu::Cpu,
    switch::leave_interrupts,
    task::{Task, crossing, flag, mode},
};

/// The body of a syscall begins. `number`: as this architecture counts them.
#[inline(always)]
pub fn enter(cpu: &mut Cpu, task: &mut Task, now_ns: u64, number: u32) {
    task.begin();
    task.syscall = number;
    leave_interrupts(cpu);
    if cpu.base_mode != mode::SYSTEM as u32 {
        task.cross(crossing::SYSCALL);
    }
    cpu.charge(now_ns, Some(task));
    cpu.base_mode = mode::SYSTEM as u32;
    task.set(flag::IN_SYSCALL);
    task.clear(flag::STOP_SEEN);
    task.end();
}

/// It ends. What follows (audit, the exit stop, signals) is still the kernel's, and is found by its traces.
#[inline(always)]
pub fn exit(cpu: &mut Cpu, task: &mut Task, now_ns: u64) {
    task.begin();
    leave_interrupts(cpu);
    // Whatever the hooks said so far (a task found inside a syscall, an entry cancelled by a tracer): the
    // interval that ends here ended in the kernel.
    if cpu.base_mode == mode::USER as u32 {
        // No sys_enter: seccomp denied it. The kernel's part lies within the crossings.
        task.cross(crossing::SYSCALL);
        cpu.charge_as(now_ns, Some(task), mode::USER);
    } else {
        cpu.charge_as(now_ns, Some(task), mode::SYSTEM);
    }
    cpu.base_mode = mode::USER as u32;
    task.cross(crossing::SYSCALL);
    task.clear(flag::IN_SYSCALL | flag::STOP_SEEN);
    task.end();
}

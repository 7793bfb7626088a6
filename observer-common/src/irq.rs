//! Hard and soft interrupts, on top of whoever owns the CPU.

use crate::{
    cpu::Cpu,
    task::{Task, crossing, mode},
};

/// The deepest nesting that is believed; beyond it exits were lost.
pub const DEPTH_MAX: u32 = 8;

/// A hard interrupt begins.
#[inline(always)]
pub fn hard_enter(cpu: &mut Cpu, task: Option<&mut Task>, now_ns: u64) {
    let from_user = !cpu.in_interrupt() && cpu.base_mode == mode::USER as u32;
    book(cpu, task, now_ns, from_user);
    if cpu.hardirq < DEPTH_MAX {
        cpu.hardirq += 1;
    } else {
        cpu.unmatched += 1;
    }
}

/// A hard interrupt ends.
#[inline(always)]
pub fn hard_exit(cpu: &mut Cpu, task: Option<&mut Task>, now_ns: u64) {
    book(cpu, task, now_ns, false);
    if cpu.hardirq == 0 {
        cpu.unmatched += 1;
    } else {
        cpu.hardirq -= 1;
    }
}

/// A soft interrupt begins.
#[inline(always)]
pub fn soft_enter(cpu: &mut Cpu, task: Option<&mut Task>, now_ns: u64) {
    book(cpu, task, now_ns, false);
    if cpu.softirq < DEPTH_MAX {
        cpu.softirq += 1;
    } else {
        cpu.unmatched += 1;
    }
}

/// A soft interrupt ends.
#[inline(always)]
pub fn soft_exit(cpu: &mut Cpu, task: Option<&mut Task>, now_ns: u64) {
    book(cpu, task, now_ns, false);
    if cpu.softirq == 0 {
        cpu.unmatched += 1;
    } else {
        cpu.softirq -= 1;
    }
}

#[inline(always)]
fn book(cpu: &mut Cpu, task: Option<&mut Task>, now_ns: u64, from_user: bool) {
    match task {
        Some(task) => {
            task.begin();
            if from_user {
                task.cross(crossing::INTERRUPT);
            }
            cpu.charge(now_ns, Some(task));
            task.end();
        }
        None => cpu.charge(now_ns, None),
    }
}

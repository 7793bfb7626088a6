//! Hard and soft interrupts, on top of whoever owns the CPU.

use crate::{
    cpu::Cpu,
    pair::origin,
    task::{Task, crossing, mode},
};

/// The deepest nesting that is believed; beyond it exits were lost.
pub const DEPTH_MAX: u32 = 8;

/// A hard interrupt begins. `origin`: see [`origin`].
#[inline(always)]
pub fn hard_enter(cpu: &mut Cpu, task: Option<&mut Task>, now_ns: u64, origin: u32) {
    cpu.irq_origin = origin;
    let from_user = !cpu.in_interrupt() && cpu.base_mode == mode::USER as u32;
    book(cpu, task, now_ns, from_user);
    deeper(&mut cpu.hardirq, &mut cpu.unmatched);
}

/// A hard interrupt ends.
#[inline(always)]
pub fn hard_exit(cpu: &mut Cpu, task: Option<&mut Task>, now_ns: u64) {
    book(cpu, task, now_ns, false);
    shallower(&mut cpu.hardirq, &mut cpu.unmatched);
}

/// A soft interrupt begins. `vector`: its number (include/linux/interrupt.h).
#[inline(always)]
pub fn soft_enter(cpu: &mut Cpu, task: Option<&mut Task>, now_ns: u64, vector: u32) {
    cpu.irq_origin = origin::SOFTIRQ + (vector & 0xf);
    book(cpu, task, now_ns, false);
    deeper(&mut cpu.softirq, &mut cpu.unmatched);
}

/// A soft interrupt ends.
#[inline(always)]
pub fn soft_exit(cpu: &mut Cpu, task: Option<&mut Task>, now_ns: u64) {
    book(cpu, task, now_ns, false);
    shallower(&mut cpu.softirq, &mut cpu.unmatched);
}

#[inline(always)]
fn deeper(depth: &mut u32, unmatched: &mut u64) {
    if *depth < DEPTH_MAX {
        *depth += 1;
    } else {
        *unmatched += 1;
    }
}

#[inline(always)]
fn shallower(depth: &mut u32, unmatched: &mut u64) {
    if *depth == 0 {
        *unmatched += 1;
    } else {
        *depth -= 1;
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

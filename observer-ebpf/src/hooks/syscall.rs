//! `sys_enter`, `sys_exit`.

use aya_ebpf::{macros::btf_tracepoint, programs::BtfTracePointContext};
use observer_common::{names::hook, syscall};

use crate::maps;

/// `(regs, number)`.
#[btf_tracepoint(function = "sys_enter")]
fn sys_enter(ctx: BtfTracePointContext) -> i32 {
    let Some(cpu) = maps::enter(hook::SYS_ENTER) else { return 0 };
    if let Some(task) = maps::owner(cpu) {
        syscall::enter(cpu, task, maps::now_ns(), ctx.arg::<u64>(1) as u32);
    }
    0
}

/// `(regs, result)`.
#[btf_tracepoint(function = "sys_exit")]
fn sys_exit(_ctx: BtfTracePointContext) -> i32 {
    let Some(cpu) = maps::enter(hook::SYS_EXIT) else { return 0 };
    if let Some(task) = maps::owner(cpu) {
        syscall::exit(cpu, task, maps::now_ns());
    }
    0
}

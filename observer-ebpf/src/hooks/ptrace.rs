//! The begin and the end of a ptrace stop, where the kernel lets its functions be entered.

use aya_ebpf::{
    macros::{fentry, fexit, kprobe, kretprobe},
    programs::{FEntryContext, FExitContext, ProbeContext, RetProbeContext},
};
use observer_common::{names::hook, ptrace};

use crate::{kernel, maps};

/// `ptrace_stop`, or where that is not to be had `ptrace_notify`, in the tracee's context.
#[fentry]
fn stop_enter(_ctx: FEntryContext) -> i32 {
    enter(hook::STOP_ENTER);
    0
}

/// Its end: the tracee runs again.
#[fexit]
fn stop_leave(_ctx: FExitContext) -> i32 {
    leave(hook::STOP_LEAVE);
    0
}

/// The same for a kernel without types for it, or without trampolines.
#[kprobe]
fn stop_probe(_ctx: ProbeContext) -> u32 {
    enter(hook::STOP_PROBE);
    0
}

/// See `stop_probe`.
#[kretprobe]
fn stop_retprobe(_ctx: RetProbeContext) -> u32 {
    leave(hook::STOP_RETPROBE);
    0
}

#[inline(always)]
fn enter(index: usize) {
    let Some(cpu) = maps::enter(index) else { return };
    if let Some(task) = maps::owner(cpu) {
        ptrace::enter(cpu, task, maps::now_ns(), kernel::current_state_and_place().1);
    }
}

#[inline(always)]
fn leave(index: usize) {
    let Some(cpu) = maps::enter(index) else { return };
    if let Some(task) = maps::owner(cpu) {
        ptrace::leave(cpu, task, maps::now_ns());
    }
}

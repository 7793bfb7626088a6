//! The begin and the end of a ptrace stop, where the kernel lets its functions be entered.

use aya_ebpf::{
    macros::{fentry, fexit},
    programs::{FEntryContext, FExitContext},
};
use observer_common::{names::hook, ptrace};

use crate::{kernel, maps};

/// `ptrace_stop`, or where that is not to be had `ptrace_notify`, in the tracee's context.
#[fentry]
fn stop_enter(_ctx: FEntryContext) -> i32 {
    let Some(cpu) = maps::enter(hook::STOP_ENTER) else { return 0 };
    if let Some(task) = maps::owner(cpu) {
        ptrace::enter(cpu, task, maps::now_ns(), kernel::current_state_and_place().1);
    }
    0
}

/// Its end: the tracee runs again.
#[fexit]
fn stop_leave(_ctx: FExitContext) -> i32 {
    let Some(cpu) = maps::enter(hook::STOP_LEAVE) else { return 0 };
    if let Some(task) = maps::owner(cpu) {
        ptrace::leave(cpu, task, maps::now_ns(), kernel::current_state_and_place().1);
    }
    0
}

//! User page faults: begin by tracepoint, end by the software event that accounts them.

use aya_ebpf::{
    macros::{btf_tracepoint, fexit, perf_event},
    programs::{BtfTracePointContext, FExitContext, PerfEventContext},
};
use observer_common::{fault, names::hook};

use crate::maps;

/// `(address, regs, error_code)`, x86.
#[btf_tracepoint(function = "page_fault_user")]
fn page_fault(_ctx: BtfTracePointContext) -> i32 {
    let Some(cpu) = maps::enter(hook::FAULT) else { return 0 };
    if let Some(task) = maps::owner(cpu) {
        fault::begin(cpu, task, maps::now_ns());
    }
    0
}

/// `PERF_COUNT_SW_PAGE_FAULTS_MIN`, at the end of `handle_mm_fault`.
#[perf_event]
fn fault_minor(_ctx: PerfEventContext) -> i32 {
    end(hook::FAULT_MIN);
    0
}

/// `PERF_COUNT_SW_PAGE_FAULTS_MAJ`.
#[perf_event]
fn fault_major(_ctx: PerfEventContext) -> i32 {
    end(hook::FAULT_MAJ);
    0
}

/// `handle_mm_fault`: its return, where the kernel lets that be seen.
#[fexit]
fn fault_done(_ctx: FExitContext) -> i32 {
    end(hook::FAULT_DONE);
    0
}

#[inline(always)]
fn end(index: usize) {
    let Some(cpu) = maps::enter(index) else { return };
    if let Some(task) = maps::owner(cpu) {
        fault::end(cpu, task, maps::now_ns());
    }
}

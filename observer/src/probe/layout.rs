//! From the running kernel's BTF to the programs' read-only globals.

use observer_common::layout::{ABSENT, Config, Layout, switch_args};

use crate::kernel::btf::{ArgType, Btf};

/// A member without which no figure can be given.
#[derive(Debug, thiserror::Error)]
#[error("this kernel's type information has no {what}: observer cannot read tasks here")]
pub struct Missing {
    what: &'static str,
}

/// Offsets of this kernel.
pub fn layout(btf: &Btf) -> Result<Layout, Missing> {
    let task = |path: &str, size: u64| offset(btf, "task_struct", path, size);
    let need = |found: u64, what| if found == ABSENT { Err(Missing { what }) } else { Ok(found) };
    let (state, state_size) = sized(btf, "task_struct", &["__state", "state"], &[4, 8]);
    let (on_cpu, on_cpu_size) = sized(btf, "task_struct", &["on_cpu"], &[4, 1]);
    let (regs_syscall, regs_syscall_size) =
        sized(btf, "pt_regs", &["orig_ax", "syscallno"], &[8, 4]);
    let start = [task("start_boottime", 8), task("real_start_time", 8)];
    let mut layout = Layout {
        task_pid: need(task("pid", 4), "task_struct.pid")?,
        task_tgid: need(task("tgid", 4), "task_struct.tgid")?,
        task_flags: task("flags", 4),
        task_comm: need(task("comm", 16), "task_struct.comm")?,
        task_start: start.into_iter().find(|offset| *offset != ABSENT).unwrap_or(ABSENT),
        task_state: need(state, "task_struct.__state")?,
        task_state_size: state_size,
        task_on_cpu: on_cpu,
        task_on_cpu_size: on_cpu_size,
        task_exit_state: task("exit_state", 4),
        task_ptrace: task("ptrace", 4),
        task_ptrace_message: task("ptrace_message", 8),
        task_exit_code: task("exit_code", 4),
        task_siginfo: task("last_siginfo", 8),
        task_cgroups: task("cgroups", 8),
        css_set_cgroup: offset(btf, "css_set", "dfl_cgrp", 8),
        cgroup_kn: offset(btf, "cgroup", "kn", 8),
        kernfs_id: offset(btf, "kernfs_node", "id", 8),
        task_parent: task("parent", 8),
        task_real_parent: task("real_parent", 8),
        task_stack: task("stack", 8),
        task_utime: need(task("utime", 8), "task_struct.utime")?,
        task_stime: need(task("stime", 8), "task_struct.stime")?,
        task_prev_utime: task("prev_cputime.utime", 8),
        task_prev_stime: task("prev_cputime.stime", 8),
        task_runtime: need(task("se.sum_exec_runtime", 8), "task_struct.se.sum_exec_runtime")?,
        task_exec_start: task("se.exec_start", 8),
        task_arrival: task("sched_info.last_arrival", 8),
        task_queued: task("sched_info.last_queued", 8),
        task_cfs_rq: task("se.cfs_rq", 8),
        cfs_rq_rq: offset(btf, "cfs_rq", "rq", 8),
        rq_clock: offset(btf, "rq", "clock", 8),
        rq_clock_task: offset(btf, "rq", "clock_task", 8),
        rq_update_flags: offset(btf, "rq", "clock_update_flags", 4),
        rq_cpu: offset(btf, "rq", "cpu", 4),
        regs_syscall,
        regs_syscall_size,
        regs_result: offset(btf, "pt_regs", "ax", 8),
        regs_size: btf.struct_size("pt_regs").unwrap_or(0),
    };
    drop_incomplete_run_queue(&mut layout);
    Ok(layout)
}

/// True when the kernel's bill at a switch can be read (`CONFIG_FAIR_GROUP_SCHED` and the run queue's members).
#[must_use]
pub fn has_run_queue(layout: &Layout) -> bool {
    layout.task_cfs_rq != ABSENT
}

/// True when the kernel notes when a task was queued (`CONFIG_SCHED_INFO`): then a skip can be told without a hook that sees
/// it asked for.
#[must_use]
pub fn notes_queueing(layout: &Layout) -> bool {
    layout.task_queued != ABSENT
}

/// The way to the run queue is only of use as a whole.
fn drop_incomplete_run_queue(layout: &mut Layout) {
    let parts = [
        layout.cfs_rq_rq,
        layout.rq_clock,
        layout.rq_clock_task,
        layout.rq_update_flags,
        layout.rq_cpu,
    ];
    if parts.contains(&ABSENT) {
        layout.task_cfs_rq = ABSENT;
    }
}

/// What this kernel's programs may use; the session fills in the rest.
pub fn config(btf: &Btf) -> Result<Config, Missing> {
    let arm64 = cfg!(target_arch = "aarch64");
    Ok(Config {
        switch_args: switch_variant(btf)?,
        has_task_regs: u64::from(btf.enum_value("bpf_func_id", "BPF_FUNC_task_pt_regs").is_some()),
        child_in_user: u64::from(arm64),
        pairs: 1,
        // arch/x86/entry/syscalls/syscall_64.tbl, include/uapi/asm-generic/unistd.h.
        yield_number: if arm64 { 124 } else { 24 },
        // THREAD_SIZE without KASAN: arch/x86/include/asm/page_64_types.h, arch/arm64/include/asm/memory.h.
        stack_size: 16 * 1024,
        ..Config::NONE
    })
}

/// The order of `sched_switch`'s arguments, from its prototype: it has changed twice, and was backported.
fn switch_variant(btf: &Btf) -> Result<u64, Missing> {
    let missing = Missing { what: "tracepoint sched_switch (btf_trace_sched_switch)" };
    let Some(args) = btf.tracepoint_args("sched_switch") else {
        return Err(missing);
    };
    let tasks: Vec<usize> = args
        .iter()
        .enumerate()
        .filter(|(_, arg)| arg.ty == ArgType::PointerTo("task_struct"))
        .map(|(index, _)| index)
        .collect();
    match (tasks.as_slice(), args.len()) {
        ([1, 2], 3) => Ok(switch_args::THREE),
        ([1, 2], 4..) => Ok(switch_args::STATE_LAST),
        ([2, 3], 4..) => Ok(switch_args::STATE_SECOND),
        _ => Err(missing),
    }
}

/// The offset of a member of this size; a member of another size is as good as absent.
fn offset(btf: &Btf, strukt: &str, path: &str, size: u64) -> u64 {
    btf.member(strukt, path).filter(|member| member.size == size).map_or(ABSENT, |m| m.offset)
}

/// The first of these members that has one of these sizes.
fn sized(btf: &Btf, strukt: &str, paths: &[&str], sizes: &[u64]) -> (u64, u64) {
    paths
        .iter()
        .filter_map(|path| btf.member(strukt, path))
        .find(|member| sizes.contains(&member.size))
        .map_or((ABSENT, 0), |member| (member.offset, member.size))
}

//! What the programs must know of this kernel and of this session, as read-only globals.
//!
//! Rust on aya emits no CO-RE relocations: the offsets are looked up in the running kernel's BTF at start. The
//! verifier sees frozen globals as constants, so a read through them is an ordinary checked load, and code that
//! asks for an absent member is never even verified.

/// Offset of a member that this kernel does not have.
pub const ABSENT: u64 = u64::MAX;

/// Offsets in bytes. u64, since a narrower type costs two shifts for each load.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// `task_struct.pid`, 4 bytes.
    pub task_pid: u64,
    /// `task_struct.tgid`, 4 bytes.
    pub task_tgid: u64,
    /// `task_struct.flags`, 4 bytes.
    pub task_flags: u64,
    /// `task_struct.comm`, 16 bytes.
    pub task_comm: u64,
    /// `task_struct.start_boottime` (`real_start_time` before 5.5), 8 bytes.
    pub task_start: u64,
    /// `task_struct.__state` (4 bytes, 5.14 and later) or `state` (8 bytes).
    pub task_state: u64,
    /// Width of the state: 4 or 8.
    pub task_state_size: u64,
    /// `task_struct.on_cpu`, 4 bytes or 1.
    pub task_on_cpu: u64,
    /// Width of `on_cpu`.
    pub task_on_cpu_size: u64,
    /// `task_struct.exit_state`, 4 bytes.
    pub task_exit_state: u64,
    /// `task_struct.ptrace`, 4 bytes.
    pub task_ptrace: u64,
    /// `task_struct.ptrace_message`, 8 bytes.
    pub task_ptrace_message: u64,
    /// `task_struct.exit_code`, 4 bytes: in a ptrace stop, what the tracer will read.
    pub task_exit_code: u64,
    /// `task_struct.last_siginfo`, a pointer.
    pub task_siginfo: u64,
    /// `task_struct.cgroups`.
    pub task_cgroups: u64,
    /// `css_set.dfl_cgrp`.
    pub css_set_cgroup: u64,
    /// `cgroup.kn`.
    pub cgroup_kn: u64,
    /// `kernfs_node.id`, 8 bytes: the inode number of the folder.
    pub kernfs_id: u64,
    /// `task_struct.parent`.
    pub task_parent: u64,
    /// `task_struct.real_parent`.
    pub task_real_parent: u64,
    /// `task_struct.stack`, for kernels without `bpf_task_pt_regs`.
    pub task_stack: u64,
    /// `task_struct.utime`, 8 bytes.
    pub task_utime: u64,
    /// `task_struct.stime`, 8 bytes.
    pub task_stime: u64,
    /// `task_struct.prev_cputime.utime`, 8 bytes.
    pub task_prev_utime: u64,
    /// `task_struct.prev_cputime.stime`, 8 bytes.
    pub task_prev_stime: u64,
    /// `task_struct.se.sum_exec_runtime`, 8 bytes.
    pub task_runtime: u64,
    /// `task_struct.se.exec_start`, 8 bytes.
    pub task_exec_start: u64,
    /// `task_struct.sched_info.last_arrival` (`CONFIG_SCHED_INFO`), 8 bytes.
    pub task_arrival: u64,
    /// `task_struct.sched_info.last_queued` (likewise), 8 bytes.
    pub task_queued: u64,
    /// `task_struct.se.cfs_rq` (`CONFIG_FAIR_GROUP_SCHED`); set for every class and for idle.
    pub task_cfs_rq: u64,
    /// `cfs_rq.rq`.
    pub cfs_rq_rq: u64,
    /// `rq.clock`, 8 bytes.
    pub rq_clock: u64,
    /// `rq.clock_task`, 8 bytes.
    pub rq_clock_task: u64,
    /// `rq.clock_update_flags`, 4 bytes.
    pub rq_update_flags: u64,
    /// `rq.cpu`, 4 bytes.
    pub rq_cpu: u64,
    /// `pt_regs.orig_ax` (x86) or `pt_regs.syscallno` (arm64).
    pub regs_syscall: u64,
    /// Width of it: 8 or 4.
    pub regs_syscall_size: u64,
    /// `pt_regs.ax` (x86); absent elsewhere.
    pub regs_result: u64,
    /// Size of `pt_regs`.
    pub regs_size: u64,
}

impl Layout {
    /// Nothing is there.
    pub const NONE: Self = Self {
        task_pid: ABSENT,
        task_tgid: ABSENT,
        task_flags: ABSENT,
        task_comm: ABSENT,
        task_start: ABSENT,
        task_state: ABSENT,
        task_state_size: 0,
        task_on_cpu: ABSENT,
        task_on_cpu_size: 0,
        task_exit_state: ABSENT,
        task_ptrace: ABSENT,
        task_ptrace_message: ABSENT,
        task_exit_code: ABSENT,
        task_siginfo: ABSENT,
        task_cgroups: ABSENT,
        css_set_cgroup: ABSENT,
        cgroup_kn: ABSENT,
        kernfs_id: ABSENT,
        task_parent: ABSENT,
        task_real_parent: ABSENT,
        task_stack: ABSENT,
        task_utime: ABSENT,
        task_stime: ABSENT,
        task_prev_utime: ABSENT,
        task_prev_stime: ABSENT,
        task_runtime: ABSENT,
        task_exec_start: ABSENT,
        task_arrival: ABSENT,
        task_queued: ABSENT,
        task_cfs_rq: ABSENT,
        cfs_rq_rq: ABSENT,
        rq_clock: ABSENT,
        rq_clock_task: ABSENT,
        rq_update_flags: ABSENT,
        rq_cpu: ABSENT,
        regs_syscall: ABSENT,
        regs_syscall_size: 0,
        regs_result: ABSENT,
        regs_size: 0,
    };
}

/// Where `sched_switch` has its arguments.
pub mod switch_args {
    /// `(preempt, prev, next)`: the state is read from prev. 5.10.
    pub const THREE: u64 = 0;
    /// `(preempt, prev, next, prev_state)`. 5.19 and later, and backports.
    pub const STATE_LAST: u64 = 1;
    /// `(preempt, prev_state, prev, next)`. 5.18.
    pub const STATE_SECOND: u64 = 2;
}

/// What this session wants, and what this kernel's programs may use.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// See [`switch_args`].
    pub switch_args: u64,
    /// `bpf_task_pt_regs` is there (5.15).
    pub has_task_regs: u64,
    /// `sched_entry_tp` is attached, so the request that it saw is exact.
    pub has_entry: u64,
    /// A hook sees skip requests: `sched_entry_tp`, `sched_wakeup` or `wakeup_preempt`.
    pub has_requests: u64,
    /// `sched_exit_tp` is attached, so a switch that was missed is made good before the next one.
    pub has_exit: u64,
    /// Observe every task.
    pub all: u64,
    /// Observe tasks whose name matches [`crate::names::GLOB`].
    pub by_comm: u64,
    /// Observe tasks below [`crate::names::CGROUP`].
    pub by_cgroup: u64,
    /// Observe the descendants of observed tasks.
    pub follow: u64,
    /// A new child's first event is user code, not `sys_exit` (arm64).
    pub child_in_user: u64,
    /// observer's own process: never observed by `all`, `by_comm` or `by_cgroup`.
    pub self_tgid: u64,
    /// Keep pairs.
    pub pairs: u64,
    /// Tell user from system: look at the saved registers where no hook tells.
    pub split: u64,
    /// Number of `sched_yield` on this architecture.
    pub yield_number: u64,
    /// Size of a kernel stack, for kernels without `bpf_task_pt_regs`.
    pub stack_size: u64,
    /// Each CPU has counters in [`crate::names::CYCLES_USER`] and [`crate::names::CYCLES_SYSTEM`]: read them.
    pub cycles: u64,
}

impl Config {
    /// Nothing is wanted, nothing may be used.
    pub const NONE: Self = Self {
        switch_args: switch_args::STATE_LAST,
        has_task_regs: 0,
        has_entry: 0,
        has_requests: 0,
        has_exit: 0,
        all: 0,
        by_comm: 0,
        by_cgroup: 0,
        follow: 0,
        child_in_user: 0,
        self_tgid: 0,
        pairs: 0,
        split: 0,
        yield_number: 0,
        stack_size: 0,
        cycles: 0,
    };
}

//! Reading the kernel's own structures.
//!
//! A pointer that the verifier knows by its BTF type is read by an ordinary load at an offset from
//! [`LAYOUT`]: no helper call. A pointer that is only a number is read by `bpf_probe_read_kernel`.

use core::ffi::c_void;

use aya_ebpf::helpers::{
    bpf_get_current_task, bpf_get_current_task_btf, bpf_probe_read_kernel,
    generated::{bpf_probe_read_kernel as copy_kernel, bpf_task_pt_regs},
};
use observer_common::{
    bill::{Bill, RunQueue},
    glob::COMM_LEN,
    layout::{ABSENT, Config, Layout},
    lifecycle::Identity,
    ptrace::code_of,
    switch::Place,
    task::Task,
};

/// Offsets of this kernel; set by the loader.
#[unsafe(no_mangle)]
static LAYOUT: Layout = Layout::NONE;
/// This session; set by the loader.
#[unsafe(no_mangle)]
pub static CONFIG: Config = Config::NONE;

/// A kernel structure by its address, with its BTF type known to the verifier.
pub type Ptr = *const c_void;

macro_rules! offset {
    ($field:ident) => {
        // SAFETY: a static. Volatile, since the loader replaces the value that the compiler sees.
        unsafe { core::ptr::read_volatile(&raw const LAYOUT.$field) }
    };
}

macro_rules! config {
    ($field:ident) => {
        // SAFETY: as for `offset!`.
        unsafe { core::ptr::read_volatile(&raw const $crate::kernel::CONFIG.$field) }
    };
}
pub(crate) use config;

/// A checked load. The caller names a member of the width of `T`.
#[inline(always)]
fn load<T: Copy>(base: Ptr, offset: u64) -> T {
    // SAFETY: the verifier checks that `base` is a live kernel structure and that a member of this width lies
    // at this offset. Volatile keeps it one load of this width.
    unsafe { base.cast::<u8>().add(offset as usize).cast::<T>().read_volatile() }
}

/// A member that may be absent.
#[inline(always)]
fn load_or<T: Copy>(base: Ptr, offset: u64, absent: T) -> T {
    if offset == ABSENT { absent } else { load(base, offset) }
}

/// The same through the helper, for an address that is only a number.
#[inline(always)]
fn probe<T: Copy>(base: u64, offset: u64, absent: T) -> T {
    if offset == ABSENT || base == 0 {
        return absent;
    }
    // SAFETY: the helper checks the address and answers with an error for a bad one.
    unsafe { bpf_probe_read_kernel((base + offset) as *const T) }.unwrap_or(absent)
}

/// Thread id.
#[inline(always)]
pub fn tid(task: Ptr) -> u32 {
    load(task, offset!(task_pid))
}

/// The current task, typed: 5.11 and later. Reached only where [`Config::has_task_regs`] (5.15) or the hook
/// itself (6.18) says that the kernel is as new.
#[inline(always)]
pub fn current() -> Ptr {
    // SAFETY: a helper without arguments.
    unsafe { bpf_get_current_task_btf() }.cast_const().cast()
}

/// The current task's address.
#[inline(always)]
pub fn current_address() -> u64 {
    // SAFETY: a helper without arguments.
    unsafe { bpf_get_current_task() }
}

/// `TASK_*` bits.
#[inline(always)]
pub fn state(task: Ptr) -> u64 {
    if offset!(task_state_size) == 4 {
        u64::from(load::<u32>(task, offset!(task_state)))
    } else {
        load(task, offset!(task_state))
    }
}

/// State of the current task, and where it came into the kernel.
#[inline(always)]
pub fn current_state_and_place() -> (u64, Place) {
    if config!(has_task_regs) != 0 {
        let current = current();
        return (state(current), place(current));
    }
    let current = current_address();
    (by_number::state(current), by_number::place(current))
}

/// True when the task runs on some CPU.
#[inline(always)]
pub fn on_cpu(task: Ptr) -> bool {
    if offset!(task_on_cpu_size) == 4 {
        load_or::<u32>(task, offset!(task_on_cpu), 0) != 0
    } else {
        load_or::<u8>(task, offset!(task_on_cpu), 0) != 0
    }
}

/// True when the task is dead and only waits to be reaped.
#[inline(always)]
pub fn is_zombie(task: Ptr) -> bool {
    load_or::<u32>(task, offset!(task_exit_state), 0) != 0
}

/// Who a task is.
#[inline(always)]
pub fn identity(task: Ptr) -> Identity {
    let parent: Ptr = load_or(task, offset!(task_real_parent), core::ptr::null());
    let parent_tgid = if parent.is_null() { 0 } else { load_or(parent, offset!(task_tgid), 0) };
    Identity {
        address: task as u64,
        start_ns: load_or(task, offset!(task_start), 0),
        tid: tid(task),
        tgid: load(task, offset!(task_tgid)),
        parent_tgid,
        flags: load_or(task, offset!(task_flags), 0),
    }
}

/// Process id.
#[inline(always)]
pub fn tgid(task: Ptr) -> u32 {
    load(task, offset!(task_tgid))
}

/// The tracer, if the task is traced (`PT_PTRACED`), else null: then `parent` is the tracer thread
/// (`ptrace_link`).
#[inline(always)]
pub fn tracer(task: Ptr) -> Ptr {
    if load_or::<u32>(task, offset!(task_ptrace), 0) & 1 == 0 {
        return core::ptr::null();
    }
    load_or(task, offset!(task_parent), core::ptr::null())
}

/// The tracer's tid; 0 = none.
#[inline(always)]
pub fn tracer_tid(task: Ptr) -> u32 {
    let tracer = tracer(task);
    if tracer.is_null() { 0 } else { tid(tracer) }
}

/// In a ptrace stop: what the tracer reads or has read, without the shift.
#[inline(always)]
pub fn stop_code(task: Ptr) -> u32 {
    // struct kernel_siginfo (include/uapi/asm-generic/siginfo.h): si_signo, si_errno, si_code.
    let siginfo: u64 = load_or(task, offset!(task_siginfo), 0);
    let [signal, _errno, code] = probe(siginfo, 0, [0_u32; 3]);
    code_of(load_or(task, offset!(task_exit_code), 0), signal, code)
}

/// In a ptrace stop: the event's message.
#[inline(always)]
pub fn ptrace_message(task: Ptr) -> u64 {
    load_or(task, offset!(task_ptrace_message), 0)
}

/// In a ptrace stop: true but for a group stop of a task that was attached to.
#[inline(always)]
pub fn has_siginfo(task: Ptr) -> bool {
    load_or(task, offset!(task_siginfo), 1_u64) != 0
}

/// `start_boottime`, ns.
#[inline(always)]
pub fn start_ns(task: Ptr) -> u64 {
    load_or(task, offset!(task_start), 0)
}

/// `PF_*` flags.
#[inline(always)]
pub fn flags(task: Ptr) -> u32 {
    load_or(task, offset!(task_flags), 0)
}

/// The cgroup (version 2) of a task: the inode number of its folder; 0 where it cannot be read.
#[inline(always)]
pub fn cgroup_id(task: Ptr) -> u64 {
    let set: Ptr = load_or(task, offset!(task_cgroups), core::ptr::null());
    if set.is_null() {
        return 0;
    }
    let cgroup: Ptr = load_or(set, offset!(css_set_cgroup), core::ptr::null());
    if cgroup.is_null() {
        return 0;
    }
    let node: Ptr = load_or(cgroup, offset!(cgroup_kn), core::ptr::null());
    if node.is_null() { 0 } else { load_or(node, offset!(kernfs_id), 0) }
}

/// A name by two loads: cheaper than the helper, on a typed task.
#[inline(always)]
pub fn load_comm(task: Ptr, comm: &mut [u8; COMM_LEN]) {
    let halves: [u64; 2] = [load(task, offset!(task_comm)), load(task, offset!(task_comm) + 8)];
    comm[..8].copy_from_slice(&halves[0].to_ne_bytes());
    comm[8..].copy_from_slice(&halves[1].to_ne_bytes());
}

/// The kernel's bill. `prev_cputime` is not there with `VIRT_CPU_ACCOUNTING_NATIVE`.
#[inline(always)]
pub fn bill(task: Ptr) -> Bill {
    Bill {
        runtime_ns: load(task, offset!(task_runtime)),
        utime_ns: load(task, offset!(task_utime)),
        stime_ns: load(task, offset!(task_stime)),
        prev_utime_ns: load_or(task, offset!(task_prev_utime), 0),
        prev_stime_ns: load_or(task, offset!(task_prev_stime), 0),
    }
}

/// When it last got a CPU, by its run queue's clock; 0 = not known. Idle has none.
#[inline(always)]
pub fn arrival(task: Ptr) -> u64 {
    load_or(task, offset!(task_arrival), 0)
}

/// Since when it waits for a CPU, by its run queue's clock; 0 = it does not, or not known.
#[inline(always)]
pub fn queued(task: Ptr) -> u64 {
    load_or(task, offset!(task_queued), 0)
}

/// The run queue that the task is on or runs on (`se.cfs_rq->rq`, set for every class and for idle).
///
/// For each load of a pointer the verifier goes through all types of the kernel (`btf_nested_type_is_trusted`,
/// kernel/bpf/verifier.c), once for each way that leads to it: a quarter of a start was that. So callers load pointers
/// before they branch, where that costs a task that is not observed nothing to speak of.
#[inline(always)]
pub fn run_queue(task: Ptr) -> Ptr {
    if offset!(task_cfs_rq) == ABSENT {
        return core::ptr::null();
    }
    let cfs_rq: Ptr = load(task, offset!(task_cfs_rq));
    if cfs_rq.is_null() { core::ptr::null() } else { load(cfs_rq, offset!(cfs_rq_rq)) }
}

/// Its clocks.
#[inline(always)]
pub fn clocks(rq: Ptr) -> RunQueue {
    RunQueue {
        clock_ns: load(rq, offset!(rq_clock)),
        clock_task_ns: load(rq, offset!(rq_clock_task)),
        update_flags: load(rq, offset!(rq_update_flags)),
    }
}

/// `clock_update_flags` alone.
#[inline(always)]
pub fn update_flags(rq: Ptr) -> u32 {
    load(rq, offset!(rq_update_flags))
}

/// Its CPU.
#[inline(always)]
pub fn run_queue_cpu(rq: Ptr) -> u32 {
    load(rq, offset!(rq_cpu))
}

/// Somebody wants places, and the saved registers have what they are told by.
#[inline(always)]
fn tells_places() -> bool {
    config!(split) != 0 && offset!(regs_syscall) != ABSENT
}

/// Where the task came into the kernel, from the user registers saved at the top of its stack.
///
/// x86: `orig_ax` is the syscall's number, or -1 for an interrupt or exception (arch/x86/entry/entry_64.S), and
/// `ax` holds the preset -ENOSYS until the body sets a result. arm64: `syscallno` is -1 outside a syscall, and an entry
/// is only known as such in its ptrace stop.
#[inline(always)]
pub fn place(task: Ptr) -> Place {
    if !tells_places() {
        return Place::Unknown;
    }
    let Some((number, result)) = saved(task) else { return Place::Unknown };
    place_of(number, result, load_or(task, offset!(task_ptrace_message), 0))
}

/// The number of the syscall by which the task came into the kernel; negative for another way.
#[inline(always)]
pub fn syscall_number(task: Ptr) -> i64 {
    if offset!(regs_syscall) == ABSENT {
        return -1;
    }
    saved(task).map_or(-1, |(number, _)| number)
}

/// The saved registers of a task: the syscall's number and its result so far.
#[inline(always)]
fn saved(task: Ptr) -> Option<(i64, i64)> {
    if config!(has_task_regs) != 0 {
        // SAFETY: the helper takes a typed task pointer, which the verifier checks.
        let regs = unsafe { bpf_task_pt_regs(task.cast_mut().cast()) } as Ptr;
        if regs.is_null() {
            return None;
        }
        return Some(registers(|offset| load(regs, offset), |offset| load(regs, offset)));
    }
    let stack: u64 = load_or(task, offset!(task_stack), 0);
    if stack == 0 { None } else { Some(saved_registers(stack)) }
}

/// The rule for both ways of reading the registers.
///
/// In a syscall stop the ptrace message says which of the two it is (`ptrace_report_syscall`, include/linux/ptrace.h,
/// 5.3), also on arm64, which presets no result, and also for a syscall that really answered ENOSYS.
#[inline(always)]
fn place_of(number: i64, result: i64, message: u64) -> Place {
    match number {
        ..0 => Place::Exception,
        _ if message == PTRACE_EVENTMSG_ENTRY => Place::Entry,
        _ if result == -ENOSYS && message != PTRACE_EVENTMSG_EXIT => Place::Entry,
        _ => Place::Syscall,
    }
}

/// `ENOSYS` (include/uapi/asm-generic/errno.h).
const ENOSYS: i64 = 38;
/// `PTRACE_EVENTMSG_SYSCALL_ENTRY` (include/uapi/linux/ptrace.h).
const PTRACE_EVENTMSG_ENTRY: u64 = 1;
/// `PTRACE_EVENTMSG_SYSCALL_EXIT`.
const PTRACE_EVENTMSG_EXIT: u64 = 2;

/// The syscall's number and its result so far; without a result register, 0.
#[inline(always)]
fn registers(wide: impl Fn(u64) -> i64, narrow: impl Fn(u64) -> i32) -> (i64, i64) {
    let number = if offset!(regs_syscall_size) == 8 {
        wide(offset!(regs_syscall))
    } else {
        i64::from(narrow(offset!(regs_syscall)))
    };
    let result = if offset!(regs_result) == ABSENT { 0 } else { wide(offset!(regs_result)) };
    (number, result)
}

/// The same from the top of a kernel stack, which has the user registers in its last bytes.
#[inline(always)]
fn saved_registers(stack: u64) -> (i64, i64) {
    let regs = stack + config!(stack_size) - offset!(regs_size);
    registers(|offset| probe(regs, offset, -1_i64), |offset| probe(regs, offset, -1_i32))
}

/// Copies a task's name into its account.
#[inline(always)]
pub fn copy_comm(account: &mut Task, task: Ptr) {
    copy_name(&mut account.comm, task as u64 + offset!(task_comm));
}

/// Copies 16 bytes of a name.
#[inline(always)]
pub fn copy_name(into: &mut [u8; COMM_LEN], address: u64) {
    // SAFETY: the destination is 16 bytes of a map or of the stack; the helper checks the source.
    unsafe { copy_kernel(into.as_mut_ptr().cast(), COMM_LEN as u32, address as *const c_void) };
}

/// The address of a task's name.
#[inline(always)]
pub fn comm_address(task: Ptr) -> u64 {
    task as u64 + offset!(task_comm)
}

/// The current task's figures, through the helper: the reader's program has no typed pointer on old kernels.
pub mod by_number {
    use super::*;

    /// Thread id.
    #[inline(always)]
    pub fn tid(task: u64) -> u32 {
        probe(task, offset!(task_pid), 0)
    }

    /// Process id.
    #[inline(always)]
    pub fn tgid(task: u64) -> u32 {
        probe(task, offset!(task_tgid), 0)
    }

    /// `start_boottime`, ns.
    #[inline(always)]
    pub fn start_ns(task: u64) -> u64 {
        probe(task, offset!(task_start), 0)
    }

    /// Its name.
    #[inline(always)]
    pub fn comm(task: u64) -> [u8; COMM_LEN] {
        probe(task, offset!(task_comm), [0; COMM_LEN])
    }

    /// The kernel's bill, and since when the task runs by the run queue's clock.
    #[inline(always)]
    pub fn bill(task: u64) -> (Bill, u64) {
        let bill = Bill {
            runtime_ns: probe(task, offset!(task_runtime), 0),
            utime_ns: probe(task, offset!(task_utime), 0),
            stime_ns: probe(task, offset!(task_stime), 0),
            prev_utime_ns: probe(task, offset!(task_prev_utime), 0),
            prev_stime_ns: probe(task, offset!(task_prev_stime), 0),
        };
        (bill, probe(task, offset!(task_exec_start), 0))
    }

    /// The clocks of its run queue.
    #[inline(always)]
    pub fn clocks(task: u64) -> Option<RunQueue> {
        let cfs_rq: u64 = probe(task, offset!(task_cfs_rq), 0);
        let rq: u64 = probe(cfs_rq, offset!(cfs_rq_rq), 0);
        if rq == 0 {
            return None;
        }
        Some(RunQueue {
            clock_ns: probe(rq, offset!(rq_clock), 0),
            clock_task_ns: probe(rq, offset!(rq_clock_task), 0),
            update_flags: 0,
        })
    }

    /// `TASK_*` bits.
    #[inline(always)]
    pub fn state(task: u64) -> u64 {
        if offset!(task_state_size) == 4 {
            u64::from(probe(task, offset!(task_state), 0_u32))
        } else {
            probe(task, offset!(task_state), 0)
        }
    }

    /// Where it came into the kernel, on kernels without `bpf_task_pt_regs`.
    #[inline(always)]
    pub fn place(task: u64) -> Place {
        if !tells_places() {
            return Place::Unknown;
        }
        let stack: u64 = probe(task, offset!(task_stack), 0);
        if stack == 0 {
            return Place::Unknown;
        }
        let (number, result) = saved_registers(stack);
        place_of(number, result, probe(task, offset!(task_ptrace_message), 0))
    }
}

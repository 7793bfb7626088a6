//! The names that both sides of the kernel border share: programs, maps, globals.

/// Map of [`crate::cpu::Cpu`], by CPU number.
pub const CPUS: &str = "CPUS";
/// Map of [`crate::task::Task`], by slot; slot 0 is nobody's.
pub const TASKS: &str = "TASKS";
/// Map from tid to slot.
pub const SLOTS: &str = "SLOTS";
/// Stack of free slots.
pub const FREE: &str = "FREE";
/// Ring of slots whose task has ended.
pub const ENDED: &str = "ENDED";
/// An eighth of the ring (256 KiB): from here on the reader is woken, otherwise it comes by itself.
pub const RING_WAKE_BYTES: u64 = 32 * 1024;
/// What one ended account takes there: a header and the record, 8 bytes each (kernel/bpf/ringbuf.c).
pub const RING_RECORD_BYTES: u64 = 16;
/// Map of [`crate::pair::Pair`], by [`crate::pair::PairKey`].
pub const PAIRS: &str = "PAIRS";
/// Map of [`crate::ptrace::Trace`], by [`crate::pair::PairKey`].
pub const TRACES: &str = "TRACES";
/// By CPU number: what found no room in [`PAIRS`].
pub const OTHER_PAIRS: &str = "OTHER_PAIRS";
/// By CPU number: what found no room in [`TRACES`].
pub const OTHER_TRACES: &str = "OTHER_TRACES";
/// What the program of sched_switch goes on in: the one of its pairs, in slot 0.
pub const AFTER_SWITCH: &str = "AFTER_SWITCH";
/// Ids to observe: see [`target`].
pub const TARGETS: &str = "TARGETS";
/// The compiled name pattern, one [`crate::glob::Glob`].
pub const GLOB: &str = "GLOB";
/// The cgroup to observe, in slot 0.
pub const CGROUP: &str = "CGROUP";

/// By CPU number: the counter of cycles in user mode.
pub const CYCLES_USER: &str = "CYCLES_USER";
/// By CPU number: the counter of cycles in the kernel.
pub const CYCLES_SYSTEM: &str = "CYCLES_SYSTEM";

/// Read-only global: [`crate::layout::Layout`].
pub const LAYOUT: &str = "LAYOUT";
/// Read-only global: [`crate::layout::Config`].
pub const CONFIG: &str = "CONFIG";

/// Values in [`TARGETS`], by tid or tgid.
pub mod target {
    /// The key is a tgid: all its threads.
    pub const PROCESS: u32 = 1;
    /// The key is a tid: this thread alone.
    pub const THREAD: u32 = 2;
    /// A key that is no task's. Its value is a tid: while it is there, only that thread is found.
    pub const ONLY: u32 = 0;
}

macro_rules! hooks {
    ($($(#[$doc:meta])* $id:ident = $index:literal, $program:literal;)+) => {
        /// Index of each program, for [`crate::cpu::Cpu::runs`].
        pub mod hook {
            $($(#[$doc])* pub const $id: usize = $index;)+
        }
        /// The programs' names in the object, by index.
        pub const PROGRAMS: [&str; HOOKS] = [$($program),+];
        /// How many programs there are.
        pub const HOOKS: usize = [$($index),+].len();
    };
}

hooks! {
    /// One task stops, another runs.
    SWITCH = 0, "sched_switch";
    /// A wakeup begins, in the waker's context.
    WAKING = 1, "sched_waking";
    /// The wakee is on a run queue.
    WAKEUP = 2, "sched_wakeup";
    /// A new task is on a run queue.
    WAKEUP_NEW = 3, "wakeup_new";
    /// `__schedule` begins.
    ENTRY = 4, "sched_entry";
    /// A task is born.
    FORK = 5, "process_fork";
    /// A task runs a new program.
    EXEC = 6, "process_exec";
    /// A task begins to exit.
    EXIT = 7, "process_exit";
    /// A task is freed.
    RELEASE = 8, "process_free";
    /// A task changes its name.
    RENAME = 9, "task_rename";
    /// A syscall's body begins.
    SYS_ENTER = 10, "sys_enter";
    /// A syscall's body ends.
    SYS_EXIT = 11, "sys_exit";
    /// A user page fault begins.
    FAULT = 12, "page_fault";
    /// A minor fault is accounted.
    FAULT_MIN = 13, "fault_minor";
    /// A major fault is accounted.
    FAULT_MAJ = 14, "fault_major";
    /// A device interrupt.
    IRQ_ENTER = 15, "irq_enter";
    /// Its end.
    IRQ_EXIT = 16, "irq_exit";
    /// A soft interrupt.
    SOFTIRQ_ENTER = 17, "softirq_enter";
    /// Its end.
    SOFTIRQ_EXIT = 18, "softirq_exit";
    /// The local timer's vector (x86).
    TIMER_ENTER = 19, "timer_enter";
    /// Its end.
    TIMER_EXIT = 20, "timer_exit";
    /// The reschedule vector.
    RESCHED_ENTER = 21, "resched_enter";
    /// Its end.
    RESCHED_EXIT = 22, "resched_exit";
    /// The function-call vector.
    CALL_ENTER = 23, "call_enter";
    /// Its end.
    CALL_EXIT = 24, "call_exit";
    /// The function-call vector for one CPU.
    CALL1_ENTER = 25, "call1_enter";
    /// Its end.
    CALL1_EXIT = 26, "call1_exit";
    /// The irq-work vector.
    WORK_ENTER = 27, "work_enter";
    /// Its end.
    WORK_EXIT = 28, "work_exit";
    /// Finds the tasks that exist.
    FIND = 29, "find_tasks";
    /// Closes the open interval of a CPU for a reader.
    READ = 30, "read_cpu";
    /// `__schedule` ends, in the context of the task that it gave the CPU to.
    LEAVE = 31, "sched_leave";
    /// One task stops, another runs: whose time went to whom.
    PAIRS = 32, "switch_pairs";
    /// A wakeup has decided whether it preempts.
    PREEMPT = 33, "wakeup_preempt";
    /// A run queue's clock is updated.
    CLOCK = 34, "clock_update";
    /// A ptrace stop begins.
    STOP_ENTER = 35, "stop_enter";
    /// It ends.
    STOP_LEAVE = 36, "stop_leave";
    /// A page fault was handled.
    FAULT_DONE = 37, "fault_done";
    /// A ptrace stop begins: where only the symbol is there.
    STOP_PROBE = 38, "stop_probe";
    /// It ends, likewise.
    STOP_RETPROBE = 39, "stop_retprobe";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fit_the_kernel_and_are_unique() {
        for (index, name) in PROGRAMS.iter().enumerate() {
            assert!(name.len() < 16, "{name} is cut by the kernel (BPF_OBJ_NAME_LEN)");
            assert!(!PROGRAMS[index + 1..].contains(name), "{name} twice");
        }
    }

    #[test]
    fn indices_follow_the_table() {
        assert_eq!(PROGRAMS[hook::SWITCH], "sched_switch");
        assert_eq!(PROGRAMS[hook::READ], "read_cpu");
        assert_eq!(HOOKS, hook::STOP_RETPROBE + 1);
    }
}

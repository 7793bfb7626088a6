//! The account of one task.

use crate::{bill::Bill, glob::COMM_LEN, pair::Wake, ptrace::Stop};

/// What a CPU was doing for a task.
pub mod mode {
    /// In user mode.
    pub const USER: usize = 0;
    /// In the kernel, on the task's own behalf (or the idle loop, for idle).
    pub const SYSTEM: usize = 1;
    /// In a hard interrupt that came while the task was on the CPU.
    pub const HARDIRQ: usize = 2;
    /// In a soft interrupt, likewise.
    pub const SOFTIRQ: usize = 3;
    /// User or system, not known which: after a page fault whose end no hook saw.
    pub const UNCLASSIFIED: usize = 4;
    /// How many there are.
    pub const COUNT: usize = 5;
}

/// Borders between user and system that lie outside the hooks. Each is counted; what one costs is calibrated
/// at start, and count times cost is booked as system by the reader.
pub mod crossing {
    /// From the syscall instruction to `sys_enter`, and from `sys_exit` to the first user instruction.
    pub const SYSCALL: usize = 0;
    /// Into a ptrace stop or out of it, where user mode lies on the other side.
    pub const STOP: usize = 1;
    /// From user mode to the switch that preempts it, and from the switch-in back to user mode.
    pub const PREEMPTION: usize = 2;
    /// Around a hard interrupt that came in user mode.
    pub const INTERRUPT: usize = 3;
    /// Around a page fault: from the trap to the hook, and from its end to user mode.
    pub const FAULT: usize = 4;
    /// How many kinds there are.
    pub const COUNT: usize = 5;
    /// Their names in files and on the screen.
    pub const NAMES: [&str; COUNT] =
        ["syscall", "ptrace stop", "preemption", "interrupt", "page fault"];
}

/// Life of a slot.
pub mod state {
    /// Nobody's: the content means nothing.
    pub const FREE: u32 = 0;
    /// The task is alive.
    pub const LIVE: u32 = 1;
    /// The task is gone; the account is final and waits for its reader.
    pub const EXITED: u32 = 2;
}

/// Bits of [`Task::flags`].
pub mod flag {
    /// The kernel's bill at the begin is final: the task was seen at a moment when it could not change.
    pub const BASED: u32 = 1 << 0;
    /// A kernel thread or a thread that never goes to user mode.
    pub const KERNEL: u32 = 1 << 1;
    /// The last hook left the task inside a syscall, or it was found inside one.
    pub const IN_SYSCALL: u32 = 1 << 2;
    /// In a ptrace stop.
    pub const STOPPED: u32 = 1 << 3;
    /// The stop that the task is in leads back into the kernel, not to user mode.
    pub const STOP_INSIDE: u32 = 1 << 4;
    /// `sched_process_exit` was seen.
    pub const EXITING: u32 = 1 << 5;
    /// Descendants are observed too.
    pub const FOLLOW: u32 = 1 << 6;
    /// Began while observed (by fork), so its bill begins at zero.
    pub const BORN: u32 = 1 << 7;
    /// The begin of this stop was seen by a hook of its own, and its end will be.
    pub const STOP_TIMED: u32 = 1 << 9;
    /// That stop is at the entry of a syscall: what follows is the syscall's body.
    pub const STOP_AT_ENTRY: u32 = 1 << 10;
    /// An evidence of this stop was booked already (its waker call); the switch-out must not count it again.
    pub const STOP_SEEN: u32 = 1 << 8;
}

/// The account of one task, written by the CPU that the task runs on.
///
/// `sequence` is odd while an event is being booked. A reader copies the account and takes the copy only if
/// `sequence` was even and the same before and after. The fields of the waker's side (`wakeups`,
/// `wait_since_ns`, `stopped_ns`) are written under the wakee's own lock (`p->pi_lock`, `try_to_wake_up`), and each
/// of them stands for itself.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Task {
    /// Address of the `task_struct`: what tells two tasks apart while both exist. Never shown.
    pub address: u64,
    /// `start_boottime`: with `tid` the identity of a task.
    pub start_ns: u64,
    /// Thread id in the initial namespace.
    pub tid: u32,
    /// Process id in the initial namespace.
    pub tgid: u32,
    /// Thread name, any bytes.
    pub comm: [u8; COMM_LEN],
    /// tgid of the parent at the begin of the account.
    pub parent_tgid: u32,
    /// The tracer's tid at the last ptrace stop; 0 = never stopped.
    pub tracer_tid: u32,
    /// The tid before an exec from a thread that was not the leader; 0 = none.
    pub former_tid: u32,
    /// See [`state`].
    pub state: u32,
    /// See [`flag`].
    pub flags: u32,
    /// Odd while an event is being booked.
    pub sequence: u32,
    /// The CPU it ran on last.
    pub cpu: u32,
    /// The mode it goes on with at the next switch-in.
    pub base_mode: u32,
    /// Number of the last syscall whose entry was seen.
    pub syscall: u32,
    /// Explicit padding.
    pub _pad: u32,
    /// The cgroup (version 2) it was last seen in (`kernfs_node.id`); 0 = not known.
    pub cgroup_id: u64,

    /// Measured time by [`mode`].
    pub mode_ns: [u64; mode::COUNT],
    /// Crossings by kind, see [`crossing`].
    pub crossings: [u64; crossing::COUNT],

    /// The kernel's bill when the account was opened.
    pub bill_begin: Bill,
    /// The kernel's bill at the last event at which it could not be changing.
    pub bill: Bill,
    /// Interrupt and steal time on the task's CPU that the kernel left out of the bill.
    pub left_out_ns: u64,
    /// The same, of the run queue, at the last switch-in.
    pub left_out_mark_ns: u64,

    /// Switches to this task with a skipped clock update, and what they added to its bill.
    pub skip_in: u64,
    /// See `skip_in`.
    pub skip_in_ns: u64,
    /// Switches away from this task with a skipped clock update, and what they took from its bill.
    pub skip_out: u64,
    /// See `skip_out`.
    pub skip_out_ns: u64,
    /// What ordinary switches to this task added to its bill.
    pub path_in_ns: u64,
    /// What ordinary switches away from it took from its bill.
    pub path_out_ns: u64,

    /// Time on the run queue, waiting for a CPU.
    pub wait_ns: u64,
    /// Waits that ended.
    pub waits: u64,
    /// Begin of the wait that is open; 0 = not waiting.
    pub wait_since_ns: u64,
    /// Times that the task was woken.
    pub wakeups: u64,
    /// Wakeups that it made itself, in task context.
    pub wakes_made: u64,
    /// Switches away while it could not run on.
    pub switches_voluntary: u64,
    /// Switches away while it could have run on.
    pub switches_involuntary: u64,
    /// Switch-ins on another CPU than the last one.
    pub migrations: u64,

    /// Ptrace stops.
    pub ptrace_stops: u64,
    /// Time in ptrace stops that ended.
    pub stopped_ns: u64,
    /// Begin of the stop that is open; 0 = not stopped.
    pub stopped_since_ns: u64,
    /// The last stop.
    pub stop: Stop,
    /// Job-control stops (SIGSTOP and its like, not traced).
    pub job_stops: u64,
    /// Time in those that ended.
    pub job_stopped_ns: u64,
    /// Begin of the one that is open; 0 = none.
    pub job_stopped_since_ns: u64,

    /// The wakeup that the task has still to answer by running.
    pub wake: Wake,
    /// Its own time inside the wakeups that it made, where their end was seen.
    pub wakeup_cost_ns: u64,

    /// When the account was opened, by our clock.
    pub opened_ns: u64,
    /// When it was last written by the CPU that the task ran on.
    pub updated_ns: u64,

    /// Cycles in user mode, where they are counted: see [`crate::cycles`].
    pub cycles_user: u64,
    /// Cycles in the kernel, interrupts included.
    pub cycles_system: u64,
    /// Its runs whose cycles are not known: they are in neither.
    pub cycles_discarded: u64,
    /// Cycles of the wakeup that it has still to answer; 0 = not known.
    pub wake_cycles: u64,
}

const _: () = assert!(size_of::<Task>() == 592, "no implicit padding");

impl Task {
    /// On-CPU time so far.
    #[must_use]
    pub fn oncpu_ns(&self) -> u64 {
        self.mode_ns.iter().fold(0, |sum, ns| sum.saturating_add(*ns))
    }

    /// True when `bits` are all set.
    #[must_use]
    #[inline(always)]
    pub fn has(&self, bits: u32) -> bool {
        self.flags & bits == bits
    }

    /// Sets `bits`.
    #[inline(always)]
    pub fn set(&mut self, bits: u32) {
        self.flags |= bits;
    }

    /// Clears `bits`.
    #[inline(always)]
    pub fn clear(&mut self, bits: u32) {
        self.flags &= !bits;
    }

    /// Opens a booking: the sequence becomes odd.
    #[inline(always)]
    pub fn begin(&mut self) {
        let next = self.sequence.wrapping_add(1);
        // SAFETY: a valid, aligned field of a reference. Volatile, so that the compiler keeps the order of
        // the bookings and the sequence; the reader of the shared map relies on it.
        unsafe { core::ptr::write_volatile(&raw mut self.sequence, next) };
    }

    /// Closes it: the sequence is even again.
    #[inline(always)]
    pub fn end(&mut self) {
        self.begin();
    }

    /// Counts one crossing.
    #[inline(always)]
    pub fn cross(&mut self, kind: usize) {
        self.crossings[kind] += 1;
    }
}

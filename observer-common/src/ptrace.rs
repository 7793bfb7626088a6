//! Ptrace stops: of what kind, by which tracer, and how the CPU was handed over.

use crate::{
    cpu::Cpu,
    glob::COMM_LEN,
    latency::Latency,
    switch::Place,
    task::{Task, crossing, flag, mode},
};

/// Kinds of ptrace stops (ptrace(2)).
pub mod kind {
    /// At the entry of a syscall.
    pub const ENTRY: usize = 0;
    /// At its exit.
    pub const EXIT_OF_SYSCALL: usize = 1;
    /// Before a signal is delivered.
    pub const SIGNAL: usize = 2;
    /// `PTRACE_EVENT_*`, but for the two below.
    pub const EVENT: usize = 3;
    /// Group stop, `PTRACE_EVENT_STOP`.
    pub const GROUP: usize = 4;
    /// `PTRACE_EVENT_EXIT`.
    pub const EXIT: usize = 5;
    /// How many there are.
    pub const COUNT: usize = 6;
}

/// `PTRACE_EVENT_EXIT` (include/uapi/linux/ptrace.h).
const EVENT_EXIT: u32 = 6;
/// `PTRACE_EVENT_STOP`.
const EVENT_STOP: u32 = 128;
/// `SIGTRAP` (include/uapi/asm-generic/signal.h).
const SIGTRAP: u32 = 5;
/// `PTRACE_EVENTMSG_SYSCALL_ENTRY`, `_EXIT`: 5.3 and later.
const MESSAGE_ENTRY: u64 = 1;
/// See [`MESSAGE_ENTRY`].
const MESSAGE_EXIT: u64 = 2;

/// The kind of a stop, from what `ptrace_stop` (kernel/signal.c) leaves in the task.
///
/// `exit_code` is what the tracer will read by wait4, without the shift by 8: a signal, with 0x80 for a syscall
/// stop under `PTRACE_O_TRACESYSGOOD`, and with an event in the next byte. `message` is `ptrace_message`;
/// `has_siginfo` tells a signal from a group stop, which has none.
#[must_use]
#[inline(always)]
pub fn kind_of(exit_code: u32, message: u64, has_siginfo: bool) -> usize {
    let event = exit_code >> 8 & 0xff;
    match event {
        0 => {}
        EVENT_EXIT => return kind::EXIT,
        EVENT_STOP => return kind::GROUP,
        _ => return kind::EVENT,
    }
    let is_marked = exit_code & 0x80 != 0;
    let is_syscall = exit_code & 0x7f == SIGTRAP
        && (is_marked || message == MESSAGE_ENTRY || message == MESSAGE_EXIT);
    if is_syscall {
        return if message == MESSAGE_EXIT { kind::EXIT_OF_SYSCALL } else { kind::ENTRY };
    }
    if has_siginfo { kind::SIGNAL } else { kind::GROUP }
}

/// What the tracer of a stop reads by wait4, though it may have done so already.
///
/// It is woken before the tracee leaves its CPU, and on another CPU its wait4 can be first: that clears `exit_code`
/// (`wait_task_stopped`, kernel/exit.c). `ptrace_do_notify` (kernel/signal.c) has put the same code into the siginfo,
/// which stays; its low bits are then the signal's number. A signal's own siginfo has its own codes, and 0 says as
/// much of it as its number would.
#[must_use]
#[inline(always)]
pub fn code_of(exit_code: u32, signal: u32, si_code: u32) -> u32 {
    let by_notify = si_code >> 16 == 0 && si_code & 0x7f == signal;
    if exit_code == 0 && by_notify { si_code } else { exit_code }
}

/// `ptrace_stop` (or `ptrace_notify`) begins, where a hook sees that: from here on it is system time, exactly.
///
/// Both syscall stops lie outside `sys_enter`/`sys_exit`, so the mode may still be user.
#[inline(always)]
pub fn enter(cpu: &mut Cpu, task: &mut Task, now_ns: u64, place: Place) {
    if cpu.in_interrupt() || cpu.base_mode != mode::USER as u32 {
        return;
    }
    task.begin();
    if place == Place::Syscall {
        // After sys_exit, which has counted the way back to user mode: it is still to come.
        let count = &mut task.crossings[crossing::SYSCALL];
        *count = count.saturating_sub(1);
        cpu.charge_as(now_ns, Some(task), mode::SYSTEM);
    } else {
        task.cross(crossing::SYSCALL);
        cpu.charge_as(now_ns, Some(task), mode::USER);
    }
    cpu.base_mode = mode::SYSTEM as u32;
    task.set(flag::STOP_TIMED | flag::STOP_SEEN | flag::STOP_INSIDE);
    if place == Place::Entry {
        task.set(flag::STOP_AT_ENTRY);
    }
    task.end();
}

/// It ends: what follows is the body of a syscall, or the way back to user mode.
#[inline(always)]
pub fn leave(cpu: &mut Cpu, task: &mut Task, now_ns: u64) {
    if !task.has(flag::STOP_TIMED) {
        return;
    }
    task.begin();
    let at_entry = task.has(flag::STOP_AT_ENTRY);
    task.clear(flag::STOP_TIMED | flag::STOP_SEEN | flag::STOP_INSIDE | flag::STOP_AT_ENTRY);
    if !at_entry {
        cpu.charge(now_ns, Some(task));
        cpu.base_mode = mode::USER as u32;
        task.cross(crossing::SYSCALL);
    }
    task.end();
}

/// The ptrace stop that a task is in or has just left; kept in the tracee's account.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stop {
    /// The tracer: see [`crate::pair::party`].
    pub tracer: u64,
    /// Its length, once it has ended.
    pub length_ns: u64,
    /// When it was ended by a wakeup; 0 = it has not.
    pub resumed_ns: u64,
    /// See [`kind`].
    pub kind: u32,
    /// The tracer was switched in next, on the same CPU.
    pub handed_over: u32,
    /// The tracer's name, if it is not observed.
    pub tracer_comm: [u8; COMM_LEN],
    /// The tracer's process, if it is not observed.
    pub tracer_tgid: u32,
    /// Explicit padding.
    pub _pad: u32,
}

impl Stop {
    /// Another one begins, whose tracer is not known yet: without one the rest says nothing. Not all of it is cleared: on
    /// arm64 before 6.0 a program that goes on in another one may call no function (`check_map_func_compatibility`,
    /// kernel/bpf/verifier.c), not even to clear a block.
    #[inline(always)]
    pub fn forget(&mut self) {
        self.tracer = 0;
        self.resumed_ns = 0;
    }
}

/// The books of a tracer and its tracee.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// The tracer's name and process, if it is not observed.
    pub from_comm: [u8; COMM_LEN],
    /// See `from_comm`.
    pub from_tgid: u32,
    /// Explicit padding.
    pub _pad: u32,
    /// Stops that have ended, by [`kind`].
    pub stops: [u64; kind::COUNT],
    /// Time in them.
    pub stopped_ns: u64,
    /// Stops after which the tracer ran next on the same CPU.
    pub handed_over: u64,
    /// From the wakeup that ended a stop to the switch-in.
    pub latency: Latency,
}

impl Trace {
    /// A stop is over: its tracee runs again at `now_ns`.
    #[inline(always)]
    pub fn ended(&mut self, stop: &Stop, now_ns: u64) {
        let kind = stop.kind as usize;
        if kind < kind::COUNT {
            self.stops[kind] += 1;
        }
        self.stopped_ns += stop.length_ns;
        self.handed_over += u64::from(stop.handed_over & 1);
        if stop.resumed_ns != 0 {
            self.latency.add(now_ns.saturating_sub(stop.resumed_ns));
        }
    }
}

impl Trace {
    /// Adds another one's books; the name stays.
    pub fn add(&mut self, other: &Self) {
        self.stops.iter_mut().zip(other.stops).for_each(|(sum, part)| *sum += part);
        self.stopped_ns = self.stopped_ns.saturating_add(other.stopped_ns);
        self.handed_over = self.handed_over.saturating_add(other.handed_over);
        self.latency.merge(&other.latency);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_by_what_the_kernel_leaves() {
        // (exit_code, message, siginfo)
        assert_eq!(kind_of(SIGTRAP | 0x80, 1, true), kind::ENTRY);
        assert_eq!(kind_of(SIGTRAP | 0x80, 2, true), kind::EXIT_OF_SYSCALL);
        assert_eq!(kind_of(SIGTRAP, 1, true), kind::ENTRY, "without TRACESYSGOOD");
        assert_eq!(kind_of(SIGTRAP, 2, true), kind::EXIT_OF_SYSCALL);
        assert_eq!(kind_of(SIGTRAP, 0, true), kind::SIGNAL, "a breakpoint");
        assert_eq!(kind_of(17, 2, true), kind::SIGNAL, "SIGCHLD with an old message");
        assert_eq!(kind_of(SIGTRAP | 1 << 8, 77, true), kind::EVENT, "fork");
        assert_eq!(kind_of(SIGTRAP | 7 << 8, 2, true), kind::EVENT, "seccomp");
        assert_eq!(kind_of(SIGTRAP | 6 << 8, 0, true), kind::EXIT);
        assert_eq!(kind_of(19 | 128 << 8, 0, true), kind::GROUP, "seized");
        assert_eq!(kind_of(19, 0, false), kind::GROUP, "attached");
    }

    #[test]
    fn the_kind_is_known_after_the_tracer_has_waited() {
        let kind = |signal, si_code: i32, message| {
            kind_of(code_of(0, signal, si_code as u32), message, true)
        };
        assert_eq!(kind(SIGTRAP, 0x85, 1), kind::ENTRY);
        assert_eq!(kind(SIGTRAP, 0x85, 2), kind::EXIT_OF_SYSCALL);
        assert_eq!(kind(SIGTRAP, 0x05, 2), kind::EXIT_OF_SYSCALL, "without TRACESYSGOOD");
        assert_eq!(kind(SIGTRAP, 0x705, 2), kind::EVENT, "seccomp");
        assert_eq!(kind(SIGTRAP, 0x605, 0), kind::EXIT);
        assert_eq!(kind(19, 128 << 8 | 19, 0), kind::GROUP, "seized");
        assert_eq!(kind(19, 0, 0), kind::SIGNAL, "SI_USER");
        assert_eq!(kind(19, -6, 0), kind::SIGNAL, "SI_TKILL");
        assert_eq!(kind(11, 1, 2), kind::SIGNAL, "SEGV_MAPERR, and an old message");
        assert_eq!(kind(SIGTRAP, 0x80, 0), kind::SIGNAL, "SI_KERNEL");
        assert_eq!(kind_of(code_of(0, 0, 0), 0, false), kind::GROUP, "attached: no siginfo");
        assert_eq!(code_of(SIGTRAP, SIGTRAP, 0x85), SIGTRAP, "it has not waited");
    }

    #[test]
    fn a_stop_is_booked_with_its_kind() {
        let mut trace = Trace::default();
        let stop = Stop {
            length_ns: 500,
            resumed_ns: 1_000,
            kind: kind::EXIT as u32,
            handed_over: 1,
            ..Stop::default()
        };
        trace.ended(&stop, 3_000);
        trace.ended(&Stop { kind: 77, resumed_ns: 0, ..stop }, 9_000);
        assert_eq!((trace.stops[kind::EXIT], trace.stopped_ns, trace.handed_over), (1, 1_000, 2));
        assert_eq!((trace.latency.count, trace.latency.sum_ns), (1, 2_000));
    }
}

//! The accounting machine of observer.
//!
//! Pure, `no_std`, integer code on plain structs: the same functions run in the kernel (called by
//! `observer-ebpf`), in property tests on the host, and in replay. Nothing here reads a clock, a map or a
//! file; the caller brings the time and the facts, and the machine books them.
//!
//! One module per hook family, with the same name on both sides of the kernel border:
//!
//! | module | events |
//! |---|---|
//! | [`switch`] | `sched_switch`: who runs, who stops, and the kernel's bill at that moment |
//! | [`wakeup`] | `sched_waking`, `sched_wakeup`, `sched_wakeup_new`: waker, wakee, skip requests |
//! | [`syscall`] | `sys_enter`, `sys_exit`: the border between user and system |
//! | [`fault`] | user page faults |
//! | [`irq`] | hardirq and softirq |
//! | [`pair`] | who woke whom, and whose time went to whom |
//! | [`cycles`] | cycles by mode, where a PMU counts them: read at the switches and wakeups above |
//! | [`ptrace`] | stops by kind, tracer and tracee |
//! | [`lifecycle`] | fork, exec, exit, and tasks that exist already |
//!
//! [`cpu::Cpu`] and [`task::Task`] hold the books; [`bill`] holds the kernel's own figures and
//! [`cputime`] the rule by which the kernel turns them into what it reports.
#![no_std]

#[cfg(test)]
extern crate std;

pub mod bill;
pub mod clock;
pub mod cpu;
pub mod cputime;
pub mod cycles;
pub mod fault;
pub mod glob;
pub mod irq;
pub mod latency;
pub mod layout;
pub mod lifecycle;
pub mod names;
pub mod pair;
pub mod ptrace;
pub mod switch;
pub mod syscall;
pub mod task;
pub mod wakeup;

#[cfg(feature = "user")]
mod pod {
    //! What crosses the kernel border as raw bytes.

    macro_rules! pod {
        ($($t:ty),+ $(,)?) => {
            $(
                // SAFETY: a `repr(C)` struct of integers without implicit padding (asserted where it is
                // defined): every byte pattern is a valid value.
                unsafe impl aya::Pod for $t {}
            )+
        };
    }

    pod!(
        crate::task::Task,
        crate::cpu::Cpu,
        crate::layout::Layout,
        crate::layout::Config,
        crate::glob::Glob,
        crate::pair::PairKey,
        crate::pair::Pair,
        crate::ptrace::Trace,
    );
}

//! The one table of hooks: what each is, whether it is needed, and what is lost without it.

use aya::programs::perf_event::SoftwareEvent;
use observer_common::names::{self, PROGRAMS, hook};

/// How a program meets its event.
#[derive(Clone, Copy, Debug)]
pub enum Via {
    /// A tracepoint with BTF types (`tp_btf`).
    Tracepoint(&'static str),
    /// The entry of a kernel function (`fentry`): the first of these that works.
    Entry(&'static [&'static str]),
    /// Its return (`fexit`).
    Return(&'static [&'static str]),
    /// The entry of a kernel symbol (kprobe): the first of these that works.
    Probe(&'static [&'static str]),
    /// Its return (kretprobe).
    ReturnProbe(&'static [&'static str]),
    /// The same tracepoint as another hook's program, which goes on in this one (a tail call).
    After(&'static str),
    /// A software event of perf, on each CPU, each occurrence.
    Software(SoftwareEvent),
    /// A task iterator, run by the reader.
    TaskIterator,
    /// Run by the reader on a chosen CPU (`BPF_PROG_TEST_RUN`).
    Reader,
}

impl Via {
    /// The word for it in files and on the screen.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Tracepoint(_) => "tp_btf",
            Self::Entry(_) => "fentry",
            Self::Return(_) => "fexit",
            Self::Probe(_) => "kprobe",
            Self::ReturnProbe(_) => "kretprobe",
            Self::After(_) => "tail",
            Self::Software(_) => "perf",
            Self::TaskIterator => "iter",
            Self::Reader => "run",
        }
    }
}

/// A row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Hook {
    /// The event's name, as the kernel has it.
    pub name: &'static str,
    /// Index into [`PROGRAMS`].
    pub index: usize,
    /// How its program meets it.
    pub via: Via,
    /// Without it observer cannot run.
    pub required: bool,
    /// It only refines what other hooks give too.
    pub refines: bool,
    /// Attached only if asked for by name.
    pub on_request: bool,
    /// Of no use, or harmful, without this other one.
    pub needs: Option<usize>,
    /// Of no use with this other one.
    pub instead_of: Option<usize>,
    /// Must tell the entry of a syscall from its exit by the saved registers, before a ptrace message does: the user
    /// time before the one, and the system time before the other, would else go to the wrong side.
    pub needs_result: bool,
    /// What is lost without it.
    pub lost: &'static str,
}

impl Hook {
    /// The program's name in the object.
    #[must_use]
    pub fn program(&self) -> &'static str {
        PROGRAMS[self.index]
    }
}

const fn hook_of(name: &'static str, index: usize, via: Via, lost: &'static str) -> Hook {
    Hook {
        name,
        index,
        via,
        required: false,
        refines: false,
        on_request: false,
        needs: None,
        instead_of: None,
        needs_result: false,
        lost,
    }
}

const fn tracepoint(name: &'static str, index: usize, required: bool, lost: &'static str) -> Hook {
    Hook { required, ..hook_of(name, index, Via::Tracepoint(name), lost) }
}

const SPLIT: &str = "the split into user and system";
/// Static in some kernels, and then without a type of its own; the other one sees no signal stops.
const STOP: &[&str] = &["ptrace_stop", "ptrace_notify"];
const IRQ: &str = "interrupt time counts as the time of the task that was interrupted";
const VECTOR: &str = "time in this x86 vector counts as the task's";

/// In the order in which they are attached: what ends an interval before what begins one.
pub const HOOKS: [Hook; names::HOOKS] = [
    Hook {
        required: true,
        ..hook_of("read_cpu", hook::READ, Via::Reader, "open intervals cannot be read")
    },
    Hook {
        required: true,
        ..hook_of(
            "task",
            hook::FIND,
            Via::TaskIterator,
            "tasks that exist already cannot be observed",
        )
    },
    tracepoint(
        "sched_entry_tp",
        hook::ENTRY,
        false,
        "skip requests are taken from sched_wakeup, or told by a clock that stands still",
    ),
    tracepoint("sched_switch", hook::SWITCH, true, "everything"),
    hook_of(
        "sched_switch:pairs",
        hook::PAIRS,
        Via::After("sched_switch"),
        "who woke whom, who traced whom, and whose time went to whom",
    ),
    tracepoint(
        "sched_exit_tp",
        hook::LEAVE,
        false,
        "a switch that the machine does not show is counted, not made good",
    ),
    tracepoint("sched_process_exit", hook::EXIT, true, "ends of tasks"),
    tracepoint(
        "sched_process_free",
        hook::RELEASE,
        false,
        "a task whose last switch was lost is never closed",
    ),
    tracepoint("sched_process_exec", hook::EXEC, true, "new programs and changed thread ids"),
    tracepoint("sched_process_fork", hook::FORK, true, "descendants"),
    tracepoint("task_rename", hook::RENAME, false, "names that change while a task runs"),
    tracepoint(
        "sched_waking",
        hook::WAKING,
        false,
        "wakeups, who made them, and that a ptrace stop begins before its switch-out",
    ),
    tracepoint(
        "sched_wakeup",
        hook::WAKEUP,
        false,
        "run-queue wait, and skip requests before 6.18",
    ),
    tracepoint(
        "sched_wakeup_new",
        hook::WAKEUP_NEW,
        false,
        "the first run-queue wait of a new task",
    ),
    tracepoint("sys_exit", hook::SYS_EXIT, false, SPLIT),
    tracepoint("sys_enter", hook::SYS_ENTER, false, SPLIT),
    tracepoint("page_fault_user", hook::FAULT, false, "page faults count as user time"),
    hook_of(
        "page-faults-min",
        hook::FAULT_MIN,
        Via::Software(SoftwareEvent::PageFaultsMin),
        "time after a page fault is unclassified up to the next evidence",
    ),
    hook_of(
        "page-faults-maj",
        hook::FAULT_MAJ,
        Via::Software(SoftwareEvent::PageFaultsMaj),
        "time after a major page fault is unclassified up to the next evidence",
    ),
    tracepoint("irq_handler_exit", hook::IRQ_EXIT, false, IRQ),
    tracepoint("irq_handler_entry", hook::IRQ_ENTER, false, IRQ),
    tracepoint("softirq_exit", hook::SOFTIRQ_EXIT, false, IRQ),
    tracepoint("softirq_entry", hook::SOFTIRQ_ENTER, false, IRQ),
    tracepoint("local_timer_exit", hook::TIMER_EXIT, false, VECTOR),
    tracepoint("local_timer_entry", hook::TIMER_ENTER, false, VECTOR),
    tracepoint("reschedule_exit", hook::RESCHED_EXIT, false, VECTOR),
    tracepoint("reschedule_entry", hook::RESCHED_ENTER, false, VECTOR),
    tracepoint("call_function_exit", hook::CALL_EXIT, false, VECTOR),
    tracepoint("call_function_entry", hook::CALL_ENTER, false, VECTOR),
    tracepoint("call_function_single_exit", hook::CALL1_EXIT, false, VECTOR),
    tracepoint("call_function_single_entry", hook::CALL1_ENTER, false, VECTOR),
    tracepoint("irq_work_exit", hook::WORK_EXIT, false, VECTOR),
    tracepoint("irq_work_entry", hook::WORK_ENTER, false, VECTOR),
    Hook {
        refines: true,
        ..hook_of(
            "wakeup_preempt",
            hook::PREEMPT,
            Via::Return(&["wakeup_preempt", "check_preempt_curr"]),
            "skip requests of new tasks before 6.18; those of wakeups are taken from sched_wakeup",
        )
    },
    Hook {
        refines: true,
        needs_result: true,
        ..hook_of(
            "ptrace_stop:exit",
            hook::STOP_LEAVE,
            Via::Return(STOP),
            "the way out of a ptrace stop is calibrated, not measured",
        )
    },
    Hook {
        refines: true,
        needs_result: true,
        needs: Some(hook::STOP_LEAVE),
        ..hook_of(
            "ptrace_stop",
            hook::STOP_ENTER,
            Via::Entry(STOP),
            "the way into a ptrace stop is calibrated, not measured",
        )
    },
    Hook {
        refines: true,
        needs_result: true,
        instead_of: Some(hook::STOP_ENTER),
        ..hook_of(
            "ptrace_stop:kretprobe",
            hook::STOP_RETPROBE,
            Via::ReturnProbe(STOP),
            "the way out of a ptrace stop is calibrated, not measured",
        )
    },
    Hook {
        refines: true,
        needs_result: true,
        needs: Some(hook::STOP_RETPROBE),
        ..hook_of(
            "ptrace_stop:kprobe",
            hook::STOP_PROBE,
            Via::Probe(STOP),
            "the way into a ptrace stop is calibrated, not measured",
        )
    },
    Hook {
        refines: true,
        ..hook_of(
            "handle_mm_fault",
            hook::FAULT_DONE,
            Via::Return(&["handle_mm_fault"]),
            "ends of page faults are taken from perf's events",
        )
    },
    Hook {
        refines: true,
        on_request: true,
        ..hook_of(
            "update_rq_clock",
            hook::CLOCK,
            Via::Entry(&["update_rq_clock"]),
            "the second way to a clock's staleness, to compare with",
        )
    },
];

/// What became of a hook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Loaded and attached. Instructions that the verifier looked at, where the kernel tells (5.16).
    Active(Option<u32>),
    /// Not wanted: by which option.
    Off(String),
    /// This kernel does not have it.
    Absent(String),
    /// The kernel has it but does not let us use it: errno and the reason.
    Refused(i32, String),
}

/// A hook and what became of it.
#[derive(Clone, Debug)]
pub struct HookStatus {
    /// The row.
    pub hook: Hook,
    /// What became of it.
    pub state: State,
    /// The kernel function that it meets, where there is a choice.
    pub function: Option<&'static str>,
}

impl HookStatus {
    /// True when it works.
    #[must_use]
    pub fn is_active(&self) -> bool {
        matches!(self.state, State::Active(_))
    }

    /// `active`, `off`, `absent`, `refused`.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self.state {
            State::Active(_) => "active",
            State::Off(_) => "off",
            State::Absent(_) => "absent",
            State::Refused(..) => "refused",
        }
    }

    /// Why it does not work.
    #[must_use]
    pub fn reason(&self) -> Option<&str> {
        match &self.state {
            State::Active(_) => None,
            State::Off(reason) | State::Absent(reason) | State::Refused(_, reason) => Some(reason),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_program_stands_in_the_table_once() {
        for (index, program) in PROGRAMS.iter().enumerate() {
            let rows = HOOKS.iter().filter(|hook| hook.index == index).count();
            assert_eq!(rows, 1, "{program}");
        }
    }
}

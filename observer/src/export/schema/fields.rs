//! Every field of every record, in the order in which it is written.

use Kind::{
    Bool, Buckets, Costs, Integer, List, MaybeInteger, MaybeNatural, MaybeObject, MaybeText,
    Natural, Text, Word,
};

mod pair;

/// Nanoseconds.
const NS: &str = "ns";
/// A count.
const COUNT: &str = "1";
/// A number that only names something.
const ID: &str = "id";
const HERTZ: &str = "Hz";

/// What a field holds; with numbers goes their unit, and `Maybe` is null where it was not measured.
#[derive(Clone, Copy)]
pub enum Kind {
    Bool,
    Text,
    MaybeText,
    /// One of these.
    Word(&'static [&'static str]),
    /// From 0 on.
    Natural(&'static str),
    MaybeNatural(&'static str),
    /// Below 0 too.
    Integer(&'static str),
    MaybeInteger(&'static str),
    /// Pairs of a name and a cost.
    Costs,
    /// Pairs of an upper bound in ns and a count.
    Buckets,
    /// Objects with these fields.
    List(&'static [Field]),
    /// One object with these fields.
    MaybeObject(&'static [Field]),
}

/// One field.
pub struct Field {
    pub name: &'static str,
    pub kind: Kind,
    pub description: &'static str,
}

/// One kind of record: what `type` says, and its fields, in groups that records may share.
pub struct Record {
    pub kind: &'static str,
    pub description: &'static str,
    pub fields: &'static [&'static [Field]],
}

const fn field(name: &'static str, kind: Kind, description: &'static str) -> Field {
    Field { name, kind, description }
}

/// All records.
pub const RECORDS: [Record; 7] = [
    Record {
        kind: "header",
        description: "The first record: what was measured on, and how.",
        fields: &[HEADER],
    },
    Record {
        kind: "task",
        description: "A task over the whole session.",
        fields: &[TASK, FIGURES, TRACE, CYCLES],
    },
    Record {
        kind: "interval",
        description: "A task at the end of an interval, if it lives or has ended since the one before; its figures are \
            since the account was opened, not since the interval before.",
        fields: &[INTERVAL, TASK, FIGURES, TRACE, CYCLES],
    },
    Record {
        kind: "group",
        description: "Tasks with something in common (--by): the exact sums of their figures, exited ones included. \
            A figure that one of them lacks is null.",
        fields: &[GROUP, FIGURES, CYCLES],
    },
    Record {
        kind: "pair",
        description: "Two tasks that had to do with each other, over the whole session.",
        fields: &[pair::PAIR],
    },
    Record { kind: "cpu", description: "A CPU over the whole session.", fields: &[CPU] },
    Record {
        kind: "trailer",
        description: "The last record: what was lost, and what it cost.",
        fields: &[TRAILER],
    },
];

const INTERVAL: &[Field] = &[field("interval", Natural(COUNT), "Number of the interval, from 1.")];

const HEADER: &[Field] = &[
    field("schema", Text, "Name and version of this contract."),
    field("version", Text, "observer's version."),
    field("kernel", Text, "Kernel release."),
    field("arch", Text, "Machine architecture."),
    field("hz", Natural(HERTZ), "Ticks per second."),
    field(
        "tick_ns",
        Natural(NS),
        "Length of a tick: the quantum of raw user and system time under tick accounting.",
    ),
    field(
        "accounting",
        Word(&["tick", "vtime dormant", "vtime active", "native"]),
        "How the kernel tells user from system time.",
    ),
    field(
        "preempt",
        Word(&["none", "voluntary", "full", "lazy", "rt", "unknown"]),
        "Preemption mode.",
    ),
    field("cpus", Natural(COUNT), "Online CPUs at the start."),
    field("clock", Text, "The clock of all times here."),
    field("clocksource", Text, "The machine's clock source."),
    field("started_unix_ns", Natural(NS), "Wall-clock time of the start, since 1970."),
    field("started_ns", Natural(NS), "The same moment by clock."),
    field("hooks", List(HOOK), "Every hook and what became of it."),
    field(
        "crossing_costs_ns",
        Costs,
        "Pairs: kind of crossing, and what one costs here; null where it could not be calibrated.",
    ),
    field(
        "crossing_spreads_ns",
        Costs,
        "Pairs: kind of crossing, and half of the range between the quartiles of its calibrations.",
    ),
    field("target", Text, "What is observed, in words."),
    field(
        "cycles",
        Word(&["counted", "off", "absent", "refused"]),
        "Whether a PMU counts cycles for observer.",
    ),
    field("cycles_reason", MaybeText, "Why cycles are not counted; null if they are."),
];

const HOOK: &[Field] = &[
    field("name", Text, "The event's name, as the kernel has it."),
    field(
        "via",
        Text,
        "How its program meets it: tp_btf, tail (the program of another hook goes on in it), fentry, fexit, kprobe, kretprobe, perf, iter or run.",
    ),
    field("function", MaybeText, "The kernel function that it meets, where there is a choice."),
    field("state", Word(&["active", "off", "absent", "refused"]), "What became of it."),
    field("reason", MaybeText, "Why it is not active; null if it is."),
    field("lost", MaybeText, "What is lost without it; null if nothing is."),
    field("refines", Bool, "It only refines what other hooks give too."),
];

const TASK: &[Field] = &[
    field("tid", Natural(ID), "Thread id, in the initial pid namespace."),
    field("tgid", Natural(ID), "Process id."),
    field("parent_tgid", Natural(ID), "Process id of the parent when the account was opened."),
    field("start_ns", Natural(NS), "Start of the task since boot; with tid its identity."),
    field(
        "comm",
        Text,
        "Thread name: every byte that is not printable, and the backslash, as \\xNN.",
    ),
    field(
        "cgroup_id",
        MaybeNatural(ID),
        "The cgroup (version 2) it was last seen in: the inode number of its folder.",
    ),
    field("state", Word(&["running", "exited"]), "running (alive) or exited."),
];

const FIGURES: &[Field] = &[
    field("opened_ns", Natural(NS), "When the account was opened, by the header's clock."),
    field(
        "updated_ns",
        Natural(NS),
        "When it was last written, by the header's clock; 0 if it never was.",
    ),
    field(
        "oncpu_ns",
        Natural(NS),
        "Measured time on a CPU: user, system, interrupts and unclassified.",
    ),
    field("user_ns", MaybeNatural(NS), "Measured time in user mode."),
    field(
        "system_ns",
        MaybeNatural(NS),
        "Measured time in the kernel on its own behalf, without interrupts.",
    ),
    field(
        "hardirq_ns",
        MaybeNatural(NS),
        "Time in hard interrupts that came while it was on the CPU.",
    ),
    field(
        "softirq_ns",
        MaybeNatural(NS),
        "Time in soft interrupts that came while it was on the CPU.",
    ),
    field(
        "unclassified_ns",
        MaybeNatural(NS),
        "User or system, not known which: user time lies in [user_ns, user_ns + unclassified_ns].",
    ),
    field("crossings", MaybeNatural(COUNT), "Borders between user and system that no hook sees."),
    field(
        "crossing_ns",
        MaybeNatural(NS),
        "What the crossings cost by calibration; part of system_ns.",
    ),
    field(
        "crossing_cut_ns",
        MaybeNatural(NS),
        "What the crossings would have cost above the user time that there was.",
    ),
    field(
        "reported_user_ns",
        Natural(NS),
        "User time that the kernel reports, as getrusage does, since the account was opened.",
    ),
    field("reported_system_ns", Natural(NS), "System time that the kernel reports, likewise."),
    field(
        "reported_runtime_ns",
        Natural(NS),
        "Run time that the scheduler billed: sum_exec_runtime.",
    ),
    field(
        "raw_utime_ns",
        Natural(NS),
        "User time before scaling: whole ticks under tick accounting.",
    ),
    field("raw_stime_ns", Natural(NS), "System time before scaling, likewise."),
    field("delta_user_ns", MaybeInteger(NS), "Reported minus measured user time."),
    field(
        "delta_system_ns",
        MaybeInteger(NS),
        "Reported minus measured system time; interrupts are part of the measured side.",
    ),
    field("delta_runtime_ns", Integer(NS), "Reported minus measured run time."),
    field(
        "delta_user_split_ns",
        MaybeInteger(NS),
        "The part of delta_user_ns that comes from splitting user and system.",
    ),
    field(
        "delta_user_total_ns",
        MaybeInteger(NS),
        "The part of delta_user_ns that comes from the run time.",
    ),
    field("skip_in", MaybeNatural(COUNT), "Switches to it with a skipped clock update."),
    field("skip_in_ns", MaybeNatural(NS), "What they added to its bill."),
    field("skip_out", MaybeNatural(COUNT), "Switches away from it with a skipped clock update."),
    field("skip_out_ns", MaybeNatural(NS), "What they took from its bill."),
    field(
        "path_in_ns",
        MaybeNatural(NS),
        "What ordinary switches added to its bill; all of them where skip_in is null.",
    ),
    field("path_out_ns", MaybeNatural(NS), "What ordinary switches took from its bill; likewise."),
    field(
        "left_out_ns",
        MaybeNatural(NS),
        "Interrupt and steal time that the kernel left out of its bill.",
    ),
    field("residual_ns", MaybeInteger(NS), "What of delta_runtime_ns none of these explains."),
    field("wait_ns", MaybeNatural(NS), "Time waiting on a run queue."),
    field("waits", MaybeNatural(COUNT), "Waits that ended."),
    field("wakeups", MaybeNatural(COUNT), "Times it was woken."),
    field("wakes_made", MaybeNatural(COUNT), "Wakeups that it made."),
    field(
        "wakeup_cost_ns",
        MaybeNatural(NS),
        "Its time inside the wakeups that it made, where their end was seen.",
    ),
    field("switches_voluntary", Natural(COUNT), "Switches away while it could not run on."),
    field("switches_involuntary", Natural(COUNT), "Switches away while it could have run on."),
    field("migrations", Natural(COUNT), "Switches to it on another CPU than before."),
    field("ptrace_stops", Natural(COUNT), "Ptrace stops."),
    field(
        "ptrace_stopped_ns",
        Natural(NS),
        "Time in ptrace stops, up to the wakeup that ends each.",
    ),
    field(
        "job_stops",
        Natural(COUNT),
        "Job-control stops (SIGSTOP and its like, not by a tracer).",
    ),
    field("job_stopped_ns", Natural(NS), "Time in job-control stops."),
];

const TRACE: &[Field] = &[
    field(
        "tracer_tid",
        MaybeNatural(ID),
        "Thread id of the tracer at the last ptrace stop; null if it never stopped.",
    ),
    field(
        "former_tid",
        MaybeNatural(ID),
        "Its thread id before an exec from a thread that was not the leader; null if there was none.",
    ),
    field(
        "account",
        Natural(ID),
        "Unique in a session: thread ids are used again, and change at an exec.",
    ),
];

const CYCLES: &[Field] = &[
    field("cycles_user", MaybeNatural(COUNT), "Cycles in user mode; null without a PMU."),
    field(
        "cycles_system",
        MaybeNatural(COUNT),
        "Cycles in the kernel, interrupts included; null without a PMU.",
    ),
    field(
        "cycles_discarded",
        MaybeNatural(COUNT),
        "Its runs whose cycles are not known, since a counter did not count all the time: they are in neither.",
    ),
];

const GROUP: &[Field] = &[
    field("by", Word(&["thread", "process", "comm", "cgroup"]), "What the members have in common."),
    field(
        "key",
        Text,
        "The thread id, process id, name or cgroup path that they share; a process id that was used again names two \
            groups, which opened_ns tells apart.",
    ),
    field("name", Text, "A name for people: of the thread, of the process, of the cgroup."),
    field("members", Natural(COUNT), "Tasks in it."),
    field("exited", Natural(COUNT), "Of them, exited."),
    field(
        "cgroup_usage_ns",
        MaybeNatural(NS),
        "usage_usec of the cgroup's cpu.stat, over the session: with all below it, and with tasks that are not observed.",
    ),
    field("cgroup_user_ns", MaybeNatural(NS), "user_usec, likewise."),
    field("cgroup_system_ns", MaybeNatural(NS), "system_usec, likewise."),
    field(
        "cgroup_read_gap_ns",
        MaybeNatural(NS),
        "Between the readings of cpu.stat and the begin and end of the session: the three may be off by this per \
            busy CPU.",
    ),
];

const CPU: &[Field] = &[
    field("cpu", Natural(ID), "Its number."),
    field("elapsed_ns", Natural(NS), "Time between its first and its last event."),
    field("busy_ns", Natural(NS), "Of it with a task, without interrupts."),
    field("idle_ns", Natural(NS), "Of it idle, without interrupts."),
    field("hardirq_ns", Natural(NS), "In hard interrupts, whoever was interrupted."),
    field("softirq_ns", Natural(NS), "In soft interrupts, whoever was interrupted."),
    field("observed_ns", Natural(NS), "Of busy_ns with an observed task."),
    field(
        "residual_ns",
        Integer(NS),
        "Elapsed minus busy, idle and interrupts: zero, or the accounting is wrong.",
    ),
];

const TRAILER: &[Field] = &[
    field("elapsed_ns", Natural(NS), "Time observed."),
    field("lost_events", Natural(COUNT), "Readings of an account that were missed."),
    field(
        "map_full",
        Natural(COUNT),
        "Tasks not observed since no slot was free: raise --max-tasks.",
    ),
    field(
        "pairs_folded",
        Natural(COUNT),
        "Events of pairs that found no room (--max-pairs): they are in the pair `(other)`.",
    ),
    field(
        "recursion_misses",
        MaybeNatural(COUNT),
        "Runs that the kernel left out, the program being active on that CPU already.",
    ),
    field(
        "clock_backwards",
        Natural(COUNT),
        "Events whose time lay before the one booked last on their CPU.",
    ),
    field(
        "clocks_compared",
        Natural(COUNT),
        "Switches at which both ways to a clock's staleness were compared (--hooks auto,update_rq_clock).",
    ),
    field(
        "clocks_disagreed",
        Natural(COUNT),
        "Of them, those at which only one of both ways saw a skip.",
    ),
    field("clocks_apart_ns", Natural(NS), "How far these lay apart, all together."),
    field("clocks_apart_max_ns", Natural(NS), "The most that they lay apart."),
    field("clock_jumps", Natural(COUNT), "Switches whose clocks had jumped."),
    field(
        "missed_switches",
        Natural(COUNT),
        "Switches whose program did not run; made good where sched_exit_tp is active.",
    ),
    field(
        "unmatched",
        Natural(COUNT),
        "Ends without a begin; interrupts that began before the hooks were attached are among them.",
    ),
    field("observer_cpu_ns", Natural(NS), "observer's own CPU time, user and system."),
    field("hook_runs", Natural(COUNT), "Runs of the kernel-side programs."),
    field("hook_ns", MaybeNatural(NS), "Time in them, estimated: runs times the mean of a sample."),
    field("residual_ns", MaybeInteger(NS), "Sum of the tasks' residuals."),
    field(
        "cycles_discarded",
        Natural(COUNT),
        "Runs and wakeups whose cycles are not known, since a counter did not count all the time.",
    ),
];

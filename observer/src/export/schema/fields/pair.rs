//! The fields of a pair.

use super::{
    Buckets, COUNT, Field, ID, List, MaybeNatural, MaybeObject, NS, Natural, Text, Word, field,
};

pub const PAIR: &[Field] = &[
    field(
        "kind",
        Word(&["wake", "ptrace"]),
        "wake: from a waker to its wakee, and from the previous task of a switch to the next; ptrace: from a tracer to \
            its tracee.",
    ),
    field(
        "from_account",
        MaybeNatural(ID),
        "The account of the waker, previous task or tracer, where it is observed.",
    ),
    field(
        "from_tid",
        MaybeNatural(ID),
        "Thread id of the waker, previous task or tracer; null if it is no task.",
    ),
    field("from_tgid", MaybeNatural(ID), "Its process id; null where it is not known."),
    field(
        "from_comm",
        Text,
        "Its name, escaped as a task's; idle, hardirq, softirq or (other) if it is no task.",
    ),
    field(
        "from_context",
        Word(&["task", "idle", "hardirq", "softirq", "other"]),
        "What kind of context it is.",
    ),
    field("to_account", MaybeNatural(ID), "The account of the other side, likewise."),
    field("to_tid", MaybeNatural(ID), "Thread id of the wakee, next task or tracee."),
    field("to_tgid", MaybeNatural(ID), "Its process id; null where it is not known."),
    field("to_comm", Text, "Its name, likewise."),
    field("count", Natural(COUNT), "Wakeups of to by from; of a ptrace pair, stops."),
    field("by_task", Natural(COUNT), "Of the wakeups, those made by a task."),
    field("by_softirq", Natural(COUNT), "Those made in a soft interrupt."),
    field("by_hardirq", Natural(COUNT), "Those made in a hard interrupt."),
    field("by_idle", Natural(COUNT), "Those made by the idle loop."),
    field(
        "preemptions",
        Natural(COUNT),
        "Wakeups that made to run in place of from, which could have run on.",
    ),
    field("switches", Natural(COUNT), "Switches from from to to."),
    field("skips", MaybeNatural(COUNT), "Of them with a skipped clock update."),
    field("skip_ns", MaybeNatural(NS), "Time that those moved: to is billed it, from is not."),
    field("skips_wakeup", MaybeNatural(COUNT), "Skips requested by a wakeup while a task ran."),
    field("skip_wakeup_ns", MaybeNatural(NS), "What those moved."),
    field("skips_idle", MaybeNatural(COUNT), "Skips requested by a wakeup on an idle CPU."),
    field("skip_idle_ns", MaybeNatural(NS), "What those moved."),
    field("skips_yield", MaybeNatural(COUNT), "Skips requested by sched_yield."),
    field("skip_yield_ns", MaybeNatural(NS), "What those moved."),
    field("skips_other", MaybeNatural(COUNT), "Skips requested by something else."),
    field("skip_other_ns", MaybeNatural(NS), "What those moved."),
    field("path_ns", MaybeNatural(NS), "Time that ordinary switches moved, likewise."),
    field("wakeup_cost_ns", MaybeNatural(NS), "System time of from inside these wakeups."),
    field(
        "wakeup_cost_cycles",
        MaybeNatural(COUNT),
        "Cycles of from inside these wakeups; null without a PMU.",
    ),
    field("latency_count", Natural(COUNT), "Times that the latencies here are made of."),
    field(
        "latency_sum_ns",
        Natural(NS),
        "From the wakeup (of a ptrace pair: from the resume) to the switch-in, all together.",
    ),
    field("latency_max_ns", Natural(NS), "The longest."),
    field(
        "latency_p50_ns",
        MaybeNatural(NS),
        "What half of them did not exceed: the upper bound of its bucket; null if there are none.",
    ),
    field("latency_p90_ns", MaybeNatural(NS), "The same for 90 %."),
    field("latency_p99_ns", MaybeNatural(NS), "The same for 99 %."),
    field(
        "latency_buckets",
        Buckets,
        "The histogram: pairs of an upper bound and how many lie between it and the one before; empty buckets are left \
            out.",
    ),
    field("origins", List(ORIGIN), "Where the wakeups came from, the most frequent first."),
    field("stops_by_kind", MaybeObject(STOPS), "Of a ptrace pair: its stops; else null."),
    field("stopped_ns", MaybeNatural(NS), "Of a ptrace pair: time of to in stops."),
    field(
        "handoffs",
        MaybeNatural(COUNT),
        "Of a ptrace pair: stops after which from ran next on the same CPU.",
    ),
    field("handoffs_across", MaybeNatural(COUNT), "Of a ptrace pair: the other stops."),
];

const ORIGIN: &[Field] = &[
    field("name", Text, "The waker's syscall, exit, fault, or the interrupt."),
    field("count", Natural(COUNT), "Wakeups."),
    field("cost_ns", Natural(NS), "The waker's time in them; part of wakeup_cost_ns."),
];

const STOPS: &[Field] = &[
    field("syscall_entry", Natural(COUNT), "At the entry of a syscall."),
    field("syscall_exit", Natural(COUNT), "At its exit."),
    field("signal", Natural(COUNT), "Before a signal is delivered."),
    field("event", Natural(COUNT), "PTRACE_EVENT_* other than exit and stop."),
    field("group", Natural(COUNT), "Group stops, and PTRACE_INTERRUPT."),
    field("exit", Natural(COUNT), "PTRACE_EVENT_EXIT."),
];

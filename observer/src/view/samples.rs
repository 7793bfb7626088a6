//! Reports made by hand, for the tests of the views.

use crate::model::{
    Header, PairFigures, PairKind, Party, Report, TaskFigures, Trailer,
    pair::{Skip, Stops},
    report::SCHEMA,
};

/// A task that was all user time, and of which the kernel reports just that.
pub fn task(name: &str, oncpu_ns: u64) -> TaskFigures {
    TaskFigures {
        tid: 100,
        comm: name.as_bytes().to_vec(),
        state: "running",
        oncpu_ns,
        user_ns: Some(oncpu_ns),
        system_ns: Some(0),
        hardirq_ns: Some(0),
        softirq_ns: Some(0),
        unclassified_ns: Some(0),
        reported_user_ns: oncpu_ns,
        reported_runtime_ns: oncpu_ns,
        raw_utime_ns: oncpu_ns / 4_000_000 * 4_000_000,
        delta_user_ns: Some(0),
        delta_system_ns: Some(0),
        delta_user_split_ns: Some(0),
        delta_user_total_ns: Some(0),
        skip_in: Some(0),
        skip_in_ns: Some(0),
        skip_out: Some(0),
        skip_out_ns: Some(0),
        path_in_ns: Some(0),
        path_out_ns: Some(0),
        left_out_ns: Some(0),
        residual_ns: Some(0),
        ..TaskFigures::default()
    }
}

/// A report of `tasks` on a kernel with tick accounting.
pub fn report(tasks: Vec<TaskFigures>) -> Report {
    let header = Header {
        schema: SCHEMA.to_owned(),
        version: "0.1.0".to_owned(),
        kernel: "6.18.44".to_owned(),
        arch: "x86_64".to_owned(),
        hz: 250,
        tick_ns: 4_000_000,
        accounting: "tick".to_owned(),
        preempt: "none".to_owned(),
        cpus: 2,
        clock: "CLOCK_MONOTONIC".to_owned(),
        clocksource: "tsc".to_owned(),
        started_unix_ns: 0,
        started_ns: 0,
        hooks: Vec::new(),
        crossing_costs_ns: Vec::new(),
        crossing_spreads_ns: Vec::new(),
        target: String::new(),
        cycles: "absent".to_owned(),
        cycles_reason: Some("no PMU".to_owned()),
    };
    let trailer = Trailer {
        elapsed_ns: 100_000_000,
        recursion_misses: Some(0),
        observer_cpu_ns: 12_300_000,
        hook_runs: 12_345,
        hook_ns: Some(1_200_000),
        residual_ns: Some(12_000),
        ..Trailer::default()
    };
    let (cpus, sentences) = (Vec::new(), Vec::new());
    Report { header, tasks, cpus, trailer, sentences, ..Report::default() }
}

/// A side of a pair.
pub fn party(comm: &str, tid: u32) -> Party {
    Party { account: None, tid: Some(tid), tgid: Some(tid), comm: comm.as_bytes().to_vec() }
}

/// A wake pair that moved `skip_ns` by `skips` wakeup preemptions.
pub fn wake(from: Party, to: Party, skips: u64, skip_ns: u64) -> PairFigures {
    PairFigures {
        from,
        to,
        count: skips + 10,
        preemptions: skips,
        switches: skips + 20,
        skips: Some(skips),
        skip_ns: Some(skip_ns),
        skip_wakeup: Skip { count: skips, ns: skip_ns },
        path_ns: Some(0),
        latency_sum_ns: 7_000,
        latency_count: 100,
        latency_max_ns: 900,
        latency: vec![(100, 90), (1_000, 10)],
        ..PairFigures::default()
    }
}

/// A ptrace pair of so many stops.
pub fn traced(tracer: Party, tracee: Party, stops: u64) -> PairFigures {
    PairFigures {
        kind: PairKind::Ptrace,
        from: tracer,
        to: tracee,
        count: stops,
        stops_by_kind: Some(Stops {
            syscall_entry: stops / 2,
            syscall_exit: stops - stops / 2,
            ..Stops::default()
        }),
        stopped_ns: Some(stops * 20_000),
        handoffs: Some(stops),
        handoffs_across: Some(0),
        ..PairFigures::default()
    }
}

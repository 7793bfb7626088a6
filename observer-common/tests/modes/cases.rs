//! Public fault cases as fixtures, named after their id.

use observer_common::{
    bill::Bill,
    cpu::owner,
    cputime::{Cputime, Reporter},
    lifecycle,
    switch::{Place, TASK_STOPPED, TASK_TRACED},
    task::flag,
};
use proptest::prelude::*;

use crate::rig::{Next, Out, Rig, TRACER, split};

const MS: u64 = 1_000_000;

#[test]
fn a02_parts_that_overshoot_their_total_are_held_to_it() {
    // utime and stime rise each time; their sum first overshoots the run time and then stalls.
    let samples = [(4, 0, 3), (8, 4, 10), (12, 12, 18), (20, 16, 28), (24, 24, 40), (24, 28, 50)];
    let mut reporter = Reporter::default();
    let mut last = Cputime::default();
    for (utime_ms, stime_ms, runtime_ms) in samples {
        let bill = Bill {
            utime_ns: utime_ms * MS,
            stime_ns: stime_ms * MS,
            runtime_ns: runtime_ms * MS,
            ..Bill::default()
        };
        let (report, _) = reporter.report(&bill);
        assert_eq!(report.total_ns(), runtime_ms * MS, "the total first");
        assert!(report.user_ns >= last.user_ns && report.system_ns >= last.system_ns);
        last = report;
    }
}

#[test]
fn b01_a_run_that_begins_before_the_last_one_ended_adds_no_wait() {
    // Preempted on one CPU, and switched in on another whose clock is 50 ns behind.
    let (mut rig, a) = Rig::in_user();
    rig.after(100).leaves(Out::preempted(Place::Exception));
    rig.now_ns -= 50;
    rig.on(1).runs(a).after(200).read();
    let task = rig.account(a);
    assert_eq!((task.waits, task.wait_ns), (1, 0), "none, rather than 2^64");
    assert_eq!(rig.modes(a), split(300, 0));
    // On one CPU time that runs backwards is counted.
    rig.now_ns -= 30;
    rig.read();
    assert_eq!(rig.cpus[1].clock_backwards, 1);
    assert_eq!(rig.modes(a), split(300, 0));
}

#[test]
fn b02_the_idle_tasks_of_two_cpus_share_nothing() {
    let mut rig = Rig::new();
    let a = rig.found();
    // Both idle, then in turns: idle has one pid on all CPUs, and a book on each.
    for round in 0..10 {
        let cpu = round % 2;
        rig.after(1_000).on(cpu).runs(a).after(10).leaves(Out::sleep(Place::Entry));
    }
    rig.after(1_000);
    for cpu in [0, 1] {
        rig.on(cpu).switch(Out::sleep(Place::Unknown), Next::Other, Place::Unknown);
    }
    for cpu in &rig.cpus {
        let idle_ns: u64 = cpu.owner_ns[owner::IDLE].iter().sum();
        assert_eq!(idle_ns, 11_000 + 10 * 10 - 5 * 10, "all but its own five runs");
        assert_eq!(cpu.clock_backwards, 0);
    }
    assert_eq!(rig.account(a).oncpu_ns(), 100);
}

#[test]
fn b18_a_stop_that_was_there_at_the_start_lasts_since_then() {
    let mut rig = Rig::new();
    let (traced, stopped, asleep) = (rig.found(), rig.found(), rig.found());
    lifecycle::found_stopped(rig.account_mut(traced), TASK_TRACED, TRACER);
    lifecycle::found_stopped(rig.account_mut(stopped), TASK_STOPPED, 0);
    lifecycle::found_stopped(rig.account_mut(asleep), 1, 0);
    rig.after(700);
    for slot in [traced, stopped, asleep] {
        rig.woken(slot).enqueued(slot).after(20).runs_from(slot, Place::Exception);
        rig.after(100).leaves(Out::sleep(Place::Exception)).after(1);
    }
    let task = rig.account(traced);
    assert_eq!((task.stopped_ns, task.job_stopped_ns, task.tracer_tid), (700, 0, TRACER));
    assert_eq!(task.ptrace_stops, 0, "it did not stop: it was stopped");
    assert!(!task.has(flag::STOPPED) && task.stopped_since_ns == 0);
    let task = rig.account(stopped);
    assert_eq!((task.stopped_ns, task.job_stopped_ns, task.tracer_tid), (0, 700 + 121, 0));
    let task = rig.account(asleep);
    assert_eq!((task.stopped_ns, task.job_stopped_ns), (0, 0));
    assert_eq!(rig.modes(traced), split(100, 0));
}

proptest! {
    /// CPUs whose clocks lie up to 2 us apart, and a task that is preempted and moves between them.
    #[test]
    fn b38_clocks_that_lie_apart_move_no_more_than_they_do(
        skew_ns in -2_000_i64..=2_000,
        steps in prop::collection::vec((0_usize..2, 1_u64..50_000, 0_u64..5_000), 1..60),
    ) {
        let (mut rig, a) = Rig::in_user();
        // The rig stamped the begin of both CPUs by the first one's clock: the other must have passed it.
        let begun_ns = 2_000;
        let mut true_ns = rig.now_ns + begun_ns;
        let (mut ran_ns, mut waited_ns) = (begun_ns, 0);
        let mut cpu = 0;
        let at = |true_ns: u64, cpu: usize| true_ns.wrapping_add_signed(skew_ns * cpu as i64);
        for (next, run_ns, wait_ns) in &steps {
            true_ns += run_ns;
            ran_ns += run_ns;
            rig.now_ns = at(true_ns, cpu);
            rig.on(cpu).leaves(Out::preempted(Place::Exception));
            true_ns += wait_ns;
            waited_ns += wait_ns;
            cpu = *next;
            rig.now_ns = at(true_ns, cpu);
            rig.on(cpu).runs(a);
        }
        rig.read();
        let task = rig.account(a);
        prop_assert_eq!(task.oncpu_ns(), ran_ns, "each run is on one clock");
        let bound_ns = skew_ns.unsigned_abs() * steps.len() as u64;
        prop_assert!(task.wait_ns.abs_diff(waited_ns) <= bound_ns, "{} {}", task.wait_ns, waited_ns);
        prop_assert_eq!(task.waits, steps.len() as u64);
    }
}

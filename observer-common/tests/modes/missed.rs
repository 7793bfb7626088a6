//! Switches whose program did not run.

use observer_common::{
    cpu::{Cpu, NO_SLOT, owner},
    switch::{self, Moment},
    task::{Task, flag, mode},
};

/// Task 7 has the CPU since 1,000 by the books; the run queue's clock lags ours by 400.
fn missed() -> Cpu {
    let mut cpu = Cpu {
        slot: 7,
        owner: owner::TASK as u32,
        base_mode: mode::USER as u32,
        since_ns: 1_000,
        started_ns: 1_000,
        ..Cpu::default()
    };
    cpu.offset.sample(1_000, 400);
    cpu
}

#[test]
fn a_switch_that_was_not_seen_is_found_by_the_next_one() {
    let mut cpu = Cpu::default();
    assert!(!switch::follow(&mut cpu, 1, 2), "the first switch follows nothing");
    assert!(!switch::follow(&mut cpu, 2, 3));
    assert!(switch::follow(&mut cpu, 4, 5), "3 had the CPU, and 4 leaves it");
    assert_eq!(cpu.missed_switches, 1);
    assert!(!switch::follow(&mut cpu, 5, 6));
}

#[test]
fn the_owner_keeps_its_time_up_to_the_evidence_and_loses_the_cpu() {
    let mut cpu = missed();
    let mut task = Task::default();
    switch::dispossess(&mut cpu, Some(&mut task), 5_000);
    assert_eq!(task.mode_ns[mode::USER], 4_000);
    assert_eq!((cpu.slot, cpu.owner), (NO_SLOT, owner::OTHER as u32));
    assert_eq!(cpu.accounted_ns(), cpu.elapsed_ns());
}

#[test]
fn a_missed_run_begins_when_the_kernel_noted_it() {
    let cpu = missed();
    assert_eq!(switch::arrived_ns(&cpu, 2_600, 5_000), 3_000, "by our clock");
    assert_eq!(switch::arrived_ns(&cpu, 100, 5_000), 1_000, "no time is booked twice");
    assert_eq!(switch::arrived_ns(&cpu, 9_000, 5_000), 5_000, "nor ahead");
    assert_eq!(switch::arrived_ns(&cpu, 0, 5_000), 5_000, "idle has no note");
    let later = Cpu { since_ns: 300, ..missed() };
    assert_eq!(switch::arrived_ns(&later, u64::MAX - 600, 5_000), 5_000, "before our clock began");
    assert_eq!(switch::arrived_ns(&Cpu::default(), 2_600, 5_000), 5_000, "no offset is known");
}

#[test]
fn a_run_that_is_made_good_late_is_whole_and_its_mode_is_unknown() {
    let mut cpu = missed();
    let (mut before, mut task) = (Task::default(), Task::default());
    task.set(flag::BASED);
    task.base_mode = mode::SYSTEM as u32;
    task.wait_since_ns = 1_500;
    let at = Moment { now_ns: 3_000, cpu: 1, left_out_ns: 50, ..Moment::default() };
    switch::dispossess(&mut cpu, Some(&mut before), at.now_ns);
    switch::arrive_late(&mut cpu, &mut task, &at, 9, 5_000);
    assert_eq!(before.mode_ns[mode::USER], 2_000);
    assert_eq!(task.mode_ns[mode::UNCLASSIFIED], 2_000);
    assert_eq!(task.mode_ns[mode::USER] + task.mode_ns[mode::SYSTEM], 0);
    assert_eq!((task.wait_ns, task.waits, task.cpu, task.updated_ns), (1_500, 1, 1, 5_000));
    assert_eq!(
        task.left_out_mark_ns, 50,
        "what the kernel left out of this run's bill begins here"
    );
    assert_eq!((cpu.slot, cpu.since_ns, cpu.accounted_ns()), (9, 5_000, cpu.elapsed_ns()));
    // The departure that follows belongs to it.
    assert_eq!(cpu.owner, owner::TASK as u32);
}

#[test]
fn a_kernel_threads_late_run_is_system_time() {
    let mut cpu = missed();
    let mut task = Task::default();
    task.set(flag::KERNEL);
    let at = Moment { now_ns: 3_000, ..Moment::default() };
    switch::dispossess(&mut cpu, None, at.now_ns);
    switch::arrive_late(&mut cpu, &mut task, &at, 9, 5_000);
    assert_eq!(task.mode_ns[mode::SYSTEM], 2_000);
}

#[test]
fn an_account_without_an_opening_bill_cannot_be_closed_later_than_it_begins() {
    let mut task = Task::default();
    assert!(!switch::may_arrive_late(&task));
    task.set(flag::BORN);
    assert!(switch::may_arrive_late(&task), "a new task's bill is nothing");
    let mut task = Task::default();
    task.set(flag::BASED);
    assert!(switch::may_arrive_late(&task));
}

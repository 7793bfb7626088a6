//! Switches whose program did not run.

use observer_common::{
    cpu::{Cpu, NO_SLOT, owner},
    switch,
    task::{Task, mode},
};

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
    let mut cpu = Cpu {
        slot: 7,
        owner: owner::TASK as u32,
        base_mode: mode::USER as u32,
        since_ns: 1_000,
        started_ns: 1_000,
        ..Cpu::default()
    };
    let mut task = Task::default();
    switch::dispossess(&mut cpu, Some(&mut task), 5_000);
    assert_eq!(task.mode_ns[mode::USER], 4_000);
    assert_eq!((cpu.slot, cpu.owner), (NO_SLOT, owner::OTHER as u32));
    assert_eq!(cpu.accounted_ns(), cpu.elapsed_ns());
}

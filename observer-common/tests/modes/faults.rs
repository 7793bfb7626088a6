//! User page faults: with their end, without it, sleeping, and where they overlap with other things.

use observer_common::switch::Place;

use crate::rig::{Next, Out, Rig, split};

#[test]
fn a_fault_with_its_end_is_system() {
    let (mut rig, a) = Rig::in_user();
    rig.after(100).fault().after(30).fault_end().after(200).read();
    assert_eq!(rig.modes(a), split(300, 30));
    assert_eq!(rig.crossings(a), [0, 0, 0, 0, 2]);
}

#[test]
fn a_fault_without_its_end_is_unclassified_up_to_the_next_evidence() {
    let (mut rig, a) = Rig::in_user();
    rig.after(100).fault().after(230).sys_enter().after(50).sys_exit().after(7).read();
    assert_eq!(rig.modes(a), [107, 50, 0, 0, 230]);
    assert_eq!(rig.crossings(a), [2, 0, 0, 0, 1]);
}

#[test]
fn a_fault_is_no_evidence_about_the_one_before_it() {
    let (mut rig, a) = Rig::in_user();
    rig.after(100).fault().after(230).fault().after(30).fault_end().after(5).read();
    assert_eq!(rig.modes(a), [105, 30, 0, 0, 230]);
    assert_eq!(rig.crossings(a), [0, 0, 0, 0, 3]);
}

#[test]
fn a_fault_inside_a_syscall_is_system_already() {
    // page_fault_user does not fire for a fault of the kernel's own, but the software event at its end does.
    let (mut rig, a) = Rig::in_user();
    rig.after(100).sys_enter().after(20).fault_end().after(30).sys_exit().after(5).read();
    assert_eq!(rig.modes(a), split(105, 50));
    assert_eq!(rig.crossings(a), [2, 0, 0, 0, 0]);
}

#[test]
fn an_end_without_a_begin_in_user_mode_changes_nothing() {
    let (mut rig, a) = Rig::in_user();
    rig.after(100).fault_end().after(30).read();
    assert_eq!(rig.modes(a), split(130, 0));
    assert_eq!(rig.crossings(a), [0, 0, 0, 0, 0]);
}

#[test]
fn a_fault_that_sleeps_is_system_up_to_the_sleep() {
    let (mut rig, a) = Rig::in_user();
    rig.after(100).fault().after(30).leaves(Out::sleep(Place::Exception)).after(5_000);
    rig.runs(a).after(40).fault_end().after(200).read();
    assert_eq!(rig.modes(a), split(300, 70));
    assert_eq!(rig.crossings(a), [0, 0, 0, 0, 2], "no preemption: it left from the kernel");
}

#[test]
fn a_fault_that_sleeps_and_shows_no_end_is_unclassified_after_the_sleep() {
    let (mut rig, a) = Rig::in_user();
    rig.after(100).fault().after(30).leaves(Out::sleep(Place::Exception)).after(5_000);
    rig.runs(a).after(40).sys_enter();
    assert_eq!(rig.modes(a), [100, 30, 0, 0, 40]);
}

#[test]
fn preempted_after_a_fault_without_an_end_it_stays_unclassified() {
    let (mut rig, a) = Rig::in_user();
    rig.after(100).fault().after(30);
    rig.switch(Out::preempted(Place::Exception), Next::Other, Place::Unknown);
    rig.after(5_000).runs(a).after(40).sys_enter();
    assert_eq!(rig.modes(a), [100, 0, 0, 0, 70]);
    assert_eq!(rig.crossings(a), [1, 0, 0, 0, 1]);
}

#[test]
fn an_interrupt_in_a_fault_is_not_part_of_it() {
    let (mut rig, a) = Rig::in_user();
    rig.after(100).fault().after(10).irq_enter().after(7).irq_exit().after(20).fault_end();
    rig.after(5).read();
    assert_eq!(rig.modes(a), [105, 20, 7, 0, 10], "the interrupt hides what it interrupted");
    assert_eq!(rig.crossings(a), [0, 0, 0, 0, 2]);
}

#[test]
fn an_end_in_an_interrupt_belongs_to_nobody() {
    let (mut rig, a) = Rig::in_user();
    rig.after(100).fault().after(10).irq_enter().after(7).fault_end().after(3).irq_exit();
    assert_eq!(rig.modes(a), [100, 0, 10, 0, 10]);
}

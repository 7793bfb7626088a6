//! Hard and soft interrupts on top of whoever owns the CPU.

use observer_common::{cpu::owner, irq::DEPTH_MAX, switch::Place};

use crate::rig::{Next, Out, Rig, split};

#[test]
fn an_interrupt_in_user_mode_is_cut_out_of_it() {
    let (mut rig, a) = Rig::in_user();
    rig.after(100).irq_enter().after(7).irq_exit().after(200).read();
    assert_eq!(rig.modes(a), [300, 0, 7, 0, 0]);
    assert_eq!(rig.crossings(a), [0, 0, 0, 1, 0]);
}

#[test]
fn an_interrupt_in_a_syscall_crosses_nothing() {
    let (mut rig, a) = Rig::in_user();
    rig.after(100).sys_enter().after(20).irq_enter().after(7).irq_exit().after(30).sys_exit();
    assert_eq!(rig.modes(a), [100, 50, 7, 0, 0]);
    assert_eq!(rig.crossings(a), [2, 0, 0, 0, 0]);
}

#[test]
fn the_soft_interrupt_after_a_hard_one_crosses_no_second_time() {
    let (mut rig, a) = Rig::in_user();
    rig.after(100).irq_enter().after(7).irq_exit().softirq_enter().after(40).softirq_exit();
    rig.after(5).read();
    assert_eq!(rig.modes(a), [105, 0, 7, 40, 0]);
    assert_eq!(rig.crossings(a), [0, 0, 0, 1, 0]);
}

#[test]
fn a_hard_interrupt_in_a_soft_one_in_the_kernel() {
    let (mut rig, a) = Rig::in_user();
    rig.after(100).sys_enter().after(20).softirq_enter().after(40);
    rig.irq_enter().after(7).irq_exit().after(60).softirq_exit().after(30).sys_exit();
    assert_eq!(rig.modes(a), [100, 50, 7, 100, 0]);
    assert_eq!(rig.crossings(a), [2, 0, 0, 0, 0]);
}

#[test]
fn a_hard_interrupt_in_a_hard_one_is_one_time() {
    let (mut rig, a) = Rig::in_user();
    rig.after(100).irq_enter().after(3).irq_enter().after(4).irq_exit().after(5).irq_exit();
    rig.after(6).read();
    assert_eq!(rig.modes(a), [106, 0, 12, 0, 0]);
    assert_eq!(rig.crossings(a), [0, 0, 0, 1, 0]);
}

#[test]
fn a_lost_exit_ends_at_the_switch() {
    let (mut rig, a) = Rig::in_user();
    rig.after(100).irq_enter().after(50);
    rig.switch(Out::preempted(Place::Exception), Next::Other, Place::Unknown);
    assert_eq!(rig.modes(a), split(150, 0), "how much of it was the interrupt is not known");
    assert_eq!((rig.cpus[0].hardirq, rig.cpus[0].unmatched), (0, 1));
    rig.after(500).runs(a).after(5).read();
    assert_eq!(rig.modes(a), split(155, 0));
}

#[test]
fn a_lost_exit_ends_at_the_next_syscall() {
    for first_is_enter in [true, false] {
        let (mut rig, a) = Rig::in_user();
        if !first_is_enter {
            rig.after(100).sys_enter();
        }
        rig.after(10).softirq_enter().after(50);
        if first_is_enter {
            rig.sys_enter();
            assert_eq!(rig.modes(a), split(60, 0));
        } else {
            rig.sys_exit();
            assert_eq!(rig.modes(a), split(100, 60));
        }
        assert_eq!((rig.cpus[0].softirq, rig.cpus[0].unmatched), (0, 1));
    }
}

#[test]
fn a_lost_exit_of_idle_ends_with_idle() {
    for observed in [true, false] {
        let mut rig = Rig::new();
        let a = rig.found();
        rig.after(10).irq_enter().after(50);
        let next = if observed { Next::Task(a) } else { Next::Other };
        rig.switch(Out::sleep(Place::Unknown), next, Place::Exception);
        assert_eq!(rig.cpus[0].owner_ns[owner::IDLE], [0, 60, 0, 0, 0]);
        assert_eq!((rig.cpus[0].hardirq, rig.cpus[0].unmatched), (0, 1));
    }
}

#[test]
fn a_lost_exit_ends_at_the_next_page_fault_in_user_mode() {
    // page_fault_user needs user registers below the trap: no interrupt is open then.
    let (mut rig, a) = Rig::in_user();
    rig.after(100).irq_enter().after(50).fault().after(30).fault_end().after(5).read();
    assert_eq!(rig.modes(a), split(155, 30));
}

#[test]
fn b06_an_end_without_a_begin_is_counted_and_moves_nothing() {
    let (mut rig, a) = Rig::in_user();
    rig.after(100).irq_enter().after(7).irq_exit().after(20).irq_exit().after(30).softirq_exit();
    rig.after(5).read();
    assert_eq!(rig.modes(a), [155, 0, 7, 0, 0], "one interrupt");
    assert_eq!(rig.cpus[0].unmatched, 2);
}

#[test]
fn more_depth_than_there_can_be_is_not_believed() {
    let (mut rig, a) = Rig::in_user();
    for _ in 0..DEPTH_MAX + 3 {
        rig.after(1).irq_enter();
    }
    assert_eq!((rig.cpus[0].hardirq, rig.cpus[0].unmatched), (DEPTH_MAX, 3));
    for _ in 0..DEPTH_MAX {
        rig.after(1).irq_exit();
    }
    rig.after(100).read();
    assert_eq!(rig.modes(a)[0], 101);
}

#[test]
fn interrupts_of_idle_and_of_the_unobserved_are_theirs() {
    let mut rig = Rig::new();
    let a = rig.found();
    rig.after(10).irq_enter().after(7).irq_exit().after(3);
    rig.switch(Out::sleep(Place::Unknown), Next::Other, Place::Unknown);
    rig.after(20).softirq_enter().after(9).softirq_exit();
    rig.after(1).runs_from(a, Place::Exception).after(100).read();
    assert_eq!(rig.cpus[0].owner_ns[owner::IDLE], [0, 13, 7, 0, 0]);
    assert_eq!(rig.cpus[0].owner_ns[owner::OTHER], [0, 21, 0, 9, 0]);
    assert_eq!(rig.cpus[0].owner_ns[owner::TASK], split(100, 0));
    assert_eq!(rig.modes(a), split(100, 0));
}

#[test]
fn a_wakeup_by_an_interrupt_is_not_the_tasks() {
    let (mut rig, a) = Rig::in_user();
    let b = rig.found();
    rig.after(100).irq_enter().after(5).waking(Some(b), 0, Place::Exception).after(2).irq_exit();
    rig.softirq_enter().after(3).waking(Some(b), 0, Place::Exception).after(1).softirq_exit();
    assert_eq!(rig.account(a).wakes_made, 0);
    assert_eq!(rig.account(b).wakeups, 2);
    assert_eq!(rig.modes(a), [100, 0, 7, 4, 0]);
}

#[test]
fn what_the_kernel_left_out_is_booked_to_who_ran() {
    let (mut rig, a) = Rig::in_user();
    rig.left_out_ns = 40;
    rig.after(100).leaves(Out::preempted(Place::Exception));
    assert_eq!(rig.account(a).left_out_ns, 40);
    rig.left_out_ns = 1_040;
    rig.after(2_000).runs(a);
    assert_eq!(rig.account(a).left_out_ns, 40, "it did not run");
    rig.left_out_ns = 1_050;
    rig.after(100).read();
    rig.left_out_ns = 1_051;
    rig.after(100).leaves(Out::preempted(Place::Exception));
    assert_eq!(rig.account(a).left_out_ns, 51, "once, whether a reader came by or not");
}

//! Syscalls, preemption around them, and tasks that are found in the middle of one.

use observer_common::switch::Place;

use crate::rig::{NONE, Next, Out, Rig, split};

#[test]
fn a_syscall_is_system_between_its_hooks_and_user_around_them() {
    let (mut rig, a) = Rig::in_user();
    rig.syscall(100, 50).after(200).read();
    assert_eq!(rig.modes(a), split(300, 50));
    assert_eq!(rig.crossings(a), [2, 0, 0, 0, 0]);
}

#[test]
fn each_syscall_crosses_twice() {
    let (mut rig, a) = Rig::in_user();
    for _ in 0..1_000 {
        rig.syscall(3, 7);
    }
    assert_eq!(rig.modes(a), split(3_000, 7_000));
    assert_eq!(rig.crossings(a), [2_000, 0, 0, 0, 0]);
}

#[test]
fn a_sleep_in_a_syscall_is_left_and_entered_in_system_mode() {
    let (mut rig, a) = Rig::in_user();
    rig.after(100).sys_enter().after(20).leaves(Out::sleep(Place::Entry));
    rig.after(5_000).runs(a).after(30).sys_exit().after(4).read();
    assert_eq!(rig.modes(a), split(104, 50));
    assert_eq!(rig.crossings(a), [2, 0, 0, 0, 0]);
    let task = rig.account(a);
    assert_eq!((task.switches_voluntary, task.switches_involuntary), (1, 0));
}

#[test]
fn preempted_in_a_syscall_it_goes_on_in_system_mode() {
    let (mut rig, a) = Rig::in_user();
    let preempted = Out { preempt: true, state: 0, place: Place::Entry };
    rig.after(100).sys_enter().after(20).switch(preempted, Next::Other, Place::Unknown);
    rig.after(5_000).runs(a).after(30).sys_exit().after(4).read();
    assert_eq!(rig.modes(a), split(104, 50));
    assert_eq!(rig.crossings(a), [2, 0, 0, 0, 0]);
    let task = rig.account(a);
    assert_eq!((task.switches_voluntary, task.switches_involuntary), (0, 1));
}

#[test]
fn preempted_in_user_mode_it_was_and_stays_user() {
    let (mut rig, a) = Rig::in_user();
    // The reschedule interrupt, then exit_to_user_mode_loop.
    rig.after(100).irq_enter().after(6).irq_exit();
    rig.after(9).switch(Out::preempted(Place::Exception), Next::Other, Place::Unknown);
    rig.after(5_000).runs(a).after(40).read();
    assert_eq!(rig.modes(a), [149, 0, 6, 0, 0]);
    assert_eq!(rig.crossings(a), [0, 0, 2, 1, 0], "out and back in, and around the interrupt");
    let task = rig.account(a);
    assert_eq!((task.switches_voluntary, task.switches_involuntary), (0, 1));
}

#[test]
fn preempted_between_sys_exit_and_user_mode_it_was_in_the_kernel() {
    let (mut rig, a) = Rig::in_user();
    rig.syscall(100, 50);
    rig.after(8).switch(Out::preempted(Place::Syscall), Next::Other, Place::Unknown);
    rig.after(5_000).runs(a).after(40).sys_enter();
    assert_eq!(rig.modes(a), split(140, 58));
    assert_eq!(rig.crossings(a), [3, 0, 1, 0, 0]);
}

#[test]
fn a_wakeup_between_sys_exit_and_user_mode_was_made_in_the_kernel() {
    let (mut rig, a) = Rig::in_user();
    rig.syscall(100, 50);
    rig.after(8).waking(None, 0, Place::Syscall).after(40).read();
    assert_eq!(rig.modes(a), split(140, 58));
    assert_eq!(rig.account(a).wakes_made, 1);
}

#[test]
fn a_sleep_before_sys_enter_is_on_the_way_into_the_syscall() {
    // A seccomp supervisor is asked, before the tracepoint (syscall_trace_enter, kernel/entry/common.c).
    let (mut rig, a) = Rig::in_user();
    rig.after(100).waking(None, 0, Place::Entry).after(3).leaves(Out::sleep(Place::Entry));
    rig.after(5_000).runs(a).after(10).sys_enter().after(20).sys_exit();
    assert_eq!(rig.modes(a), split(103, 30));
    assert_eq!(rig.crossings(a), [2, 0, 0, 0, 0], "in before the sleep, out at the end");
}

#[test]
fn adopted_in_the_middle_of_a_syscall() {
    let mut rig = Rig::new();
    let a = rig.found();
    rig.after(70).adopts(a, Place::Entry).after(10).read();
    assert_eq!(rig.modes(a), split(0, 10));
    rig.after(20).sys_exit().after(5).read();
    assert_eq!(rig.modes(a), split(5, 30), "what came before is not observed");
    assert_eq!(rig.crossings(a), [1, 0, 0, 0, 0]);

    let b = rig.on(1).found();
    rig.adopts(b, Place::Syscall).after(30).sys_exit().after(5).read();
    assert_eq!(rig.modes(b), split(5, 30));
}

#[test]
fn adopted_in_user_mode() {
    let mut rig = Rig::new();
    let a = rig.found();
    rig.after(70).adopts(a, Place::Exception);
    assert_eq!(rig.account(a).updated_ns, rig.now_ns);
    rig.after(30).sys_enter();
    assert_eq!(rig.modes(a), split(30, 0));
    assert_eq!(rig.account(a).migrations, 0);
    // Where it was found is where it ran last.
    rig.leaves(Out::sleep(Place::Entry)).on(1).after(5).runs(a);
    assert_eq!(rig.account(a).migrations, 1);
}

#[test]
fn first_seen_when_it_is_switched_in_inside_a_syscall() {
    let mut rig = Rig::new();
    let a = rig.found();
    rig.runs_from(a, Place::Entry).after(10).read();
    assert_eq!(rig.modes(a), split(0, 10));
    rig.after(20).sys_exit().after(5).read();
    assert_eq!(rig.modes(a), split(5, 30));
    assert_eq!(rig.crossings(a), [1, 0, 0, 0, 0]);
}

#[test]
fn first_seen_when_it_is_switched_in_after_a_preemption() {
    let mut rig = Rig::new();
    let a = rig.found();
    rig.runs_from(a, Place::Exception).after(30).sys_enter().after(5).sys_exit();
    assert_eq!(rig.modes(a), split(30, 5));
    assert_eq!(rig.account(a).migrations, 0, "where it ran before is not known");
}

#[test]
fn a_preemption_by_an_interrupt_shows_that_a_task_is_not_in_the_syscall_it_was_found_in() {
    // Preempted in the exit work of a syscall, then found: its registers still hold the syscall, so its first
    // run is taken for system. At the next preemption they hold an interrupt, and no syscall was entered in
    // between: the task is in user mode, whatever was believed so far.
    let mut rig = Rig::new();
    let a = rig.found();
    rig.runs_from(a, Place::Syscall).after(1_000);
    rig.switch(Out::preempted(Place::Exception), Next::Other, Place::Unknown);
    let before = rig.modes(a);
    rig.after(50).runs(a).after(5_000).read();
    let after = rig.modes(a);
    assert_eq!(after[0] - before[0], 5_000);
}

#[test]
fn a_syscall_that_a_tracer_cancelled_has_only_an_exit() {
    // The tracer sets the number to -1 at the entry stop: syscall_trace_enter leaves before sys_enter.
    let (mut rig, a) = Rig::in_user();
    rig.after(100).waking(None, 0x8, Place::Entry).after(3).leaves(Out::stop(Place::Entry));
    rig.after(5_000).runs(a).after(10).sys_exit().after(7).read();
    assert_eq!(rig.modes(a), split(107, 13));
    assert_eq!(rig.crossings(a), [1, 1, 0, 0, 0]);
}

#[test]
fn a_syscall_that_seccomp_denied_has_only_an_exit() {
    // SECCOMP_RET_ERRNO: syscall_trace_enter (kernel/entry/common.c) leaves before trace_sys_enter, and
    // syscall_exit_work still traces the exit. Without an entry of its own the syscall is an empty one: two
    // crossings, and the interval before it is the user's.
    let (mut rig, a) = Rig::in_user();
    rig.after(10_000).sys_exit().after(7).read();
    assert_eq!(rig.modes(a), split(10_007, 0));
    assert_eq!(rig.crossings(a), [2, 0, 0, 0, 0]);
}

#[test]
fn rt_sigreturn_is_a_syscall_although_its_registers_say_otherwise() {
    // It restores the frame with orig_ax = -1 (restore_sigcontext, arch/x86/kernel/signal_64.c).
    let (mut rig, a) = Rig::in_user();
    rig.after(100).sys_enter().after(20);
    rig.switch(Out::preempted(Place::Exception), Next::Other, Place::Unknown);
    rig.after(5_000).runs(a).after(30).sys_exit().after(4).read();
    assert_eq!(rig.modes(a), split(104, 50));
    assert_eq!(rig.crossings(a), [2, 0, 0, 0, 0]);
}

#[test]
fn a_lost_exit_is_made_good_by_the_next_enter() {
    let (mut rig, a) = Rig::in_user();
    rig.after(100).sys_enter().after(50).sys_enter().after(20).sys_exit().after(9).read();
    assert_eq!(rig.modes(a), split(109, 70));
    assert_eq!(rig.crossings(a), [2, 0, 0, 0, 0]);
}

#[test]
fn what_nobody_observes_crosses_nothing() {
    let mut rig = Rig::new();
    let a = rig.found();
    rig.after(50).switch(Out::sleep(Place::Unknown), Next::Other, Place::Unknown);
    rig.after(60).switch(Out::sleep(Place::Unknown), Next::Idle, Place::Unknown);
    assert_eq!((rig.modes(a), rig.crossings(a)), (NONE, NONE));
    assert_eq!(rig.cpus[0].owner_ns[0], split(0, 50));
    assert_eq!(rig.cpus[0].owner_ns[1], split(0, 60));
}

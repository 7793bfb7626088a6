//! Ptrace stops: where user mode ends and begins around them, how many there were, and how long they took.
//!
//! The evidence of a stop is the wakeup of the tracer, with the state already set (`ptrace_stop`,
//! kernel/signal.c), or, when the tracer was not waiting, only the switch.

use observer_common::{
    switch::{Place, TASK_STOPPED, TASK_TRACED},
    task::flag,
};

use crate::rig::{Next, Out, Rig, TRACER, split};

/// From `wakeup` to switch-out to switch-in: 11 ns to the switch, 1000 ns stopped.
fn stop(rig: &mut Rig, slot: u32, place: Place, wakes: bool) {
    if wakes {
        rig.waking(None, TASK_TRACED, place);
    }
    rig.after(11).leaves(Out::stop(place)).after(1_000).woken(slot).enqueued(slot).runs(slot);
}

#[test]
fn a_syscall_entry_stop_ends_user_mode_at_the_wakeup_of_the_tracer() {
    let (mut rig, a) = Rig::in_user();
    rig.after(100);
    stop(&mut rig, a, Place::Entry, true);
    rig.after(13).sys_enter().after(50).sys_exit();
    assert_eq!(rig.modes(a), split(100, 11 + 13 + 50));
    assert_eq!(rig.crossings(a), [1, 1, 0, 0, 0], "in by the stop, out by the syscall");
}

#[test]
fn a_syscall_entry_stop_without_a_wakeup_ends_user_mode_at_the_switch() {
    let (mut rig, a) = Rig::in_user();
    rig.after(100);
    stop(&mut rig, a, Place::Entry, false);
    rig.after(13).sys_enter().after(50).sys_exit();
    assert_eq!(rig.modes(a), split(111, 13 + 50), "no earlier evidence than the switch");
    assert_eq!(rig.crossings(a), [1, 1, 0, 0, 0]);
}

#[test]
fn a_syscall_exit_stop_is_system_from_sys_exit_on() {
    for wakes in [true, false] {
        let (mut rig, a) = Rig::in_user();
        rig.syscall(100, 50).after(5);
        stop(&mut rig, a, Place::Syscall, wakes);
        rig.after(200).sys_enter();
        assert_eq!(rig.modes(a), split(300, 50 + 5 + 11), "wakes: {wakes}");
        // sys_exit cannot know that a stop follows and counts a way out; the stop counts its own.
        assert_eq!(rig.crossings(a), [3, 1, 0, 0, 0], "wakes: {wakes}");
    }
}

#[test]
fn rounds_of_a_syscall_tracer() {
    let (mut rig, a) = Rig::in_user();
    for _ in 0..100 {
        rig.after(60);
        stop(&mut rig, a, Place::Entry, true);
        rig.after(13).sys_enter().after(50).sys_exit().after(5);
        stop(&mut rig, a, Place::Syscall, true);
        rig.after(40);
    }
    rig.read();
    assert_eq!(rig.modes(a), split(100 * 100, 100 * (11 + 13 + 50 + 5 + 11)));
    assert_eq!(rig.crossings(a), [100, 200, 0, 0, 0]);
    let task = rig.account(a);
    assert_eq!((task.ptrace_stops, task.stopped_ns), (200, 200 * 1_000));
    assert_eq!((task.wakes_made, task.wakeups), (200, 200));
    assert_eq!(task.tracer_tid, TRACER);
}

#[test]
fn a_signal_in_user_mode_stops_between_two_pieces_of_user_code() {
    for wakes in [true, false] {
        let (mut rig, a) = Rig::in_user();
        rig.after(100);
        stop(&mut rig, a, Place::Exception, wakes);
        rig.after(200).sys_enter();
        let user_ns = if wakes { 300 } else { 311 };
        assert_eq!(rig.modes(a), split(user_ns, 311 - user_ns), "wakes: {wakes}");
        assert_eq!(rig.crossings(a), [1, 2, 0, 0, 0], "wakes: {wakes}");
    }
}

#[test]
fn a_signal_that_ended_a_syscall_stops_on_the_way_out() {
    let (mut rig, a) = Rig::in_user();
    rig.after(100).sys_enter().after(10).leaves(Out::sleep(Place::Entry)).after(500);
    rig.woken(a).enqueued(a).runs(a).after(10).sys_exit().after(4);
    stop(&mut rig, a, Place::Syscall, true);
    rig.after(200).read();
    assert_eq!(rig.modes(a), split(300, 10 + 10 + 4 + 11));
}

#[test]
fn a_signal_by_a_page_fault_stops_out_of_the_fault() {
    let (mut rig, a) = Rig::in_user();
    rig.after(100).fault().after(6);
    stop(&mut rig, a, Place::Exception, true);
    rig.after(200).read();
    assert_eq!(
        rig.modes(a),
        split(300, 6 + 11),
        "the fault led to the stop: all of it was the kernel"
    );
    assert_eq!(rig.crossings(a), [0, 1, 0, 0, 1]);
}

#[test]
fn an_event_stop_inside_a_syscall_changes_nothing_about_the_split() {
    // PTRACE_EVENT_CLONE, PTRACE_EVENT_EXEC, ...: in the body of the syscall. The registers still hold the
    // preset result in clone, and the new program's in execve.
    for place in [Place::Entry, Place::Syscall] {
        for wakes in [true, false] {
            let (mut rig, a) = Rig::in_user();
            rig.after(100).sys_enter().after(20);
            stop(&mut rig, a, place, wakes);
            rig.after(30).sys_exit().after(200).read();
            assert_eq!(rig.modes(a), split(300, 20 + 11 + 30), "{place:?}, wakes: {wakes}");
            assert_eq!(rig.crossings(a), [2, 0, 0, 0, 0], "{place:?}, wakes: {wakes}");
            assert_eq!(rig.account(a).ptrace_stops, 1);
        }
    }
}

#[test]
fn a_second_stop_is_judged_by_its_own_evidence() {
    // An entry stop (leads into the syscall), then an exit stop (leads out of it), and again.
    let (mut rig, a) = Rig::in_user();
    for wakes in [true, false, true, false] {
        rig.after(100);
        stop(&mut rig, a, Place::Entry, wakes);
        assert!(rig.cpus[0].base_mode == 1, "into the syscall");
        rig.sys_enter().sys_exit();
        stop(&mut rig, a, Place::Syscall, wakes);
        assert!(rig.cpus[0].base_mode == 0, "out of it");
    }
}

#[test]
fn evidence_of_a_stop_that_did_not_come_says_nothing_about_the_next_one() {
    // The tracer dies, or a fatal signal is pending: the tracee goes on without a switch (ptrace_stop).
    let (mut rig, a) = Rig::in_user();
    rig.syscall(100, 50).waking(None, TASK_TRACED, Place::Syscall);
    rig.after(5).sys_enter().after(20);
    stop(&mut rig, a, Place::Entry, false);
    rig.after(30).read();
    assert_eq!(rig.modes(a), split(100, 50 + 5 + 20 + 11 + 30), "an event stop, in the syscall");

    let (mut rig, a) = Rig::in_user();
    rig.after(100).waking(None, TASK_TRACED, Place::Entry);
    rig.after(5).sys_exit();
    stop(&mut rig, a, Place::Syscall, false);
    rig.after(200).read();
    assert_eq!(rig.modes(a), split(300, 5 + 11), "an exit stop, out of the syscall");
}

#[test]
fn a_killed_tracee_leaves_its_stop_for_the_kernel_and_dies_there() {
    // SIGKILL during an entry stop: get_signal, do_exit; neither sys_enter nor sys_exit.
    let (mut rig, a) = Rig::in_user();
    rig.after(100);
    stop(&mut rig, a, Place::Entry, true);
    rig.after(300).dies(Place::Entry);
    assert_eq!(rig.modes(a), split(100, 311));
}

#[test]
fn the_stop_ends_when_the_tracee_is_woken_and_the_wait_begins() {
    let (mut rig, a) = Rig::in_user();
    rig.after(100).leaves(Out::stop(Place::Exception));
    assert!(rig.account(a).has(flag::STOPPED));
    rig.after(1_000).woken(a).after(20).enqueued(a).after(300).runs(a);
    let task = rig.account(a);
    assert_eq!((task.ptrace_stops, task.stopped_ns), (1, 1_000));
    assert_eq!((task.waits, task.wait_ns), (1, 300));
    assert!(!task.has(flag::STOPPED));
}

#[test]
fn without_a_wakeup_hook_the_stop_ends_at_the_switch_in() {
    let (mut rig, a) = Rig::in_user();
    rig.after(100).leaves(Out::stop(Place::Exception)).after(1_320).runs(a);
    assert_eq!(rig.account(a).stopped_ns, 1_320);
    // It is closed for good: a wakeup of a later sleep adds nothing.
    rig.after(10).sys_enter().leaves(Out::sleep(Place::Entry)).after(999).woken(a).after(1).runs(a);
    let task = rig.account(a);
    assert_eq!((task.ptrace_stops, task.stopped_ns), (1, 1_320));
}

#[test]
fn e07_a_job_control_stop_is_not_a_ptrace_stop() {
    let (mut rig, a) = Rig::in_user();
    // SIGSTOP without a tracer: T, `TASK_STOPPED`.
    let stopped = Out { preempt: false, state: TASK_STOPPED, place: Place::Exception };
    rig.after(100).leaves(stopped).after(1_000).woken(a).enqueued(a).runs(a);
    let task = rig.account(a);
    assert_eq!((task.ptrace_stops, task.stopped_ns, task.tracer_tid), (0, 0, 0));
    assert_eq!(task.switches_voluntary, 1);
    // A ptrace stop: t, `TASK_TRACED`.
    rig.after(100);
    stop(&mut rig, a, Place::Exception, true);
    assert_eq!((rig.account(a).ptrace_stops, rig.account(a).stopped_ns), (1, 1_000));
    // A group stop while seized is `TASK_TRACED` too (do_signal_stop, do_jobctl_trap): the tracer holds it.
    rig.after(100);
    stop(&mut rig, a, Place::Exception, true);
    let task = rig.account(a);
    assert_eq!((task.ptrace_stops, task.stopped_ns, task.tracer_tid), (2, 2_000, TRACER));
    rig.after(100).read();
    assert_eq!(rig.modes(a), split(400, 22), "user all along, but for the way into the stops");
}

#[test]
fn e13_stops_are_counted_by_state_and_not_by_kind() {
    // A filter lets every tenth call stop, once before it (seccomp) and, on some kernels, once after it.
    for exit_stops in [false, true] {
        let (mut rig, a) = Rig::in_user();
        for call in 0..100 {
            rig.after(10);
            if call % 10 == 0 {
                stop(&mut rig, a, Place::Entry, true);
            }
            rig.sys_enter().after(10).sys_exit();
            if call % 10 == 0 && exit_stops {
                stop(&mut rig, a, Place::Syscall, call % 20 == 0);
            }
        }
        let expected = if exit_stops { 20 } else { 10 };
        let task = rig.account(a);
        assert_eq!((task.ptrace_stops, task.stopped_ns), (expected, expected * 1_000));
        assert_eq!(rig.modes(a)[0], 1_000, "user time does not depend on the stops");
    }
}

#[test]
fn preempted_on_its_way_into_a_stop_it_has_not_stopped_yet() {
    // ptrace_stop sets the state and then drops the siglock: with full preemption it can be preempted there.
    // It stays on the run queue (`SM_PREEMPT`, __schedule), wakes its tracer later and then really stops.
    let (mut rig, a) = Rig::in_user();
    let preempted = Out { preempt: true, state: TASK_TRACED, place: Place::Exception };
    rig.after(100).switch(preempted, Next::Other, Place::Unknown).after(700).runs(a).after(5);
    stop(&mut rig, a, Place::Exception, true);
    let task = rig.account(a);
    assert_eq!((task.ptrace_stops, task.stopped_ns), (1, 1_000));
    assert_eq!((task.waits, task.wait_ns), (2, 700));
}

/// A stop whose begin and end hooks of their own see.
fn timed_stop(rig: &mut Rig, slot: u32, place: Place) {
    rig.stop_enter(place).after(7).waking(None, TASK_TRACED, place);
    rig.after(11).leaves(Out::stop(place)).after(1_000).woken(slot).enqueued(slot).runs(slot);
    rig.after(9).stop_leave();
}

#[test]
fn a_timed_stop_at_an_entry_is_system_from_its_first_instruction() {
    let (mut rig, a) = Rig::in_user();
    rig.after(100);
    timed_stop(&mut rig, a, Place::Entry);
    rig.after(13).sys_enter().after(50).sys_exit();
    assert_eq!(rig.modes(a), split(100, 7 + 11 + 9 + 13 + 50));
    assert_eq!(
        rig.crossings(a),
        [2, 0, 0, 0, 0],
        "in and out by the syscall: no stop to calibrate"
    );
    assert_eq!(rig.account(a).ptrace_stops, 1);
}

#[test]
fn a_timed_stop_at_an_exit_ends_where_it_is_left() {
    let (mut rig, a) = Rig::in_user();
    rig.syscall(100, 50).after(5);
    timed_stop(&mut rig, a, Place::Syscall);
    rig.after(200).sys_enter();
    assert_eq!(rig.modes(a), split(300, 50 + 5 + 7 + 11 + 9));
    assert_eq!(rig.crossings(a), [3, 0, 0, 0, 0], "the way out is counted once, after the stop");
}

#[test]
fn a_timed_stop_in_the_middle_of_a_syscall_changes_nothing() {
    let (mut rig, a) = Rig::in_user();
    rig.after(100).sys_enter().after(20);
    timed_stop(&mut rig, a, Place::Syscall);
    rig.after(30).sys_exit().after(40).sys_enter();
    assert_eq!(rig.modes(a), split(140, 20 + 7 + 11 + 9 + 30));
}

#[test]
fn rounds_of_timed_stops_are_what_the_program_did() {
    let (mut rig, a) = Rig::in_user();
    for _ in 0..100 {
        rig.after(60);
        timed_stop(&mut rig, a, Place::Entry);
        rig.after(13).sys_enter().after(50).sys_exit().after(5);
        timed_stop(&mut rig, a, Place::Syscall);
    }
    let system_ns = 27 + 13 + 50 + 5 + 27;
    assert_eq!(rig.modes(a), split(6_000, 100 * system_ns));
    assert_eq!(rig.crossings(a), [200, 0, 0, 0, 0]);
}

#[test]
fn a_job_control_stop_is_counted_apart() {
    let (mut rig, a) = Rig::in_user();
    rig.after(100).sys_enter().after(10);
    rig.leaves(Out { preempt: false, state: TASK_STOPPED, place: Place::Syscall });
    rig.after(700).woken(a).enqueued(a).after(40).runs(a);
    let task = rig.account(a);
    assert_eq!((task.job_stops, task.job_stopped_ns), (1, 700));
    assert_eq!((task.ptrace_stops, task.stopped_ns, task.stop.length_ns), (0, 0, 0));
}

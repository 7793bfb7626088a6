//! Tasks are born, change their program, and die.

use observer_common::{
    lifecycle::{self, PF_IO_WORKER, PF_KTHREAD},
    switch::Place,
    task::{flag, mode, state},
};

use crate::rig::{NONE, Next, Out, Rig, split};

#[test]
fn a_child_begins_in_the_kernel_and_leaves_it_by_sys_exit() {
    // x86: ret_from_fork ends in syscall_exit_to_user_mode, so the first hook is the switch, then sys_exit.
    let (mut rig, _parent) = Rig::in_user();
    let child = rig.after(10).sys_enter().after(20).born();
    rig.after(5).enqueued(child).after(3).sys_exit();
    rig.on(1).after(40).runs(child).after(5).read();
    assert_eq!(rig.modes(child), split(0, 5), "before any syscall hook");
    rig.after(10).sys_exit().after(100).read();
    assert_eq!(rig.modes(child), split(100, 15));
    assert_eq!(rig.crossings(child), [1, 0, 0, 0, 0]);
    let task = rig.account(child);
    assert_eq!((task.waits, task.wait_ns), (1, 43), "from wake_up_new_task to its first run");
    assert_eq!((task.migrations, task.cpu), (0, 1), "it ran nowhere before");
    assert!(task.has(flag::BASED | flag::BORN));
    assert_eq!(task.bill_begin.runtime_ns, 0);
}

#[test]
fn a_child_that_begins_in_user_mode() {
    // arm64: ret_from_fork has no syscall exit (entry.S); observer-ebpf sets the mode when it is born.
    let mut rig = Rig::new();
    let child = rig.born();
    rig.account_mut(child).base_mode = mode::USER as u32;
    rig.after(40).runs(child).after(100).sys_enter();
    assert_eq!(rig.modes(child), split(100, 0));
    assert_eq!(rig.crossings(child), [1, 0, 0, 0, 0]);
}

#[test]
fn a_fork_on_a_busy_cpu_switches_from_parent_to_child() {
    let (mut rig, parent) = Rig::in_user();
    let child = rig.after(10).sys_enter().after(20).born();
    rig.enqueued(child).after(30).sys_exit().after(2);
    rig.switch(Out::preempted(Place::Syscall), Next::Task(child), Place::Unknown);
    rig.after(15).sys_exit().after(100);
    rig.switch(Out::preempted(Place::Exception), Next::Task(parent), Place::Unknown);
    rig.after(7).read();
    assert_eq!(rig.modes(parent), split(17, 52));
    assert_eq!(rig.modes(child), split(100, 15));
    assert_eq!(rig.account(parent).wait_ns, 115);
    assert_eq!(rig.cpus[0].owner_ns[2], split(117, 67));
}

#[test]
fn exec_by_a_thread_that_is_not_the_leader_keeps_the_account() {
    let (mut rig, a) = Rig::in_user();
    rig.account_mut(a).tgid = 50;
    rig.after(100).sys_enter().after(40);
    // de_thread (fs/exec.c): the thread takes the leader's id and start time.
    let leader = lifecycle::Identity { tid: 50, tgid: 50, start_ns: 9, ..Rig::identity(a, 0) };
    let former_tid = rig.account(a).tid;
    lifecycle::exec(rig.account_mut(a), &leader, former_tid);
    rig.after(10).sys_exit().after(200).read();
    let task = rig.account(a);
    assert_eq!((task.tid, task.tgid, task.start_ns), (50, 50, 9));
    assert_eq!(task.former_tid, former_tid);
    assert_eq!(task.sequence % 2, 0);
    assert_eq!(rig.modes(a), split(300, 50), "one account before and after");
    assert_eq!(rig.crossings(a), [2, 0, 0, 0, 0]);
    // The next exec is the leader's: what it was called before stays known.
    lifecycle::exec(rig.account_mut(a), &leader, 50);
    assert_eq!(rig.account(a).former_tid, former_tid);
}

#[test]
fn exec_by_the_leader_changes_no_name() {
    let (mut rig, a) = Rig::in_user();
    let who = Rig::identity(a, 0);
    lifecycle::exec(rig.account_mut(a), &who, who.tid);
    assert_eq!((rig.account(a).tid, rig.account(a).former_tid), (who.tid, 0));
}

#[test]
fn a_kernel_thread_is_system_whatever_its_registers_say() {
    for flags in [PF_KTHREAD, PF_IO_WORKER] {
        for place in [Place::Unknown, Place::Exception, Place::Entry, Place::Syscall] {
            let mut rig = Rig::new();
            let a = rig.open(flags, 0);
            rig.runs_from(a, place).after(10).leaves(Out::sleep(place)).after(5);
            rig.runs(a).after(20).switch(Out::preempted(place), Next::Other, Place::Unknown);
            rig.after(5).runs(a).after(30).irq_enter().after(2).irq_exit().after(40).read();
            assert_eq!(rig.modes(a), [0, 100, 2, 0, 0], "{place:?}");
            assert_eq!(rig.crossings(a), NONE, "{place:?}");
        }
    }
}

#[test]
fn a_kernel_thread_that_is_adopted() {
    let mut rig = Rig::new();
    let a = rig.open(PF_KTHREAD, 0);
    rig.adopts(a, Place::Exception).after(10).read();
    assert_eq!(rig.modes(a), split(0, 10));
}

#[test]
fn a_kernel_thread_that_execs_goes_to_user_mode() {
    // A usermode helper: kernel_execve, then the way out of ret_from_fork.
    let mut rig = Rig::new();
    let a = rig.open(PF_KTHREAD, flag::BORN);
    rig.after(5).runs(a).after(50);
    let who = Rig::identity(a, 0);
    lifecycle::exec(rig.account_mut(a), &who, who.tid);
    rig.after(10).sys_exit().after(100);
    rig.switch(Out::preempted(Place::Exception), Next::Other, Place::Unknown);
    rig.after(70).runs(a).after(200).read();
    assert_eq!(rig.modes(a), split(300, 60));
}

#[test]
fn a_task_that_exits_by_itself_is_in_the_kernel_to_its_end() {
    let (mut rig, a) = Rig::in_user();
    let parent = rig.found();
    rig.after(100).sys_enter().after(10);
    rig.account_mut(a).set(flag::EXITING);
    rig.after(50)
        .waking(Some(parent), 0, Place::Entry)
        .enqueued(parent)
        .after(5)
        .dies(Place::Entry);
    assert_eq!(rig.modes(a), split(100, 65));
    let task = rig.account(a);
    assert_eq!((task.state, task.wakes_made), (state::EXITED, 1));
    assert_eq!((task.switches_voluntary, task.switches_involuntary), (1, 0));
    assert_eq!(rig.account(parent).wakeups, 1);
    let before = *rig.account(a);
    rig.after(1_000).runs_from(parent, Place::Entry).after(10).read();
    assert_eq!(*rig.account(a), before, "a closed account does not move");
}

#[test]
fn a_task_that_is_killed_in_user_mode_dies_in_the_kernel() {
    // A fatal signal: an interrupt, then get_signal and do_exit from the exit work, without any syscall. The
    // address space is torn down after sched_process_exit (do_exit, kernel/exit.c), which takes milliseconds.
    let (mut rig, a) = Rig::in_user();
    rig.after(100).exiting();
    rig.after(5_000).switch(Out::preempted(Place::Exception), Next::Other, Place::Unknown);
    rig.after(50).runs(a).after(3_000).waking(None, 0, Place::Exception).after(10);
    rig.dies(Place::Exception);
    assert_eq!(rig.modes(a)[mode::SYSTEM], 8_010);
    assert_eq!(rig.modes(a)[mode::USER], 100);
}

#[test]
fn a_slot_is_reused_with_nothing_of_its_former_task() {
    let (mut rig, a) = Rig::in_user();
    rig.syscall(100, 50).after(20).irq_enter().after(3).irq_exit().fault().after(9);
    rig.leaves(Out::stop(Place::Exception)).after(10).woken(a).enqueued(a).after(5).runs(a);
    rig.on(0).after(5).sys_enter().dies(Place::Entry);
    let old = *rig.account(a);
    assert_eq!(old.state, state::EXITED);
    let now_ns = rig.after(100).now_ns;
    let who = lifecycle::Identity { tid: 999, tgid: 998, ..Rig::identity(a, 0) };
    lifecycle::open(rig.account_mut(a), &who, flag::FOLLOW, now_ns);
    let new = *rig.account(a);
    assert_eq!(new.oncpu_ns(), 0);
    assert_eq!((new.tid, new.tgid, new.state, new.flags), (999, 998, state::LIVE, flag::FOLLOW));
    assert_eq!(new.crossings, NONE);
    assert_eq!((new.ptrace_stops, new.stopped_ns, new.tracer_tid), (0, 0, 0));
    assert_eq!((new.wait_ns, new.waits, new.wait_since_ns, new.wakeups), (0, 0, 0, 0));
    assert_eq!((new.switches_voluntary, new.switches_involuntary, new.migrations), (0, 0, 0));
    assert_eq!((new.cpu, new.opened_ns, new.updated_ns), (u32::MAX, now_ns, 0));
    assert_eq!(
        new.sequence,
        old.sequence.wrapping_add(2),
        "a reader notices that it changed hands"
    );
    rig.runs_from(a, Place::Exception).after(30).read();
    assert_eq!(rig.modes(a), split(30, 0));
}

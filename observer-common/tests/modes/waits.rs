//! Waiting for a CPU, wakeups, migrations, and the two kinds of switches.

use observer_common::switch::Place;

use crate::rig::{Next, Out, Rig, START_NS};

#[test]
fn b13_a_preempted_task_waits_without_having_been_woken() {
    let (mut rig, a) = Rig::in_user();
    rig.after(100).switch(Out::preempted(Place::Exception), Next::Other, Place::Unknown);
    assert_eq!(rig.account(a).wait_since_ns, rig.now_ns);
    rig.after(300).runs(a);
    let task = rig.account(a);
    assert_eq!((task.waits, task.wait_ns, task.wait_since_ns), (1, 300, 0));
    assert_eq!((task.wakeups, task.switches_involuntary), (0, 1));
}

#[test]
fn b13_two_busy_tasks_are_preempted_and_the_sleeper_is_woken() {
    let (mut rig, a) = Rig::in_user();
    let (b, sleeper) = (rig.found(), rig.found());
    for _ in 0..10 {
        rig.after(100).switch(Out::preempted(Place::Exception), Next::Task(b), Place::Exception);
        rig.after(80).irq_enter().waking(Some(sleeper), 0, Place::Exception).enqueued(sleeper);
        rig.after(1).irq_exit().after(9);
        rig.switch(Out::preempted(Place::Exception), Next::Task(sleeper), Place::Entry);
        rig.after(30).switch(Out::sleep(Place::Entry), Next::Task(a), Place::Unknown);
    }
    let reasons = |slot| {
        let task = rig.account(slot);
        (task.waits, task.wakeups, task.switches_voluntary, task.switches_involuntary)
    };
    assert_eq!(reasons(a), (10, 0, 0, 10));
    assert_eq!(reasons(b), (9, 0, 0, 10), "its tenth wait is still open");
    assert_eq!(reasons(sleeper), (10, 10, 10, 0));
    assert_eq!(rig.account(sleeper).wait_ns, 10 * 10);
    assert_eq!(rig.account(a).wait_ns, 10 * (90 + 30));
}

#[test]
fn after_a_wakeup_the_wait_begins_on_the_run_queue() {
    let (mut rig, a) = Rig::in_user();
    rig.after(10).sys_enter().after(5).leaves(Out::sleep(Place::Entry)).after(1_000);
    // Between the two the wakee may hang in a wakelist.
    rig.woken(a).after(20).enqueued(a).after(300).runs(a);
    let task = rig.account(a);
    assert_eq!((task.waits, task.wait_ns, task.wakeups), (1, 300, 1));
}

#[test]
fn a_task_that_sleeps_does_not_wait() {
    let (mut rig, a) = Rig::in_user();
    rig.after(10).sys_enter().leaves(Out::sleep(Place::Entry));
    assert_eq!(rig.account(a).wait_since_ns, 0);
    rig.after(1_000).runs(a);
    assert_eq!((rig.account(a).waits, rig.account(a).wait_ns), (0, 0), "no wakeup was seen");
}

#[test]
fn b06_a_wait_is_used_once() {
    let (mut rig, a) = Rig::in_user();
    // Out, in, (lost: out), in, out.
    rig.after(100).switch(Out::preempted(Place::Exception), Next::Other, Place::Unknown);
    rig.after(300).runs(a);
    // The hook sees this task both as the one that runs and as the next one.
    rig.after(50).switch(Out::sleep(Place::Exception), Next::Task(a), Place::Unknown);
    rig.after(70).switch(Out::preempted(Place::Exception), Next::Other, Place::Unknown);
    let task = rig.account(a);
    assert_eq!((task.waits, task.wait_ns), (1, 300), "one wait; the second is open");
    assert_eq!(task.wait_since_ns, rig.now_ns);
    assert_eq!(task.oncpu_ns(), 220);
}

#[test]
fn b16_a_wakeup_before_the_sleep_opens_no_wait() {
    // Switch-in, a wakeup that comes before the sleep, the sleep, the wakeup that ends it, switch-in.
    let (mut rig, a) = Rig::in_user();
    rig.after(10).sys_enter().after(1_000_000).woken(a).enqueued(a);
    rig.after(7_000_000).leaves(Out::sleep(Place::Entry));
    assert_eq!(rig.account(a).wait_since_ns, 0, "it sleeps in spite of it");
    rig.after(90_000_000).woken(a).enqueued(a).after(2_000_000).runs(a);
    let task = rig.account(a);
    assert_eq!((task.waits, task.wait_ns, task.wakeups), (1, 2_000_000, 2));
}

#[test]
fn b16_an_event_from_before_the_last_one_moves_no_time() {
    let (mut rig, a) = Rig::in_user();
    rig.after(10).sys_enter().after(5).leaves(Out::sleep(Place::Entry));
    let later_ns = rig.after(1_000).now_ns;
    rig.enqueued(a);
    rig.now_ns = later_ns - 400;
    rig.enqueued(a);
    assert_eq!(rig.account(a).wait_since_ns, later_ns, "the first to be booked stands");
    rig.now_ns = later_ns + 2_000;
    rig.runs(a).after(40);
    rig.now_ns -= 100;
    rig.sys_exit();
    assert_eq!(rig.account(a).wait_ns, 2_000);
    assert_eq!(rig.cpus[0].clock_backwards, 1);
    assert_eq!(rig.account(a).oncpu_ns(), 15, "nothing, rather than a negative time");
    rig.now_ns = later_ns + 2_300;
    rig.read();
    assert_eq!(rig.account(a).oncpu_ns(), 315, "and the next event makes it good");
}

#[test]
fn a_task_that_is_woken_on_its_way_out_is_preempted_instead() {
    // A wakeup between set_current_state and __schedule: the state is zero again, it stays on the run queue.
    let (mut rig, a) = Rig::in_user();
    rig.after(10).sys_enter().after(5).woken(a).enqueued(a).after(40);
    rig.switch(Out::preempted(Place::Entry), Next::Other, Place::Unknown);
    rig.after(300).runs(a);
    let task = rig.account(a);
    assert_eq!((task.waits, task.wait_ns), (1, 300), "from the switch, not from the wakeup");
    assert_eq!((task.switches_voluntary, task.switches_involuntary), (0, 1));
}

#[test]
fn a_second_wakeup_does_not_shorten_the_wait() {
    let (mut rig, a) = Rig::in_user();
    rig.after(10).sys_enter().leaves(Out::sleep(Place::Entry)).after(100);
    rig.enqueued(a).after(200).enqueued(a).after(300).runs(a);
    assert_eq!((rig.account(a).waits, rig.account(a).wait_ns), (1, 500));
}

#[test]
fn voluntary_is_what_could_not_have_run_on() {
    let (mut rig, a) = Rig::in_user();
    let preempted_in_the_kernel = Out { preempt: true, state: 1, place: Place::Entry };
    for (out, voluntary) in [
        (Out::sleep(Place::Entry), true),
        (Out::stop(Place::Entry), true),
        (Out::preempted(Place::Entry), false),
        (preempted_in_the_kernel, false),
    ] {
        let before = *rig.account(a);
        rig.after(1).sys_enter().switch(out, Next::Other, Place::Unknown).after(1).runs(a);
        let task = rig.account(a);
        assert_eq!(task.switches_voluntary - before.switches_voluntary, u64::from(voluntary));
        assert_eq!(task.switches_involuntary - before.switches_involuntary, u64::from(!voluntary));
        assert_eq!(task.waits - before.waits, u64::from(!voluntary));
    }
}

#[test]
fn a_migration_is_a_switch_in_on_another_cpu() {
    let (mut rig, a) = Rig::in_user();
    for (cpu, migrations) in [(0, 0), (1, 1), (1, 1), (0, 2)] {
        rig.after(10).leaves(Out::preempted(Place::Exception)).on(cpu).after(5).runs(a);
        assert_eq!((rig.account(a).migrations, rig.account(a).cpu), (migrations, cpu as u32));
    }
    rig.after(10).read();
    assert_eq!(rig.account(a).mode_ns, [50, 0, 0, 0, 0]);
    assert_eq!(rig.cpus[0].owner_ns[2], [30, 0, 0, 0, 0]);
    assert_eq!(rig.cpus[1].owner_ns[2], [20, 0, 0, 0, 0]);
}

#[test]
fn each_cpu_accounts_for_all_of_its_time() {
    let (mut rig, a) = Rig::in_user();
    rig.syscall(100, 50).after(20).leaves(Out::preempted(Place::Exception)).after(1_000);
    rig.on(1).runs(a).after(30).read();
    assert_eq!(rig.cpus[0].elapsed_ns(), 170);
    assert_eq!(rig.cpus[1].elapsed_ns(), rig.now_ns - START_NS);
}

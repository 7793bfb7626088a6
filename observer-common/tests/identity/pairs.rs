//! Two tasks that hand over to each other, as a tracer and its tracee do.

use observer_common::{
    clock::{WINDOW_BUSY_NS, WINDOW_MAX_NS},
    task::Task,
};

use crate::{
    audit::{self, SPREAD_NS},
    kernel::{Call, Era, Kernel, Setup, TICK_NS},
};

const TRACEE: usize = 0;
const TRACER: usize = 1;

const SETUP: Setup = Setup {
    era: Era::Entry,
    skips: true,
    irq_time: false,
    long_paths: false,
    drift_ppm: 0,
    seed: 0x5eed,
};

/// Stops of the tracee, both on one CPU. `preempting` percent of its wakeups set need_resched.
fn ptrace(kernel: &mut Kernel, stops: usize, preempting: u64) {
    kernel.wake(0, TRACEE, 0, false);
    kernel.spend(500..3_000);
    kernel.schedule(0, Call::Preempt);
    for stop in 0..stops {
        kernel.spend(300..4_000);
        if stop % 1_000 == 999 {
            kernel.tick(0);
        }
        if kernel.setup.irq_time && stop % 10 == 3 {
            let ns = kernel.random.within(100..3_000);
            kernel.interrupt(0, ns);
        }
        // ptrace_stop: the tracer is woken, the way to schedule() is the window.
        let preempts = kernel.random.percent(preempting);
        kernel.wake(0, TRACER, 0, preempts);
        kernel.spend(300..1_500);
        kernel.schedule(0, Call::Block);
        // The tracer looks at it, resumes it, and waits.
        kernel.spend(500..3_000);
        kernel.wake(0, TRACEE, 0, false);
        kernel.spend(300..1_500);
        kernel.schedule(0, Call::Block);
    }
    kernel.read_all();
}

#[test]
fn a_ptraced_pair_with_clock_skips() {
    for era in [Era::Act, Era::Wakeup, Era::Entry, Era::Queued] {
        for drift_ppm in [-20, 0, 20] {
            for irq_time in [false, true] {
                let setup = Setup { era, drift_ppm, irq_time, ..SETUP };
                let mut kernel = Kernel::new(setup, 1, 2, 2);
                ptrace(&mut kernel, 20_000, 98);
                audit::within_tolerance(&kernel);
                audit::offset_is_known(&kernel, WINDOW_BUSY_NS as i64);
                audit::skips_are_counted(&kernel);
                audit::skips_are_measured(&kernel, 25);
                // The positive control: the report is off by far more than the identity leaves open.
                let task = &kernel.accounts[TRACER];
                assert!(task.skip_in > 19_000 && task.skip_in_ns > 10 * task.skip_in);
                assert!(task.skip_in_ns as i64 > 20 * audit::tolerance_ns(&kernel));
                let left_out = kernel.accounts[TRACEE].left_out_ns > 1_000_000;
                assert_eq!(left_out, irq_time, "the interrupts come while the tracee runs");
            }
        }
    }
}

#[test]
fn a_pair_without_skips_has_none() {
    for drift_ppm in [-20, 0, 20] {
        let setup = Setup { skips: false, drift_ppm, ..SETUP };
        let mut kernel = Kernel::new(setup, 1, 2, 2);
        ptrace(&mut kernel, 20_000, 98);
        audit::within_tolerance(&kernel);
        for task in &kernel.accounts {
            assert_eq!((task.skip_in, task.skip_in_ns), (0, 0));
            assert_eq!((task.skip_out, task.skip_out_ns), (0, 0));
            assert!(task.path_in_ns > 0 && task.path_out_ns > 0);
        }
        assert_eq!(kernel.cpus[0].skips, 0);
        assert_eq!(kernel.cpus[0].switches, 1 + 2 * 20_000);
    }
}

#[test]
fn a_long_path_now_and_then_does_not_move_the_offset() {
    let setup = Setup { long_paths: true, ..SETUP };
    let mut kernel = Kernel::new(setup, 1, 2, 2);
    ptrace(&mut kernel, 20_000, 98);
    audit::within_tolerance(&kernel);
    audit::skips_are_counted(&kernel);
}

#[test]
fn a_quiet_cpu_keeps_its_offset() {
    // A switch now and then: too few for short windows, and at last none for longer than two long ones.
    for drift_ppm in [-20, 20] {
        for pause_ns in [20_000_000, 80_000_000, 5_000_000_000] {
            let mut kernel = Kernel::new(Setup { drift_ppm, ..SETUP }, 1, 1, 1);
            for _ in 0..200 {
                kernel.spend(pause_ns..pause_ns + 1_000_000);
                kernel.wake(0, TRACEE, 0, false);
                kernel.spend(1_000..50_000);
                kernel.schedule(0, Call::Preempt);
                kernel.spend(10_000..3_000_000);
                kernel.schedule(0, Call::Block);
            }
            audit::exact(&kernel);
            audit::skips_are_counted(&kernel);
            audit::offset_is_known(&kernel, WINDOW_MAX_NS as i64 + pause_ns as i64 / 4);
        }
    }
}

/// A tracer on another CPU: every wakeup comes to an idle CPU and its exit from idle is the window.
fn ptrace_apart(kernel: &mut Kernel, stops: usize) {
    kernel.wake(0, TRACEE, 0, false);
    kernel.schedule(0, Call::Preempt);
    for _ in 0..stops {
        kernel.spend(300..4_000);
        kernel.wake(0, TRACER, 1, false);
        kernel.spend(200..400);
        kernel.schedule(0, Call::Block);
        kernel.spend(1_000..50_000);
        kernel.schedule(1, Call::Preempt);
        kernel.spend(500..3_000);
        kernel.wake(1, TRACEE, 0, false);
        kernel.spend(200..400);
        kernel.schedule(1, Call::Block);
        kernel.spend(1_000..50_000);
        kernel.schedule(0, Call::Preempt);
    }
    kernel.read_all();
}

#[test]
fn a_pair_on_two_cpus_is_billed_for_the_exit_from_idle() {
    for era in [Era::Act, Era::Wakeup, Era::Entry, Era::Queued] {
        for drift_ppm in [-20, 0, 20] {
            let setup = Setup { era, drift_ppm, ..SETUP };
            let mut kernel = Kernel::new(setup, 2, 2, 2);
            ptrace_apart(&mut kernel, 10_000);
            audit::within_tolerance(&kernel);
            audit::skips_are_counted(&kernel);
            audit::skips_are_measured(&kernel, 25);
            for task in &kernel.accounts {
                assert!(task.skip_in >= 10_000 && task.skip_out == 0, "from idle, and never to it");
                assert!(task.skip_in_ns > task.oncpu_ns(), "more than it ran");
            }
            for cpu in &kernel.cpus {
                assert!(cpu.shift_ns[0] < -200_000_000, "idle is the one who lost it");
                assert_eq!(cpu.shift_ns[1], 0);
            }
        }
    }
}

#[test]
fn a_task_that_runs_already_is_found_with_its_bill_open() {
    // Another observed task has run on that CPU before, so the offset is known.
    for drift_ppm in [-20, 0, 20] {
        let setup = Setup { irq_time: true, drift_ppm, ..SETUP };
        let mut kernel = Kernel::new(setup, 1, 2, 2);
        kernel.threads[TRACEE].observed = false;
        ptrace(&mut kernel, 1_000, 98);
        kernel.threads[TRACEE].observed = true;
        kernel.time_ns += 3_000_000;
        kernel.read(0);
        let oncpu_ns = kernel.accounts[TRACEE].oncpu_ns();
        assert_eq!(oncpu_ns, 0);
        kernel.time_ns += 5_000_000;
        kernel.read(0);
        kernel.time_ns += 5_000_000;
        kernel.read_all();
        audit::exact(&kernel);
        let residual_ns = audit::residual_ns(&kernel, TRACEE);
        assert!(residual_ns.abs() <= 2 * SPREAD_NS + 1_000, "{residual_ns}");
        assert!(kernel.accounts[TRACEE].oncpu_ns() >= 9_999_000);
    }
}

#[test]
fn a_task_that_runs_already_is_found_by_the_offset_of_the_last_tick() {
    // The usual case of `--pid` on a busy program: it spins, and nothing observed was switched on its CPU yet.
    // The run queue's clock is as old as the last tick, here 3 ms; the end of that tick was a sample.
    for drift_ppm in [-20, 0, 20] {
        let mut kernel = Kernel::new(Setup { drift_ppm, ..SETUP }, 1, 1, 0);
        kernel.wake(0, TRACEE, 0, false);
        kernel.schedule(0, Call::Preempt);
        kernel.tick(0);
        kernel.time_ns += 3_000_000;
        kernel.threads[TRACEE].observed = true;
        kernel.read(0);
        for _ in 0..25 {
            kernel.time_ns += 4_000_000;
            kernel.tick(0);
        }
        kernel.schedule(0, Call::Block);
        audit::exact(&kernel);
        // From the longest way out of a tick to the shortest path, and twice the drift of 103 ms.
        let bound_ns = TICK_NS.end as i64 + 2 * 103_000_000 * drift_ppm.abs() / 1_000_000;
        let residual_ns = audit::residual_ns(&kernel, TRACEE);
        assert!(residual_ns.abs() <= bound_ns, "{residual_ns}");
    }
}

/// Two tasks that do nothing but yield to each other: every switch is skipped, so none is a sample.
fn yields(kernel: &mut Kernel, count: usize) {
    kernel.wake(0, TRACEE, 0, false);
    kernel.wake(0, TRACER, 0, false);
    kernel.schedule(0, Call::Preempt);
    yields_on(kernel, count);
}

fn yields_on(kernel: &mut Kernel, count: usize) {
    let mut tick_ns = kernel.time_ns + 4_000_000;
    for _ in 0..count {
        kernel.spend(100..3_000);
        if kernel.time_ns >= tick_ns {
            kernel.tick(0);
            tick_ns += 4_000_000;
        }
        kernel.sched_yield(0);
    }
    kernel.read_all();
}

#[test]
fn yielding_tasks_shift_nothing_in_sum() {
    let mut kernel = Kernel::new(SETUP, 1, 2, 2);
    yields(&mut kernel, 20_000);
    audit::within_tolerance(&kernel);
    audit::skips_are_counted(&kernel);
    audit::skips_are_measured(&kernel, 2 * SPREAD_NS);
}

#[test]
#[ignore = "only the ticks are samples: the drift of two long windows is taken for skips"]
fn yielding_tasks_do_not_lose_the_offset() {
    for drift_ppm in [-20, 20] {
        let mut kernel = Kernel::new(Setup { drift_ppm, ..SETUP }, 1, 2, 2);
        // One second.
        yields(&mut kernel, 500_000);
        audit::exact(&kernel);
        audit::skips_are_counted(&kernel);
        audit::skips_are_measured(&kernel, 2 * SPREAD_NS);
    }
}

#[test]
fn after_a_jump_of_our_clock_the_offset_is_learned_again() {
    let mut kernel = Kernel::new(SETUP, 1, 2, 2);
    ptrace(&mut kernel, 500, 98);
    // The tracee runs; the machine is restored 5 s later by our clock, at once by the other.
    kernel.jump_ns = 5_000_000_000;
    kernel.offset_error_ns = (i64::MAX, i64::MIN);
    kernel.schedule(0, Call::Block);
    ptrace(&mut kernel, 5_000, 98);
    audit::exact(&kernel);
    let (least_ns, most_ns) = kernel.offset_error_ns;
    assert!(least_ns >= 70 && most_ns <= 200, "at once: {least_ns} to {most_ns}");
    let residual_ns = audit::residual_ns(&kernel, TRACEE);
    assert!((residual_ns + 5_000_000_000).abs() < audit::tolerance_ns(&kernel), "{residual_ns}");
    assert!(audit::residual_ns(&kernel, TRACER).abs() < audit::tolerance_ns(&kernel));
}

#[test]
fn a_skip_across_a_jump_is_thrown_away_and_counted() {
    const JUMP_NS: i64 = 5_000_000_000;
    for ours_jumps in [true, false] {
        let mut kernel = Kernel::new(SETUP, 1, 2, 2);
        yields(&mut kernel, 1_000);
        if ours_jumps {
            kernel.jump_ns = JUMP_NS;
        } else {
            kernel.time_ns += JUMP_NS as u64;
            kernel.jump_ns = -JUMP_NS;
        }
        yields_on(&mut kernel, 1_000);
        audit::exact(&kernel);
        assert_eq!(kernel.cpus[0].clock_jumps, 1);
        let shifted_ns = |task: &Task| task.skip_in_ns.max(task.skip_out_ns);
        assert!(kernel.accounts.iter().map(shifted_ns).max() < Some(1_000_000));
    }
}

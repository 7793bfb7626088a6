//! The split of one staleness, by hand.

use observer_common::{
    bill::{RQCF_ACT_SKIP, RQCF_REQ_SKIP, RunQueue},
    clock::JUMP_NS,
    cpu::Cpu,
    switch::{Shift, shift, stood_still},
    wakeup,
};

/// Our clock minus the run queue's.
const OFFSET_NS: u64 = 1_000_000;
const NOW_NS: u64 = 50_000_000_000;

fn stale_by(ns: u64) -> RunQueue {
    let clock_ns = NOW_NS - OFFSET_NS - ns;
    RunQueue { clock_ns, clock_task_ns: clock_ns, update_flags: 0 }
}

/// A CPU whose offset is known, with a usual path of 800 ns.
fn known() -> Cpu {
    let mut cpu = Cpu::default();
    wakeup::requested(&mut cpu, NOW_NS, &stale_by(0));
    for _ in 0..200 {
        shift(&mut cpu, NOW_NS, &stale_by(800), false);
    }
    assert!((750..=800).contains(&cpu.path_ns), "{}", cpu.path_ns);
    cpu
}

#[test]
fn without_a_sample_there_is_nothing_to_say() {
    let mut cpu = Cpu::default();
    assert_eq!(shift(&mut cpu, NOW_NS, &stale_by(5_000), true), Shift::default());
    assert_eq!((cpu.switches, cpu.skips), (0, 0));
}

#[test]
fn an_ordinary_switch_has_a_path_and_no_skip() {
    let mut cpu = known();
    let expected = Shift { skipped: false, skip_ns: 0, path_ns: 1_000 };
    assert_eq!(shift(&mut cpu, NOW_NS, &stale_by(1_000), false), expected);
    assert_eq!((cpu.switches, cpu.skips), (201, 0));
}

#[test]
fn a_skipped_switch_has_the_usual_path_and_the_rest_is_the_skip() {
    for (requested, flags) in [(true, 0), (false, RQCF_ACT_SKIP)] {
        let mut cpu = known();
        let usual_ns = cpu.path_ns;
        let clocks = RunQueue { update_flags: flags, ..stale_by(5_000) };
        let shifted = shift(&mut cpu, NOW_NS, &clocks, requested);
        let expected = Shift { skipped: true, skip_ns: 5_000 - usual_ns, path_ns: usual_ns };
        assert_eq!(shifted, expected);
        assert_eq!(shifted.total_ns(), 5_000);
        assert_eq!((cpu.switches, cpu.skips), (201, 1));
        assert_eq!(cpu.path_ns, usual_ns, "a skipped switch says nothing about the path");
    }
}

#[test]
fn a_request_that_is_still_open_is_for_the_next_schedule() {
    let mut cpu = known();
    let clocks = RunQueue { update_flags: RQCF_REQ_SKIP, ..stale_by(900) };
    assert!(!shift(&mut cpu, NOW_NS, &clocks, false).skipped);
}

#[test]
fn a_skip_shorter_than_the_usual_path_is_all_path() {
    let mut cpu = known();
    let expected = Shift { skipped: true, skip_ns: 0, path_ns: 300 };
    assert_eq!(shift(&mut cpu, NOW_NS, &stale_by(300), true), expected);
}

#[test]
fn one_long_path_is_not_the_usual_one() {
    let mut cpu = known();
    shift(&mut cpu, NOW_NS, &stale_by(80_800), false);
    assert!((10_000..11_000).contains(&cpu.path_ns), "an eighth of it: {}", cpu.path_ns);
    for _ in 0..50 {
        shift(&mut cpu, NOW_NS, &stale_by(800), false);
    }
    assert!(cpu.path_ns < 1_000, "forgotten: {}", cpu.path_ns);
}

#[test]
fn a_clock_ahead_of_ours_is_not_stale() {
    let mut cpu = known();
    let ahead = RunQueue { clock_ns: NOW_NS - OFFSET_NS + 70, ..RunQueue::default() };
    let expected = Shift { skipped: true, skip_ns: 0, path_ns: 0 };
    assert_eq!(shift(&mut cpu, NOW_NS, &ahead, true), expected);
}

#[test]
fn a_jump_is_thrown_away_and_the_offset_forgotten() {
    let mut cpu = known();
    assert_eq!(shift(&mut cpu, NOW_NS, &stale_by(JUMP_NS + 1), true), Shift::default());
    assert_eq!((cpu.clock_jumps, cpu.switches, cpu.skips), (1, 200, 0));
    assert_eq!(cpu.offset.get(), None);
    // The next sample is the new offset.
    shift(&mut cpu, NOW_NS, &stale_by(JUMP_NS + 100), false);
    let expected = Shift { skipped: false, skip_ns: 0, path_ns: 50 };
    assert_eq!(shift(&mut cpu, NOW_NS, &stale_by(JUMP_NS + 150), false), expected);
    assert_eq!(cpu.clock_jumps, 1);
}

#[test]
fn a_long_skip_is_not_a_jump() {
    let mut cpu = known();
    assert_eq!(shift(&mut cpu, NOW_NS, &stale_by(JUMP_NS), true).total_ns(), JUMP_NS);
}

#[test]
fn a_clock_stands_still_only_since_the_next_task_was_queued() {
    let clocks = stale_by(5_000);
    assert!(stood_still(&clocks, clocks.clock_ns));
    assert!(!stood_still(&clocks, clocks.clock_ns - 1), "it moved since");
    let blank = RunQueue::default();
    assert!(!stood_still(&blank, 0), "nothing noted, as with a kernel without CONFIG_SCHED_INFO");
}

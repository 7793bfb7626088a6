use super::*;

fn clock() -> Clock {
    Clock { step_ns: 50, threshold_ns: 1_000, marks: true, vdso: true }
}

fn tally(distances: &[(u64, bool)]) -> Tally {
    let mut tally = Tally::default();
    for &(distance_ns, entered) in distances {
        tally.add(&clock(), distance_ns, entered);
    }
    tally
}

#[test]
fn threshold_has_a_floor_and_follows_slow_machines() {
    assert_eq!(Clock::from_distances(&mut [20, 22, 21, 90_000, 20]).threshold_ns, 500);
    assert_eq!(Clock::from_distances(&mut [20, 22, 21, 90_000, 20]).step_ns, 21);
    assert_eq!(Clock::from_distances(&mut [60, 60, 60]).threshold_ns, 1_200);
    assert_eq!(Clock::from_distances(&mut [400; 9]).threshold_ns, 8_000);
}

#[test]
fn a_clock_too_coarse_for_a_step_still_gives_a_step() {
    let clock = Clock::from_distances(&mut [0, 0, 0, 1_000_000]);
    assert_eq!((clock.step_ns, clock.threshold_ns), (1, 500));
    assert_eq!(Clock::from_distances(&mut []).step_ns, 1);
}

#[test]
fn median_of_odd_even_and_nothing() {
    assert_eq!(median(&mut [3, 1, 2]), 2);
    assert_eq!(median(&mut [4, 1, 3, 2]), 3);
    assert_eq!(median(&mut []), 0);
}

#[test]
fn a_gap_keeps_one_step_as_user_time() {
    let tally = tally(&[(50, false), (10_050, false), (1_000, false), (1_001, false)]);
    assert_eq!((tally.gaps, tally.gap_ns), (2, 10_000 + 951));
    assert_eq!(tally.user_ns, 50 + 50 + 1_000 + 50);
    assert_eq!((tally.kernel_gaps, tally.kernel_gap_ns), (0, 0));
    assert_eq!(tally.user_ns + tally.gap_ns, 50 + 10_050 + 1_000 + 1_001);
}

#[test]
fn a_mark_names_the_kernel_and_lowers_the_threshold() {
    let tally = tally(&[(20_050, true), (30_050, false), (150, true), (100, true)]);
    assert_eq!((tally.kernel_gaps, tally.kernel_gap_ns), (2, 20_000 + 100));
    assert_eq!((tally.gaps, tally.gap_ns), (3, 50_000 + 100));
}

#[test]
fn an_entry_between_clock_and_mark_belongs_to_the_next_distance() {
    let late = tally(&[(50, true), (9_050, false), (9_050, false)]);
    assert_eq!((late.kernel_gaps, late.kernel_gap_ns, late.gaps), (1, 9_000, 2));
    assert_eq!(late.short_entries, 0);
    let short = tally(&[(50, true), (60, false), (9_050, false)]);
    assert_eq!((short.kernel_gaps, short.gaps, short.short_entries), (0, 1, 1));
}

#[test]
fn burns_add_up() {
    let (one, two) = (tally(&[(50, false), (5_050, true)]), tally(&[(2_050, false), (70, false)]));
    let mut sum = one;
    sum.merge(&two);
    assert_eq!((sum.steps, sum.user_ns, sum.gap_ns), (4, 220, 7_000));
    assert_eq!((sum.kernel_gap_ns, sum.gaps, sum.kernel_gaps), (5_000, 2, 1));
}

#[test]
fn a_burn_accounts_for_every_ns_of_its_time() {
    let clock = Clock::measure().unwrap();
    let before = now_ns();
    let tally = clock.burn(Amount::UserNs(5_000_000));
    let wall_ns = now_ns() - before;
    assert!(tally.user_ns >= 5_000_000 && tally.user_ns <= 5_000_000 + clock.threshold_ns);
    assert!(tally.user_ns + tally.gap_ns <= wall_ns);
    // Outside the tally lie two readings and, rarely, one interrupt.
    assert!(wall_ns - tally.user_ns - tally.gap_ns < wall_ns / 10);
    assert_eq!(clock.burn(Amount::Steps(777)).steps, 777);
}

#[test]
fn sleeping_shows_as_a_gap_and_not_as_user_time() {
    let clock = Clock::measure().unwrap();
    let mut tally = Tally::default();
    let mut last = now_ns();
    for _ in 0..5 {
        std::thread::sleep(std::time::Duration::from_millis(2));
        let now = now_ns();
        tally.add(&clock, now - last, false);
        last = now;
    }
    assert_eq!(tally.gaps, 5);
    assert!(tally.gap_ns >= 9_900_000, "{tally:?}");
    assert!(tally.user_ns <= 5 * clock.step_ns);
}

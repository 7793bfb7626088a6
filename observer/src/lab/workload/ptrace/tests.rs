use super::*;

fn args(syscalls: u64, work_us: u64) -> PtraceArgs {
    PtraceArgs {
        policy: Policy::Other,
        mode: Mode::Syscall,
        syscalls,
        work: WorkArgs { work_us, work_steps: None },
        tracer_cpu: None,
        tracee_cpu: None,
        untraced: false,
        place: Place::default(),
    }
}

#[test]
fn two_stops_per_syscall_and_one_at_the_end() {
    let report = run(&args(200, 0)).unwrap();
    let field = |name: &str| report[name].as_u64().unwrap();
    assert_eq!((field("stops"), field("syscall_stops")), (401, 401), "{report}");
    assert_eq!((field("loops"), field("user_ns")), (200, 0));
    assert_eq!(field("tracer_cpu"), field("tracee_cpu"));
    // At each stop the tracee gives up the CPU of its own accord.
    assert!(field("tracee_switches_voluntary") >= 401, "{report}");
    assert!(field("tracee_cpu_ns") > 0 && field("tracer_cpu_ns") > 0, "{report}");
}

#[test]
fn the_tracee_knows_its_user_time() {
    let report = run(&args(50, 100)).unwrap();
    let field = |name: &str| report[name].as_u64().unwrap();
    assert!((5_000_000..5_100_000).contains(&field("user_ns")), "{report}");
    let stretch_ns = field("tracee_end_ns") - field("tracee_start_ns");
    assert!(field("user_ns") + field("gap_ns") <= stretch_ns, "{report}");
    assert!(stretch_ns <= field("wall_ns"), "{report}");
}

#[test]
fn untraced_does_the_same_without_stops() {
    let report = run(&PtraceArgs { untraced: true, ..args(50, 100) }).unwrap();
    let field = |name: &str| report[name].as_u64().unwrap();
    assert_eq!(report["stops"], Value::Null);
    assert_eq!(field("loops"), 50);
    assert!((5_000_000..5_100_000).contains(&field("user_ns")), "{report}");
    assert!(field("tracee_switches_voluntary") < 10, "{report}");
}

#[test]
fn single_steps_are_counted_exactly() {
    let report = run(&PtraceArgs { mode: Mode::Singlestep, ..args(300, 0) }).unwrap();
    assert_eq!(report["step_stops"], 300);
    assert_eq!(report["stops"], 300);
    assert!(report.get("user_ns").is_none(), "{report}");
}

#[test]
fn a_tally_passes_through_shared_memory_unchanged() {
    let clock = Clock::measure().unwrap();
    let shared = Shared::new().unwrap();
    let mut tally = clock.burn(super::super::clock::Amount::Steps(100));
    tally.gap_ns += 7;
    store_tally(&shared, &tally);
    assert_eq!(load_tally(&shared).to_words(), tally.to_words());
}

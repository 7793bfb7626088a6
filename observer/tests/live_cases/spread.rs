//! E16 and the truth within one run: how far measured and reported times of the same work scatter.

use observer::lab::known::{self, Run, Verdict};
use serde_json::Value;

use crate::support::{cpus, integer, observe, program};

/// Repeats in one session.
const REPEATS: usize = 30;

/// The same pair over and over under one observer: one run for each repeat.
fn repeat(count: usize, arguments: &str) -> Vec<Run> {
    let program = program().to_str().expect("a path in UTF-8");
    let script = format!(
        "i=0; while [ $i -lt {count} ]; do \"$0\" workload ptrace {arguments}; i=$((i+1)); done"
    );
    let records = observe(&["run"], &["sh", "-c", &script, program]);
    let runs: Vec<Run> = records
        .stdout
        .lines()
        .map(|line| {
            let truth: Value = serde_json::from_str(line).expect("a report");
            let is_of_pair =
                |task: &Value| [&truth["tracer_tid"], &truth["tracee_tid"]].contains(&&task["tid"]);
            let tasks = records.tasks().into_iter().filter(|task| is_of_pair(task)).cloned();
            Run {
                header: records.one("header").clone(),
                tasks: tasks.collect(),
                pairs: Vec::new(),
                trailer: records.one("trailer").clone(),
                truth,
            }
        })
        .collect();
    assert_eq!(runs.len(), count);
    runs
}

/// The tracee's figure in each run, ns.
fn of_tracees(runs: &[Run], field: &str) -> Vec<f64> {
    let tracee = |run: &Run| -> f64 {
        let task = run.task(run.truth["tracee_tid"].as_u64()).expect("the tracee");
        integer(task, field) as f64
    };
    runs.iter().map(tracee).collect()
}

/// Standard deviation over the mean, percent.
fn scatter(values: &[f64]) -> f64 {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0);
    100.0 * variance.sqrt() / mean
}

/// What the tracee knows of itself, as user time: what the host took is user time in a guest.
fn own(runs: &[Run]) -> Vec<f64> {
    let of = |run: &Run| {
        run.known("user_ns").unwrap_or(f64::NAN) + run.known("host_gap_ns").unwrap_or(0.0)
    };
    runs.iter().map(of).collect()
}

#[test]
#[ignore = "root"]
fn the_measured_user_time_is_the_tracees_own_in_each_of_thirty_runs() {
    for option in ["", "--untraced"] {
        let runs = repeat(REPEATS, &format!("--syscalls 1000 --work-us 50 {option}"));
        let (mut outliers, mut unsteady) = (Vec::new(), 0);
        for run in &runs {
            if !is_steady(run) {
                unsteady += 1;
                continue;
            }
            match known::pair(run).expect("it can be judged") {
                Verdict::Holds(_) => {}
                Verdict::Fails(text) => outliers.push(text),
                Verdict::Skipped(why) => {
                    println!("SKIPPED: {why}");
                    return;
                }
            }
        }
        let measured = of_tracees(&runs, "user_ns");
        let apart: Vec<f64> =
            measured.iter().zip(own(&runs)).map(|(it, own)| 100.0 * (it - own) / own).collect();
        let (low, high) = apart
            .iter()
            .fold((f64::MAX, f64::MIN), |(low, high), it| (low.min(*it), high.max(*it)));
        println!(
            "{}: measured - own user time {low:+.2} to {high:+.2} %; scatter of measured {:.2} %, of reported {:.2} %",
            if option.is_empty() { "traced" } else { "untraced" },
            scatter(&measured),
            scatter(&of_tracees(&runs, "reported_user_ns")),
        );
        if unsteady > REPEATS / 2 {
            println!(
                "SKIPPED: {unsteady} of {REPEATS} calibrations were not steady: others use this machine"
            );
            return;
        }
        // The host may pause a run.
        assert!(outliers.len() <= 3, "{outliers:#?}");
    }
}

/// The header says how far the calibrations of a border lay apart: more than a sixth, and the costs are no good.
fn is_steady(run: &Run) -> bool {
    ["syscall", "ptrace stop"].into_iter().all(|kind| {
        match (run.border_ns("crossing_costs_ns", kind), run.border_ns("crossing_spreads_ns", kind))
        {
            (Some(cost_ns), Some(spread_ns)) => spread_ns * 6 <= cost_ns,
            // A stop that hooks of its own time has no border to calibrate.
            _ => kind == "ptrace stop",
        }
    })
}

#[test]
#[ignore = "root"]
fn e16_the_same_work_under_a_tracer_scatters_less_as_measured() {
    if cpus() < 2 {
        println!("SKIPPED: one CPU");
        return;
    }
    for (place, tracer_cpu) in [("the same CPU", 0), ("another CPU", 1)] {
        // The same instructions each time: how long they take is the machine's.
        let runs = repeat(
            20,
            &format!("--syscalls 40 --work-steps 1000 --tracee-cpu 0 --tracer-cpu {tracer_cpu}"),
        );
        let measured = of_tracees(&runs, "user_ns");
        let reported = of_tracees(&runs, "reported_user_ns");
        println!(
            "tracer on {place}: scatter of user time measured {:.1} %, reported {:.1} %, own {:.1} %",
            scatter(&measured),
            scatter(&reported),
            scatter(&own(&runs)),
        );
        for (run, measured_ns) in runs.iter().zip(&measured) {
            let oncpu = of_tracees(std::slice::from_ref(run), "oncpu_ns");
            assert!(*measured_ns > 0.0 && *measured_ns <= oncpu[0], "user time is part of it");
        }
    }
}

//! From exec to attached, and back.

use std::{
    fs::File,
    io::{BufRead as _, BufReader},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use serde_json::json;

use super::{
    Section,
    setup::{Bench, Observer},
    stats::Quartiles,
};

/// Times of starts and stops, and the steps of a start.
///
/// # Errors
/// When observer fails.
pub fn run(place: &Bench) -> Result<Vec<Section>> {
    let cases: [(&str, &[&str]); 4] = [
        ("observer", &[]),
        ("observer --no-split", &["--no-split"]),
        ("observer --hooks minimal", &["--hooks", "minimal"]),
        ("observer --max-tasks 1000 --max-pairs 0", &["--max-tasks", "1000", "--max-pairs", "0"]),
    ];
    let mut times: Vec<(Vec<f64>, Vec<f64>)> = vec![Default::default(); cases.len()];
    for _ in 0..place.rounds {
        for ((_, options), (starts, stops)) in cases.iter().zip(&mut times) {
            let (start, stop) = once(place, options)?;
            starts.push(ms(start));
            stops.push(ms(stop));
        }
    }
    let mut text =
        "| options | exec to attached, ms: median (quartiles) | SIGINT to ended, ms | runs |\n\
                    |---|---|---|---|\n"
            .to_owned();
    let mut lines = Vec::new();
    for ((name, _), (starts, stops)) in cases.iter().zip(&times) {
        let (Some(start), Some(stop)) =
            (Quartiles::of(starts.iter().copied()), Quartiles::of(stops.iter().copied()))
        else {
            continue;
        };
        text += &format!(
            "| {name} | {:.0} ({:.0} to {:.0}) | {:.0} ({:.0} to {:.0}) | {} |\n",
            start.median, start.low, start.high, stop.median, stop.low, stop.high, start.count
        );
        lines.push(json!({
            "bench": "start", "name": name, "unit": "ms", "runs": start.count,
            "start": [start.low, start.median, start.high], "stop": [stop.low, stop.median, stop.high],
        }));
    }
    Ok(vec![Section { title: "start".to_owned(), text, lines }, steps(place)?])
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn once(place: &Bench, options: &[&str]) -> Result<(Duration, Duration)> {
    let options: Vec<String> = options.iter().map(|option| (*option).to_owned()).collect();
    let target = ["--pid".to_owned(), std::process::id().to_string(), "--no-follow".to_owned()];
    let begin = Instant::now();
    let observer = Observer::start(place, &target, &options)?;
    let start = begin.elapsed();
    let (_, stop) = observer.stop()?;
    Ok((start, stop))
}

/// The steps of a start, by when observer's own diagnostics of them come.
fn steps(place: &Bench) -> Result<Section> {
    let mut steps: Vec<(String, Vec<f64>)> = Vec::new();
    for _ in 0..place.rounds {
        for (name, time_ms) in trace(place)? {
            match steps.iter_mut().find(|(known, _)| *known == name) {
                Some((_, times)) => times.push(time_ms),
                None => steps.push((name, vec![time_ms])),
            }
        }
    }
    let mut text = "| step | ms: median (quartiles) |\n|---|---|\n".to_owned();
    let mut lines = Vec::new();
    for (name, times) in steps {
        let Some(time) = Quartiles::of(times) else { continue };
        text += &format!("| {name} | {:.1} ({:.1} to {:.1}) |\n", time.median, time.low, time.high);
        lines.push(json!({
            "bench": "start, by step", "name": name, "unit": "ms", "runs": time.count,
            "time": [time.low, time.median, time.high],
        }));
    }
    Ok(Section { title: "start, by step".to_owned(), text, lines })
}

/// One start: each step and how long it took.
fn trace(place: &Bench) -> Result<Vec<(String, f64)>> {
    let pid = std::process::id().to_string();
    let begin = Instant::now();
    let mut child = Command::new("nice")
        .args(["-n", "-20"])
        .arg(&place.observer)
        .args(["--log", "--log", "--pid", &pid, "--no-follow", "-n", "1", "-i", "0.01"])
        .args(["-o", "/dev/null", "--format", "jsonl"])
        .stdin(Stdio::null())
        .stdout(File::create("/dev/null")?)
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot start observer")?;
    let stderr = child.stderr.take().context("observer has no output")?;
    let (mut last, mut steps) = (begin, Vec::<(String, f64)>::new());
    for line in BufReader::new(stderr).lines() {
        let (line, now) = (line?, Instant::now());
        let Some(name) = step_of(&line) else { continue };
        let took_ms = ms(now - last);
        last = now;
        match steps.iter_mut().find(|(known, _)| *known == name) {
            Some((_, sum)) => *sum += took_ms,
            None => steps.push((name, took_ms)),
        }
    }
    ensure!(child.wait()?.success(), "observer failed");
    // Everything but the steps themselves has ended; the kernel frees maps later.
    thread::sleep(Duration::from_millis(50));
    Ok(steps)
}

/// The step that a line of diagnostics ends.
fn step_of(line: &str) -> Option<String> {
    let words = line.split_once("] ")?.1;
    if let Some(step) = words.strip_prefix("start: ") {
        return Some(step.to_owned());
    }
    words.contains(": Active(").then(|| "programs attached, those at functions loaded".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_read_from_the_diagnostics() {
        let hook = "[DEBUG observer::probe::load] sched_switch: Active(Some(812))";
        assert_eq!(step_of(hook).as_deref(), Some("programs attached, those at functions loaded"));
        let step = "[DEBUG observer::session] start: calibrated";
        assert_eq!(step_of(step).as_deref(), Some("calibrated"));
        assert_eq!(step_of("something else"), None);
    }
}

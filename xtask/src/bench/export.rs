//! Readings at 1 Hz of many tasks, in each format: what a reading costs in user space.

use std::{
    fs::{self, File},
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use serde_json::json;

use super::{Section, setup::Bench, stats::Quartiles};

/// Threads that are observed.
const TASKS: [&str; 2] = ["1000", "5000"];
/// Readings of a run, 0.1 s apart.
const READINGS: &str = "20";

/// CPU time of observer by format and number of tasks.
///
/// # Errors
/// When observer or the load fails.
pub fn run(place: &Bench) -> Result<Vec<Section>> {
    let mut text = "| tasks | format | CPU ms per reading: median (quartiles) | bytes per task and reading | runs |\n\
                    |---|---|---|---|---|\n"
        .to_owned();
    let mut lines = Vec::new();
    for tasks in TASKS {
        let mut load = Command::new(std::env::current_exe()?)
            .args(["bench", "load", "idle", tasks, "100000"])
            .stdin(Stdio::null())
            .spawn()
            .context("cannot start the load")?;
        thread::sleep(Duration::from_secs(1));
        for format in ["jsonl", "csv", "table"] {
            let runs = (0..place.rounds.min(5)).map(|_| once(place, load.id(), format));
            let runs = runs.collect::<Result<Vec<_>>>();
            let runs = match runs {
                Ok(runs) => runs,
                Err(error) => {
                    load.kill()?;
                    return Err(error);
                }
            };
            let Some(time) = Quartiles::of(runs.iter().map(|run| run.0)) else { continue };
            let bytes = runs.last().map_or(0.0, |run| run.1) / tasks.parse::<f64>()?;
            text += &format!(
                "| {tasks} | {format} | {:.2} ({:.2} to {:.2}) | {bytes:.0} | {} |\n",
                time.median, time.low, time.high, time.count
            );
            lines.push(json!({
                "bench": "export", "tasks": tasks, "format": format, "unit": "CPU ms per reading",
                "time": [time.low, time.median, time.high], "bytes_per_task": bytes,
            }));
        }
        load.kill()?;
        load.wait()?;
    }
    Ok(vec![Section { title: "export".to_owned(), text, lines }])
}

/// CPU time per reading, ms, without the start; and bytes per reading.
fn once(place: &Bench, pid: u32, format: &str) -> Result<(f64, f64)> {
    let file = place.folder.join("export.data");
    let run = |readings: &str| -> Result<f64> {
        let mut command = Command::new(&place.observer);
        command.args(["--pid", &pid.to_string(), "-i", "0.1", "-n", readings]);
        if format != "table" {
            command.arg("-o").arg(&file).args(["--format", format]);
        }
        command.stdin(Stdio::null()).stdout(File::create(place.folder.join("export.out"))?);
        command.stderr(Stdio::null());
        let before = children_ms()?;
        ensure!(command.status()?.success(), "observer failed");
        Ok(children_ms()? - before)
    };
    let one = run("1")?;
    let few_bytes = written(place, format)?;
    let many = run(READINGS)?;
    let more: f64 = READINGS.parse::<f64>()? - 1.0;
    Ok(((many - one) / more, (written(place, format)? - few_bytes) / more))
}

fn written(place: &Bench, format: &str) -> Result<f64> {
    let name = if format == "table" { "export.out" } else { "export.data" };
    Ok(fs::metadata(place.folder.join(name))?.len() as f64)
}

/// CPU time of the children that have ended.
fn children_ms() -> Result<f64> {
    // SAFETY: a struct of integers; all zero is valid.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes the struct, which lives over the call.
    let result = unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage) };
    ensure!(result == 0, "getrusage: {}", std::io::Error::last_os_error());
    let ms = |time: libc::timeval| time.tv_sec as f64 * 1e3 + time.tv_usec as f64 / 1e3;
    Ok(ms(usage.ru_utime) + ms(usage.ru_stime))
}

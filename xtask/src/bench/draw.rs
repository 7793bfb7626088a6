//! The live view: what a key, a reading and the drawing after them take, with many tasks.

use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;
use serde_json::json;

use super::{Section, stats::Quartiles};
use crate::project::Project;

/// Tasks on the screen and beyond it.
const TASKS: [&str; 3] = ["100", "1000", "10000"];
/// Each of these is a process of its own: where its memory lies is chance, too.
const MOST_ROUNDS: usize = 5;

/// What the example says of one step.
#[derive(Deserialize)]
struct Step {
    name: String,
    us: Vec<f64>,
}

/// Times of each step by number of tasks. Nothing is observed, so this needs no root.
///
/// # Errors
/// When the example cannot be built, or fails.
pub fn run(project: &Project, rounds: usize) -> Result<Vec<Section>> {
    let rounds = rounds.min(MOST_ROUNDS);
    let mut text = "| tasks | step | us: median (quartiles) | largest | times |\n\
                    |---|---|---|---|---|\n"
        .to_owned();
    let mut lines = Vec::new();
    for tasks in TASKS {
        for Step { name, us } in steps(project, tasks, rounds)? {
            let largest = us.iter().copied().fold(0.0, f64::max);
            let Some(time) = Quartiles::of(us) else { continue };
            text += &format!(
                "| {tasks} | {name} | {:.0} ({:.0} to {:.0}) | {largest:.0} | {} |\n",
                time.median, time.low, time.high, time.count
            );
            lines.push(json!({
                "bench": "draw", "tasks": tasks, "name": name, "unit": "us", "runs": time.count,
                "time": [time.low, time.median, time.high], "largest": largest,
            }));
        }
    }
    Ok(vec![Section { title: "draw".to_owned(), text, lines }])
}

/// The steps in the order of the first round, each with the times of all rounds.
fn steps(project: &Project, tasks: &str, rounds: usize) -> Result<Vec<Step>> {
    let mut steps: Vec<Step> = Vec::new();
    for _ in 0..rounds {
        for new in once(project, tasks)? {
            match steps.iter_mut().find(|step| step.name == new.name) {
                Some(step) => step.us.extend(new.us),
                None => steps.push(new),
            }
        }
    }
    Ok(steps)
}

fn once(project: &Project, tasks: &str) -> Result<Vec<Step>> {
    let mut cargo: Command = project.cargo("run");
    cargo.args(["--release", "--quiet", "--package", "observer", "--example", "draw", tasks]);
    let output = cargo
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .context("cannot start the example")?;
    ensure!(output.status.success(), "the example `draw` failed: {}", output.status);
    let lines = String::from_utf8(output.stdout)?;
    lines.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
}

//! `cargo xtask bench`: what observer costs, and how far it reaches. One module per benchmark.
//!
//! Nothing here passes or fails: the machine decides over the numbers. Each comparison is made in pairs, one right
//! after the other, and told as a median with its quartiles.

mod draw;
mod export;
mod floor;
mod job;
mod load;
mod machine;
mod paired;
mod scale;
mod setup;
mod start;
mod stats;
mod switch;
mod syscall;

use std::{
    fs::{self, File},
    io::Write as _,
    path::PathBuf,
    process::ExitCode,
};

use anyhow::{Context as _, Result};
use serde_json::Value;

use self::{
    floor::Floor,
    paired::Row,
    setup::{Bench, Observer},
};
use crate::{build, project::Project};

/// Measure what observer costs; needs root, but for `draw`.
#[derive(clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    what: Option<What>,
    /// Rounds of pairs
    #[arg(long, global = true, default_value_t = 15, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
    /// The CPU that measured programs are pinned to [default: the last one]
    #[arg(long, global = true)]
    cpu: Option<usize>,
    /// Append the results to FILE, as JSON lines
    #[arg(long, global = true, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Put the tables into docs/overhead.md
    #[arg(long, global = true)]
    record: bool,
}

/// The benchmarks.
#[derive(clap::Subcommand, Clone)]
enum What {
    /// A context switch: pipe ping-pong on one CPU
    Switch {
        /// Each optional hook alone, on top of the required ones
        #[arg(long)]
        each_hook: bool,
    },
    /// A syscall: a loop of getppid
    Syscall,
    /// From exec to attached, and from the end to detached
    Start,
    /// Many tasks, forks, wakeups and pairs: what is lost, memory, CPU time
    Scale {
        /// Tasks that sleep [default: 100,000, or what kernel.pid_max leaves room for]
        #[arg(long)]
        tasks: Option<usize>,
        /// Seconds of each load
        #[arg(long, default_value_t = 30)]
        seconds: u64,
        /// In place of all that: a mixed load for so many seconds, with the memory each minute
        #[arg(long, value_name = "SECONDS")]
        soak: Option<u64>,
    },
    /// Readings in each format, with many tasks
    Export,
    /// The live view: drawing, scrolling, sorting, with many tasks; needs no root
    Draw,
    /// A load of the benchmarks
    #[command(hide = true)]
    Load {
        #[command(subcommand)]
        load: load::Load,
    },
}

/// A table of results.
pub struct Section {
    /// What it is about; also its mark in the document.
    title: String,
    /// Markdown.
    text: String,
    /// The same for programs.
    lines: Vec<Value>,
}

impl Section {
    /// Of pairs.
    fn paired(title: &str, unit: &str, rows: &[Row]) -> Self {
        let lines = paired::json(title, unit, rows);
        Self { title: title.to_owned(), text: paired::table(unit, rows), lines }
    }
}

/// Builds observer and runs what was asked for, or everything.
///
/// # Errors
/// Without root, or when the build or a benchmark fails.
pub fn task(project: &Project, arguments: &Arguments) -> Result<ExitCode> {
    if let Some(What::Load { load }) = &arguments.what {
        load::run(load)?;
        return Ok(ExitCode::SUCCESS);
    }
    if !matches!(arguments.what, Some(What::Draw)) {
        floor::check()?;
    }
    let folder = project.target.join("bench");
    fs::create_dir_all(&folder)?;
    let place = Bench {
        observer: build::observer(project, true)?,
        folder,
        rounds: arguments.rounds.into(),
        cpu: arguments.cpu.map_or_else(machine::last_cpu, Ok)?,
    };
    let scale = What::Scale { tasks: None, seconds: 30, soak: None };
    let all = [
        What::Switch { each_hook: false },
        What::Syscall,
        What::Start,
        scale,
        What::Export,
        What::Draw,
    ];
    let wanted = match &arguments.what {
        Some(one) => std::slice::from_ref(one),
        None => &all,
    };
    for what in wanted {
        let before = machine::Machine::now(project)?;
        let sections = run(project, &place, what)?;
        let machine = before.until_now()?;
        for section in &sections {
            println!("## {}\n\n{}\n{}", section.title, machine.text(), section.text);
            if let Some(file) = &arguments.json {
                append(file, &machine, section)?;
            }
            if arguments.record {
                machine::record(
                    project,
                    &section.title,
                    &format!("{}\n{}", machine.text(), section.text),
                )?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn run(project: &Project, place: &Bench, what: &What) -> Result<Vec<Section>> {
    match what {
        What::Switch { each_hook } => switch::run(place, *each_hook),
        What::Syscall => syscall::run(place),
        What::Start => start::run(place),
        What::Scale { soak: Some(seconds), .. } => scale::soak(place, *seconds),
        What::Scale { tasks, seconds, .. } => scale::run(place, *tasks, *seconds),
        What::Export => export::run(place),
        What::Draw => draw::run(project, place.rounds),
        What::Load { .. } => Ok(Vec::new()),
    }
}

fn append(file: &PathBuf, machine: &machine::Machine, section: &Section) -> Result<()> {
    let mut file = File::options()
        .create(true)
        .append(true)
        .open(file)
        .with_context(|| format!("cannot write {}", file.display()))?;
    for line in &section.lines {
        let mut line = line.clone();
        line["machine"] = machine.json();
        writeln!(file, "{line}")?;
    }
    Ok(())
}

/// Those of these tracepoints that this kernel has.
fn present(tracepoints: &[&'static str]) -> Vec<&'static str> {
    tracepoints.iter().copied().filter(|name| Floor::has(name)).collect()
}

/// The hooks that work here and are not required.
fn optional_hooks(place: &Bench) -> Result<Vec<String>> {
    let active = |options: &[&str]| -> Result<Vec<String>> {
        let options: Vec<String> = options.iter().map(|option| (*option).to_owned()).collect();
        let target = ["--pid".to_owned(), std::process::id().to_string()];
        let observer = Observer::start(place, &target, &options)?;
        let hooks = observer.header["hooks"].as_array().cloned().unwrap_or_default();
        let active = hooks.iter().filter(|hook| hook["state"] == "active");
        Ok(active.filter_map(|hook| hook["name"].as_str().map(str::to_owned)).collect())
    };
    let required = active(&["--hooks", "minimal"])?;
    Ok(active(&[])?.into_iter().filter(|hook| !required.contains(hook)).collect())
}

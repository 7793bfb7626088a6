//! The command line: one file per subcommand. clap's types are the raw input; each command makes its own plan.

pub mod doctor;
pub mod explain;
pub mod live;
pub mod output;
pub mod picture;
pub mod run;
mod screen;
mod ticker;

use std::{ffi::OsString, path::PathBuf, process::ExitCode, time::Duration};

use anyhow::Result;
use clap::{Args, CommandFactory as _, Parser, Subcommand, error::ErrorKind};

use crate::{
    export::{Format, Table, schema},
    kernel::Unsupported,
    lab::workload::{self, Workload},
    model::By,
    probe::{
        cycles::Choice,
        selection::{Base, Selection, parse_without},
    },
    session::{
        Options,
        target::{Target, parse_glob},
    },
};

/// 0; for `run` that of CMD; 2 usage; 3 not allowed here; 1 anything else.
pub mod exit {
    /// Anything else.
    pub const FAILURE: u8 = 1;
    /// This kernel or these rights do not allow it.
    pub const UNSUPPORTED: u8 = 3;
}

/// Shows how far the CPU time that the kernel reports for a task is from what it really used.
#[derive(Parser, Debug)]
#[command(name = "observer", version)]
#[command(after_help = "Exit status: 0; for `run` that of CMD (128+N for signal N); 2 usage; \
    3 this kernel or these rights do not allow it; 1 anything else.")]
pub struct Cli {
    /// Show diagnostics of both sides on stderr (repeat for more)
    #[arg(long, global = true, action = clap::ArgAction::Count)]
    log: u8,
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    live: LiveArgs,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Run CMD as the invoking user, observe it and its descendants, print the verdict
    Run(RunArgs),
    /// Say in words how far the figures are off, by whom, how, and what would help: for a file of ours, a process,
    /// or a command
    Explain(ExplainArgs),
    /// Show each hook, the accounting mode and the limits, and test known answers
    Doctor,
    /// Print the JSON schema of the exported records
    Schema,
    /// Known-answer programs, for tests
    #[command(hide = true)]
    Workload {
        #[command(subcommand)]
        workload: Workload,
    },
}

/// Who is observed.
#[derive(Args, Debug)]
pub struct FilterArgs {
    /// Observe process PID, all its threads, and its descendants (repeatable)
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    pid: Vec<u32>,
    /// Observe thread TID alone (repeatable)
    #[arg(long, value_name = "TID", value_parser = clap::value_parser!(u32).range(1..))]
    tid: Vec<u32>,
    /// Observe threads whose name matches GLOB (`*`, `?`, `[a-z]`)
    #[arg(long, value_name = "GLOB", value_parser = parse_glob)]
    comm: Option<(String, Box<observer_common::glob::Glob>)>,
    /// Observe the tasks of a cgroup (version 2) and of all below it
    #[arg(long, value_name = "PATH")]
    cgroup: Option<PathBuf>,
    /// Observe every task
    #[arg(long)]
    all: bool,
    /// Leave descendants out
    #[arg(long)]
    no_follow: bool,
}

impl FilterArgs {
    fn target(&self) -> Target {
        Target {
            pids: self.pid.clone(),
            tids: self.tid.clone(),
            glob: self.comm.clone(),
            cgroup: self.cgroup.clone(),
            all: self.all,
            no_follow: self.no_follow,
        }
    }
}

/// What runs in the kernel.
#[derive(Args, Debug)]
pub struct ProbeArgs {
    /// Room for N accounts at once
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4_194_304))]
    max_tasks: Option<u32>,
    /// Room for N pairs of tasks at once; 0 keeps none. What finds no room is summed in one row
    /// [default: 4096; with --no-split: 0]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=1_048_576))]
    max_pairs: Option<u32>,
    /// Hooks to attach: `auto` (all that work), `minimal`, or NAME,...; `observer doctor` names them
    #[arg(long, value_name = "HOOKS", default_value = "auto", value_parser = Base::parse)]
    hooks: Base,
    /// Leave a hook out (repeatable)
    #[arg(long, value_name = "NAME", value_parser = parse_without)]
    without: Vec<String>,
    /// Totals only: no split into user and system, no pairs (but with --max-pairs N), and no hook
    /// that is only needed for them
    #[arg(long)]
    no_split: bool,
    /// Count cycles in user mode and in the kernel, by the PMU
    #[arg(long, value_enum, value_name = "WHEN", default_value_t = Choice::Auto)]
    cycles: Choice,
}

/// Where the figures go.
#[derive(Args, Debug)]
pub struct OutputArgs {
    /// Write the figures to FILE; `-` is stdout. The format follows the extension
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// The format of the figures
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// Tasks in the table; the rest is summed in one row
    #[arg(long, value_name = "N", default_value_t = 20)]
    top: usize,
    /// Pairs of tasks below the table, those that moved most time first; 0 for none
    #[arg(long, value_name = "N", default_value_t = 5)]
    pairs: usize,
    /// Sum the tasks by what they have in common: in the table, and as `group` records
    #[arg(long, value_enum, value_name = "WHAT")]
    by: Option<By>,
    /// The records that a CSV file holds [default: tasks]
    #[arg(long, value_enum)]
    table: Option<Table>,
    #[command(flatten)]
    probe: ProbeArgs,
    /// When to use colour
    #[arg(long, value_enum, default_value_t = Color::Auto)]
    color: Color,
}

/// When to use colour.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Color {
    /// On a terminal, unless NO_COLOR is set
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

/// `observer --pid PID`.
#[derive(Args, Debug)]
pub struct LiveArgs {
    #[command(flatten)]
    filter: FilterArgs,
    /// Seconds between two readings
    #[arg(short, long, value_name = "SECS", default_value = "1", value_parser = parse_seconds)]
    interval: Duration,
    /// Stop after COUNT readings
    #[arg(short = 'n', long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Print lines also on a terminal
    #[arg(long)]
    plain: bool,
    #[command(flatten)]
    picture: picture::PictureArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// `observer run`.
#[derive(Args, Debug)]
pub struct RunArgs {
    /// Leave descendants out
    #[arg(long)]
    no_follow: bool,
    #[command(flatten)]
    output: OutputArgs,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// `observer explain`.
#[derive(Args, Debug)]
#[command(group(clap::ArgGroup::new("what").args(["file", "pid", "command"]).required(true)))]
pub struct ExplainArgs {
    /// JSON lines that `-o FILE.jsonl` wrote; `-` is stdin
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// Observe process PID for COUNT readings (repeatable)
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    pid: Vec<u32>,
    /// Leave descendants out
    #[arg(long, conflicts_with = "file")]
    no_follow: bool,
    /// Seconds between two readings
    #[arg(short, long, value_name = "SECS", default_value = "1", value_parser = parse_seconds,
          conflicts_with_all = ["file", "command"])]
    interval: Duration,
    /// Stop after COUNT readings
    #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 5,
          value_parser = clap::value_parser!(u64).range(1..), conflicts_with_all = ["file", "command"])]
    count: u64,
    #[command(flatten)]
    probe: ProbeArgs,
    /// Run this command, observe it and its descendants
    #[arg(last = true, value_name = "CMD")]
    command: Vec<OsString>,
}

fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds".to_owned())?;
    if !(0.01..=86_400.0).contains(&seconds) {
        return Err("between 0.01 and 86400 seconds".to_owned());
    }
    Ok(Duration::from_secs_f64(seconds))
}

/// Parses, runs, and turns errors into one line and the documented exit status.
#[must_use]
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help for a closed pipe is not a fault.
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { 2 } else { 0 });
        }
    };
    start_log(cli.log);
    match dispatch(&cli) {
        Ok(code) => code,
        Err(error) if output::is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            output::warn(&format!("observer: {error:#}"));
            let unsupported = error.chain().any(|cause| cause.is::<Unsupported>());
            ExitCode::from(if unsupported { exit::UNSUPPORTED } else { exit::FAILURE })
        }
    }
}

fn dispatch(cli: &Cli) -> Result<ExitCode> {
    if cli.command.is_some() && !cli.live.filter.target().is_empty() {
        // clap's own rule for this would refuse `observer --log run` too.
        return Ok(usage("--pid, --tid, --comm, --cgroup and --all do not go with a subcommand"));
    }
    let output = match &cli.command {
        Some(Command::Run(args)) => Some(&args.output),
        Some(_) => None,
        None => Some(&cli.live.output),
    };
    if output.is_some_and(|args| args.table.is_some() && output::format(args) != Format::Csv) {
        return Ok(usage(
            "--table says which records a CSV file holds: add -o FILE.csv or --format csv",
        ));
    }
    match &cli.command {
        Some(Command::Run(args)) => run::main(args),
        Some(Command::Explain(args)) => explain::main(args),
        Some(Command::Doctor) => doctor::main(),
        Some(Command::Schema) => {
            output::print(&format!("{:#}\n", schema::schema()))?;
            Ok(ExitCode::SUCCESS)
        }
        Some(Command::Workload { workload }) => {
            output::print(&format!("{}\n", workload::run(workload)?))?;
            Ok(ExitCode::SUCCESS)
        }
        None if cli.live.filter.target().is_empty() => Ok(usage(
            "say whom to observe: --pid PID, --tid TID, --comm GLOB, --cgroup PATH, --all, \
             or `observer run -- CMD`",
        )),
        None => live::main(&cli.live),
    }
}

/// A usage error in clap's own form.
fn usage(words: &str) -> ExitCode {
    let _ = Cli::command().error(ErrorKind::MissingRequiredArgument, words).print();
    ExitCode::from(2)
}

/// Both sides' diagnostics go to stderr, and only on request.
fn start_log(level: u8) {
    let level = match level {
        0 => log::LevelFilter::Off,
        1 => log::LevelFilter::Info,
        2 => log::LevelFilter::Debug,
        _ => log::LevelFilter::Trace,
    };
    // It is called once; a second logger would be refused and the first kept.
    let _ = env_logger::Builder::new().filter_level(level).try_init();
}

fn options(target: Target, probe: &ProbeArgs) -> Options {
    let hooks = Selection {
        base: probe.hooks.clone(),
        without: probe.without.clone(),
        no_split: probe.no_split,
        no_pairs: probe.max_pairs.map_or(probe.no_split, |pairs| pairs == 0),
    };
    Options {
        target,
        max_tasks: probe.max_tasks,
        max_pairs: probe.max_pairs,
        hooks,
        cycles: probe.cycles,
        hands_out: false,
    }
}

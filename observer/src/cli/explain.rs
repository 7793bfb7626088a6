//! `observer explain FILE|--pid PID|-- CMD`: why the figures differ, in words that one can act on.

use std::{
    fs::File,
    io::{self, BufReader, Read},
    path::Path,
    process::ExitCode,
};

use anyhow::{Context as _, Result, bail};

use super::{
    ExplainArgs, output, run,
    ticker::{self, Event, Signals, Ticker},
};
use crate::{
    export::read::{self, Recorded},
    model::Report,
    session::{Session, target::Target},
    view::explain,
};

/// Runs the command.
pub fn main(args: &ExplainArgs) -> Result<ExitCode> {
    match &args.file {
        Some(path) => file(path),
        None if args.command.is_empty() => live(args),
        None => command(args),
    }
}

/// A file that ends early is explained as far as it goes; the exit status says that it was not whole.
fn file(path: &Path) -> Result<ExitCode> {
    let name = if path == Path::new("-") { "stdin".to_owned() } else { path.display().to_string() };
    let source: Box<dyn Read> = if path == Path::new("-") {
        Box::new(io::stdin())
    } else {
        Box::new(File::open(path).with_context(|| format!("cannot read {name}"))?)
    };
    let Recorded { report, gap } =
        read::read(BufReader::new(source)).with_context(|| format!("cannot explain {name}"))?;
    say(&report, false)?;
    match gap {
        None => Ok(ExitCode::SUCCESS),
        Some(gap) => bail!("{name}: {gap}"),
    }
}

fn say(report: &Report, aside: bool) -> Result<()> {
    let text = explain::render(report, output::width(aside));
    if aside {
        output::warn(text.trim_end());
        return Ok(());
    }
    output::print(&text)
}

/// Stdout is the command's, so the words go to stderr, as for `run`.
fn command(args: &ExplainArgs) -> Result<ExitCode> {
    match run::observe(&args.command, args.no_follow, &args.probe, None)? {
        Err(code) => Ok(code),
        Ok((report, ended, _session)) => {
            say(&report, true)?;
            Ok(run::exit_code(&ended))
        }
    }
}

/// Observes for a while, then explains.
fn live(args: &ExplainArgs) -> Result<ExitCode> {
    let target = Target { pids: args.pid.clone(), no_follow: args.no_follow, ..Target::default() };
    target.check()?;
    let mut session = Session::start(&super::options(target, &args.probe))?;
    let (runtime, signals) = ticker::runtime(&[])?;
    session.observe()?;
    if session.is_over() {
        bail!("the task has ended before it could be observed");
    }
    runtime.block_on(watch(args, &mut session, signals))?;
    session.finish()?;
    say(&session.report(), false)?;
    Ok(ExitCode::SUCCESS)
}

/// Until the count is reached, the target is gone, or a signal comes.
async fn watch(args: &ExplainArgs, session: &mut Session, signals: Signals) -> Result<()> {
    let mut ticker = Ticker::new(session, args.interval, signals)?;
    let mut number = 0;
    loop {
        match ticker.next(session.patience()).await {
            Event::Pump | Event::Child => session.pump()?,
            Event::Signal(_) => return Ok(()),
            Event::Reading => {
                session.snapshot()?;
                number += 1;
                if number >= args.count || session.is_over() {
                    return Ok(());
                }
            }
        }
    }
}

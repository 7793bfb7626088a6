//! `observer run -- CMD`: observe a command from before its exec to its end, and say how right the kernel is.

use std::{io::IsTerminal as _, process::ExitCode, time::Duration};

use anyhow::Result;
use observer_common::names::target;
use tokio::signal::unix::SignalKind;

use super::{
    RunArgs,
    output::{self, Output},
    ticker::{Event, Ticker},
};
use crate::{
    session::{
        Session,
        child::{self, Child, Ended},
        target::Target,
    },
    view::verdict,
};

/// How often a long run is read although nobody asks: so that counters are near when it ends.
const READING: Duration = Duration::from_secs(1);

/// Runs the command.
pub fn main(args: &RunArgs) -> Result<ExitCode> {
    child::check(&args.command)?;
    let mut output = Output::open(&args.output, true)?;
    // Forked first: the fork copies one thread and no map, and the command starts with clean signals.
    let mut child = Child::spawn(&args.command)?;
    let target = Target { no_follow: args.no_follow, ..Target::default() };
    let mut session = Session::start(&super::options(target, &args.output))?;
    session.probe_mut().add_target(child.pid(), target::PROCESS)?;
    session.observe()?;
    output.header(session.header())?;
    if let Err((status, words)) = child.release(&args.command[0])? {
        output::warn(&format!("observer: {words}"));
        return Ok(ExitCode::from(u8::try_from(status).unwrap_or(super::exit::FAILURE)));
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let ended = runtime.block_on(attend(&mut session, &child))?;
    session.finish()?;
    let mut report = session.report();
    report.rusage_ns = Some((ended.user_ns, ended.system_ns));
    report.sentences = verdict::sentences(&report);
    match output.finish(&report) {
        Err(error) if !output::is_closed_pipe(&error) => {
            output::warn(&format!("observer: {error:#}"));
        }
        _ => {}
    }
    Ok(ExitCode::from(u8::try_from(ended.status & 0xff).unwrap_or(super::exit::FAILURE)))
}

/// Until the command has ended. Signals are passed on; the terminal sends its own to both.
async fn attend(session: &mut Session, child: &Child) -> Result<Ended> {
    let pass_on = [SignalKind::quit(), SignalKind::user_defined1(), SignalKind::user_defined2()];
    let mut ticker = Ticker::new(session, READING, &pass_on)?;
    let on_terminal = std::io::stdin().is_terminal();
    loop {
        if let Some(ended) = child.try_wait()? {
            return Ok(ended);
        }
        match ticker.next().await {
            Event::Pump => session.pump()?,
            Event::Reading => session.snapshot()?,
            Event::Child => {}
            Event::Signal(number) => {
                let from_terminal = number == libc::SIGINT || number == libc::SIGQUIT;
                if !(from_terminal && on_terminal) {
                    child.signal(number);
                }
            }
        }
    }
}

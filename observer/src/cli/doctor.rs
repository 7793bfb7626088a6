//! `observer doctor`: what works here, what is lost, and whether known answers come out right.

use std::{ffi::OsString, process::ExitCode};

use anyhow::Result;
use observer_common::task::crossing;

use super::output;
use crate::{
    kernel::{Accounting, Btf, Limits, Unsupported},
    lab::known::{self, Verdict},
    session::{Options, Session},
};

/// Runs the command. Exit 0 only if all of it holds.
pub fn main() -> Result<ExitCode> {
    let btf = Btf::from_sysfs().map_err(Unsupported::from)?;
    let limits = Limits::detect(Some(&btf));
    let accounting = Accounting::detect(&btf);
    output::print(&environment(&limits, &accounting))?;
    let session = Session::start(&Options::default())?;
    output::print(&hooks(&session))?;
    output::print(&costs(&session))?;
    output::print(&cycles(&session))?;
    drop(session);
    output::print("\nKnown answers, against a clock that the program reads itself\n")?;
    let program = std::env::current_exe().map_or_else(|_| OsString::from("observer"), Into::into);
    let mut failed = 0;
    for test in known::TESTS {
        let outcome = known::check(&test, &program);
        let (word, text) = match &outcome {
            Ok(Verdict::Holds(text)) => ("ok", text.clone()),
            Ok(Verdict::Skipped(text)) => ("skipped", text.clone()),
            Ok(Verdict::Fails(text)) => ("FAILED", text.clone()),
            Err(error) => ("FAILED", format!("{error:#}")),
        };
        failed += usize::from(word == "FAILED");
        output::print(&format!("  {:<14} {word:<8} {text}\n", test.name))?;
    }
    if failed == 0 {
        output::print("\nAll of it holds.\n")?;
        return Ok(ExitCode::SUCCESS);
    }
    output::print(&format!(
        "\n{failed} known answers came out wrong: do not trust figures here.\n"
    ))?;
    Ok(ExitCode::from(super::exit::FAILURE))
}

fn environment(limits: &Limits, accounting: &Accounting) -> String {
    let missing = limits.rights.missing();
    let mut text = format!(
        "Kernel         {} {}\n\
         Accounting     {}, HZ {}, tick {} ms (the quantum of raw user and system time)\n\
         Preemption     {}\n\
         Clock source   {}\n\
         Interrupts     {}\n\
         Steal          {}\n\
         CPUs           {} online of {} possible\n\
         Lockdown       {}\n\
         Capabilities   {}\n",
        limits.uname.release,
        limits.uname.arch,
        accounting.mode.as_str(),
        accounting.hz,
        accounting.tick_ns as f64 / 1e6,
        accounting.preempt.as_str(),
        accounting.clocksource,
        if accounting.irq_time {
            "may be left out of run time (IRQ_TIME_ACCOUNTING is built in)"
        } else {
            "are part of run time"
        },
        if accounting.steal_in_clock_task {
            "may be left out of run time (PARAVIRT_TIME_ACCOUNTING is built in)"
        } else {
            "is part of run time"
        },
        limits.online_cpus.count(),
        limits.possible_cpus.count(),
        limits.lockdown.as_str(),
        if missing.is_empty() {
            "sufficient".to_owned()
        } else {
            format!("missing {}", missing.join(", "))
        },
    );
    for note in &accounting.notes {
        text.push_str(&format!("Note           {note}\n"));
    }
    text
}

fn hooks(session: &Session) -> String {
    let status = session.probe().status();
    let active = status.iter().filter(|status| status.is_active()).count();
    let mut text = format!("\nHooks          {active} of {} active\n", status.len());
    for status in status {
        let detail = match &status.state {
            crate::probe::State::Active(Some(count)) => format!("{count} instructions verified"),
            crate::probe::State::Active(None) => String::new(),
            _ => format!("{}; lost: {}", status.reason().unwrap_or(""), status.hook.lost),
        };
        text.push_str(&format!(
            "  {:<27} {:<7} {:<8} {detail}\n",
            status.hook.name,
            status.hook.via.name(),
            status.word(),
        ));
    }
    text
}

fn cycles(session: &Session) -> String {
    let header = session.header();
    match &header.cycles_reason {
        None => "\nCycles         counted, by two pinned counters on each CPU\n".to_owned(),
        Some(why) => format!("\nCycles         {}: {why}\n", header.cycles),
    }
}

fn costs(session: &Session) -> String {
    let mut text = "\nCrossings      what no hook sees, per border, calibrated here\n".to_owned();
    for (name, cost_ps) in crossing::NAMES.iter().zip(session.crossings().cost_ps) {
        let cost = cost_ps.map_or("-".to_owned(), |ps| format!("{:.1} ns", ps as f64 / 1000.0));
        text.push_str(&format!("  {name:<14} {cost:>10}\n"));
    }
    text
}

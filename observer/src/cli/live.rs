//! `observer --pid PID`: the full screen or plain lines for each interval, and a summary at the end.

use std::process::ExitCode;

use anyhow::Result;

use super::{
    LiveArgs,
    output::{self, Output},
    picture, screen,
    ticker::{self, Event, Signals, Ticker},
};
use crate::{
    clock::now_ns,
    model::TaskFigures,
    session::{Options, Session},
    view::{table, verdict},
};

/// Runs the command.
pub fn main(args: &LiveArgs) -> Result<ExitCode> {
    let target = args.filter.target();
    target.check()?;
    let mut output = Output::open(&args.output, false)?;
    let hands_out = output.wants_evicted();
    let options = Options { hands_out, ..super::options(target, &args.output.probe) };
    let mut session = Session::start(&options)?;
    let more = if screen::is_wanted(args) { screen::signals().to_vec() } else { Vec::new() };
    let (runtime, signals) = ticker::runtime(&more)?;
    session.observe()?;
    if session.is_over() && args.filter.comm.is_none() && args.filter.cgroup.is_none() {
        anyhow::bail!("the task has ended before it could be observed");
    }
    output.header(session.header())?;
    // A rule may want tasks that do not exist yet; ids cannot come back.
    let may_be_empty =
        args.filter.all || args.filter.comm.is_some() || args.filter.cgroup.is_some();
    let result = if args.picture.is_wanted() {
        runtime.block_on(picture::take(args, &mut session, signals))
    } else if screen::is_wanted(args) {
        runtime.block_on(screen::watch(args, &mut session, signals, may_be_empty))
    } else {
        runtime.block_on(watch(args, &mut session, signals, &mut output, may_be_empty))
    };
    session.finish()?;
    output.ended(&mut session);
    let mut report = session.report();
    report.sentences = verdict::sentences(&report);
    match result {
        Err(error) if !output::is_closed_pipe(&error) => {
            output::warn(&format!("observer: {error:#}"));
            output.finish(&report)?;
            Ok(ExitCode::from(super::exit::FAILURE))
        }
        Err(error) => Err(error),
        Ok(()) => {
            output.finish(&report)?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Until the count is reached, the target is gone, or a signal comes.
async fn watch(
    args: &LiveArgs,
    session: &mut Session,
    signals: Signals,
    output: &mut Output,
    may_be_empty: bool,
) -> Result<()> {
    let mut ticker = Ticker::new(session, args.interval, signals)?;
    // Only the table shows what was added since.
    let mut before: Vec<TaskFigures> =
        if output.is_table() { output.rows(session) } else { Vec::new() };
    let mut before_ns = now_ns();
    let mut number = 0;
    let mut titles = Titles::default();
    loop {
        match ticker.next(session.patience()).await {
            Event::Pump | Event::Child => {
                session.pump()?;
                output.ended(session);
            }
            Event::Signal(_) => return Ok(()),
            Event::Reading => {
                session.snapshot()?;
                output.ended(session);
                let now_ns = now_ns();
                number += 1;
                if output.is_table() {
                    let width = output::width(false);
                    let now = output.rows(session);
                    let elapsed_ns = now_ns - before_ns;
                    let mut block =
                        table::interval_block(&before, &now, elapsed_ns, number - 1, width);
                    let unshown = session.take_unshown();
                    if unshown != 0 && !output.is_grouped() {
                        block += &table::interval_unshown(number - 1, unshown, width);
                    }
                    output::print(&titles.put(block, width, output::height()))?;
                    (before, before_ns) = (now, now_ns);
                } else {
                    output.interval(number, &session.figures())?;
                }
                if args.count.is_some_and(|count| number >= count) {
                    return Ok(());
                }
                if session.is_over() && !may_be_empty {
                    output::warn("observer: the target has ended");
                    return Ok(());
                }
            }
        }
    }
}

/// Puts the titles above the first block, above each that begins a new screen, and into one that is longer.
#[derive(Default)]
struct Titles {
    /// Lines since the titles, with them.
    lines: usize,
}

impl Titles {
    fn put(&mut self, block: String, width: usize, height: usize) -> String {
        // The cursor has the last line; the titles and one more line fit on any screen.
        let room = height.saturating_sub(1).max(2);
        if self.lines != 0 && self.lines + block.lines().count() <= room {
            self.lines += block.lines().count();
            return block;
        }
        self.lines = room;
        let mut text = String::with_capacity(block.len() + width);
        for line in block.split_inclusive('\n') {
            if self.lines >= room {
                text.push_str(&table::interval_title(width));
                self.lines = 1;
            }
            text.push_str(line);
            self.lines += 1;
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_titles_are_always_on_the_screen() {
        let mut titles = Titles::default();
        let mut screen: Vec<String> = Vec::new();
        for number in 0..40 {
            let block = "line\n".repeat(if number % 10 == 9 { 30 } else { 1 + number % 4 });
            let text = titles.put(block, 80, 10);
            for line in text.lines() {
                screen.push(line.to_owned());
                // The last line of a terminal is the one that the cursor is in.
                let seen = &screen[screen.len().saturating_sub(9)..];
                assert!(seen.iter().any(|line| line.contains("INT")), "{number}: {seen:?}");
            }
        }
        assert!(screen.iter().filter(|line| line.contains("INT")).count() < 40);
    }
}

//! What a boot's results mean, and how they are shown.

use std::{collections::BTreeMap, fs, path::Path};

use anyhow::{Context, Result};
use xtask::wire::{End, Frame};

use super::{
    cases::{Case, Outcome},
    qemu::{Boot, Ended},
};
use crate::counts::Counts;

/// Lines of the console that are shown of a guest that did not finish.
const CONSOLE_LINES: usize = 30;
/// Lines that are shown of what a failed case wrote.
const OUTPUT_LINES: usize = 20;

/// The judgement of one boot.
#[derive(Debug)]
pub struct Report {
    /// The sum.
    pub counts: Counts,
    /// For a person, one line or more for each case.
    pub text: String,
}

/// Judges each case, and the guest as a whole.
pub fn judge(cases: &[Case], boot: &Boot) -> Report {
    let outcomes = collect(&boot.stream.frames);
    let mut report = Report { counts: Counts::default(), text: String::new() };
    for case in cases {
        let (verdict, took_ms) = match outcomes.get(case.name.as_str()) {
            Some(Some(outcome)) => (judge_case(case, outcome), Some(outcome.took_ms)),
            Some(None) => (Err("the guest ended while it ran".to_owned()), None),
            None => (Err("not reached".to_owned()), None),
        };
        let took = took_ms.map_or("-".to_owned(), |ms| format!("{:.1} s", ms as f64 / 1e3));
        match verdict {
            Ok(counts) => {
                report.counts += counts;
                report.line(&format!("ok      {:<16} {took:>7}", case.name));
            }
            Err(why) => {
                report.counts.failed += 1;
                report.line(&format!("FAILED  {:<16} {took:>7}  {why}", case.name));
            }
        }
    }
    if let Some(trouble) = trouble(boot) {
        // Every case may have ended before: the kernel has failed all the same.
        report.counts.failed += u64::from(report.counts.failed == 0);
        report.line(&format!("FAILED  the guest did not finish: {trouble}"));
        report.line(&format!(
            "the last lines of its console:\n{}",
            tail(&boot.console, CONSOLE_LINES)
        ));
    }
    report
}

impl Report {
    fn line(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
    }
}

fn judge_case(case: &Case, outcome: &Outcome) -> Result<Counts, String> {
    (case.check)(outcome).map_err(|error| {
        let mut why = format!("{error:#}\n    command: {}", case.command);
        for (name, text) in [("stdout", &outcome.stdout), ("stderr", &outcome.stderr)] {
            if !text.trim().is_empty() {
                why.push_str(&format!("\n    {name}:\n{}", tail(text, OUTPUT_LINES)));
            }
        }
        why
    })
}

/// Why the guest did not run its plan to the end, if it did not.
fn trouble(boot: &Boot) -> Option<String> {
    if boot.stream.frames.last() == Some(&Frame::Done) && boot.ended == Ended::ByGuest {
        return boot.stream.broken.as_ref().map(|why| format!("the results have {why}"));
    }
    let panic = boot.console.lines().find(|line| line.contains("Kernel panic - not syncing"));
    if let Some(line) = panic {
        return Some(line.trim().to_owned());
    }
    Some(match &boot.ended {
        Ended::Hung(silence) => format!("nothing came from it for {:.0} s", silence.as_secs_f64()),
        Ended::Failed(why) => format!("the emulator failed, {why}"),
        Ended::ByGuest => "it powered off too early".to_owned(),
    })
}

/// By case: its outcome, or None where it began and did not end.
pub fn collect(frames: &[Frame]) -> BTreeMap<&str, Option<Outcome>> {
    let mut outcomes = BTreeMap::new();
    let mut open = empty();
    for frame in frames {
        match frame {
            Frame::Ready | Frame::Done => {}
            Frame::Begin { case } => {
                open = empty();
                outcomes.insert(case.as_str(), None);
            }
            Frame::Stdout { bytes, .. } => open.stdout = text(bytes),
            Frame::Stderr { bytes, .. } => open.stderr = text(bytes),
            Frame::File { path, bytes, .. } => {
                open.files.insert(path.clone(), bytes.clone());
            }
            Frame::End { case, end, took_ms } => {
                (open.end, open.took_ms) = (end.clone(), *took_ms);
                outcomes.insert(case, Some(std::mem::replace(&mut open, empty())));
            }
        }
    }
    outcomes
}

fn empty() -> Outcome {
    Outcome {
        end: End::NotStarted("no end came".into()),
        took_ms: 0,
        stdout: String::new(),
        stderr: String::new(),
        files: BTreeMap::new(),
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The last lines, indented, without what would steer the terminal.
fn tail(text: &str, count: usize) -> String {
    let lines: Vec<_> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let shown = lines[lines.len().saturating_sub(count)..].iter().map(|line| {
        let plain = line.chars().map(|c| if c.is_control() && c != '\t' { '.' } else { c });
        format!("      {}", plain.collect::<String>().trim_end_matches('.'))
    });
    shown.collect::<Vec<_>>().join("\n")
}

/// Writes what each case sent into files of the host, for a closer look.
///
/// # Errors
/// When a file cannot be written.
pub fn keep(boot: &Boot, folder: &Path) -> Result<()> {
    for frame in &boot.stream.frames {
        let (case, name, bytes) = match frame {
            Frame::Stdout { case, bytes } => (case, "stdout", bytes),
            Frame::Stderr { case, bytes } => (case, "stderr", bytes),
            Frame::File { case, path, bytes } => {
                (case, path.rsplit('/').next().unwrap_or("file"), bytes)
            }
            _ => continue,
        };
        let folder = folder.join(case);
        let write = || {
            fs::create_dir_all(&folder)?;
            fs::write(folder.join(name), bytes)
        };
        write().with_context(|| format!("cannot write into {}", folder.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use xtask::wire::Stream;

    use super::*;
    use crate::vm::cases::ad_hoc;

    fn cases() -> Vec<Case> {
        vec![ad_hoc(1, "true"), ad_hoc(2, "echo why >&2; exit 3")]
    }

    fn ran(number: usize, end: End, stderr: &str) -> Vec<Frame> {
        let case = format!("command-{number}");
        vec![
            Frame::Begin { case: case.clone() },
            Frame::Stderr { case: case.clone(), bytes: stderr.into() },
            Frame::End { case, end, took_ms: 1500 },
        ]
    }

    fn boot(parts: &[Vec<Frame>], ended: Ended, console: &str) -> Boot {
        Boot {
            stream: Stream { frames: parts.concat(), broken: None },
            ready_after: None,
            took: Duration::ZERO,
            ended,
            console: console.to_owned(),
        }
    }

    #[test]
    fn a_failed_case_shows_its_command_and_words() {
        let parts = [ran(1, End::Exit(0), ""), ran(2, End::Exit(3), "why\n"), vec![Frame::Done]];
        let report = judge(&cases(), &boot(&parts, Ended::ByGuest, "console"));
        assert_eq!(report.counts, Counts { passed: 1, failed: 1, skipped: 0 });
        for part in [
            "ok      command-1",
            "1.5 s",
            "FAILED  command-2",
            "exit status 3",
            "exit 3\n",
            "      why",
        ] {
            assert!(report.text.contains(part), "{}", report.text);
        }
        assert!(!report.text.contains("console"), "{}", report.text);
    }

    #[test]
    fn a_panic_fails_the_open_case_and_those_after_it() {
        let parts = [vec![Frame::Ready, Frame::Begin { case: "command-1".into() }]];
        let console = "booting\r\n[ 3.1] Kernel panic - not syncing: sysrq triggered crash\r\n";
        let report = judge(&cases(), &boot(&parts, Ended::ByGuest, console));
        assert_eq!(report.counts, Counts { passed: 0, failed: 2, skipped: 0 });
        for part in [
            "the guest ended while it ran",
            "not reached",
            "finish: [ 3.1] Kernel panic",
            "      booting\n",
        ] {
            assert!(report.text.contains(part), "{}", report.text);
        }
    }

    #[test]
    fn a_guest_that_does_not_power_off_fails_even_with_all_cases_passed() {
        let parts = [ran(1, End::Exit(0), ""), vec![Frame::Done]];
        let hung = Ended::Hung(Duration::from_secs(180));
        let report = judge(&cases()[..1], &boot(&parts, hung, ""));
        assert_eq!(report.counts, Counts { passed: 1, failed: 1, skipped: 0 });
        assert!(report.text.contains("nothing came from it for 180 s"), "{}", report.text);
        let early = boot(&parts[..1], Ended::ByGuest, "");
        assert_eq!(judge(&cases()[..1], &early).counts.failed, 1);
        let good = boot(&parts, Ended::ByGuest, "");
        assert_eq!(judge(&cases()[..1], &good).counts.failed, 0);
    }

    #[test]
    fn the_tail_is_short_and_harmless() {
        assert_eq!(tail("a\n\nb\x1b[2J\nc\r\n", 2), "      b.[2J\n      c");
        assert_eq!(tail("", 5), "");
    }
}

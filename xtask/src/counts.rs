//! How many tests passed: the sum that every tier adds to.

use std::{fmt, ops::AddAssign};

/// Numbers of tests by result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Ran and held.
    pub passed: u64,
    /// Ran and did not hold, or should have run and did not.
    pub failed: u64,
    /// Did not run, for a reason that was said.
    pub skipped: u64,
}

impl Counts {
    /// Adds a line of libtest's output if it is one that sums up, such as
    /// `test result: ok. 3 passed; 0 failed; 2 ignored; 0 measured; 1 filtered out; finished in 0.00s`.
    /// An ignored test counts as skipped.
    pub fn add_line(&mut self, line: &str) {
        if let Some(counts) = from_line(line) {
            *self += counts;
        }
    }

    /// Tests that ran.
    pub fn ran(self) -> u64 {
        self.passed + self.failed
    }
}

fn from_line(line: &str) -> Option<Counts> {
    let plain = without_colors(line);
    let (_, numbers) = plain.trim_start().strip_prefix("test result: ")?.split_once(". ")?;
    let mut counts = Counts::default();
    for part in numbers.split("; ") {
        let Some((number, what)) = part.split_once(' ') else {
            continue;
        };
        match what.trim_end() {
            "passed" => counts.passed = number.parse().ok()?,
            "failed" => counts.failed = number.parse().ok()?,
            "ignored" => counts.skipped = number.parse().ok()?,
            _ => {}
        }
    }
    Some(counts)
}

/// The text without terminal colour sequences (ESC [ … letter).
fn without_colors(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, sequence)) = rest.split_once("\x1b[") {
        plain.push_str(before);
        let end =
            sequence.find(|c: char| c.is_ascii_alphabetic()).map_or(sequence.len(), |at| at + 1);
        rest = &sequence[end..];
    }
    plain + rest
}

impl AddAssign for Counts {
    fn add_assign(&mut self, more: Self) {
        self.passed += more.passed;
        self.failed += more.failed;
        self.skipped += more.skipped;
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lines_that_sum_up_are_added() {
        let mut counts = Counts::default();
        for line in [
            "running 3 tests",
            "test a ... ok",
            "test result: ok. 3 passed; 0 failed; 2 ignored; 0 measured; 1 filtered out; finished in 0.00s",
            "test result: \x1b[31mFAILED\x1b[0m. 1 passed; 4 failed; 0 ignored; 0 measured; 0 filtered out",
            "test result: what is this",
            "test result: ok. x passed; 0 failed",
            "a test prints: test result: ok. 100 passed; 0 failed",
        ] {
            counts.add_line(line);
        }
        assert_eq!(counts, Counts { passed: 4, failed: 4, skipped: 2 });
        assert_eq!(counts.to_string(), "4 passed, 4 failed, 2 skipped");
        assert_eq!(counts.ran(), 8);
    }
}

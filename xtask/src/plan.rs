//! What the guest is to do: a text of one directive per line, so that a person can read it too.
//!
//! ```text
//! channel /dev/ttyS1
//! case doctor 60
//! run observer doctor
//! case run-jsonl 60
//! run observer run --format jsonl -o /tmp/out.jsonl -- true
//! file /tmp/out.jsonl
//! ```

use std::fmt;

/// Where the guest finds its plan.
pub const PATH: &str = "/tests/plan";

/// The whole work of one boot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The device that the results go to.
    pub channel: String,
    /// Run one after the other, in this order.
    pub cases: Vec<Case>,
}

/// One shell command of the guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    /// One word; unique in the plan.
    pub name: String,
    /// Seconds of guest time after which the command is killed.
    pub timeout_s: u64,
    /// A line for `/bin/sh -c`.
    pub command: String,
    /// Files to send to the host afterwards, whatever the outcome.
    pub files: Vec<String>,
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "channel {}", self.channel)?;
        for case in &self.cases {
            writeln!(f, "case {} {}", case.name, case.timeout_s)?;
            writeln!(f, "run {}", case.command)?;
            for file in &case.files {
                writeln!(f, "file {file}")?;
            }
        }
        Ok(())
    }
}

impl Plan {
    /// Reads the text that `Display` writes.
    ///
    /// # Errors
    /// A text with the number of the first line that is not a directive, or is out of place.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut channel = None;
        let mut cases: Vec<Case> = Vec::new();
        for (number, line) in (1..).zip(text.lines()) {
            let wrong = || format!("plan, line {number}: {line:?} is not expected here");
            let (word, rest) = line.split_once(' ').ok_or_else(wrong)?;
            match word {
                "channel" => channel = Some(rest.to_owned()),
                "case" => {
                    let (name, timeout) = rest.split_once(' ').ok_or_else(wrong)?;
                    cases.push(Case {
                        name: name.to_owned(),
                        timeout_s: timeout.parse().map_err(|_| wrong())?,
                        command: String::new(),
                        files: Vec::new(),
                    });
                }
                "run" => cases.last_mut().ok_or_else(wrong)?.command = rest.to_owned(),
                "file" => cases.last_mut().ok_or_else(wrong)?.files.push(rest.to_owned()),
                _ => return Err(wrong()),
            }
        }
        let channel = channel.ok_or("plan: no channel line")?;
        Ok(Self { channel, cases })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(name: &str, command: &str, files: &[&str]) -> Case {
        Case {
            name: name.into(),
            timeout_s: 60,
            command: command.into(),
            files: files.iter().map(|f| (*f).to_owned()).collect(),
        }
    }

    #[test]
    fn a_plan_survives_the_trip() {
        let plan = Plan {
            channel: "/dev/ttyS1".into(),
            cases: vec![
                case("doctor", "observer doctor", &[]),
                case("files", "sh -c 'i=0; echo  two  spaces'", &["/tmp/a b", "/tmp/c"]),
            ],
        };
        assert_eq!(Plan::parse(&plan.to_string()), Ok(plan));
    }

    #[test]
    fn a_damaged_plan_is_refused_with_its_line() {
        for (text, line) in [
            ("channel /dev/ttyS1\nrun true\n", "line 2"),
            ("channel /dev/ttyS1\ncase a\n", "line 2"),
            ("channel /dev/ttyS1\ncase a soon\n", "line 2"),
            ("channel /dev/ttyS1\ncase a 5\nwalk away\n", "line 3"),
            ("case a 5\nrun true\n", "no channel"),
        ] {
            let error = Plan::parse(text).unwrap_err();
            assert!(error.contains(line), "{error}");
        }
    }
}

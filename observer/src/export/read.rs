//! Reads JSON lines of ours back: fields by name, unknown fields and records ignored, missing ones empty.
//!
//! A file may end early: its writer may have been killed. What is whole in it is used, and what is missing is
//! said ([`Recorded::gap`]).

use std::{
    cmp::Reverse,
    collections::HashSet,
    fmt,
    io::{self, BufRead, Read as _},
    mem,
};

use serde::Deserialize;
use serde_json::Value;

use super::PairRecord;
use crate::model::{Report, TaskFigures, report::SCHEMA};

/// Longer lines are not ours.
const LONGEST: u64 = 16 << 20;

/// What a file holds.
#[derive(Clone, Debug, Default)]
pub struct Recorded {
    /// The figures, as far as they go. Without a trailer, those of the last whole interval are
    /// among them.
    pub report: Report,
    /// What is missing, in words; `None` if the file is whole.
    pub gap: Option<String>,
}

/// Why a file cannot be used at all.
#[derive(Debug)]
pub enum Foreign {
    /// It cannot be read.
    Io(io::Error),
    /// Nothing is in it.
    Empty,
    /// It does not begin with a header of ours.
    NoHeader,
    /// Its header is of another schema.
    Schema(String),
}

impl fmt::Display for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::Empty => f.write_str("the file is empty"),
            Self::NoHeader => write!(
                f,
                "not a file of observer: its first line is no header record ({SCHEMA}, JSON lines)"
            ),
            Self::Schema(schema) => {
                write!(f, "the file is of schema {schema:?}; this observer reads {SCHEMA:?}")
            }
        }
    }
}

impl std::error::Error for Foreign {}

/// Reads a whole file.
///
/// # Errors
/// [`Foreign`] where it does not begin as ours do.
pub fn read(mut source: impl BufRead) -> Result<Recorded, Foreign> {
    let mut reader = Reader::default();
    let mut line = Vec::new();
    let mut number = 0_u64;
    loop {
        line.clear();
        number += 1;
        let length =
            (&mut source).take(LONGEST).read_until(b'\n', &mut line).map_err(Foreign::Io)?;
        if length == 0 {
            break;
        }
        let record = serde_json::from_slice::<Value>(&line).ok().filter(Value::is_object);
        if number == 1 {
            reader.header(record.ok_or(Foreign::NoHeader)?)?;
            continue;
        }
        match record.map(|record| reader.record(record)) {
            Some(Ok(true)) => {}
            Some(Ok(false)) => {
                reader.gap = Some(format!("another session begins in line {number}"));
                break;
            }
            // Nothing after a broken line can be trusted to belong to what was before it.
            Some(Err(_)) | None => {
                reader.gap = Some(format!("line {number} is broken"));
                break;
            }
        }
    }
    if number == 1 {
        return Err(Foreign::Empty);
    }
    Ok(reader.finish())
}

#[derive(Default)]
struct Reader {
    report: Report,
    /// The intervals' tasks: the last whole one, and the one that is being read.
    intervals: [(u64, Vec<TaskFigures>); 2],
    /// Tasks that ended in an interval before these: later ones do not have them.
    ended: Vec<TaskFigures>,
    has_trailer: bool,
    gap: Option<String>,
}

impl Reader {
    fn header(&mut self, record: Value) -> Result<(), Foreign> {
        if record["type"] != "header" {
            return Err(Foreign::NoHeader);
        }
        match record["schema"].as_str() {
            Some(SCHEMA) => {}
            other => return Err(Foreign::Schema(other.unwrap_or("").to_owned())),
        }
        self.report.header = Deserialize::deserialize(record).map_err(|_| Foreign::NoHeader)?;
        Ok(())
    }

    /// Takes one record in; false if it begins another session.
    fn record(&mut self, record: Value) -> serde_json::Result<bool> {
        let report = &mut self.report;
        match record["type"].as_str() {
            Some("header") => return Ok(false),
            Some("task") => report.tasks.push(Deserialize::deserialize(record)?),
            Some("interval") => {
                let number = record["interval"].as_u64().unwrap_or(0);
                let task = Deserialize::deserialize(record)?;
                if self.intervals[1].0 != number {
                    self.intervals.swap(0, 1);
                    let before = mem::replace(&mut self.intervals[1], (number, Vec::new())).1;
                    self.ended.extend(before.into_iter().filter(|task| task.state == "exited"));
                }
                self.intervals[1].1.push(task);
            }
            Some("pair") => report.pairs.push(PairRecord::deserialize(record)?.into()),
            Some("cpu") => report.cpus.push(Deserialize::deserialize(record)?),
            Some("trailer") => {
                report.trailer = Deserialize::deserialize(record)?;
                self.has_trailer = true;
            }
            // Groups are made again from the tasks; what a later version adds is not for us.
            _ => {}
        }
        Ok(true)
    }

    fn finish(mut self) -> Recorded {
        // Of many ended tasks those with least time were written first.
        self.report.tasks.sort_by_key(|task| Reverse(task.oncpu_ns));
        if self.has_trailer {
            return Recorded { report: self.report, gap: self.gap };
        }
        let why = self.gap.take().unwrap_or_else(|| "it ends early".to_owned());
        // The last interval may be cut in its middle; the one before it is whole.
        let [(before, whole), (last, tasks)] = self.intervals;
        let (number, tasks) = if before == 0 { (last, tasks) } else { (before, whole) };
        let who = |task: &TaskFigures| (task.account, task.tid, task.opened_ns);
        // What a `task` record says is final.
        let mut known: HashSet<_> = self.report.tasks.iter().map(who).collect();
        let finals = known.len();
        // An account of an older file may be in more than one interval: the last one counts.
        let more = tasks.into_iter().chain(self.ended.into_iter().rev());
        self.report.tasks.extend(more.filter(|task| known.insert(who(task))));
        let mut what = format!("what is said rests on {} tasks", self.report.tasks.len());
        if known.len() > finals {
            what += &format!(" at the end of interval {number}");
        }
        let gap = Some(format!("the file is not whole ({why}, there is no trailer): {what}"));
        Recorded { report: self.report, gap }
    }
}

//! Machine-readable records: one trait, one file for each format.

mod csv;
mod jsonl;
mod pair;
pub mod read;
pub mod schema;

use std::{
    io::{self, Write},
    path::Path,
};

pub use self::pair::PairRecord;
use crate::model::{CpuFigures, Group, Header, PairFigures, TaskFigures, Trailer};

/// A reading of many tasks goes out in few syscalls: as much as a pipe takes at once.
const BUFFER: usize = 64 * 1024;

/// A format of figures.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// For people
    Table,
    /// One JSON object per line
    Jsonl,
    /// One row per record of one kind (`--table`)
    Csv,
}

/// Which records the rows of a CSV file are.
#[derive(clap::ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Table {
    /// One row per task
    #[default]
    Tasks,
    /// One row per pair
    Pairs,
    /// One row per CPU
    Cpus,
    /// One row per group: see --by (without it, processes)
    Groups,
}

impl Format {
    /// The data format that a file's extension names; `None` for every other file.
    #[must_use]
    pub fn from_path(path: &Path) -> Option<Self> {
        match path.extension()?.to_str()? {
            "jsonl" | "ndjson" | "json" => Some(Self::Jsonl),
            "csv" => Some(Self::Csv),
            _ => None,
        }
    }
}

/// Writes records in the order header, tasks (perhaps by interval), groups, pairs, CPUs, trailer.
pub trait Exporter {
    /// The first record.
    fn header(&mut self, header: &Header) -> io::Result<()>;
    /// Tasks, cumulative since the begin; with the number of the interval, or `None` at the end.
    fn tasks(&mut self, interval: Option<u64>, tasks: &[TaskFigures]) -> io::Result<()>;
    /// Groups of tasks, if any were asked for.
    fn groups(&mut self, groups: &[Group]) -> io::Result<()>;
    /// Pairs.
    fn pairs(&mut self, pairs: &[PairFigures]) -> io::Result<()>;
    /// CPUs.
    fn cpus(&mut self, cpus: &[CpuFigures]) -> io::Result<()>;
    /// The last record.
    fn trailer(&mut self, trailer: &Trailer) -> io::Result<()>;
}

/// The exporter of a data format; `table` is for CSV. The table is a view, not data: for it, this gives JSON lines.
#[must_use]
pub fn exporter(format: Format, table: Table, sink: Box<dyn Write>) -> Box<dyn Exporter> {
    match format {
        Format::Csv => Box::new(csv::Csv::new(table, sink)),
        Format::Jsonl | Format::Table => Box::new(jsonl::Jsonl::new(sink)),
    }
}

#[cfg(test)]
mod tests;

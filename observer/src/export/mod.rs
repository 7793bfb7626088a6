//! Machine-readable records: one trait, one file for each format.

mod csv;
mod jsonl;
pub mod schema;

use std::{
    io::{self, Write},
    path::Path,
};

use crate::model::{CpuFigures, Header, TaskFigures, Trailer};

/// A format of figures.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// For people
    Table,
    /// One JSON object per line
    Jsonl,
    /// One row per task
    Csv,
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

/// Writes records in the order header, tasks (perhaps by interval), CPUs, trailer.
pub trait Exporter {
    /// The first record.
    fn header(&mut self, header: &Header) -> io::Result<()>;
    /// Tasks, cumulative since the begin; with the number of the interval, or `None` at the end.
    fn tasks(&mut self, interval: Option<u64>, tasks: &[TaskFigures]) -> io::Result<()>;
    /// CPUs.
    fn cpus(&mut self, cpus: &[CpuFigures]) -> io::Result<()>;
    /// The last record.
    fn trailer(&mut self, trailer: &Trailer) -> io::Result<()>;
}

/// The exporter of a data format. The table is a view, not data: for it, this gives JSON lines.
#[must_use]
pub fn exporter(format: Format, sink: Box<dyn Write>) -> Box<dyn Exporter> {
    match format {
        Format::Csv => Box::new(csv::Csv::new(sink)),
        Format::Jsonl | Format::Table => Box::new(jsonl::Jsonl::new(sink)),
    }
}

#[cfg(test)]
mod tests;

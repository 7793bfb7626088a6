//! CSV: one row per task, the same names as the JSON lines. An empty cell is not measured.
//!
//! The first column, `interval`, is the number of the interval, and empty for the figures at the end. CSV has
//! one kind of row only: header, CPUs and trailer are in the JSON lines.

use std::io::{self, Write};

use serde_json::Value;

use super::Exporter;
use crate::model::{CpuFigures, Header, TaskFigures, Trailer};

/// Writes CSV.
pub struct Csv {
    sink: csv::Writer<Box<dyn Write>>,
    is_named: bool,
}

impl Csv {
    /// Into `sink`.
    pub fn new(sink: Box<dyn Write>) -> Self {
        Self { sink: csv::Writer::from_writer(sink), is_named: false }
    }

    /// The first row: the names, written once, and also where no task follows.
    fn names(&mut self) -> io::Result<()> {
        if !self.is_named
            && let Value::Object(fields) = serde_json::to_value(TaskFigures::default())?
        {
            let names = fields.keys().map(String::as_str);
            self.sink.write_record(std::iter::once("interval").chain(names))?;
            self.is_named = true;
        }
        Ok(())
    }

    fn row(&mut self, interval: Option<u64>, task: &TaskFigures) -> io::Result<()> {
        let Value::Object(fields) = serde_json::to_value(task)? else { return Ok(()) };
        let interval = interval.map(|number| number.to_string()).unwrap_or_default();
        let cells = fields.values().map(|value| match value {
            Value::Null => String::new(),
            Value::String(text) => text.clone(),
            other => other.to_string(),
        });
        self.sink.write_record(std::iter::once(interval).chain(cells))?;
        Ok(())
    }
}

impl Exporter for Csv {
    fn header(&mut self, _header: &Header) -> io::Result<()> {
        self.names()?;
        self.sink.flush()
    }

    fn tasks(&mut self, interval: Option<u64>, tasks: &[TaskFigures]) -> io::Result<()> {
        self.names()?;
        tasks.iter().try_for_each(|task| self.row(interval, task))?;
        self.sink.flush()
    }

    fn cpus(&mut self, _cpus: &[CpuFigures]) -> io::Result<()> {
        Ok(())
    }

    fn trailer(&mut self, _trailer: &Trailer) -> io::Result<()> {
        self.sink.flush()
    }
}

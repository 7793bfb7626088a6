//! CSV: one row per task, the same names as the JSON lines. An empty cell is not measured.

use std::io::{self, Write};

use serde_json::Value;

use super::Exporter;
use crate::model::{CpuFigures, Header, TaskFigures, Trailer};

/// Writes CSV.
pub struct Csv {
    sink: csv::Writer<Box<dyn Write>>,
    named: bool,
}

impl Csv {
    /// Into `sink`.
    pub fn new(sink: Box<dyn Write>) -> Self {
        Self { sink: csv::Writer::from_writer(sink), named: false }
    }

    fn row(&mut self, interval: Option<u64>, task: &TaskFigures) -> io::Result<()> {
        let Value::Object(fields) = serde_json::to_value(task)? else { return Ok(()) };
        if !self.named {
            self.sink
                .write_record(std::iter::once("interval").chain(fields.keys().map(|k| &**k)))?;
            self.named = true;
        }
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
        Ok(())
    }

    fn tasks(&mut self, interval: Option<u64>, tasks: &[TaskFigures]) -> io::Result<()> {
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

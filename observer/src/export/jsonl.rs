//! JSON lines: `header`, `task`..., `group`..., `pair`..., `cpu`..., `trailer`; each line is complete and flushed with its block.

use std::io::{self, BufWriter, Write};

use serde::Serialize;

use super::{Exporter, PairRecord};
use crate::model::{CpuFigures, Group, Header, PairFigures, TaskFigures, Trailer};

#[derive(Serialize)]
struct Line<'a, T> {
    r#type: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    interval: Option<u64>,
    #[serde(flatten)]
    record: &'a T,
}

/// Writes JSON lines.
pub struct Jsonl {
    sink: BufWriter<Box<dyn Write>>,
}

impl Jsonl {
    /// Into `sink`.
    pub fn new(sink: Box<dyn Write>) -> Self {
        Self { sink: BufWriter::with_capacity(super::BUFFER, sink) }
    }

    fn line<T: Serialize>(
        &mut self,
        kind: &'static str,
        interval: Option<u64>,
        record: &T,
    ) -> io::Result<()> {
        serde_json::to_writer(&mut self.sink, &Line { r#type: kind, interval, record })?;
        self.sink.write_all(b"\n")
    }
}

impl Exporter for Jsonl {
    fn header(&mut self, header: &Header) -> io::Result<()> {
        self.line("header", None, header)?;
        self.sink.flush()
    }

    fn tasks(&mut self, interval: Option<u64>, tasks: &[TaskFigures]) -> io::Result<()> {
        let kind = if interval.is_some() { "interval" } else { "task" };
        tasks.iter().try_for_each(|task| self.line(kind, interval, task))?;
        self.sink.flush()
    }

    fn groups(&mut self, groups: &[Group]) -> io::Result<()> {
        groups.iter().try_for_each(|group| self.line("group", None, group))?;
        self.sink.flush()
    }

    fn pairs(&mut self, pairs: &[PairFigures]) -> io::Result<()> {
        pairs.iter().try_for_each(|pair| self.line("pair", None, &PairRecord::from(pair)))?;
        self.sink.flush()
    }

    fn cpus(&mut self, cpus: &[CpuFigures]) -> io::Result<()> {
        cpus.iter().try_for_each(|cpu| self.line("cpu", None, cpu))?;
        self.sink.flush()
    }

    fn trailer(&mut self, trailer: &Trailer) -> io::Result<()> {
        self.line("trailer", None, trailer)?;
        self.sink.flush()
    }
}

//! CSV: one row per record of one kind, the same names as the JSON lines. An empty cell is not measured.
//!
//! CSV has one kind of row only: `--table` says which; the header and the trailer are in the JSON lines. With
//! tasks, the first column, `interval`, is the number of the interval, and empty for the figures at the end.
//! A cell that would hold a list or an object holds it as JSON.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::Value;

use super::{Exporter, PairRecord, Table};
use crate::model::{By, CpuFigures, Group, Header, PairFigures, TaskFigures, Trailer};

/// Writes CSV.
pub struct Csv {
    sink: csv::Writer<Box<dyn Write>>,
    table: Table,
    is_named: bool,
}

impl Csv {
    /// Into `sink`.
    pub fn new(table: Table, sink: Box<dyn Write>) -> Self {
        // The names are written by us: also where no row follows.
        let sink = csv::WriterBuilder::new()
            .has_headers(false)
            .buffer_capacity(super::BUFFER)
            .from_writer(sink);
        Self { sink, table, is_named: false }
    }

    /// The first row: the names, written once, and also where no row follows.
    fn names(&mut self) -> io::Result<()> {
        if self.is_named {
            return Ok(());
        }
        let record = match self.table {
            Table::Tasks => serde_json::to_value(TaskFigures::default()),
            Table::Pairs => serde_json::to_value(PairRecord::default()),
            Table::Cpus => serde_json::to_value(CpuFigures::default()),
            Table::Groups => serde_json::to_value(empty_group()),
        };
        if let Value::Object(fields) = record? {
            let first = (self.table == Table::Tasks).then_some("interval");
            self.sink.write_record(first.into_iter().chain(fields.keys().map(String::as_str)))?;
            self.is_named = true;
        }
        Ok(())
    }

    fn row(&mut self, record: &impl Serialize) -> io::Result<()> {
        let Value::Object(fields) = serde_json::to_value(record)? else { return Ok(()) };
        let cells = fields.values().map(|value| match value {
            Value::Null => String::new(),
            Value::String(text) => text.clone(),
            other => other.to_string(),
        });
        self.sink.write_record(cells)?;
        Ok(())
    }

    /// The rows, if they are of the kind that is wanted.
    fn rows<T: Serialize>(
        &mut self,
        table: Table,
        records: impl Iterator<Item = T>,
    ) -> io::Result<()> {
        if table != self.table {
            return Ok(());
        }
        self.names()?;
        for record in records {
            self.row(&record)?;
        }
        self.sink.flush()
    }
}

/// For its names.
fn empty_group() -> Group {
    Group {
        by: By::Thread,
        key: String::new(),
        name: String::new(),
        members: 0,
        exited: 0,
        figures: TaskFigures::default(),
        cgroup: None,
    }
}

impl Exporter for Csv {
    fn header(&mut self, _header: &Header) -> io::Result<()> {
        self.names()?;
        self.sink.flush()
    }

    fn tasks(&mut self, interval: Option<u64>, tasks: &[TaskFigures]) -> io::Result<()> {
        if self.table != Table::Tasks {
            return Ok(());
        }
        self.names()?;
        // A task has neither lists nor objects: csv's own serializer knows what is left, without a detour over a tree.
        tasks.iter().try_for_each(|task| self.sink.serialize((interval, task)))?;
        self.sink.flush()
    }

    fn groups(&mut self, groups: &[Group]) -> io::Result<()> {
        self.rows(Table::Groups, groups.iter())
    }

    fn pairs(&mut self, pairs: &[PairFigures]) -> io::Result<()> {
        self.rows(Table::Pairs, pairs.iter().map(PairRecord::from))
    }

    fn cpus(&mut self, cpus: &[CpuFigures]) -> io::Result<()> {
        self.rows(Table::Cpus, cpus.iter())
    }

    fn trailer(&mut self, _trailer: &Trailer) -> io::Result<()> {
        self.sink.flush()
    }
}

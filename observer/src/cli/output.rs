//! Where figures and words go: data on stdout or into a file, words on stderr.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, IsTerminal as _, Write},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};

use super::{Color, OutputArgs};
use crate::{
    clock::now_ns,
    export::{Exporter, Format, Table, exporter},
    model::{By, Group, Header, Report, TaskFigures, group},
    session::{Session, cgroups::Cgroups},
    view::table::{self, Look},
};

/// The narrowest terminal that the table is made for, and the width without one.
const NARROWEST: usize = 60;
const DEFAULT_WIDTH: usize = 80;
const DEFAULT_HEIGHT: usize = 24;

/// The opened output.
pub struct Output {
    format: Format,
    /// `None`: the table, written at the end.
    exporter: Option<Box<dyn Exporter>>,
    sink: Option<Box<dyn Write>>,
    path: Option<PathBuf>,
    top: usize,
    pairs: usize,
    by: Option<By>,
    /// The cgroups at the begin, and when that was; only where they are wanted.
    cgroups: Option<(Cgroups, u64)>,
    color: Color,
    /// Why ended tasks could not be written, if so.
    broken: Option<anyhow::Error>,
    /// Words and tables go to stderr: stdout belongs to the command or to the data.
    aside: bool,
}

impl Output {
    /// Opens the output before anything is measured: a file that cannot be written is said at once.
    ///
    /// `aside`: stdout belongs to the observed command.
    pub fn open(args: &OutputArgs, aside: bool) -> Result<Self> {
        let path = args.output.clone().filter(|path| path != Path::new("-"));
        let format = format(args);
        let sink: Option<Box<dyn Write>> = match (&path, &args.output) {
            (Some(path), _) => Some(Box::new(
                File::create(path)
                    .with_context(|| format!("cannot write to {}", path.display()))?,
            )),
            (None, Some(_)) => Some(Box::new(io::stdout())),
            (None, None) if format != Format::Table => Some(Box::new(io::stdout())),
            (None, None) => None,
        };
        let explicit = sink.is_some();
        let (exporter, sink) = match (format, sink) {
            (Format::Table, sink) => (None, sink),
            (format, Some(sink)) => {
                (Some(exporter(format, args.table.unwrap_or_default(), sink)), None)
            }
            (_, None) => (None, None),
        };
        let by = match (args.by, format, args.table) {
            (None, Format::Csv, Some(Table::Groups)) => Some(By::Process),
            (by, ..) => by,
        };
        Ok(Self {
            format,
            exporter,
            sink,
            path,
            top: args.top,
            pairs: args.pairs,
            by,
            cgroups: None,
            color: args.color,
            broken: None,
            aside: aside && !explicit,
        })
    }

    /// Whether [`Output::ended`] has any use for its tasks.
    #[must_use]
    pub fn wants_evicted(&self) -> bool {
        self.exporter.is_some()
    }

    /// True when the rows of an interval are groups.
    #[must_use]
    pub fn is_grouped(&self) -> bool {
        self.by.is_some_and(|by| by != By::Thread)
    }

    /// Writes the final figures of those ended tasks that the report will not have one by one. Should this fail, the
    /// observation goes on, and [`Output::finish`] says so.
    pub fn ended(&mut self, session: &mut Session) {
        let tasks = session.take_evicted();
        if tasks.is_empty() || self.broken.is_some() {
            return;
        }
        if let Some(exporter) = &mut self.exporter {
            let result = exporter.tasks(None, &tasks);
            self.broken = result.with_context(|| self.name()).err();
        }
    }

    /// True when the table is the output.
    #[must_use]
    pub fn is_table(&self) -> bool {
        self.format == Format::Table
    }

    /// The first record, if the output is data. Called when the observation has just begun: the cgroups'
    /// figures are taken here, where they are wanted.
    pub fn header(&mut self, header: &Header) -> Result<()> {
        if self.by == Some(By::Cgroup) {
            let begin_ns = now_ns();
            self.cgroups = Some((Cgroups::read()?, begin_ns));
        }
        match &mut self.exporter {
            Some(exporter) => exporter.header(header).context("cannot write"),
            None => Ok(()),
        }
    }

    /// One interval's figures.
    pub fn interval(&mut self, number: u64, tasks: &[TaskFigures]) -> Result<()> {
        let name = self.name();
        match &mut self.exporter {
            Some(exporter) => exporter.tasks(Some(number), tasks).with_context(|| name),
            None => Ok(()),
        }
    }

    /// The final figures, in full. Should the output fail, the table goes to stderr: nothing measured is lost.
    pub fn finish(&mut self, report: &Report) -> Result<()> {
        let result = self.broken.take().map_or_else(|| self.write(report), Err);
        if let Err(error) = &result
            && !is_closed_pipe(error)
        {
            warn(self.table(report, &self.groups(report), DEFAULT_WIDTH, false).trim_end());
        }
        result
    }

    /// What the lines of an interval are about: the tasks, or the groups that were asked for.
    #[must_use]
    pub fn rows(&self, session: &Session) -> Vec<TaskFigures> {
        match self.by {
            Some(by) if self.is_grouped() => {
                let begin = self.cgroups.as_ref();
                let paths = begin.map(|(begin, ns)| begin.until(begin, *ns)).unwrap_or_default();
                let groups = group::groups(&session.tasks(), &session.folded(), by, &paths);
                groups.iter().map(Group::as_task).collect()
            }
            _ => session.figures(),
        }
    }

    /// The groups that were asked for; called when the observation has just ended.
    fn groups(&self, report: &Report) -> Vec<Group> {
        let Some(by) = self.by else { return Vec::new() };
        let cgroups = match &self.cgroups {
            Some((before, begin_ns)) => {
                // Without a second reading the paths are still known.
                let later = Cgroups::read().unwrap_or_default();
                before.until(&later, begin_ns.saturating_add(report.trailer.elapsed_ns))
            }
            None => BTreeMap::new(),
        };
        group::groups(&report.tasks, &report.folded, by, &cgroups)
    }

    fn write(&mut self, report: &Report) -> Result<()> {
        let name = self.name();
        let groups = self.groups(report);
        if let Some(exporter) = &mut self.exporter {
            let mut write = || {
                exporter.tasks(None, &report.tasks)?;
                exporter.groups(&groups)?;
                exporter.pairs(&report.pairs)?;
                exporter.cpus(&report.cpus)?;
                exporter.trailer(&report.trailer)
            };
            return write().with_context(|| name);
        }
        let width = width(self.aside);
        let colored = self.sink.is_none() && wants_color(self.color, self.aside);
        let text = self.table(report, &groups, width, colored);
        match &mut self.sink {
            Some(sink) => {
                sink.write_all(text.as_bytes()).and_then(|()| sink.flush()).with_context(|| name)
            }
            None if self.aside => {
                io::stderr().write_all(text.as_bytes()).context("cannot write to stderr")
            }
            None => print(&text),
        }
    }

    fn table(&self, report: &Report, groups: &[Group], width: usize, color: bool) -> String {
        table::render(report, &Look { width, top: self.top, pairs: self.pairs, groups, color })
    }

    fn name(&self) -> String {
        match &self.path {
            Some(path) => format!("cannot write to {}", path.display()),
            None => "cannot write to stdout".to_owned(),
        }
    }
}

/// The format that was named, or that the file's extension names, or the table.
#[must_use]
pub fn format(args: &OutputArgs) -> Format {
    args.format
        .or_else(|| args.output.as_deref().and_then(Format::from_path))
        .unwrap_or(Format::Table)
}

/// Writes to stdout.
pub fn print(text: &str) -> Result<()> {
    let mut stdout = io::stdout().lock();
    stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush())
        .context("cannot write to stdout")
}

/// Says something on stderr. A terminal that is gone hears nothing, and that is no reason to panic.
pub fn warn(words: &str) {
    let _ = writeln!(anstream::stderr(), "{words}");
}

/// A reader that went away (`| head`) is the clean end of a run, not a fault.
#[must_use]
pub fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
    })
}

/// The width to write for.
#[must_use]
pub fn width(aside: bool) -> usize {
    let file = if aside { rustix::stdio::stderr() } else { rustix::stdio::stdout() };
    match rustix::termios::tcgetwinsize(file) {
        Ok(size) if size.ws_col != 0 => usize::from(size.ws_col).max(NARROWEST),
        _ => DEFAULT_WIDTH,
    }
}

/// Lines of a screen: those of the terminal, or as many as a terminal has that does not say.
#[must_use]
pub fn height() -> usize {
    match rustix::termios::tcgetwinsize(rustix::stdio::stdout()) {
        Ok(size) if size.ws_row != 0 => usize::from(size.ws_row),
        _ => DEFAULT_HEIGHT,
    }
}

/// Whether to colour.
#[must_use]
pub fn wants_color(color: Color, aside: bool) -> bool {
    match color {
        Color::Always => true,
        Color::Never => false,
        Color::Auto => {
            let terminal =
                if aside { io::stderr().is_terminal() } else { io::stdout().is_terminal() };
            terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
        }
    }
}

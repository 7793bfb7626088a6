//! The state of the view: what was read, and what the user wants to see of it.

use std::time::Duration;

use super::{
    cursor::Cursor,
    draw::{self, Areas},
    history::History,
    order::{Key, Rows},
    pairs,
    theme::Theme,
};
use crate::model::{CpuFigures, Header, HookLine, Report, TaskFigures, Trailer};

/// One hook, what became of it, and what it costs.
#[derive(Clone, Debug)]
pub struct HookRow {
    /// What became of it.
    pub line: HookLine,
    /// Instructions that the verifier looked at, where the kernel tells.
    pub instructions: Option<u32>,
    /// Runs since it was attached.
    pub runs: u64,
    /// Mean time of a run in a sample, ns.
    pub run_ns: Option<u64>,
}

/// What the session says at one moment.
#[derive(Clone, Debug)]
pub struct Reading {
    /// When, by the header's clock.
    pub now_ns: u64,
    /// Everything that was measured.
    pub report: Report,
    /// Every hook.
    pub hooks: Vec<HookRow>,
}

/// What does not change by itself.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Time between two readings.
    pub interval: Duration,
    /// How things look.
    pub theme: Theme,
    /// Columns and lines of the screen.
    pub size: (u16, u16),
}

/// What fills the screen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tab {
    /// Tasks or processes.
    #[default]
    Tasks,
    /// Wakers and wakees, tracers and tracees.
    Pairs,
    /// CPUs.
    Cpus,
    /// Hooks.
    Hooks,
}

impl Tab {
    /// All, from left to right.
    pub const ALL: [Self; 4] = [Self::Tasks, Self::Pairs, Self::Cpus, Self::Hooks];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Tasks => "Tasks",
            Self::Pairs => "Pairs",
            Self::Cpus => "CPUs",
            Self::Hooks => "Hooks",
        }
    }
}

/// The parts of a reading that are not rows of tasks or pairs.
#[derive(Clone, Debug, Default)]
pub(super) struct Frame {
    pub now_ns: u64,
    pub trailer: Trailer,
    cpus: Vec<CpuFigures>,
    hooks: Vec<HookRow>,
}

/// The state. Changed by readings ([`Model::take`]) and keys ([`Model::press`]) alone.
#[derive(Clone, Debug)]
pub struct Model {
    pub(super) header: Header,
    pub(super) theme: Theme,
    pub(super) size: (u16, u16),
    pub(super) interval: Duration,

    pub(super) now: Frame,
    before: Frame,
    /// What the hooks had done before anything was observed.
    begin: Vec<HookRow>,
    /// The latest reading while the view stands still.
    waiting: Option<Reading>,
    pub(super) rows: Rows,
    pub(super) pairs: pairs::Rows,
    pub(super) history: History,
    pub(super) has_ended: bool,

    pub(super) tab: Tab,
    pub(super) cursor: Cursor<Key>,
    pub(super) pair_cursor: Cursor<pairs::Key>,
    pub(super) cpu_cursor: Cursor<u32>,
    pub(super) hook_cursor: Cursor<usize>,
    pub(super) has_detail: bool,
    pub(super) detail_top: usize,
    pub(super) has_help: bool,
    pub(super) help_top: usize,
    pub(super) is_paused: bool,
    /// The filter as it was before the user began to type.
    pub(super) typing: Option<String>,
    /// Said in the footer until the next key.
    pub(super) message: Option<String>,
}

impl Model {
    /// The view of a session that has just begun to observe.
    #[must_use]
    pub fn new(reading: Reading, settings: Settings) -> Self {
        let mut model = Self {
            header: reading.report.header.clone(),
            theme: settings.theme,
            size: settings.size,
            interval: settings.interval,
            now: Frame::default(),
            before: Frame::default(),
            begin: reading.hooks.clone(),
            waiting: None,
            rows: Rows::default(),
            pairs: pairs::Rows::default(),
            history: History::default(),
            has_ended: false,
            tab: Tab::default(),
            cursor: Cursor::default(),
            pair_cursor: Cursor::default(),
            cpu_cursor: Cursor::default(),
            hook_cursor: Cursor::default(),
            has_detail: false,
            detail_top: 0,
            has_help: false,
            help_top: 0,
            is_paused: false,
            typing: None,
            message: None,
        };
        model.history.take(reading.now_ns, &reading.report.tasks);
        model.show(reading);
        // Nothing has been added yet.
        model.before = model.now.clone();
        model
    }

    /// Takes the next reading. While the view stands still it only waits.
    pub fn take(&mut self, reading: Reading) {
        self.history.take(reading.now_ns, &reading.report.tasks);
        if self.is_paused {
            self.waiting = Some(reading);
        } else {
            self.show(reading);
        }
    }

    /// No observed task is left: what is shown stays.
    pub fn end(&mut self) {
        self.has_ended = true;
    }

    /// True when no observed task was left.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// The screen has another size.
    pub fn resize(&mut self, columns: u16, lines: u16) {
        self.size = (columns, lines);
        self.follow();
    }

    /// Says something in the footer.
    pub fn say(&mut self, words: String) {
        self.message = Some(words);
    }

    /// The tab in front.
    #[must_use]
    pub fn tab(&self) -> Tab {
        self.tab
    }

    pub(super) fn pause(&mut self) {
        self.is_paused = !self.is_paused;
        if !self.is_paused
            && let Some(reading) = self.waiting.take()
        {
            self.show(reading);
        }
    }

    fn show(&mut self, reading: Reading) {
        let Reading { now_ns, report, hooks } = reading;
        let Report { tasks, folded, pairs, cpus, trailer, .. } = report;
        self.before = std::mem::replace(&mut self.now, Frame { now_ns, trailer, cpus, hooks });
        self.rows.take(tasks, folded);
        self.pairs.take(pairs);
        self.reorder_pairs();
        self.follow();
    }

    /// What the rows are, or how much of them fits, has changed.
    pub(super) fn follow(&mut self) {
        let page = self.page();
        let row = self.cursor.chosen().and_then(|key| self.rows.find(*key));
        self.cursor.follow(row, self.rows.len(), page);
        let row = self.pair_cursor.chosen().and_then(|key| self.pairs.find(key));
        self.pair_cursor.follow(row, self.pairs.len(), page);
        let row = self.cpu_cursor.chosen();
        let row = row.and_then(|cpu| self.now.cpus.iter().position(|row| row.cpu == *cpu));
        self.cpu_cursor.follow(row, self.now.cpus.len(), page);
        let row = self.hook_cursor.chosen().copied();
        self.hook_cursor.follow(row, self.now.hooks.len(), page);
    }

    pub(super) fn reorder_pairs(&mut self) {
        let wanted = self.rows.wanted();
        self.pairs.reorder(wanted.cumulative, &wanted.filter);
    }

    pub(super) fn areas(&self) -> Areas {
        draw::areas(self)
    }

    /// Rows that fit.
    pub(super) fn page(&self) -> usize {
        usize::from(self.areas().body.height)
    }

    /// Everything since the begin, not since the reading before.
    pub(super) fn cumulative(&self) -> bool {
        self.rows.wanted().cumulative
    }

    /// The time that the figures shown are about, ns.
    pub(super) fn span_ns(&self) -> u64 {
        if self.cumulative() {
            self.now.trailer.elapsed_ns
        } else {
            self.now.now_ns.saturating_sub(self.before.now_ns)
        }
    }

    /// The reading before, if only what was added since counts.
    pub(super) fn then(&self) -> Option<&Trailer> {
        (!self.cumulative()).then_some(&self.before.trailer)
    }

    pub(super) fn cpus(&self) -> &[CpuFigures] {
        &self.now.cpus
    }

    pub(super) fn cpu(&self, row: usize) -> Option<(Option<&CpuFigures>, &CpuFigures)> {
        let now = self.now.cpus.get(row)?;
        let then = self.before.cpus.iter().find(|cpu| cpu.cpu == now.cpu);
        Some((then.filter(|_| !self.cumulative()), now))
    }

    pub(super) fn hooks(&self) -> &[HookRow] {
        &self.now.hooks
    }

    /// A hook; its runs while it was attached and calibrated never count.
    pub(super) fn hook(&self, row: usize) -> Option<(Option<&HookRow>, &HookRow)> {
        let now = self.now.hooks.get(row)?;
        let before = if self.cumulative() { &self.begin } else { &self.before.hooks };
        Some((before.get(row), now))
    }

    /// Hooks that were active at the start and are not now.
    pub(super) fn lost_hooks(&self) -> Vec<&str> {
        let was_active = |name: &str| {
            self.header.hooks.iter().any(|hook| hook.name == name && hook.state == "active")
        };
        let hooks = self.now.hooks.iter().map(|row| &row.line);
        hooks
            .filter(|line| line.state != "active" && was_active(&line.name))
            .map(|line| line.name.as_str())
            .collect()
    }

    /// The row of the chosen task, where it is shown.
    pub(super) fn chosen_row(&self) -> Option<usize> {
        self.cursor.chosen().and_then(|key| self.rows.find(*key))
    }

    /// The threads that the chosen row stands for.
    pub(super) fn chosen_tasks(&self) -> Vec<&TaskFigures> {
        self.chosen_row().map_or_else(Vec::new, |row| self.rows.members(row).collect())
    }
}

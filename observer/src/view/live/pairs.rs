//! The pairs: who woke or traced whom, and whose time went to whom.

use std::collections::HashMap;

use ratatui::{buffer::Buffer, layout::Rect};

use super::{
    figure::{self, Kind, grown},
    grid::{self, Cell, Placed, Spec},
    state::Model,
    theme::Theme,
};
use crate::model::{PairFigures, PairKind, Party, TaskFigures, report::escape};

/// The columns, from left to right.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Column {
    /// Waking or tracing.
    Kind,
    /// Waker, previous task or tracer.
    From,
    /// Wakee, next task or tracee.
    To,
    /// Time moved from the one to the other, per second.
    #[default]
    Shifted,
    /// Of it by skipped clock updates.
    Skipped,
    /// Wakeups or stops.
    Count,
    /// Wakeups that preempted the waker.
    Preemptions,
    /// Switches from the one to the other.
    Switches,
    /// Switches with a skipped clock update.
    Skips,
    /// The waker's time in these wakeups.
    Cost,
    /// Mean time from the wakeup to the switch-in.
    Latency,
    /// What 99 of 100 do not exceed.
    Latency99,
    /// The longest.
    LatencyMost,
    /// Time of the tracee in stops.
    Stopped,
    /// Stops after which the tracer ran next on the same CPU.
    Handoffs,
    /// Where most wakeups came from.
    Origin,
}

const COUNT: usize = 16;

const COLUMNS: [Column; COUNT] = [
    Column::Kind,
    Column::From,
    Column::To,
    Column::Shifted,
    Column::Skipped,
    Column::Count,
    Column::Preemptions,
    Column::Switches,
    Column::Skips,
    Column::Cost,
    Column::Latency,
    Column::Latency99,
    Column::LatencyMost,
    Column::Stopped,
    Column::Handoffs,
    Column::Origin,
];

const SPECS: [Spec; COUNT] = [
    Spec::text("KIND", 6, 6, 4),
    Spec::text("FROM", 12, 24, 0),
    Spec::text("-> TO", 12, 24, 1),
    Spec::number("ns/s", 10, 2).of("shifted"),
    Spec::number("skip ns/s", 10, 6).of("shifted"),
    Spec::number("count", 7, 3),
    Spec::number("preempt", 7, 7),
    Spec::number("switches", 8, 8),
    Spec::number("skips", 7, 5),
    Spec::number("cost ms", 7, 9),
    Spec::number("mean", 7, 10).of("latency, µs"),
    Spec::number("p99", 7, 11).of("latency, µs"),
    Spec::number("max", 7, 12).of("latency, µs"),
    Spec::number("stop ms", 8, 13).of("ptrace"),
    Spec::number("handoff", 7, 14).of("ptrace"),
    Spec::text("ORIGIN", 8, 16, 15),
];

impl Column {
    /// Its title.
    pub fn title(self) -> &'static str {
        match self {
            Self::Shifted => "shifted",
            Self::Skipped => "skip ns/s",
            Self::Latency => "latency",
            Self::Latency99 => "latency p99",
            Self::LatencyMost => "latency max",
            Self::Stopped => "stopped",
            Self::Handoffs => "hand-offs",
            other => SPECS[other as usize].title,
        }
    }

    fn kind(self) -> Kind {
        match self {
            Self::Shifted | Self::Skipped => Kind::NsPerSecond,
            Self::Cost | Self::Stopped => Kind::Ms,
            Self::Latency | Self::Latency99 | Self::LatencyMost => Kind::Micros,
            _ => Kind::Count,
        }
    }
}

/// Who a pair is, from one reading to the next.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    kind: PairKind,
    from: PartyKey,
    to: PartyKey,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum PartyKey {
    Account(u64),
    Tid(u32),
    Name(Vec<u8>),
}

fn party_key(party: &Party) -> PartyKey {
    match (party.account, party.tid) {
        (Some(account), _) => PartyKey::Account(account),
        (None, Some(tid)) => PartyKey::Tid(tid),
        (None, None) => PartyKey::Name(party.comm.clone()),
    }
}

/// Who a pair is.
pub fn key(pair: &PairFigures) -> Key {
    Key { kind: pair.kind, from: party_key(&pair.from), to: party_key(&pair.to) }
}

/// A column's number; `None` is not measured.
pub fn value(column: Column, then: Option<&PairFigures>, now: &PairFigures) -> Option<i128> {
    let grown = |pick: fn(&PairFigures) -> Option<u64>| grown(then, now, pick);
    match column {
        Column::Kind | Column::From | Column::To | Column::Origin => None,
        Column::Shifted => {
            now.skip_ns.or(now.path_ns)?;
            grown(|pair| Some(pair.shifted_ns()))
        }
        Column::Skipped => grown(|pair| pair.skip_ns),
        Column::Count => grown(|pair| Some(pair.count)),
        Column::Preemptions => grown(|pair| Some(pair.preemptions)),
        Column::Switches => grown(|pair| Some(pair.switches)),
        Column::Skips => grown(|pair| pair.skips),
        Column::Cost => grown(|pair| pair.wakeup_cost_ns),
        Column::Latency => {
            let count = grown(|pair| Some(pair.latency_count)).filter(|count| *count != 0)?;
            Some(grown(|pair| Some(pair.latency_sum_ns))? / count)
        }
        Column::Latency99 => now.latency_ns(0.99).map(i128::from),
        Column::LatencyMost => (now.latency_count != 0).then_some(now.latency_max_ns.into()),
        Column::Stopped => grown(|pair| pair.stopped_ns),
        Column::Handoffs => grown(|pair| pair.handoffs),
    }
}

/// The pairs that are shown, in their order.
#[derive(Clone, Debug, Default)]
pub struct Rows {
    now: Vec<PairFigures>,
    before: Vec<PairFigures>,
    /// For each of `now` the one of `before`.
    then: Vec<Option<u32>>,
    order: Vec<u32>,
    /// The column that is sorted by.
    pub sort: Column,
    /// In the other direction.
    pub reversed: bool,
}

impl Rows {
    /// Takes the next reading.
    pub fn take(&mut self, pairs: Vec<PairFigures>) {
        self.before = std::mem::replace(&mut self.now, pairs);
        let before: HashMap<Key, u32> =
            (0..).zip(&self.before).map(|(index, pair)| (key(pair), index)).collect();
        self.then.clear();
        self.then.extend(self.now.iter().map(|pair| before.get(&key(pair)).copied()));
    }

    /// Filters and sorts.
    pub fn reorder(&mut self, cumulative: bool, filter: &str) {
        let needle = filter.to_lowercase();
        let mut order: Vec<(Option<i128>, u32)> = Vec::with_capacity(self.now.len());
        for (index, now) in (0..).zip(&self.now) {
            if matches(&now.from, &needle) || matches(&now.to, &needle) {
                order.push((value(self.sort, self.then(index, cumulative), now), index));
            }
        }
        let (sort, reversed) = (self.sort, self.reversed);
        order.sort_by(|a, b| {
            let (one, other) = (&self.now[a.1 as usize], &self.now[b.1 as usize]);
            // Numbers from the largest on, names from the first on; what is not measured comes last.
            let order = match sort {
                Column::Kind => one.kind.cmp(&other.kind),
                Column::From => one.from.comm.cmp(&other.from.comm),
                Column::To => one.to.comm.cmp(&other.to.comm),
                Column::Origin => origin(one).cmp(origin(other)),
                _ => b.0.cmp(&a.0),
            };
            let order = if reversed { order.reverse() } else { order };
            order.then(other.shifted_ns().cmp(&one.shifted_ns())).then(other.count.cmp(&one.count))
        });
        self.order.clear();
        self.order.extend(order.iter().map(|(_, index)| *index));
    }

    fn then(&self, index: u32, cumulative: bool) -> Option<&PairFigures> {
        if cumulative {
            return None;
        }
        let then = self.then.get(index as usize).copied().flatten()?;
        self.before.get(then as usize)
    }

    /// Pairs shown.
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// A pair that is shown: what it was, if only the change counts, and what it is.
    pub fn row(
        &self,
        row: usize,
        cumulative: bool,
    ) -> Option<(Option<&PairFigures>, &PairFigures)> {
        let index = *self.order.get(row)?;
        Some((self.then(index, cumulative), self.now.get(index as usize)?))
    }

    /// Where a pair is now.
    pub fn find(&self, wanted: &Key) -> Option<usize> {
        self.order
            .iter()
            .position(|index| self.now.get(*index as usize).map(key).as_ref() == Some(wanted))
    }

    /// The pairs of some tasks, filtered or not.
    pub fn of<'a>(
        &'a self,
        tasks: &'a [&TaskFigures],
        cumulative: bool,
    ) -> impl Iterator<Item = (Option<&'a PairFigures>, &'a PairFigures)> {
        let is_one = |party: &Party| tasks.iter().any(|task| is(party, task));
        (0..)
            .zip(&self.now)
            .filter(move |(_, pair)| is_one(&pair.from) || is_one(&pair.to))
            .map(move |(index, pair)| (self.then(index, cumulative), pair))
    }
}

/// True if this side of a pair is this task.
pub fn is(party: &Party, task: &TaskFigures) -> bool {
    match party.account {
        Some(account) if task.account != 0 => account == task.account,
        _ => party.tid == Some(task.tid),
    }
}

fn matches(party: &Party, needle: &str) -> bool {
    needle.is_empty()
        || escape(&party.comm).to_lowercase().contains(needle)
        || needle.parse().is_ok_and(|id: u32| party.tid == Some(id) || party.tgid == Some(id))
}

fn origin(pair: &PairFigures) -> &str {
    pair.origins.first().map_or("", |origin| &origin.name)
}

/// `name (tid)`: who it is.
pub fn name(party: &Party) -> String {
    match party.tid {
        Some(tid) => format!("{} ({tid})", escape(&party.comm)),
        None => escape(&party.comm),
    }
}

/// The columns that can be sorted by.
pub fn sortable(width: u16) -> Vec<Column> {
    grid::fit(&SPECS, width).iter().map(|placed| COLUMNS[placed.index]).collect()
}

fn cell<'a>(
    model: &Model,
    placed: Placed,
    then: Option<&PairFigures>,
    now: &'a PairFigures,
) -> Cell<'a> {
    match COLUMNS[placed.index] {
        Column::Kind => now.kind.name().into(),
        Column::From => name(&now.from).into(),
        Column::To => format!("-> {}", name(&now.to)).into(),
        Column::Origin => origin(now).into(),
        column => {
            figure::cell(column.kind(), value(column, then, now), model.span_ns(), placed.width)
        }
    }
}

/// Draws the tab.
pub fn draw(model: &Model, buffer: &mut Buffer, titles: Rect, body: Rect) {
    let placed = grid::fit(&SPECS, body.width);
    let rows = &model.pairs;
    grid::titles(buffer, titles, &SPECS, &placed, Some(rows.sort as usize));
    let window = model.pair_cursor.window(rows.len(), usize::from(body.height));
    for (y, row) in (body.y..).zip(window) {
        let Some((then, now)) = rows.row(row, model.cumulative()) else { break };
        let is_chosen = model.pair_cursor.chosen().is_some_and(|chosen| *chosen == key(now));
        let style = if is_chosen { Theme::CHOSEN } else { Theme::PLAIN };
        grid::row(buffer, body, y, &SPECS, &placed, style, |column| cell(model, column, then, now));
    }
    if rows.len() == 0 && body.height != 0 {
        let words = if rows.now.is_empty() {
            "no pair of tasks has been seen yet"
        } else {
            "no pair has this in a name, or as an id"
        };
        buffer.set_stringn(body.x, body.y, words, usize::from(body.width), Theme::DIM);
    }
}

/// What is shown, as rows of text, titles first: for the export.
pub fn text(model: &Model, width: u16) -> Vec<Vec<String>> {
    let columns = sortable(width);
    let titles = columns.iter().map(|column| column.title().to_owned()).collect();
    let rows = &model.pairs;
    let lines = (0..rows.len()).filter_map(|row| rows.row(row, model.cumulative()));
    let lines = lines.map(|(then, now)| {
        columns
            .iter()
            .map(|column| match column {
                Column::Kind => now.kind.name().to_owned(),
                Column::From => name(&now.from),
                Column::To => name(&now.to),
                Column::Origin => origin(now).to_owned(),
                column => {
                    figure::show(column.kind(), value(*column, then, now), model.span_ns(), 20)
                }
            })
            .collect()
    });
    std::iter::once(titles).chain(lines).collect()
}

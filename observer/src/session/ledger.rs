//! The pairs over a session: read from the kernel's tables, and kept when their tasks have ended.

use std::{
    cmp::Reverse,
    collections::{HashMap, HashSet},
    mem,
};

use anyhow::{Context as _, Result};
use observer_common::{
    pair::{PairKey, party},
    ptrace::{Stop, Trace},
    task::{Task, flag},
};

use crate::{
    model::{PairFigures, PairKind, Party, account::Able},
    probe::Probe,
};

/// Finished pairs that are kept one by one, those that moved most time: at least so many, and at most twice as many. The
/// others are summed in one row of their kind.
const KEPT: usize = 2_048;
/// A name stays for so many passes through the tables in which no pair has it: one that is being written may be missed.
const PASSES: u8 = 2;

/// The number by which pairs know an account.
#[must_use]
pub fn account_of(slot: u32, task: &Task) -> u64 {
    party::observed(slot, task.opened_ns)
}

/// Names of accounts, for pairs.
#[derive(Clone, Debug)]
struct Named {
    tid: u32,
    tgid: u32,
    comm: Vec<u8>,
}

/// The pairs.
#[derive(Default)]
pub struct Ledger {
    names: HashMap<u64, Named>,
    live: Vec<PairFigures>,
    done: Vec<PairFigures>,
    done_rest: HashMap<PairKind, PairFigures>,
    folded: Vec<PairFigures>,
    /// The stops that are open, by the account of the tracee.
    open_stops: HashMap<u64, Task>,
    /// The wakers of those that have not run since, by the account of the wakee: their pairs are still to come.
    open_wakes: HashMap<u64, u64>,
    /// Of the last reading: up to then an open stop counts.
    read_ns: u64,
    ended: HashSet<u64>,
    /// Pairs of accounts that had ended by then are final at the next reading.
    final_now: HashSet<u64>,
    /// Ended accounts that still have a name, and in how many passes no pair had it.
    unused: HashMap<u64, u8>,
}

impl Ledger {
    /// Forgets everything.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// What is seen from here on is of this moment.
    pub fn read_at(&mut self, read_ns: u64) {
        self.read_ns = read_ns;
    }

    /// Notes how an account is called, and the stop that it is in. It need not be seen again before it changes.
    pub fn see(&mut self, slot: u32, task: &Task) {
        let account = account_of(slot, task);
        if task.has(flag::STOPPED) && task.stopped_since_ns != 0 && task.stop.tracer != 0 {
            self.open_stops.insert(account, *task);
        } else {
            self.open_stops.remove(&account);
        }
        if task.wake.since_ns != 0 && party::is_observed(task.wake.from) {
            self.open_wakes.insert(account, task.wake.from);
        } else {
            self.open_wakes.remove(&account);
        }
        let named = self.names.entry(account).or_insert_with(|| Named {
            tid: task.tid,
            tgid: task.tgid,
            comm: Vec::new(),
        });
        (named.tid, named.tgid) = (task.tid, task.tgid);
        named.comm.clear();
        named.comm.extend(task.comm.iter().copied().take_while(|byte| *byte != 0));
    }

    /// Notes that an account has ended: its pairs get no more events.
    pub fn end(&mut self, slot: u32, task: &Task) {
        self.see(slot, task);
        let account = account_of(slot, task);
        self.open_stops.remove(&account);
        self.open_wakes.remove(&account);
        self.ended.insert(account);
        self.unused.insert(account, 0);
    }

    /// Accounts that ended since their pairs were last taken out of the kernel's tables.
    #[must_use]
    pub fn ended(&self) -> usize {
        self.ended.len()
    }

    /// Reads the tables, and takes out what will not change any more.
    pub fn read(&mut self, probe: &mut Probe, able: Able) -> Result<()> {
        let mut live = Vec::new();
        self.go_through(probe, able, Some(&mut live))?;
        self.live = live;
        let (pair, trace) = probe.folded();
        self.folded = [
            PairFigures::of_pair(rest(), rest(), &pair, able),
            PairFigures::of_trace(rest(), rest(), &trace),
        ]
        .into_iter()
        .filter(|figures| figures.count != 0 || figures.switches != 0)
        .collect();
        Ok(())
    }

    /// Takes out what will not change any more, and makes no figures of the rest.
    pub fn take_out(&mut self, probe: &mut Probe, able: Able) -> Result<()> {
        self.go_through(probe, able, None)
    }

    /// Shows the pairs that may still change in `live`, if they are wanted; keeps the others, and takes them out of
    /// the tables.
    fn go_through(
        &mut self,
        probe: &mut Probe,
        able: Able,
        mut live: Option<&mut Vec<PairFigures>>,
    ) -> Result<()> {
        self.final_now = mem::take(&mut self.ended);
        let mut finished: Vec<(PairKey, PairFigures)> = Vec::new();
        let mut used = self.open_parties();
        let mut put = |key: &PairKey, figures: &dyn Fn() -> PairFigures| {
            let parties = [key.from, key.to].into_iter();
            used.extend(parties.filter(|party| self.unused.contains_key(party)));
            if self.is_final(key) {
                finished.push((*key, figures()));
            } else if let Some(live) = live.as_mut() {
                live.push(figures());
            }
        };
        probe
            .for_each_pair(|key, pair| {
                put(key, &|| {
                    let from = self.party(key.from, &pair.from_comm, pair.from_tgid);
                    let to = self.party(key.to, &pair.to_comm, pair.to_tgid);
                    PairFigures::of_pair(from, to, pair, able)
                });
            })
            .context("cannot read the pairs")?;
        probe
            .for_each_trace(|key, trace| {
                put(key, &|| {
                    let from = self.party(key.from, &trace.from_comm, trace.from_tgid);
                    PairFigures::of_trace(from, self.party(key.to, &[], 0), trace)
                });
            })
            .context("cannot read the tracers")?;
        for (key, figures) in finished {
            let removed = match figures.kind {
                PairKind::Wake => probe.remove_pair(&key),
                PairKind::Ptrace => probe.remove_trace(&key),
            };
            removed.context("cannot take out a pair")?;
            self.keep(figures);
        }
        self.forget_names(&used);
        Ok(())
    }

    /// Those that a pair is to come of, or an open stop.
    fn open_parties(&self) -> HashSet<u64> {
        let tracers = self.open_stops.values().map(|task| task.stop.tracer);
        tracers.chain(self.open_wakes.values().copied()).collect()
    }

    /// Drops the names of ended accounts that no pair can have any more.
    fn forget_names(&mut self, used: &HashSet<u64>) {
        let names = &mut self.names;
        self.unused.retain(|account, passes| {
            *passes = if used.contains(account) { 0 } else { *passes + 1 };
            let is_needed = *passes < PASSES;
            if !is_needed {
                names.remove(account);
            }
            is_needed
        });
    }

    /// True when a pair gets no more events.
    fn is_final(&self, key: &PairKey) -> bool {
        // The side that writes: see `observer_common::pair`.
        let writer = if party::is_observed(key.to) { key.to } else { key.from };
        self.final_now.contains(&writer)
    }

    fn keep(&mut self, figures: PairFigures) {
        self.done.push(figures);
        if self.done.len() <= 2 * KEPT {
            return;
        }
        self.done.select_nth_unstable_by_key(KEPT, |pair| Reverse(weight(pair)));
        for figures in self.done.drain(KEPT..) {
            let kind = figures.kind;
            let sum = self.done_rest.entry(kind).or_insert_with(|| PairFigures {
                kind,
                from: rest(),
                to: rest(),
                ..PairFigures::default()
            });
            sum.add(&figures);
        }
    }

    fn party(&self, party: u64, comm: &[u8], tgid: u32) -> Party {
        if party::is_observed(party) {
            let named = self.names.get(&party);
            return Party {
                account: Some(party),
                tid: named.map(|named| named.tid),
                tgid: named.map(|named| named.tgid),
                comm: named.map_or_else(|| b"?".to_vec(), |named| named.comm.clone()),
            };
        }
        let nobody = |comm: &[u8]| Party { comm: comm.to_vec(), ..Party::default() };
        match party {
            party::IDLE => nobody(b"idle"),
            party::HARDIRQ => nobody(b"hardirq"),
            party::SOFTIRQ => nobody(b"softirq"),
            _ => Party {
                account: None,
                tid: party::tid(party),
                tgid: Some(tgid).filter(|tgid| *tgid != 0),
                comm: comm.iter().copied().take_while(|byte| *byte != 0).collect(),
            },
        }
    }

    /// The kernel books a stop when its tracee runs again; those that are open are booked here.
    fn add_open_stops(&self, pairs: &mut Vec<PairFigures>) {
        for (account, task) in &self.open_stops {
            let stop = Stop {
                length_ns: self.read_ns.saturating_sub(task.stopped_since_ns),
                resumed_ns: 0,
                ..task.stop
            };
            let mut trace = Trace::default();
            trace.ended(&stop, 0);
            let from = self.party(stop.tracer, &stop.tracer_comm, stop.tracer_tgid);
            let to = self.party(*account, &[], 0);
            let open = PairFigures::of_trace(from, to, &trace);
            let is_same = |pair: &&mut PairFigures| {
                (pair.kind, &pair.from, &pair.to) == (open.kind, &open.from, &open.to)
            };
            match pairs.iter_mut().find(is_same) {
                Some(pair) => pair.add(&open),
                None => pairs.push(open),
            }
        }
    }

    /// Every pair, by time moved, largest first, then by count. What found no room comes last, in one row of
    /// its kind.
    #[must_use]
    pub fn figures(&self) -> Vec<PairFigures> {
        let mut pairs: Vec<PairFigures> = self.done.iter().chain(&self.live).cloned().collect();
        self.add_open_stops(&mut pairs);
        pairs.sort_by(|a, b| {
            weight(b)
                .cmp(&weight(a))
                .then_with(|| (a.from.tid, a.to.tid).cmp(&(b.from.tid, b.to.tid)))
        });
        let mut rest = self.done_rest.clone();
        for folded in &self.folded {
            rest.entry(folded.kind)
                .and_modify(|sum| sum.add(folded))
                .or_insert_with(|| folded.clone());
        }
        let mut rest: Vec<PairFigures> = rest.into_values().collect();
        rest.sort_by_key(|pair| pair.kind);
        pairs.extend(rest);
        pairs
    }
}

/// What a pair is worth showing by.
fn weight(pair: &PairFigures) -> (u64, u64) {
    (pair.shifted_ns(), pair.count)
}

fn rest() -> Party {
    Party { comm: b"(other)".to_vec(), ..Party::default() }
}

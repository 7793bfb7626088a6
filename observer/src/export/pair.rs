//! The record of a pair: flat, in a documented form, and readable again.

use serde::{Deserialize, Serialize};

use crate::model::{
    PairFigures, PairKind, Party,
    pair::{Origin, Skip, Stops},
    report::{escape, unescape},
};

/// One pair, as written.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PairRecord {
    kind: PairKind,
    from_account: Option<u64>,
    from_tid: Option<u32>,
    from_tgid: Option<u32>,
    from_comm: String,
    /// `task`, or what woke where no task did.
    from_context: String,
    to_account: Option<u64>,
    to_tid: Option<u32>,
    to_tgid: Option<u32>,
    to_comm: String,
    count: u64,
    by_task: u64,
    by_softirq: u64,
    by_hardirq: u64,
    by_idle: u64,
    preemptions: u64,
    switches: u64,
    skips: Option<u64>,
    skip_ns: Option<u64>,
    skips_wakeup: Option<u64>,
    skip_wakeup_ns: Option<u64>,
    skips_idle: Option<u64>,
    skip_idle_ns: Option<u64>,
    skips_yield: Option<u64>,
    skip_yield_ns: Option<u64>,
    skips_other: Option<u64>,
    skip_other_ns: Option<u64>,
    path_ns: Option<u64>,
    wakeup_cost_ns: Option<u64>,
    wakeup_cost_cycles: Option<u64>,
    latency_count: u64,
    latency_sum_ns: u64,
    latency_max_ns: u64,
    latency_p50_ns: Option<u64>,
    latency_p90_ns: Option<u64>,
    latency_p99_ns: Option<u64>,
    latency_buckets: Vec<(u64, u64)>,
    origins: Vec<Origin>,
    stops_by_kind: Option<Stops>,
    stopped_ns: Option<u64>,
    handoffs: Option<u64>,
    handoffs_across: Option<u64>,
}

/// Where a wakeup came from: a task's own context, or the words that stand for what is no task.
fn context(from: &Party) -> String {
    if from.tid.is_some() {
        return "task".to_owned();
    }
    match from.comm.as_slice() {
        word @ (b"idle" | b"hardirq" | b"softirq") => escape(word),
        _ => "other".to_owned(),
    }
}

impl From<&PairFigures> for PairRecord {
    fn from(pair: &PairFigures) -> Self {
        // Where no skip is seen, no kind of it is.
        let count = |skip: Skip| pair.skips.map(|_| skip.count);
        let ns = |skip: Skip| pair.skip_ns.map(|_| skip.ns);
        Self {
            kind: pair.kind,
            from_account: pair.from.account,
            from_tid: pair.from.tid,
            from_tgid: pair.from.tgid,
            from_comm: escape(&pair.from.comm),
            from_context: context(&pair.from),
            to_account: pair.to.account,
            to_tid: pair.to.tid,
            to_tgid: pair.to.tgid,
            to_comm: escape(&pair.to.comm),
            count: pair.count,
            by_task: pair.by_task,
            by_softirq: pair.by_softirq,
            by_hardirq: pair.by_hardirq,
            by_idle: pair.by_idle,
            preemptions: pair.preemptions,
            switches: pair.switches,
            skips: pair.skips,
            skip_ns: pair.skip_ns,
            skips_wakeup: count(pair.skip_wakeup),
            skip_wakeup_ns: ns(pair.skip_wakeup),
            skips_idle: count(pair.skip_idle),
            skip_idle_ns: ns(pair.skip_idle),
            skips_yield: count(pair.skip_yield),
            skip_yield_ns: ns(pair.skip_yield),
            skips_other: count(pair.skip_other),
            skip_other_ns: ns(pair.skip_other),
            path_ns: pair.path_ns,
            wakeup_cost_ns: pair.wakeup_cost_ns,
            wakeup_cost_cycles: pair.wakeup_cost_cycles,
            latency_count: pair.latency_count,
            latency_sum_ns: pair.latency_sum_ns,
            latency_max_ns: pair.latency_max_ns,
            latency_p50_ns: pair.latency_ns(0.5),
            latency_p90_ns: pair.latency_ns(0.9),
            latency_p99_ns: pair.latency_ns(0.99),
            latency_buckets: pair.latency.clone(),
            origins: pair.origins.clone(),
            stops_by_kind: pair.stops_by_kind,
            stopped_ns: pair.stopped_ns,
            handoffs: pair.handoffs,
            handoffs_across: pair.handoffs_across,
        }
    }
}

impl From<PairRecord> for PairFigures {
    fn from(record: PairRecord) -> Self {
        let party =
            |account, tid, tgid, comm: &str| Party { account, tid, tgid, comm: unescape(comm) };
        let skip = |count: Option<u64>, ns: Option<u64>| Skip {
            count: count.unwrap_or(0),
            ns: ns.unwrap_or(0),
        };
        Self {
            kind: record.kind,
            from: party(record.from_account, record.from_tid, record.from_tgid, &record.from_comm),
            to: party(record.to_account, record.to_tid, record.to_tgid, &record.to_comm),
            count: record.count,
            by_task: record.by_task,
            by_softirq: record.by_softirq,
            by_hardirq: record.by_hardirq,
            by_idle: record.by_idle,
            preemptions: record.preemptions,
            switches: record.switches,
            skips: record.skips,
            skip_ns: record.skip_ns,
            skip_wakeup: skip(record.skips_wakeup, record.skip_wakeup_ns),
            skip_idle: skip(record.skips_idle, record.skip_idle_ns),
            skip_yield: skip(record.skips_yield, record.skip_yield_ns),
            skip_other: skip(record.skips_other, record.skip_other_ns),
            path_ns: record.path_ns,
            wakeup_cost_ns: record.wakeup_cost_ns,
            wakeup_cost_cycles: record.wakeup_cost_cycles,
            latency_sum_ns: record.latency_sum_ns,
            latency_count: record.latency_count,
            latency_max_ns: record.latency_max_ns,
            latency: record.latency_buckets,
            origins: record.origins,
            stops_by_kind: record.stops_by_kind,
            stopped_ns: record.stopped_ns,
            handoffs: record.handoffs,
            handoffs_across: record.handoffs_across,
        }
    }
}

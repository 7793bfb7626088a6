//! The first record: what is measured on, and how.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result};
use observer_common::task::crossing;

use super::target::Target;
use crate::{
    clock::now_ns,
    kernel::{Accounting, Limits},
    model::{Crossings, Header, HookLine, report::SCHEMA},
    probe::{self, Cycles, Probe},
};

/// What is measured on, and how.
pub(super) fn header(
    limits: &Limits,
    accounting: &Accounting,
    probe: &Probe,
    cycles: &Cycles,
    crossings: &Crossings,
    target: &Target,
) -> Result<Header> {
    let unix = SystemTime::now().duration_since(UNIX_EPOCH).context("the wall clock")?;
    Ok(Header {
        schema: SCHEMA.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        kernel: limits.uname.release.clone(),
        arch: limits.uname.arch.clone(),
        hz: accounting.hz,
        tick_ns: accounting.tick_ns,
        accounting: accounting.mode.as_str().to_owned(),
        preempt: accounting.preempt.as_str().to_owned(),
        cpus: limits.online_cpus.count(),
        clock: "CLOCK_MONOTONIC".to_owned(),
        clocksource: accounting.clocksource.clone(),
        started_unix_ns: u64::try_from(unix.as_nanos()).unwrap_or(u64::MAX),
        started_ns: now_ns(),
        hooks: probe.status().iter().map(hook_line).collect(),
        crossing_costs_ns: by_kind(&crossings.cost_ps),
        crossing_spreads_ns: by_kind(&crossings.spread_ps),
        target: target.to_string(),
        cycles: cycles.word().to_owned(),
        cycles_reason: cycles.reason().map(str::to_owned),
    })
}

fn by_kind(ps: &[Option<u64>; crossing::COUNT]) -> Vec<(String, Option<u64>)> {
    let kinds = crossing::NAMES.iter().zip(ps);
    kinds.map(|(name, ps)| ((*name).to_owned(), ps.map(|ps| ps.div_ceil(1000)))).collect()
}

fn hook_line(status: &probe::HookStatus) -> HookLine {
    HookLine {
        name: status.hook.name.to_owned(),
        function: status.function.map(str::to_owned),
        via: status.hook.via.name().to_owned(),
        state: status.word().to_owned(),
        reason: status.reason().map(str::to_owned),
        refines: status.hook.refines,
        lost: (!status.is_active()).then(|| status.hook.lost.to_owned()),
    }
}

//! Totals (`--no-split`): one program per switch, held against a session with all hooks of the same tasks.

use anyhow::{Result, ensure};
use serde_json::Value;

use super::{Counts, ONE_PASSED, Outcome, exit_zero};
use crate::vm::records::{FILE, Records, number};

/// Where the session with all hooks leaves its records.
pub const WHOLE: &str = "/tmp/whole.jsonl";

/// Totals of a session with all hooks, and of the ptraced pair that it observes.
pub fn command() -> String {
    format!(
        "observer run --no-split --format jsonl -o {FILE} -- \
         observer run --format jsonl -o {WHOLE} -- \
         observer workload ptrace --policy other --syscalls 1000 --work-us 0"
    )
}

/// Totals add up by themselves, and tell the skips that hooks see asked for.
pub fn as_with_all_hooks(outcome: &Outcome) -> Result<Counts> {
    exit_zero(outcome)?;
    let totals = Records::of(outcome)?;
    totals.check_identities()?;
    let whole = Records::of_file(outcome, WHOLE, &outcome.stdout)?;
    for name in ["tracee_tid", "tracer_tid"] {
        let (told, exact) = (totals.task(name)?, whole.task(name)?);
        ensure!(told["wakeups"].is_null() && told["user_ns"].is_null(), "not totals: {told}");
        for way in ["in", "out"] {
            let of = |task: &Value, what: &str| number(task, &format!("skip_{way}{what}"));
            let (told_skips, skips) = (of(told, "")?, of(exact, "")?);
            let (told_ns, ns) = (of(told, "_ns")?, of(exact, "_ns")?);
            println!("vm: {name} {way}: {told_skips} skips of {told_ns} ns, {skips} of {ns} ns");
            // Another wakeup, or the tick, may move the clock between the request and the switch.
            ensure!((told_skips - skips).abs() <= 10.0 + skips * 0.02, "{way}: {told} and {exact}");
            // The usual path, which is not in a skip, is longer for the session whose hook comes second.
            let most_apart_ns = 0.2e6 + ns * 0.1 + skips * 200.0;
            ensure!((told_ns - ns).abs() <= most_apart_ns, "{way}: {told} and {exact}");
        }
    }
    Ok(ONE_PASSED)
}

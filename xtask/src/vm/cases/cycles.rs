//! Cycles: against the clock, and against what a program counts of itself.

use anyhow::{Result, ensure};
use serde_json::Value;

use crate::vm::records::{Records, number};

/// Of the thread's own counters, opened by itself.
const OWN: f64 = 0.02;
/// Of the split by time.
const SPLIT: f64 = 0.05;

/// The share of user cycles is that of user time, and both counts are those of the thread itself.
pub fn agree(records: &Records) -> Result<()> {
    if !are_counted(records)? {
        return Ok(());
    }
    let task = records.task("tid")?;
    let [user, system] = ["cycles_user", "cycles_system"].map(|field| {
        Ok::<_, anyhow::Error>((number(task, field)?, number(&records.truth, field)?))
    });
    let ((user, own_user), (system, own_system)) = (user?, system?);
    let user_ns = number(task, "user_ns")?;
    let by_time = user_ns / number(task, "oncpu_ns")?;
    let by_cycles = user / (user + system);
    println!(
        "vm: cycles user {user:.0} ({:.4} of its own count), system {system:.0} ({:.4}); user share {:.4} by cycles, \
         {:.4} by time",
        user / own_user,
        system / own_system,
        by_cycles,
        by_time,
    );
    ensure!(task["cycles_discarded"] == 0, "runs were discarded: {task}");
    for (name, seen, own) in [("user", user, own_user), ("system", system, own_system)] {
        ensure!((seen / own - 1.0).abs() < OWN, "{name}: {seen} cycles, {own} by its own counter");
    }
    ensure!(by_time > 0.1 && by_time < 0.9, "user time is no part of the whole: {task}");
    ensure!(
        (by_cycles / by_time - 1.0).abs() < SPLIT
            && ((1.0 - by_cycles) / (1.0 - by_time) - 1.0).abs() < SPLIT,
        "user share {by_cycles:.4} by cycles, {by_time:.4} by time"
    );
    Ok(())
}

/// The cycles of the wakeups are a part of the waker's, and as many for each ns as those of all its time.
pub fn of_wakeups(records: &Records) -> Result<()> {
    if !are_counted(records)? {
        return Ok(());
    }
    let mut judged = 0;
    for task in &records.tasks {
        let of_task =
            |pair: &&Value| pair["from_account"] == task["account"] && pair["kind"] == "wake";
        let sum = |field: &str| -> Result<f64> {
            records.pairs.iter().filter(of_task).map(|pair| number(pair, field)).sum()
        };
        let (cycles, ns) = (sum("wakeup_cost_cycles")?, sum("wakeup_cost_ns")?);
        let system = number(task, "cycles_system")?;
        ensure!(cycles <= system, "{cycles} cycles in wakeups of {task}");
        // Others that were seen.
        if number(task, "wakes_made")? < 400.0 {
            continue;
        }
        judged += 1;
        let rate = (number(task, "cycles_user")? + system) / number(task, "oncpu_ns")?;
        println!("vm: {cycles:.0} cycles in {ns:.0} ns of wakeups, {rate:.4} per ns on the CPU");
        ensure!(
            (cycles / ns / rate - 1.0).abs() < 0.1,
            "{cycles} cycles in {ns} ns, {rate} per ns"
        );
    }
    ensure!(judged == 2, "{judged} tasks made many wakeups");
    Ok(())
}

/// QEMU has a PMU for arm64 and none for x86; without one there is no figure, and a reason.
fn are_counted(records: &Records) -> Result<bool> {
    let header = &records.header;
    if header["arch"] == "aarch64" {
        ensure!(
            header["cycles"] == "counted",
            "cycles are not counted: {}",
            header["cycles_reason"]
        );
        return Ok(true);
    }
    ensure!(header["cycles"] == "absent", "cycles are {}", header["cycles"]);
    ensure!(header["cycles_reason"].is_string(), "no reason: {header}");
    for record in &records.tasks {
        for field in ["cycles_user", "cycles_system", "cycles_discarded"] {
            ensure!(record[field].is_null(), "{field} without a PMU: {record}");
        }
    }
    for record in &records.pairs {
        ensure!(record["wakeup_cost_cycles"].is_null(), "cycles without a PMU: {record}");
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn records(user: u64, user_ns: u64, discarded: u64) -> Records {
        Records {
            truth: json!({"tid": 7, "cycles_user": 400_000, "cycles_system": 600_000}),
            header: json!({"arch": "aarch64", "cycles": "counted"}),
            tasks: vec![json!({"tid": 7, "cycles_user": user, "cycles_system": 602_000,
                "cycles_discarded": discarded, "user_ns": user_ns, "oncpu_ns": 1_000_000})],
            pairs: Vec::new(),
            cpus: Vec::new(),
            trailer: json!({}),
        }
    }

    #[test]
    fn cycles_must_agree_with_the_clock_and_with_the_threads_own() {
        agree(&records(401_000, 405_000, 0)).unwrap();
        assert!(agree(&records(410_000, 405_000, 0)).is_err(), "2.5 % above its own");
        assert!(agree(&records(401_000, 440_000, 0)).is_err(), "another split");
        assert!(agree(&records(401_000, 405_000, 1)).is_err(), "a discarded run");
    }

    #[test]
    fn without_a_pmu_nothing_is_counted_and_the_reason_is_said() {
        let absent = |cycles: Value| Records {
            header: json!({"arch": "x86_64", "cycles": "absent", "cycles_reason": "no PMU"}),
            tasks: vec![json!({"cycles_user": cycles})],
            ..records(0, 0, 0)
        };
        agree(&absent(Value::Null)).unwrap();
        assert!(agree(&absent(json!(0))).is_err());
    }
}

//! The independent oracle: on a `nohz_full` CPU the kernel itself takes the time at each border between user and
//! system (`vtime`, kernel/sched/cputime.c), and its raw `utime` and `stime` are exact but for what it has not booked
//! yet, up to a tick each. observer's split must agree with that.

use anyhow::{Result, ensure};

use super::{Case, Counts, ONE_PASSED, Outcome, exit_zero, observed};
use crate::vm::records::{Records, number};

/// The CPU of `nohz_full=1`. observer runs there too, so that its calibration meets the same borders: with
/// context tracking they cost more than elsewhere.
const THERE: &str = "taskset 2";
/// Share of the time on the CPU.
const TOLERANCE: f64 = 0.01;

pub fn cases() -> Vec<Case> {
    vec![
        observed("vtime-spin", THERE, "spin --ms 1000 --cpu 1", agrees),
        observed("vtime-syscalls", THERE, "syscalls --ms 1000 --cpu 1", agrees),
        observed("vtime-faults", THERE, "faults --pages 50000 --cpu 1", agrees),
        observed("vtime-mixed", THERE, "mixed --ms 1000 --work-us 20 --cpu 1", agrees),
        observed(
            "vtime-ptraced",
            THERE,
            "ptrace --policy other --syscalls 5000 --work-us 50 --cpu 1",
            |outcome| agrees(outcome).and_then(|_| sum_is_shifted(outcome)),
        ),
    ]
}

/// Every task that ran for long enough: measured against raw, within [`TOLERANCE`] of its time on the CPU, and the tick
/// that the kernel may not have booked yet.
fn agrees(outcome: &Outcome) -> Result<Counts> {
    exit_zero(outcome)?;
    let records = Records::of(outcome)?;
    records.check_identities()?;
    let header = &records.header;
    ensure!(header["accounting"] == "vtime active", "accounting is {}", header["accounting"]);
    let tick_ns = number(header, "tick_ns")?;
    let mut judged = 0;
    for task in &records.tasks {
        let oncpu_ns = number(task, "oncpu_ns")?;
        if oncpu_ns < 20.0 * tick_ns {
            continue;
        }
        judged += 1;
        let user_ns = number(task, "user_ns")?;
        // On the kernel's side interrupts of user mode are system time.
        let system_ns = oncpu_ns - user_ns;
        let limit_ns = TOLERANCE * oncpu_ns + tick_ns;
        for (what, measured_ns, raw_ns) in [
            ("user", user_ns, number(task, "raw_utime_ns")?),
            ("system", system_ns, number(task, "raw_stime_ns")?),
        ] {
            ensure!(
                (measured_ns - raw_ns).abs() <= limit_ns,
                "{what}: measured {:.3} ms, the kernel's clock {:.3} ms, of {:.3} ms on the CPU",
                measured_ns / 1e6,
                raw_ns / 1e6,
                oncpu_ns / 1e6
            );
        }
    }
    ensure!(judged > 0, "no task ran for {:.0} ms", 20.0 * tick_ns / 1e6);
    Ok(ONE_PASSED)
}

/// `getrusage` scales the exact raw times to `sum_exec_runtime`, so its sum is still shifted by skipped updates:
/// it differs from the raw sum by what the ledger names, and far more than the raw sum differs from the truth.
fn sum_is_shifted(outcome: &Outcome) -> Result<Counts> {
    let records = Records::of(outcome)?;
    let tick_ns = number(&records.header, "tick_ns")?;
    let tracee = records.task("tracee_tid")?;
    let reported_ns = number(tracee, "reported_user_ns")? + number(tracee, "reported_system_ns")?;
    let raw_ns = number(tracee, "raw_utime_ns")? + number(tracee, "raw_stime_ns")?;
    let shift_ns = number(tracee, "delta_runtime_ns")?;
    let off_ns = reported_ns - raw_ns;
    if records.header["preempt"] == "lazy" {
        // Wakeups do not preempt: there is hardly a skip, and hardly a shift.
        ensure!(
            off_ns.abs() <= 0.02 * raw_ns + 2.0 * tick_ns,
            "shifted on a lazy kernel: {tracee}"
        );
        return Ok(ONE_PASSED);
    }
    ensure!(off_ns < -0.02 * raw_ns, "getrusage's sum is not shifted: {tracee}");
    ensure!((off_ns - shift_ns).abs() <= 2.0 * tick_ns, "{off_ns} is not {shift_ns}: {tracee}");
    Ok(ONE_PASSED)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use xtask::wire::End;

    use super::*;
    use crate::vm::records::FILE;

    fn outcome(accounting: &str, task: Value) -> Outcome {
        let lines = [
            json!({"type": "header", "schema": "observer/1", "accounting": accounting,
                "tick_ns": 4_000_000, "preempt": "full"}),
            task,
            json!({"type": "trailer", "lost_events": 0, "map_full": 0, "clock_jumps": 0,
                "missed_switches": 0}),
        ];
        let text = lines.map(|line| line.to_string()).join("\n");
        Outcome {
            end: End::Exit(0),
            took_ms: 1,
            stdout: json!({"tracee_tid": 7}).to_string(),
            stderr: String::new(),
            files: [(FILE.to_owned(), text.into_bytes())].into(),
        }
    }

    fn task(raw_utime_ms: u64, reported_ms: u64) -> Value {
        json!({"type": "task", "tid": 7, "oncpu_ns": 1_000_000_000, "user_ns": 600_000_000,
            "residual_ns": 0, "raw_utime_ns": raw_utime_ms * 1_000_000, "raw_stime_ns": 399_000_000,
            "reported_user_ns": reported_ms * 1_000_000, "reported_system_ns": 0,
            "delta_runtime_ns": -200_000_000})
    }

    #[test]
    fn the_split_must_agree_where_vtime_is_active() {
        assert!(agrees(&outcome("vtime active", task(602, 800))).is_ok());
        assert!(agrees(&outcome("vtime active", task(620, 800))).is_err());
        assert!(agrees(&outcome("tick", task(602, 800))).is_err());
    }

    #[test]
    fn the_sum_must_be_off_by_the_shift() {
        assert!(sum_is_shifted(&outcome("vtime active", task(602, 800))).is_ok());
        assert!(sum_is_shifted(&outcome("vtime active", task(602, 1000))).is_err());
        assert!(sum_is_shifted(&outcome("vtime active", task(602, 700))).is_err());
    }
}

//! What must hold on every kernel of the matrix.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::{Case, Counts, ONE_PASSED, Outcome, exit_zero, observed, observer};
use crate::vm::{
    records::{FILE, Records, number, text},
    support,
};

/// A file that says how many BPF programs the kernel holds, and another that waits for a number of them.
const PROGRAMS: &str = "/init bpf-programs";

/// In the order in which they run: the hooks first, since nothing else holds without them.
pub fn cases() -> Vec<Case> {
    let spin = "busybox sh -c 'i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done'";
    vec![
        observer(
            "hooks",
            &format!("observer run --format jsonl -o {FILE} -- true"),
            &[FILE],
            |outcome| {
                exit_zero(outcome)?;
                hooks(&Records::of(outcome)?.header)
            },
        ),
        observer("doctor", "observer doctor", &[], |outcome| {
            exit_zero(outcome)?;
            support::check_verifier(&outcome.stdout).map(|()| ONE_PASSED)
        }),
        observer(
            "run-jsonl",
            &format!("observer run --format jsonl -o {FILE} -- {spin}"),
            &[FILE],
            |outcome| {
                whole(outcome, |records| {
                    let ran = records.tasks.iter().any(|task| task["oncpu_ns"].as_u64() > Some(0));
                    ensure!(ran, "no task has oncpu_ns above 0");
                    Ok(())
                })
            },
        ),
        observed(
            "ptraced-pair",
            "",
            "ptrace --policy other --syscalls 2000 --work-us 0",
            |outcome| whole(outcome, ptraced_pair),
        ),
        observed("fifo-pair", "", "ptrace --policy fifo --syscalls 2000 --work-us 0", |outcome| {
            whole(outcome, fifo_pair)
        }),
        observed("ledger", "", "pingpong --count 500", |outcome| {
            whole(outcome, Records::check_pairs)
        }),
        observer("two-ways", &traced("--hooks auto,update_rq_clock"), &[FILE], |outcome| {
            whole(outcome, two_ways)
        }),
        observer(
            "probes",
            &traced("--without ptrace_stop --without ptrace_stop:exit"),
            &[FILE],
            |outcome| whole(outcome, probes),
        ),
        observer(
            "totals",
            &super::totals::command(),
            &[FILE, super::totals::WHOLE],
            super::totals::as_with_all_hooks,
        ),
        observer("untraced", &traced_and_not(), &[FILE, UNTRACED], traced_as_untraced),
        observed("cycles", "", "cycles --rounds 4000 --work-steps 1000", |outcome| {
            whole(outcome, super::cycles::agree)
        }),
        observed("cycles-of-wakeups", "", "pingpong --policy fifo --count 500", |outcome| {
            whole(outcome, super::cycles::of_wakeups)
        }),
        observed("hostile-comm", "", "hostile-comm --name-hex 1b5b33316d0a9b --ms 20", |outcome| {
            whole(outcome, |records| {
                let name = &records.task("tid")?["comm"];
                ensure!(name == "\\x1b[31m\\x0a\\x9b", "the name came out as {name}");
                Ok(())
            })
        }),
        observed(
            "tid-reuse",
            // PID_MAX may not be below 301 (kernel/pid.c).
            "echo 400 > /proc/sys/kernel/pid_max;",
            "forks --count 1000 --parallel 4",
            |outcome| whole(outcome, tid_reuse),
        ),
        observer(
            "all-tasks",
            &format!("observer --all -i 0.5 -n 2 --format jsonl -o {FILE}"),
            &[FILE],
            |outcome| {
                exit_zero(outcome)?;
                let records = Records::of(outcome)?;
                // 5.10 leaves some 1.8 us unexplained at each skipped switch from idle to the guest's init.
                records.check_identities_within(1e6)?;
                ensure!(!records.cpus.is_empty(), "no CPU has a record");
                Ok(ONE_PASSED)
            },
        ),
        observer("sigkill", &sigkill_command(), &[], nothing_left_attached),
    ]
}

/// Where the run without a tracer leaves its records.
const UNTRACED: &str = "/tmp/untraced.jsonl";

/// The same work with and without a tracer. Only where guest time is instructions can the two be compared.
fn traced_and_not() -> String {
    let run = |file: &str, option: &str| {
        format!(
            "observer run --format jsonl -o {file} -- observer workload ptrace {option} \
             --syscalls 200 --work-steps 1000"
        )
    };
    format!("{} && {}", run(FILE, ""), run(UNTRACED, "--untraced"))
}

/// The tracee's measured user time is the same with a tracer, within 2 %; its time in the kernel is not.
fn traced_as_untraced(outcome: &Outcome) -> Result<Counts> {
    exit_zero(outcome)?;
    let mut truths = outcome.stdout.lines();
    let mut user_ns = |file: &str| {
        let truth = truths.next().context("a report is missing")?;
        let records = Records::of_file(outcome, file, truth)?;
        records.check_identities()?;
        number(records.task("tracee_tid")?, "user_ns")
    };
    let (traced_ns, untraced_ns) = (user_ns(FILE)?, user_ns(UNTRACED)?);
    let ratio = traced_ns / untraced_ns;
    println!("vm: user time traced {traced_ns:.0} ns, untraced {untraced_ns:.0} ns: {ratio:.4}");
    ensure!((ratio - 1.0).abs() < 0.02, "traced {traced_ns} ns, untraced {untraced_ns} ns");
    Ok(ONE_PASSED)
}

/// A ptraced pair, observed with options.
fn traced(options: &str) -> String {
    format!(
        "observer run {options} --format jsonl -o {FILE} -- \
         observer workload ptrace --policy other --syscalls 1000 --work-us 0"
    )
}

/// What became of a hook.
fn state<'a>(header: &'a Value, name: &str) -> Option<&'a str> {
    let hooks = header["hooks"].as_array()?;
    hooks.iter().find(|hook| hook["name"] == name)?["state"].as_str()
}

/// The request seen at the wakeup and the void clock update seen by itself are the same switches.
fn two_ways(records: &Records) -> Result<()> {
    records.check_pairs()?;
    let compared = number(&records.trailer, "clocks_compared")?;
    if state(&records.header, "update_rq_clock") != Some("active") {
        ensure!(!support::has_trampolines(&records.header), "update_rq_clock is not active");
        ensure!(compared == 0.0, "compared without the hook: {}", records.trailer);
        return Ok(());
    }
    let disagreed = number(&records.trailer, "clocks_disagreed")?;
    ensure!(compared > 1000.0, "only {compared} switches were compared");
    ensure!(disagreed <= compared * 0.01, "{disagreed} of {compared} switches disagreed");
    Ok(())
}

/// Where the function may not be entered, its symbol is probed.
fn probes(records: &Records) -> Result<()> {
    if records.header["arch"] != "x86_64" {
        // See `support::is_in`.
        ensure!(state(&records.header, "ptrace_stop:kprobe") == Some("absent"), "it is there");
        return Ok(());
    }
    for name in ["ptrace_stop:kprobe", "ptrace_stop:kretprobe"] {
        let state = state(&records.header, name);
        ensure!(state == Some("active"), "{name} is {state:?}: {}", records.header["hooks"]);
    }
    let tracee = records.task("tracee_tid")?;
    let (seen, made) = (number(tracee, "ptrace_stops")?, number(&records.truth, "stops")?);
    ensure!((seen - made).abs() <= 3.0, "{seen} stops seen, {made} made");
    Ok(())
}

/// The command succeeded, the identities hold, and so does `check`.
fn whole(outcome: &Outcome, check: impl Fn(&Records) -> Result<()>) -> Result<Counts> {
    exit_zero(outcome)?;
    let records = Records::of(outcome)?;
    records.check_identities()?;
    check(&records).map(|()| ONE_PASSED)
}

/// Every hook that this kernel has is active: what it does not have is known by its version, as a control of
/// what observer finds out by itself.
fn hooks(header: &Value) -> Result<Counts> {
    let hooks = header["hooks"].as_array().context("the header names no hooks")?;
    let release = text(header, "kernel");
    for hook in hooks {
        let name = text(hook, "name");
        let expected = support::expected_state(hook, header);
        ensure!(hook["state"] == expected, "{name} should be {expected} on {release}: {hook}");
    }
    ensure!(hooks.len() >= 32, "only {} hooks are named", hooks.len());
    Ok(ONE_PASSED)
}

/// The positive control: the stops are counted exactly, and one side gains what the other loses. How many wakeups
/// preempt, and in which direction, is the kernel's choice: on 6.12 it was 3,951 to 3,995 of 4,001 stops in six runs, and
/// 178 in another. So up to 6.12 only a few are asked for; that none is missed is what `two_ways` is about.
fn ptraced_pair(records: &Records) -> Result<()> {
    let (tracer, tracee) = (records.task("tracer_tid")?, records.task("tracee_tid")?);
    ensure!(tracee["tracer_tid"] == tracer["tid"], "another tracer: {tracee}");
    // The program's count leaves out the first SIGSTOP and the end.
    let (seen, made) = (number(tracee, "ptrace_stops")?, number(&records.truth, "stops")?);
    ensure!((seen - made).abs() <= 3.0, "{seen} stops seen, {made} made");
    let skips = number(tracer, "skip_in")? + number(tracee, "skip_in")?;
    let release = text(&records.header, "kernel");
    if records.header["preempt"] == "lazy" {
        ensure!(skips < 0.1 * made, "{skips} skips at {made} stops, on a lazy kernel");
    } else if support::version(release) <= (6, 12) {
        ensure!(skips > 0.01 * made, "only {skips} skips at {made} stops");
    }
    let moved_ns = |task: &Value| {
        Ok::<f64, anyhow::Error>(
            number(task, "skip_in_ns")? - number(task, "skip_out_ns")?
                + number(task, "path_in_ns")?
                - number(task, "path_out_ns")?,
        )
    };
    let (gain_ns, loss_ns) = (moved_ns(tracer)?, -moved_ns(tracee)?);
    ensure!(
        (gain_ns - loss_ns).abs() < 0.2 * loss_ns.abs() + 0.5e6,
        "the tracer gained {gain_ns} ns, the tracee lost {loss_ns} ns"
    );
    Ok(())
}

/// The negative control: under SCHED_FIFO nobody preempts an equal, so nothing is shifted by skips.
fn fifo_pair(records: &Records) -> Result<()> {
    let tracee = records.task("tracee_tid")?;
    let shift_ns = number(tracee, "skip_in_ns")? - number(tracee, "skip_out_ns")?;
    let oncpu_ns = number(tracee, "oncpu_ns")?;
    ensure!(shift_ns.abs() < 0.01 * oncpu_ns, "shift {shift_ns} of {oncpu_ns} ns");
    Ok(())
}

/// Each child has an account of its own, although ids were used again.
fn tid_reuse(records: &Records) -> Result<()> {
    let children = number(&records.truth, "count")?;
    let tasks = &records.tasks;
    ensure!(tasks.len() as f64 == children + 1.0, "{} tasks, {children} children", tasks.len());
    let alive = tasks.iter().find(|task| task["state"] != "exited");
    ensure!(alive.is_none(), "a child is alive: {}", alive.unwrap_or(&Value::Null));
    let id = |task: &Value| (task["tid"].as_u64(), task["start_ns"].as_u64());
    let who: BTreeSet<_> = tasks.iter().map(id).collect();
    let tids: BTreeSet<_> = who.iter().map(|(tid, _)| tid).collect();
    ensure!(who.len() == tasks.len(), "two tasks have one identity");
    ensure!(tids.len() < 400, "no id was used twice: {} of them", tids.len());
    Ok(())
}

/// Prints the numbers of programs before, with observer attached, and after it was killed.
fn sigkill_command() -> String {
    // The kernel frees programs after a grace period, so the end is waited for; and so is the begin.
    format!(
        "before=$({PROGRAMS}); observer run -- sleep 600 & pid=$!; during=$before; n=0; \
         while [ $n -lt 100 ] && [ $during -lt $((before + 10)) ]; do sleep 0.1; n=$((n+1)); during=$({PROGRAMS}); done; \
         kill -KILL $pid; wait $pid; after=$during; n=0; \
         while [ $n -lt 100 ] && [ $after -gt $before ]; do sleep 0.1; n=$((n+1)); after=$({PROGRAMS}); done; \
         echo $before $during $after"
    )
}

fn nothing_left_attached(outcome: &Outcome) -> Result<Counts> {
    exit_zero(outcome)?;
    let last = outcome.stdout.lines().last().unwrap_or_default();
    let numbers: Vec<u64> = last.split(' ').filter_map(|word| word.parse().ok()).collect();
    let [before, during, after] = numbers[..] else {
        anyhow::bail!("not three numbers: {last:?}");
    };
    ensure!(during >= before + 10, "it was not attached: {last}");
    ensure!(after == before, "programs stayed after SIGKILL: {last}");
    Ok(ONE_PASSED)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn records(truth: Value, tasks: Vec<Value>, preempt: &str) -> Records {
        let header = json!({"preempt": preempt});
        Records { truth, header, tasks, pairs: Vec::new(), cpus: Vec::new(), trailer: Value::Null }
    }

    fn pair(kernel: &str, preempt: &str, skips: u64, gain_ns: i64) -> Result<()> {
        let task = |tid: u64, moved_ns: i64| {
            json!({"tid": tid, "tracer_tid": 1, "ptrace_stops": 4001, "skip_in": skips / 2,
                "skip_in_ns": 50_000_000 + moved_ns, "skip_out_ns": 50_000_000,
                "path_in_ns": 7, "path_out_ns": 7})
        };
        let truth = json!({"tracer_tid": 1, "tracee_tid": 2, "stops": 4000});
        let mut records = records(truth, vec![task(1, gain_ns), task(2, -12_000_000)], preempt);
        records.header["kernel"] = kernel.into();
        ptraced_pair(&records)
    }

    #[test]
    fn a_pair_is_judged_by_the_kernels_preemption() {
        pair("6.12.1", "full", 2000, 12_500_000).unwrap();
        assert!(pair("6.12.1", "full", 2000, 8_000_000).is_err(), "gain and loss differ");
        pair("6.12.1", "full", 178, 12_500_000).unwrap();
        assert!(pair("6.12.1", "full", 30, 12_000_000).is_err(), "too few skips");
        pair("7.2.1", "full", 10, 12_000_000).unwrap();
        pair("7.2.1", "lazy", 10, 12_000_000).unwrap();
        assert!(pair("7.2.1", "lazy", 2000, 12_000_000).is_err());
    }

    #[test]
    fn tids_must_have_been_used_again() {
        let task = |tid: u64, start: u64| json!({"tid": tid, "start_ns": start, "state": "exited"});
        let judged = |tasks: Vec<Value>| {
            let count = tasks.len() - 1;
            tid_reuse(&records(json!({"count": count}), tasks, "full"))
        };
        judged((0..500).map(|n| task(n % 300, n)).collect()).unwrap();
        assert!(judged((0..500).map(|n| task(n, n)).collect()).is_err());
        assert!(judged((0..500).map(|n| task(n % 300, n % 300)).collect()).is_err());
    }

    #[test]
    fn programs_that_stay_are_seen() {
        let outcome = |text: &str| Outcome {
            end: xtask::wire::End::Exit(0),
            took_ms: 1,
            stdout: text.to_owned(),
            stderr: String::new(),
            files: Default::default(),
        };
        nothing_left_attached(&outcome("0 32 0\n")).unwrap();
        for bad in ["0 32 1", "0 0 0", "0 32", "", "0 x 0"] {
            assert!(nothing_left_attached(&outcome(bad)).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_hook_that_the_kernel_has_must_be_active() {
        let header = |state: &str| {
            let mut hooks: Vec<_> =
                (0..31).map(|_| json!({"name": "x", "state": "active"})).collect();
            hooks.push(json!({"name": "sched_entry_tp", "state": state}));
            json!({"kernel": "6.1.0-50-cloud-amd64", "arch": "x86_64", "hooks": hooks})
        };
        hooks(&header("absent")).unwrap();
        assert!(hooks(&header("active")).is_err() && hooks(&header("refused")).is_err());
    }
}

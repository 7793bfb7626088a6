//! What `observer run` and its known-answer program said, as the checks read it.

use anyhow::{Context, Result, anyhow, ensure};
use serde_json::Value;

use super::cases::Outcome;

/// Where every case lets observer write its records.
pub const FILE: &str = "/tmp/records.jsonl";

/// The records of one observed run.
#[derive(Debug)]
pub struct Records {
    /// What the known-answer program says of itself; null for another command.
    pub truth: Value,
    /// observer's `header`.
    pub header: Value,
    /// Its `task` records.
    pub tasks: Vec<Value>,
    /// Its `pair` records.
    pub pairs: Vec<Value>,
    /// Its `cpu` records.
    pub cpus: Vec<Value>,
    /// Its `trailer`.
    pub trailer: Value,
}

impl Records {
    /// Reads [`FILE`] and standard output. Every line must be JSON, the first one a header of the schema, the
    /// last one a trailer.
    pub fn of(outcome: &Outcome) -> Result<Self> {
        let file = outcome.files.get(FILE).with_context(|| format!("no {FILE}"))?;
        let mut records = Self::parse(file).context(FILE)?;
        records.truth = serde_json::from_str(&outcome.stdout).unwrap_or_default();
        Ok(records)
    }

    /// Reads another file of records; `truth` is what its program said of itself.
    pub fn of_file(outcome: &Outcome, file: &str, truth: &str) -> Result<Self> {
        let bytes = outcome.files.get(file).with_context(|| format!("no {file}"))?;
        let mut records = Self::parse(bytes).with_context(|| file.to_owned())?;
        records.truth = serde_json::from_str(truth).context("the program's own report")?;
        Ok(records)
    }

    fn parse(bytes: &[u8]) -> Result<Self> {
        let text = str::from_utf8(bytes).context("not UTF-8")?;
        let mut lines = Vec::new();
        for (number, line) in (1..).zip(text.lines()) {
            let value: Value = serde_json::from_str(line)
                .map_err(|error| anyhow!("line {number} is not JSON: {error}"))?;
            lines.push(value);
        }
        let header = lines.first().context("it is empty")?.clone();
        ensure!(header["type"] == "header", "the first line is no header: {header}");
        ensure!(header["schema"] == "observer/1", "the schema is {}", header["schema"]);
        let trailer = lines.last().context("it is empty")?.clone();
        ensure!(trailer["type"] == "trailer", "the last line is no trailer: {trailer}");
        let of_type = |name: &str| {
            lines.iter().filter(|line| line["type"] == name).cloned().collect::<Vec<_>>()
        };
        let (tasks, pairs, cpus) = (of_type("task"), of_type("pair"), of_type("cpu"));
        Ok(Self { truth: Value::Null, header, tasks, pairs, cpus, trailer })
    }

    /// The record of the thread whose id the program calls by this name.
    pub fn task(&self, id_in_truth: &str) -> Result<&Value> {
        let tid = self.truth[id_in_truth]
            .as_u64()
            .with_context(|| format!("the program named no {id_in_truth}: {}", self.truth))?;
        let found = self.tasks.iter().find(|task| task["tid"].as_u64() == Some(tid));
        found.with_context(|| format!("no record of {id_in_truth} {tid}"))
    }

    /// To the ns: each shift of a task is in exactly one of its pairs, and nothing found no room.
    pub fn check_pairs(&self) -> Result<()> {
        ensure!(self.trailer["pairs_folded"] == 0, "pairs found no room: {}", self.trailer);
        let moved = |side: &str, tid: u64| -> Result<f64> {
            let of_task = self
                .pairs
                .iter()
                .filter(|pair| pair["kind"] == "wake" && pair[side].as_u64() == Some(tid));
            of_task.map(|pair| Ok(number(pair, "skip_ns")? + number(pair, "path_ns")?)).sum()
        };
        for task in &self.tasks {
            let tid = task["tid"].as_u64().unwrap_or_default();
            for (side, way) in [("to_tid", "in"), ("from_tid", "out")] {
                let own_ns = number(task, &format!("skip_{way}_ns"))?
                    + number(task, &format!("path_{way}_ns"))?;
                let pairs_ns = moved(side, tid)?;
                ensure!(own_ns == pairs_ns, "{way}: {own_ns} ns, in pairs {pairs_ns} ns: {task}");
            }
        }
        Ok(())
    }

    /// What must hold on every kernel and however slow the machine is: the ledger explains every difference,
    /// each CPU's time is whole, and nothing was lost.
    pub fn check_identities(&self) -> Result<()> {
        self.check_identities_within(0.2e6)
    }

    /// The same with another smallest residual, ns.
    pub fn check_identities_within(&self, least_ns: f64) -> Result<()> {
        for task in &self.tasks {
            let residual_ns = number(task, "residual_ns")?.abs();
            let limit_ns = (number(task, "oncpu_ns")? * 0.001).max(least_ns);
            ensure!(residual_ns <= limit_ns, "a residual of {residual_ns} ns in {task}");
        }
        for cpu in &self.cpus {
            // An interrupt's hook may come between two instructions of another (LIMITATIONS.md).
            // And one that books an event while it is read shows a part of it: tens of microseconds, emulated.
            let limit_ns = (number(cpu, "elapsed_ns")? * 0.0001).max(100e3);
            ensure!(number(cpu, "residual_ns")?.abs() <= limit_ns, "time is missing: {cpu}");
        }
        for counter in ["lost_events", "map_full", "clock_jumps", "missed_switches"] {
            ensure!(number(&self.trailer, counter)? == 0.0, "{counter} in {}", self.trailer);
        }
        Ok(())
    }
}

/// A number of a record; one that was not measured is an error.
pub fn number(record: &Value, field: &str) -> Result<f64> {
    record[field].as_f64().with_context(|| format!("no {field} in {record}"))
}

/// A word of a record; empty where there is none.
pub fn text<'a>(record: &'a Value, field: &str) -> &'a str {
    record[field].as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use xtask::wire::End;

    use super::*;

    const HEADER: &str = r#"{"type":"header","schema":"observer/1"}"#;
    const TASK: &str = r#"{"type":"task","tid":5,"oncpu_ns":9,"residual_ns":3}"#;
    const CPU: &str = r#"{"type":"cpu","residual_ns":1,"elapsed_ns":10000}"#;
    const TRAILER: &str =
        r#"{"type":"trailer","lost_events":0,"map_full":0,"clock_jumps":0,"missed_switches":0}"#;

    fn outcome(lines: &[&str], stdout: &str) -> Outcome {
        let files = BTreeMap::from([(FILE.to_owned(), lines.join("\n").into_bytes())]);
        let stdout = stdout.to_owned();
        Outcome { end: End::Exit(0), took_ms: 1, stdout, stderr: String::new(), files }
    }

    #[test]
    fn a_damaged_file_is_refused() {
        for (lines, reason) in [
            (&[] as &[&str], "it is empty"),
            (&[TASK, TRAILER], "no header"),
            (&[r#"{"type":"header","schema":"observer/2"}"#, TRAILER], "observer/2"),
            (&[HEADER, TASK], "no trailer"),
            (&[HEADER, r#"{"type":"ta"#, TRAILER], "line 2 is not JSON"),
        ] {
            let error = format!("{:#}", Records::of(&outcome(lines, "")).unwrap_err());
            assert!(error.contains(reason), "{error}");
        }
    }

    #[test]
    fn a_thread_is_found_by_the_programs_word() {
        let good = outcome(&[HEADER, TASK, CPU, TRAILER], r#"{"tracee_tid":5,"tid":6}"#);
        let records = Records::of(&good).unwrap();
        assert_eq!(number(records.task("tracee_tid").unwrap(), "oncpu_ns").unwrap(), 9.0);
        assert!(records.task("tid").is_err() && records.task("tracer_tid").is_err());
        records.check_identities().unwrap();
    }

    #[test]
    fn what_is_lost_breaks_the_identities() {
        let broken = |from: &str, to: &str| {
            let all = [HEADER, TASK, CPU, TRAILER].map(|line| line.replace(from, to));
            let lines: Vec<_> = all.iter().map(String::as_str).collect();
            Records::of(&outcome(&lines, "")).unwrap().check_identities().is_err()
        };
        assert!(broken(r#""residual_ns":3"#, r#""residual_ns":-300000"#));
        assert!(broken(r#""residual_ns":3"#, r#""residual_ns":null"#));
        assert!(broken(r#""residual_ns":1"#, r#""residual_ns":-100001"#));
        assert!(broken(r#""map_full":0"#, r#""map_full":1"#));
        assert!(!broken("x", "y"));
    }
}

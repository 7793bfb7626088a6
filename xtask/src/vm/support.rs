//! What is known of each kernel: the record of the last run of the matrix, and the README's table that is made from it.
//!
//! The record is a file of the project. `cargo xtask vm --record` writes it; a test compares the README with it, and
//! each run compares the verifier's counts with it.

use std::{
    collections::BTreeMap,
    fs,
    path::PathBuf,
    sync::atomic::{AtomicBool, Ordering},
};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::{
    cases::Outcome,
    matrix::SETUPS,
    records::{Records, text},
};
use crate::{
    build,
    counts::Counts,
    exec::{self, Root},
    project::Project,
};

/// The last record, as it was when this program was built.
const RECORD: &str = include_str!("../../matrix.json");
/// `BPF_COMPLEXITY_LIMIT_INSNS` (include/linux/bpf.h, since 5.2).
const VERIFIER_LIMIT: u64 = 1_000_000;
/// No program may come nearer to the limit than this.
const VERIFIER_SHARE: f64 = 0.6;
/// Nor grow by more than this against the record.
const VERIFIER_GROWTH: f64 = 1.2;
/// Growth of a small program means nothing.
const VERIFIER_SLACK: u64 = 200;
/// The one hook that no session attaches unasked.
const ON_REQUEST: &str = "update_rq_clock";
/// The README's table stands between these lines.
const BEGIN: &str = "<!-- made by `cargo xtask vm --record` -->";
const END: &str = "<!-- end -->";

/// True when a kernel of this release has the event of a hook.
pub fn is_in(hook: &str, release: &str, arch: &str) -> bool {
    match hook {
        // Added in 6.18 (include/trace/events/sched.h).
        "sched_entry_tp" | "sched_exit_tp" => version(release) >= (6, 18),
        // arch/x86/include/asm/trace/exceptions.h and irq_vectors.h; a software event without the tracepoint
        // is still there.
        "page_fault_user" => arch == "x86_64",
        // Only where the function itself cannot be entered.
        "ptrace_stop:kprobe" | "ptrace_stop:kretprobe" => false,
        // Not where registers do not tell an entry stop from an exit stop.
        _ if hook.starts_with("ptrace_stop") => arch == "x86_64",
        _ if is_x86_vector(hook) => arch == "x86_64",
        _ => true,
    }
}

/// True where functions can be entered (`fentry`): x86-64 since 5.5, arm64 not before 6.4.
pub fn has_trampolines(header: &Value) -> bool {
    let release = text(header, "kernel");
    header["arch"] == "x86_64" || version(release) >= (6, 4)
}

/// What must become of a hook: what needs a trampoline is refused where there is none, and nothing else.
pub fn expected_state(hook: &Value, header: &Value) -> &'static str {
    if text(hook, "name") == ON_REQUEST {
        "off"
    } else if !is_in(text(hook, "name"), text(header, "kernel"), text(header, "arch")) {
        "absent"
    } else if matches!(text(hook, "via"), "fentry" | "fexit") && !has_trampolines(header) {
        "refused"
    } else {
        "active"
    }
}

fn is_x86_vector(hook: &str) -> bool {
    ["local_timer_", "reschedule_", "call_function_", "irq_work_"]
        .iter()
        .any(|vector| hook.starts_with(vector))
}

/// Major and minor number of a release such as `6.12.117+deb13-cloud-amd64`.
pub fn version(release: &str) -> (u32, u32) {
    let mut numbers = release.split(['.', '-', '+']).map(|part| part.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

/// The name under which the verifier's counts of a kernel are kept.
fn short(release: &str) -> String {
    let (major, minor) = version(release);
    format!("{major}.{minor}")
}

/// The same for counts, which differ between architectures: what one lacks is never verified there.
fn counted_as(release: &str, arch: &str) -> String {
    let short = short(release);
    if arch == "x86_64" { short } else { format!("{short} {arch}") }
}

/// What one setup showed.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// The setup.
    pub setup: &'static str,
    /// For the record.
    facts: Value,
    /// Instructions that the verifier looked at, by hook; empty where the kernel does not tell (before 5.16).
    verifier: BTreeMap<String, u64>,
}

impl Finding {
    /// From the cases `hooks` and `doctor`, if they were run.
    pub fn of(
        setup: &'static str,
        outcomes: &BTreeMap<&str, Option<Outcome>>,
        counts: Counts,
    ) -> Option<Self> {
        let outcome = |case: &str| outcomes.get(case)?.as_ref();
        let header = Records::of(outcome("hooks")?).ok()?.header;
        let verifier = doctor_counts(&outcome("doctor")?.stdout);
        Some(Self { setup, facts: facts(&header, counts), verifier })
    }
}

/// The same of the machine that this runs on; none where observer may not run.
///
/// # Errors
/// When observer cannot be built or does not write its records.
pub fn live(project: &Project) -> Result<Option<Finding>> {
    let program = build::observer(project, true)?;
    let Some(mut command) = Root::find().command(&program.to_string_lossy()) else {
        println!(
            "vm: neither root nor sudo without a password: this machine's own kernel is left out"
        );
        return Ok(None);
    };
    let text = exec::output(command.args(["run", "--format", "jsonl", "-o", "-", "--", "true"]))?;
    let header: Value = serde_json::from_str(text.lines().next().unwrap_or_default())
        .context("the header of `observer run`")?;
    let facts = facts(&header, Counts::default());
    Ok(Some(Finding { setup: "live", facts, verifier: BTreeMap::new() }))
}

/// What the record keeps of a header.
fn facts(header: &Value, counts: Counts) -> Value {
    let hooks = header["hooks"].as_array().map(Vec::as_slice).unwrap_or_default();
    let in_state = |states: &[&str]| {
        let names = hooks.iter().filter(|hook| states.contains(&text(hook, "state")));
        names.filter_map(|hook| hook["name"].as_str()).collect::<Vec<_>>()
    };
    let by_fentry = |hook: &&Value| {
        hook["state"] == "active" && matches!(hook["via"].as_str(), Some("fentry" | "fexit"))
    };
    json!({
        "release": header["kernel"],
        "arch": header["arch"],
        "preempt": header["preempt"],
        "accounting": header["accounting"],
        "hooks": hooks.len(),
        "active": in_state(&["active"]).len(),
        "tier": if hooks.iter().any(|hook| by_fentry(&hook)) { "tp_btf, fentry" } else { "tp_btf" },
        "absent": in_state(&["absent", "off"]),
        "refused": in_state(&["refused"]),
        "passed": counts.passed,
        "failed": counts.failed,
    })
}

/// The counts in the hook table of `observer doctor`: `sched_switch  tp_btf  active  4571 instructions verified`.
fn doctor_counts(text: &str) -> BTreeMap<String, u64> {
    let count = |line: &str| {
        let mut words = line.strip_suffix(" instructions verified")?.split_whitespace();
        Some((words.next()?.to_owned(), words.next_back()?.parse().ok()?))
    };
    text.lines().filter_map(count).collect()
}

/// Set while a new record is made: then the old one is no measure.
pub static IS_RECORDING: AtomicBool = AtomicBool::new(false);

/// Compares the verifier's counts of a doctor's output with the limit and with the record.
pub fn check_verifier(doctor: &str) -> Result<()> {
    let kernel = doctor.lines().find_map(|line| line.strip_prefix("Kernel "));
    let mut words = kernel.unwrap_or_default().split_whitespace();
    let kernel = counted_as(words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let record: Value = if IS_RECORDING.load(Ordering::Relaxed) {
        Value::Null
    } else {
        serde_json::from_str(RECORD).context("xtask/matrix.json")?
    };
    compare(&doctor_counts(doctor), &record["verifier"][kernel])
}

fn compare(counts: &BTreeMap<String, u64>, recorded: &Value) -> Result<()> {
    for (hook, count) in counts {
        let limit = (VERIFIER_LIMIT as f64 * VERIFIER_SHARE) as u64;
        ensure!(
            *count <= limit,
            "the verifier looks at {count} instructions of {hook}, above {limit}"
        );
        if let Some(before) = recorded[hook].as_u64() {
            let most = (before as f64 * VERIFIER_GROWTH) as u64 + VERIFIER_SLACK;
            ensure!(
                *count <= most,
                "the verifier looks at {count} instructions of {hook}, {before} before; \
                 if that is meant: cargo xtask vm --record"
            );
        }
    }
    Ok(())
}

fn record_file(project: &Project) -> PathBuf {
    project.root.join("xtask/matrix.json")
}

/// Puts findings into the record, and its table into the README. What was not run stays.
///
/// # Errors
/// When a file cannot be read or written, or the README has lost its marks.
pub fn record(project: &Project, findings: &[Finding]) -> Result<()> {
    let file = record_file(project);
    let mut record: Value = serde_json::from_str(&fs::read_to_string(&file)?)?;
    for finding in findings {
        record["setups"][finding.setup] = finding.facts.clone();
        if !finding.verifier.is_empty() {
            let release = text(&finding.facts, "release");
            let arch = text(&finding.facts, "arch");
            record["verifier"][counted_as(release, arch)] = json!(finding.verifier);
        }
    }
    fs::write(&file, serde_json::to_string_pretty(&record)? + "\n")?;
    let readme = project.root.join("README.md");
    let text = fs::read_to_string(&readme)?;
    fs::write(&readme, with_table(&text, &table(&record))?)?;
    println!("vm: wrote {} and the table in README.md", project.shown(&file));
    Ok(())
}

/// The text with another table between the marks.
fn with_table(text: &str, table: &str) -> Result<String> {
    let (before, rest) = text.split_once(BEGIN).context("README.md has lost its mark")?;
    let (_, after) = rest.split_once(END).context("README.md has lost its end mark")?;
    Ok(format!("{before}{BEGIN}\n{table}{END}{after}"))
}

/// One row for each kernel that has the same hooks however it is booted.
fn table(record: &Value) -> String {
    let mut rows: Vec<(String, Vec<String>, String)> = Vec::new();
    let names = ["live"].into_iter().chain(SETUPS.iter().map(|setup| setup.name));
    for name in names {
        let facts = &record["setups"][name];
        let Some(release) = facts["release"].as_str() else { continue };
        let word = |field: &str| facts[field].as_str().unwrap_or("unknown").to_owned();
        let way = if name == "live" { "live" } else { "virtual machine" };
        let key = format!("{} {}, {way}", short(release), word("arch"));
        let lists = [words(&facts["absent"]), words(&facts["refused"])];
        let missing = match lists.into_iter().filter(|list| !list.is_empty()).collect::<Vec<_>>() {
            none if none.is_empty() => "nothing".to_owned(),
            some => some.join(", "),
        };
        let rest =
            format!("{} of {} | {} | {missing}", facts["active"], facts["hooks"], word("tier"));
        match rows.iter_mut().find(|(known, _, same)| *known == key && *same == rest) {
            Some((_, preempts, _)) => preempts.push(word("preempt")),
            None => rows.push((key, vec![word("preempt")], rest)),
        }
    }
    let mut text =
        "| kernel | preemption | hooks active | by | missing |\n|---|---|---|---|---|\n".to_owned();
    for (kernel, preempts, rest) in rows {
        text.push_str(&format!("| {kernel} | {} | {rest} |\n", preempts.join(", ")));
    }
    text
}

fn words(list: &Value) -> String {
    let names = list.as_array().map(Vec::as_slice).unwrap_or_default();
    names.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_readme_has_the_table_of_the_last_record() {
        let record: Value = serde_json::from_str(RECORD).unwrap();
        let readme = include_str!("../../../README.md");
        assert_eq!(with_table(readme, &table(&record)).unwrap(), readme);
    }

    #[test]
    fn the_record_is_of_todays_hooks() {
        let record: Value = serde_json::from_str(RECORD).unwrap();
        // Each program has a line `NAME = index, "program";` there.
        let names = include_str!("../../../observer-common/src/names.rs");
        let is_program = |line: &&str| line.contains(" = ") && line.trim_end().ends_with("\";");
        let programs = names.lines().filter(|line| line.starts_with("    "));
        let programs = programs.filter(|line| line.contains(", \"")).filter(is_program);
        let count = programs.count() as u64;
        assert!(count > 30, "{count} programs");
        for (setup, facts) in record["setups"].as_object().unwrap() {
            assert_eq!(facts["hooks"], count, "{setup}: cargo xtask vm --record");
        }
    }

    #[test]
    fn what_a_kernel_has_is_known_by_version_and_machine() {
        assert!(is_in("sched_switch", "5.10.0-32-cloud-amd64", "x86_64"));
        assert!(!is_in("sched_entry_tp", "6.12.117+deb13-cloud-amd64", "x86_64"));
        assert!(is_in("sched_exit_tp", "7.2.13+deb14-cloud-amd64", "x86_64"));
        assert!(is_in("sched_exit_tp", "6.18.44", "x86_64"));
        assert!(!is_in("page_fault_user", "6.12.1", "aarch64"));
        assert!(!is_in("local_timer_exit", "6.12.1", "aarch64"));
        assert!(is_in("irq_handler_exit", "6.12.1", "aarch64"));
    }

    #[test]
    fn only_functions_are_refused_and_only_without_trampolines() {
        let state = |name: &str, via: &str, kernel: &str, arch: &str| {
            let header = json!({"kernel": kernel, "arch": arch});
            expected_state(&json!({"name": name, "via": via}), &header)
        };
        assert_eq!(state("handle_mm_fault", "fexit", "5.10.0-32", "aarch64"), "refused");
        assert_eq!(state("handle_mm_fault", "fexit", "6.12.117", "aarch64"), "active");
        assert_eq!(state("handle_mm_fault", "fexit", "5.10.0-32", "x86_64"), "active");
        assert_eq!(state("sched_switch", "tp_btf", "5.10.0-32", "aarch64"), "active");
        assert_eq!(state("page_fault_user", "tp_btf", "5.10.0-32", "aarch64"), "absent");
        assert_eq!(state("update_rq_clock", "fentry", "6.12.117", "x86_64"), "off");
    }

    #[test]
    fn the_verifiers_counts_are_held_against_limit_and_record() {
        let text = "Kernel         6.1.0-50 x86_64\n  sched_switch   tp_btf  active   4571 instructions verified\n  task  iter  active\n";
        let counts = doctor_counts(text);
        assert_eq!(counts, BTreeMap::from([("sched_switch".to_owned(), 4571)]));
        compare(&counts, &json!({"sched_switch": 4000})).unwrap();
        compare(&counts, &Value::Null).unwrap();
        assert!(compare(&counts, &json!({"sched_switch": 3000})).is_err());
        assert_eq!(counted_as("6.12.117+deb13-cloud-arm64", "aarch64"), "6.12 aarch64");
        assert_eq!(counted_as("6.1.0-50", "x86_64"), "6.1");
        let near = BTreeMap::from([("sched_switch".to_owned(), 600_001)]);
        assert!(compare(&near, &Value::Null).is_err());
    }

    #[test]
    fn rows_that_are_alike_are_one() {
        let facts = |release: &str, preempt: &str, absent: &[&str]| {
            json!({"release": release, "arch": "x86_64", "preempt": preempt, "hooks": 3,
                "active": 3 - absent.len(), "tier": "tp_btf", "absent": absent, "refused": []})
        };
        let record = json!({"setups": {
            "6.12-none": facts("6.12.117+deb13", "none", &["a"]),
            "6.12-full": facts("6.12.117+deb13", "full", &["a"]),
            "live": facts("6.18.44", "none", &[]),
        }});
        let table = table(&record);
        let rows: Vec<_> = table.lines().skip(2).collect();
        assert_eq!(
            rows,
            [
                "| 6.18 x86_64, live | none | 3 of 3 | tp_btf | nothing |",
                "| 6.12 x86_64, virtual machine | none, full | 2 of 3 | tp_btf | a |",
            ]
        );
    }
}

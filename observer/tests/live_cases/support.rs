//! Runs under observer, their records, and what holds for every one of them.

use std::{
    ffi::OsStr,
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use observer::lab::known::{self, Run};
use serde_json::Value;
use tempfile::TempDir;

pub fn program() -> &'static OsStr {
    OsStr::new(env!("CARGO_BIN_EXE_observer"))
}

/// The records of one session.
pub struct Records {
    records: Vec<Value>,
    /// What the command wrote to stdout.
    pub stdout: String,
}

impl Records {
    pub fn of(&self, kind: &str) -> Vec<&Value> {
        self.records.iter().filter(|record| record["type"] == kind).collect()
    }

    pub fn tasks(&self) -> Vec<&Value> {
        self.of("task")
    }

    pub fn one(&self, kind: &str) -> &Value {
        self.of(kind).first().copied().expect("there is one")
    }
}

/// `observer ARGUMENTS -o FILE [-- COMMAND]`.
pub fn observe(arguments: &[&str], command: &[&str]) -> Records {
    let folder = TempDir::new().expect("a folder");
    let file = folder.path().join("records.jsonl");
    let mut observer = Command::new(program());
    observer.args(arguments).arg("-o").arg(&file);
    if !command.is_empty() {
        observer.arg("--").args(command);
    }
    let output = observer.output().expect("observer starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {errors}", output.status);
    Records { records: read(&file), stdout: String::from_utf8_lossy(&output.stdout).into_owned() }
}

/// The table of `observer run ARGUMENTS -- COMMAND`.
pub fn table(arguments: &[&str], command: &[&str]) -> String {
    let mut observer = Command::new(program());
    observer.arg("run").args(arguments).arg("--").args(command);
    let output = observer.stdout(Stdio::null()).output().expect("observer starts");
    let table = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{}: {table}", output.status);
    table
}

/// The records in a file.
pub fn read(file: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(file).expect("the records");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// A known-answer program under observer. What holds for every run is asserted.
pub fn workload(arguments: &[&str]) -> Run {
    let run = known::run(program(), arguments).expect("the run is observed");
    for task in &run.tasks {
        assert_account(task);
    }
    run
}

/// A known-answer program beside observer; killed when it is dropped.
pub struct Beside(Child);

impl Beside {
    /// Starts it and gives it time to come to what it does.
    pub fn start(arguments: &[&str]) -> Self {
        let child = Command::new(program())
            .arg("workload")
            .args(arguments)
            .stdout(Stdio::null())
            .spawn()
            .expect("it starts");
        std::thread::sleep(Duration::from_millis(300));
        Self(child)
    }

    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Its only child.
    pub fn child(&self) -> u32 {
        let is_child = |stat: &str| {
            // The name before the last bracket may hold anything.
            let after = stat.rsplit_once(')').map_or("", |(_, after)| after);
            after.split_whitespace().nth(1) == Some(&self.pid().to_string())
        };
        let processes = std::fs::read_dir("/proc").expect("it is mounted").flatten();
        let mut pids = processes.filter_map(|it| it.file_name().to_str()?.parse().ok());
        pids.find(|pid: &u32| {
            std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| is_child(&stat))
        })
        .expect("it has a child")
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub fn integer(record: &Value, field: &str) -> u64 {
    record[field].as_u64().unwrap_or_else(|| unreachable!("{field} was not measured: {record}"))
}

pub fn signed(record: &Value, field: &str) -> i64 {
    record[field].as_i64().unwrap_or_else(|| unreachable!("{field} was not measured: {record}"))
}

pub fn sum<'a>(records: impl IntoIterator<Item = &'a Value>, field: &str) -> u64 {
    records.into_iter().map(|record| integer(record, field)).sum()
}

/// The record of a thread; of an id that was used by two tasks the one with most time.
pub fn of_tid(run: &Run, tid: u64) -> &Value {
    let with_tid = run.tasks.iter().filter(|task| task["tid"].as_u64() == Some(tid));
    with_tid.max_by_key(|task| integer(task, "oncpu_ns")).expect("observer has seen it")
}

/// The books of a tracer and one tracee.
pub fn trace_of(run: &Run, tracee: u64) -> &Value {
    let mut pairs = run.pairs.iter().filter(|pair| pair["kind"] == "ptrace");
    pairs.find(|pair| pair["to_tid"].as_u64() == Some(tracee)).expect("a tracer and its tracee")
}

/// What is true of every account.
///
/// B07: nobody runs, waits and is stopped for longer than the account was open. A task is only ever in one of these.
pub fn assert_account(task: &Value) {
    let modes = ["user_ns", "system_ns", "hardirq_ns", "softirq_ns", "unclassified_ns"];
    let by_mode: u64 = modes.iter().map(|field| integer(task, field)).sum();
    assert_eq!(by_mode, integer(task, "oncpu_ns"), "the modes are the whole: {task}");
    let states = ["oncpu_ns", "wait_ns", "ptrace_stopped_ns", "job_stopped_ns"];
    let in_a_state: u64 = states.iter().map(|field| integer(task, field)).sum();
    if task["state"] == "exited" {
        let life_ns = integer(task, "updated_ns") - integer(task, "opened_ns");
        assert!(in_a_state <= life_ns, "{in_a_state} of {life_ns} ns: {task}");
    }
    let parts = signed(task, "delta_user_total_ns") + signed(task, "delta_user_split_ns");
    assert_eq!(parts, signed(task, "delta_user_ns"), "two errors, one sum: {task}");
    let residual_ns = signed(task, "residual_ns").unsigned_abs();
    // The offset of the clocks is known to some hundred ns where CPUs come from idle at each switch: 0.40 ms were seen
    // over some 1,700 switches of a pair on two CPUs.
    let switches = integer(task, "switches_voluntary") + integer(task, "switches_involuntary");
    let limit_ns = (integer(task, "oncpu_ns") / 1_000).max(200_000) + 500 * switches;
    assert!(residual_ns <= limit_ns, "residual {residual_ns} ns of {task}");
}

/// The measured user time against the task's own clock: never below it, and above it only by what its clock did not
/// see as user time.
///
/// That is in the gaps: what the host took is user time for the guest's kernel and for anybody in it, also next to an
/// interrupt, where the clock cannot tell the two apart. `outside_ns`: what the task did beside its burn.
pub fn assert_user(task: &Value, truth: &Value, outside_ns: u64) {
    let Some(own_ns) = truth["user_ns"].as_u64() else {
        println!("SKIPPED: this machine's clock needs a syscall: no independent truth");
        return;
    };
    let before = truth["cpu_before_ns"].as_u64().or(truth["thread_cpu_before_ns"].as_u64());
    let above_ns = integer(truth, "gap_ns") + before.unwrap_or(0) * 5 / 4 + outside_ns + 1_000_000;
    let user_ns = integer(task, "user_ns");
    let range = own_ns * 98 / 100..=own_ns * 102 / 100 + above_ns;
    assert!(range.contains(&user_ns), "user {user_ns} ns, own {range:?}: {task} {truth}");
}

/// Whether a program is installed here.
pub fn has(tool: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(tool).is_file())
}

/// How many CPUs a test may use.
pub fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

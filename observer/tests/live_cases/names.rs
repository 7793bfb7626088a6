//! Group b: names, of threads and processes, old and new, and hostile ones.

use std::process::Command;

use observer::model::report::unescape;
use serde_json::Value;

use crate::support::{Beside, integer, observe, program, sum, table};

#[test]
#[ignore = "root"]
fn b19_after_exec_the_account_goes_on_under_the_new_name() {
    let script = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; exec sleep 0.05";
    let records = observe(&["run"], &["sh", "-c", script]);
    let tasks = records.tasks();
    let [task] = tasks[..] else { unreachable!("one task, one account: {tasks:?}") };
    assert_eq!(task["comm"], "sleep");
    // The loop before exec is in it: a sleep has next to nothing of its own.
    assert!(task["former_tid"].is_null());
    assert!(integer(task, "user_ns") > 1_000_000, "{task}");
}

#[test]
#[ignore = "root"]
fn b21_a_leader_that_never_runs_has_its_name() {
    let threads = Beside::start(&["threads", "--count", "3", "--burn-ms", "60000"]);
    let pid = threads.pid().to_string();
    let records = observe(&["--pid", &pid, "-i", "0.5", "-n", "1", "--by", "process"], &[]);
    let tasks = records.tasks();
    assert_eq!(tasks.len(), 4);
    let (leaders, workers): (Vec<&Value>, Vec<&Value>) =
        tasks.into_iter().partition(|task| task["tid"] == task["tgid"]);
    let [leader] = leaders[..] else { unreachable!("one leader") };
    assert_eq!(integer(leader, "oncpu_ns"), 0, "it waits for the others: {leader}");
    assert_eq!(leader["comm"], "observer");
    assert!(workers.iter().any(|worker| integer(worker, "oncpu_ns") > 0));
    // B22: the process is named after its leader, whoever works.
    let group = records.one("group");
    assert_eq!((&group["name"], &group["key"]), (&"observer".into(), &pid.as_str().into()));
    assert_eq!(integer(group, "members"), 4);
    assert_eq!(integer(group, "oncpu_ns"), sum(workers, "oncpu_ns"));
}

#[test]
#[ignore = "root"]
fn b22_threads_and_their_process_have_two_names() {
    // A subshell is a process of its own and renames nobody; exec does, and only its own thread.
    let script = "(exec sleep 0.05) & (exec sleep 0.05) & wait";
    let records = observe(&["run", "--by", "comm"], &["sh", "-c", script]);
    let groups = records.of("group");
    let members = |name: &str| {
        groups.iter().find(|group| group["key"] == name).map(|group| integer(group, "members"))
    };
    assert_eq!((members("sleep"), members("sh")), (Some(2), Some(1)));
    assert_eq!(
        sum(groups.iter().copied(), "oncpu_ns"),
        sum(records.tasks(), "oncpu_ns"),
        "each task is in one group"
    );
}

/// Names as bytes in hexadecimal: escapes, C1, ends of lines, spaces, a closing bracket, cut UTF-8, none at all.
const HOSTILE: [&str; 10] = [
    "1b5b33316d",
    "1b5d303b7807",
    "0d2020202020",
    "9b33316d",
    "610a62",
    "610962",
    "61202062",
    "202020202020202020202020202020",
    "61292053203120",
    "e697a5e69c",
];

#[test]
#[ignore = "root"]
fn b33_b34_a_hostile_name_harms_neither_a_terminal_nor_a_file() {
    let program = program().to_str().expect("a path in UTF-8");
    // All in one session; the last one has no name.
    let names = HOSTILE.join(" ");
    let script = format!(
        "for name in {names} ''; do \"$0\" workload hostile-comm --name-hex \"$name\" --ms 5 >/dev/null; done"
    );
    let command = ["sh", "-c", &script, program];
    let table = table(&["--top", "50"], &command);
    assert!(table.lines().count() > HOSTILE.len(), "{table}");
    assert!(table.chars().all(|it| it == '\n' || !it.is_control()), "{table:?}");
    let records = observe(&["run"], &command);
    let seen: Vec<Vec<u8>> = records
        .tasks()
        .iter()
        .map(|task| unescape(task["comm"].as_str().expect("a text")))
        .collect();
    for hex in HOSTILE.into_iter().chain([""]) {
        let name: Vec<u8> = (0..hex.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hexadecimal"))
            .collect();
        assert_eq!(seen.iter().filter(|it| **it == name).count(), 1, "{hex} in {seen:?}");
    }
    for task in records.tasks() {
        assert!(integer(task, "reported_runtime_ns") > 0, "read, whatever the name: {task}");
    }
}

#[test]
#[ignore = "root"]
fn b34_a_hostile_name_comes_back_from_csv() {
    let csv = |name: &str| {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let status = Command::new(program())
            .args(["run", "--format", "csv", "-o"])
            .arg(file.path())
            .arg("--")
            .arg(program())
            .args(["workload", "hostile-comm", "--ms", "5", "--name-hex", name])
            .stdout(std::process::Stdio::null())
            .status()
            .expect("starts");
        assert!(status.success());
        std::fs::read_to_string(file.path()).expect("UTF-8")
    };
    // "a,"b, LF, and a quote at the end.
    let text = csv("612c22620a22");
    let header = text.lines().next().expect("a header");
    let names: Vec<&str> = header.split(',').collect();
    let at = names.iter().position(|name| *name == "comm").expect("a column");
    let row = text.lines().nth(1).expect("a row");
    // Its comma and quotes make it a quoted cell; a line end never reaches the file.
    let cell = "\"a,\"\"b\\x0a\"\"\"";
    assert!(row.contains(cell), "{row}");
    let before = row.split(cell).next().expect("what precedes it");
    assert_eq!(before.matches(',').count(), at, "the {at}th column: {row}");
}

//! The command line as a contract: usage errors, exit statuses, one clear line. No root needed.

#![expect(
    clippy::expect_used,
    reason = "a helper outside of a test function fails the test that calls it"
)]

use std::process::{Command, Output};

fn observer(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_observer"))
        .args(arguments)
        .output()
        .expect("the program starts")
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn usage_errors_exit_with_2() {
    for arguments in [
        &[][..],
        &["--pid"][..],
        &["--pid", "x"][..],
        &["--pid", "0"][..],
        &["--pid", "-1"][..],
        &["--nonsense"][..],
        &["run"][..],
        &["run", "--"][..],
        &["run", "--cycles", "sometimes", "--", "true"][..],
        &["--comm", "[a"][..],
        &["--comm", "a-pattern-that-is-longer-than-any-thread-name-may-be"][..],
        &["--pid", "1", "-i", "0"][..],
        &["--pid", "1", "-n", "0"][..],
        &["--all", "--max-tasks", "0"][..],
        &["--pid", "1", "doctor"][..],
        &["--pid", "1", "--by", "colour"][..],
        &["--pid", "1", "--table", "pairs"][..],
        &["run", "--table", "pairs", "-o", "a.jsonl", "--", "true"][..],
        &["explain"][..],
        &["explain", "a.jsonl", "--pid", "1"][..],
        &["explain", "a.jsonl", "--", "true"][..],
        &["explain", "a.jsonl", "-n", "3"][..],
    ] {
        let output = observer(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", stderr(&output));
        assert!(output.stdout.is_empty(), "{arguments:?}");
        assert!(stderr(&output).starts_with("error:"), "{arguments:?}: {}", stderr(&output));
    }
}

#[test]
fn cycles_that_are_required_and_cannot_be_had_are_one_line_and_exit_3() {
    let can_count = |name: std::ffi::OsString| {
        let name = name.to_string_lossy().into_owned();
        name == "cpu" || name.starts_with("cpu_") || name.contains("pmu")
    };
    let devices = std::fs::read_dir("/sys/bus/event_source/devices");
    if devices.is_ok_and(|mut all| all.any(|one| one.is_ok_and(|one| can_count(one.file_name())))) {
        eprintln!("SKIPPED: this machine has a PMU");
        return;
    }
    let output = observer(&["run", "--cycles", "require", "--", "true"]);
    let words = stderr(&output);
    assert_eq!(output.status.code(), Some(3), "{words}");
    assert!(output.stdout.is_empty());
    assert_eq!(words.lines().count(), 1, "{words}");
    // Without rights that is said first.
    if !words.contains("cannot load programs") {
        assert!(words.starts_with("observer: cannot count cycles: no PMU "), "{words}");
    }
}

#[test]
fn help_and_version_exit_with_0_on_stdout() {
    for arguments in [&["--help"][..], &["run", "--help"][..], &["--version"][..]] {
        let output = observer(arguments);
        assert_eq!(output.status.code(), Some(0));
        assert!(!output.stdout.is_empty());
    }
}

#[test]
fn an_unknown_pid_is_one_line_and_exit_1() {
    let output = observer(&["--pid", "4194304"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(stderr(&output), "observer: there is no process 4194304\n");
}

#[test]
fn a_kernel_thread_is_one_line_and_exit_1() {
    let is_kthread = std::fs::read_to_string("/proc/2/comm").is_ok_and(|comm| comm == "kthreadd\n");
    if !is_kthread {
        eprintln!("SKIPPED: pid 2 is not a kernel thread here (a container)");
        return;
    }
    let output = observer(&["--pid", "2"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("kernel thread"), "{}", stderr(&output));
    assert_eq!(stderr(&output).lines().count(), 1);
}

#[test]
fn a_file_that_cannot_be_written_is_said_before_anything_runs() {
    let marker = tempfile::tempdir().expect("a folder");
    let touched = marker.path().join("ran");
    let output = observer(&[
        "run",
        "-o",
        "/nonexistent/folder/out.jsonl",
        "--",
        "touch",
        touched.to_str().expect("UTF-8"),
    ]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).starts_with("observer: cannot write to /nonexistent/folder/out.jsonl"));
    assert!(!touched.exists(), "the command must not run");
}

#[test]
fn the_schema_is_json_and_names_itself() {
    let output = observer(&["schema"]);
    assert_eq!(output.status.code(), Some(0));
    let schema: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(schema["title"], "observer/1");
}

/// A file of ours, by hand: a tracer that took 19 of 76 ms.
const RECORDED: &str = concat!(
    r#"{"type":"header","schema":"observer/1","kernel":"6.18.44","arch":"x86_64","hz":250,"tick_ns":4000000,"#,
    r#""accounting":"tick","preempt":"none","cpus":2}"#,
    "\n",
    r#"{"type":"task","tid":124,"tgid":124,"comm":"ls","state":"exited","oncpu_ns":76000000,"#,
    r#""reported_runtime_ns":57000000,"delta_runtime_ns":-19000000,"skip_in_ns":0,"skip_out_ns":19000000,"#,
    r#""path_in_ns":0,"path_out_ns":0,"left_out_ns":0,"residual_ns":0}"#,
    "\n",
    r#"{"type":"pair","kind":"wake","from_tid":124,"from_comm":"ls","to_tid":123,"to_comm":"strace","count":900,"#,
    r#""switches":920,"skips":900,"skip_ns":19000000,"skips_wakeup":900,"skip_wakeup_ns":19000000}"#,
    "\n",
    r#"{"type":"trailer","elapsed_ns":100000000}"#,
    "\n",
);

fn explain(content: &str) -> Output {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.jsonl");
    std::fs::write(&path, content).expect("written");
    observer(&["explain", path.to_str().expect("UTF-8")])
}

#[test]
fn a_file_is_explained() {
    let output = explain(RECORDED);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text =
        String::from_utf8_lossy(&output.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("19.000 ms of it went to strace (123): 900 of 920 switches"), "{text}");
    assert_eq!(stderr(&output), "");
}

#[test]
fn a_file_that_ends_early_is_explained_as_far_as_it_goes_with_exit_1() {
    let cut = RECORDED.find("\"trailer\"").expect("it is there");
    let output = explain(&RECORDED[..cut]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stdout).contains("strace (123)"));
    assert_eq!(stderr(&output).lines().count(), 1, "{}", stderr(&output));
    assert!(
        stderr(&output).contains("not whole (line 4 is broken, there is no trailer)"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn a_foreign_file_is_one_line_and_exit_1() {
    for content in
        ["", "hello\n", "\0\u{1}\u{2}", "{\"type\":\"header\",\"schema\":\"observer/2\"}\n"]
    {
        let output = explain(content);
        assert_eq!(output.status.code(), Some(1), "{content:?}");
        assert!(output.stdout.is_empty(), "{content:?}");
        assert_eq!(stderr(&output).lines().count(), 1, "{content:?}: {}", stderr(&output));
    }
    let output = observer(&["explain", "/nonexistent"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).starts_with("observer: cannot read /nonexistent"));
}

#[test]
fn a_closed_pipe_is_a_clean_end() {
    let status = Command::new("sh")
        .arg("-c")
        .arg(format!(
            "{} schema | head -c 10 >/dev/null; {} schema | true",
            env!("CARGO_BIN_EXE_observer"),
            env!("CARGO_BIN_EXE_observer")
        ))
        .output()
        .expect("sh");
    assert_eq!(stderr(&status), "");
}

#[test]
fn without_rights_the_exit_status_is_3_and_the_reason_is_one_line() {
    if !nix::unistd::Uid::effective().is_root() {
        let output = observer(&["run", "--", "true"]);
        assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
        return;
    }
    // As root: give the rights up first.
    let copy = tempfile::tempdir().expect("a folder");
    let program = copy.path().join("observer");
    // Not by this process: a child that another test forks would hold the copy open for writing (ETXTBSY).
    let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_observer")).arg(&program).status();
    assert!(copied.expect("cp").success());
    let open = |path: &std::path::Path| {
        use std::os::unix::fs::PermissionsExt as _;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).expect("chmod");
    };
    open(copy.path());
    open(&program);
    let mut command = Command::new(&program);
    std::os::unix::process::CommandExt::uid(&mut command, 65_534);
    let output = command.args(["run", "--", "true"]).output().expect("starts");
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    assert_eq!(stderr(&output).lines().count(), 1, "{}", stderr(&output));
}

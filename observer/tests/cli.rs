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
        &["--comm", "[a"][..],
        &["--comm", "a-pattern-that-is-longer-than-any-thread-name-may-be"][..],
        &["--pid", "1", "-i", "0"][..],
        &["--pid", "1", "-n", "0"][..],
        &["--all", "--max-tasks", "0"][..],
        &["--pid", "1", "doctor"][..],
    ] {
        let output = observer(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", stderr(&output));
        assert!(output.stdout.is_empty(), "{arguments:?}");
        assert!(stderr(&output).starts_with("error:"), "{arguments:?}: {}", stderr(&output));
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
    std::fs::copy(env!("CARGO_BIN_EXE_observer"), &program).expect("copy");
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

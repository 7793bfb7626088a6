//! Running other programs: every failure names the command that failed.

use std::{
    env,
    ffi::{OsStr, OsString},
    io::{BufRead, BufReader, Write},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
};

use anyhow::{Context, Result, anyhow, bail};

/// Runs a command with our own standard streams.
///
/// # Errors
/// When it cannot be started or does not succeed.
pub fn run(command: &mut Command) -> Result<()> {
    let status = status(command)?;
    if !status.success() {
        bail!("`{}` failed: {status}", show(command));
    }
    Ok(())
}

/// Runs a command with our own standard streams and leaves the judgement to the caller.
///
/// # Errors
/// When it cannot be started.
pub fn status(command: &mut Command) -> Result<ExitStatus> {
    command.status().with_context(|| format!("cannot start `{}`", show(command)))
}

/// Runs a command silently and returns its standard output.
///
/// # Errors
/// When it cannot be started or does not succeed; then with what it wrote to standard error.
pub fn output(command: &mut Command) -> Result<String> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot start `{}`", show(command)))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("`{}` failed: {}\n{}", show(command), output.status, said.trim_end());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Runs a command silently; true when it could be started and succeeded.
pub fn succeeds(command: &mut Command) -> bool {
    command.stdin(Stdio::null()).output().is_ok_and(|output| output.status.success())
}

/// Runs a command, passes its standard output on to `out` as it comes, and hands each line to `on_line`
/// too.
///
/// # Errors
/// When it cannot be started or its output not read.
pub fn tee(
    command: &mut Command,
    out: &mut dyn Write,
    mut on_line: impl FnMut(&str),
) -> Result<ExitStatus> {
    let shown = show(command);
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start `{shown}`"))?;
    let stdout = child.stdout.take().ok_or_else(|| anyhow!("`{shown}` has no output"))?;
    let mut reader = BufReader::new(stdout);
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line).with_context(|| format!("output of `{shown}`"))? > 0 {
        // Whoever reads our output may have gone; the tests still count.
        let _ = out.write_all(&line).and_then(|()| out.flush());
        on_line(String::from_utf8_lossy(&line).trim_end());
        line.clear();
    }
    child.wait().with_context(|| format!("waiting for `{shown}`"))
}

/// The command as a person would type it, with the variables that were set for it.
pub fn show(command: &Command) -> String {
    let set = command.get_envs().filter_map(|(name, value)| {
        // PATH is long and always set by us in the same way.
        let value = value.filter(|_| name != "PATH")?;
        Some(format!("{}={}", name.to_string_lossy(), quoted(value)))
    });
    let words = [command.get_program()].into_iter().chain(command.get_args()).map(quoted);
    set.chain(words).collect::<Vec<_>>().join(" ")
}

fn quoted(word: &OsStr) -> String {
    let word = word.to_string_lossy();
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=+./,:@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.into_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// The first executable of this name in PATH.
pub fn which(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|folder| folder.join(name)).find(|file| is_executable(file))
}

/// True for a file that somebody may execute.
pub fn is_executable(file: &Path) -> bool {
    file.metadata().is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
}

/// PATH with `folder` in front.
pub fn path_with(folder: &Path) -> OsString {
    let old = env::var_os("PATH").unwrap_or_default();
    let folders = [folder.to_path_buf()].into_iter().chain(env::split_paths(&old));
    // join_paths fails on a folder with a colon in its name, which PATH cannot hold anyway.
    env::join_paths(folders).unwrap_or(old)
}

/// How a command becomes root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Root {
    /// We are root.
    Direct,
    /// By sudo, which asks for nothing.
    Sudo,
    /// Not without a password.
    No,
}

impl Root {
    /// Finds out, without a question to the user.
    pub fn find() -> Self {
        if is_root() {
            Self::Direct
        } else if succeeds(Command::new("sudo").args(["-n", "true"])) {
            Self::Sudo
        } else {
            Self::No
        }
    }

    /// A command that runs `program` as root, if there is a way.
    pub fn command(self, program: &str) -> Option<Command> {
        match self {
            Self::Direct => Some(Command::new(program)),
            Self::Sudo => {
                let mut command = Command::new("sudo");
                command.args(["-n", program]);
                Some(command)
            }
            Self::No => None,
        }
    }
}

/// True when this process has root's effective user id.
pub fn is_root() -> bool {
    // SAFETY: geteuid takes nothing and cannot fail.
    unsafe { libc::geteuid() == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_names_the_command_its_variables_and_its_status() {
        let mut command = Command::new("sh");
        command.env("WHY", "not now").args(["-c", "echo it is broken >&2; exit 7"]);
        let error = output(&mut command).unwrap_err().to_string();
        assert!(error.contains("WHY='not now' sh -c 'echo it is broken >&2; exit 7'"), "{error}");
        assert!(error.contains("exit status: 7"), "{error}");
        assert!(error.ends_with("it is broken"), "{error}");
    }

    #[test]
    fn a_missing_program_is_named() {
        let error = run(&mut Command::new("no-such-program-here")).unwrap_err();
        assert_eq!(error.to_string(), "cannot start `no-such-program-here`");
    }

    #[test]
    fn quotes_survive_showing() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo 'a b'", ""]);
        assert_eq!(show(&command), r"sh -c 'echo '\''a b'\''' ''");
    }

    #[test]
    fn tee_hands_out_each_line_and_the_status() {
        let (mut out, mut lines) = (Vec::new(), Vec::new());
        let mut command = Command::new("sh");
        command.args(["-c", "printf 'one\\ntwo'; exit 3"]);
        let status = tee(&mut command, &mut out, |line| lines.push(line.to_owned())).unwrap();
        assert_eq!(status.code(), Some(3));
        assert_eq!(out, b"one\ntwo");
        assert_eq!(lines, ["one", "two"]);
    }
}

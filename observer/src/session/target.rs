//! Who is observed.

use std::{
    fmt, fs, io,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, bail};
use observer_common::{
    glob::{Glob, GlobError},
    lifecycle::PF_KTHREAD,
    names::target,
};

use crate::probe::Probe;

/// Who is observed. An empty target observes nobody until [`Probe::add_target`] names somebody.
#[derive(Clone, Debug, Default)]
pub struct Target {
    /// Processes, all their threads.
    pub pids: Vec<u32>,
    /// Single threads.
    pub tids: Vec<u32>,
    /// A pattern for thread names, as given and compiled.
    pub glob: Option<(String, Box<Glob>)>,
    /// A cgroup (version 2) and everything below it.
    pub cgroup: Option<PathBuf>,
    /// Every task.
    pub all: bool,
    /// Descendants are left out.
    pub no_follow: bool,
}

impl Target {
    /// How many ids it names.
    #[must_use]
    pub fn ids(&self) -> usize {
        // A cgroup's processes are named one by one.
        self.pids.len() + self.tids.len() + if self.cgroup.is_some() { 65_536 } else { 0 }
    }

    /// True when nobody is named.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pids.is_empty()
            && self.tids.is_empty()
            && self.glob.is_none()
            && self.cgroup.is_none()
            && !self.all
    }

    /// Refuses ids that cannot be observed, each with one clear line.
    pub fn check(&self) -> Result<()> {
        self.pids.iter().try_for_each(|pid| check_process(*pid))?;
        self.tids.iter().try_for_each(|tid| check_thread(*tid))
    }

    /// Tells the kernel side.
    pub fn apply(&self, probe: &mut Probe) -> Result<()> {
        for pid in &self.pids {
            probe.add_target(*pid, target::PROCESS)?;
        }
        for tid in &self.tids {
            probe.add_target(*tid, target::THREAD)?;
        }
        if let Some((_, glob)) = &self.glob {
            probe.set_glob(glob)?;
        }
        if let Some(path) = &self.cgroup {
            let folder = fs::File::open(path)
                .with_context(|| format!("cannot open the cgroup {}", path.display()))?;
            probe
                .set_cgroup(&folder)
                .with_context(|| format!("{} is not a cgroup of version 2", path.display()))?;
            for pid in processes_below(path)? {
                probe.add_target(pid, target::PROCESS)?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        parts.extend(self.pids.iter().map(|pid| format!("pid {pid}")));
        parts.extend(self.tids.iter().map(|tid| format!("tid {tid}")));
        parts.extend(self.glob.iter().map(|(pattern, _)| format!("comm {pattern}")));
        parts.extend(self.cgroup.iter().map(|path| format!("cgroup {}", path.display())));
        if self.all {
            parts.push("all tasks".to_owned());
        }
        f.write_str(&parts.join(", "))?;
        if self.no_follow { f.write_str(", without descendants") } else { Ok(()) }
    }
}

/// Compiles a pattern for names.
pub fn parse_glob(pattern: &str) -> Result<(String, Box<Glob>), String> {
    let glob = Glob::compile(pattern.as_bytes()).map_err(|error| match error {
        GlobError::TooLong => "a name has at most 15 bytes; the pattern is too long".to_owned(),
        GlobError::OpenClass => "`[` without its `]`".to_owned(),
        GlobError::OpenEscape => "a `\\` at the end".to_owned(),
    })?;
    Ok((pattern.to_owned(), Box::new(glob)))
}

fn check_process(pid: u32) -> Result<()> {
    let stat = read_stat(pid)?;
    if is_kernel_thread(&stat) {
        bail!(
            "{pid} is a kernel thread: it has no user time to compare; observe it with --tid {pid} or --all"
        );
    }
    let leader = leader_of(pid)?;
    if leader != pid {
        bail!(
            "{pid} is a thread of process {leader}: use --tid {pid}, or --pid {leader} for all its threads"
        );
    }
    Ok(())
}

fn check_thread(tid: u32) -> Result<()> {
    read_stat(tid).map(drop)
}

fn read_stat(pid: u32) -> Result<Vec<u8>> {
    match fs::read(format!("/proc/{pid}/stat")) {
        Ok(stat) if state_of(&stat) == Some(b'Z') => {
            bail!("process {pid} has already ended (a zombie that waits for its parent)")
        }
        Ok(stat) => Ok(stat),
        Err(error) if error.kind() == io::ErrorKind::NotFound => bail!("there is no process {pid}"),
        Err(error) => Err(error).with_context(|| format!("cannot look at process {pid}")),
    }
}

/// What follows the name: the name may hold anything, so the last `)` ends it.
fn after_name(stat: &[u8]) -> Option<&str> {
    let end = stat.iter().rposition(|byte| *byte == b')')?;
    std::str::from_utf8(&stat[end + 1..]).ok()
}

fn state_of(stat: &[u8]) -> Option<u8> {
    after_name(stat)?.split_whitespace().next()?.bytes().next()
}

/// Field 9 of `/proc/PID/stat`: the task's `PF_*` flags.
fn is_kernel_thread(stat: &[u8]) -> bool {
    after_name(stat)
        .and_then(|rest| rest.split_whitespace().nth(6))
        .and_then(|flags| flags.parse::<u32>().ok())
        .is_some_and(|flags| flags & PF_KTHREAD != 0)
}

fn leader_of(pid: u32) -> Result<u32> {
    let status = fs::read(format!("/proc/{pid}/status"))
        .with_context(|| format!("there is no process {pid}"))?;
    Ok(String::from_utf8_lossy(&status)
        .lines()
        .find_map(|line| line.strip_prefix("Tgid:"))
        .and_then(|tgid| tgid.trim().parse().ok())
        .unwrap_or(pid))
}

/// The processes of a cgroup and of all below it.
fn processes_below(folder: &Path) -> Result<Vec<u32>> {
    let list = folder.join("cgroup.procs");
    let text = fs::read_to_string(&list)
        .with_context(|| format!("{} is not a cgroup: {}", folder.display(), list.display()))?;
    let mut pids: Vec<u32> = text.lines().filter_map(|line| line.trim().parse().ok()).collect();
    pids.retain(|pid| *pid != std::process::id());
    for entry in fs::read_dir(folder)?.flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            pids.extend(processes_below(&entry.path())?);
        }
    }
    Ok(pids)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b34_a_name_may_hold_anything() {
        let stat = b"12 (a) R 1) b\n) S 1 12 12 0 -1 4194304 1 2 3";
        assert_eq!(state_of(stat), Some(b'S'));
        assert!(!is_kernel_thread(stat));
        assert!(is_kernel_thread(b"2 (kthreadd) S 0 0 0 0 -1 2129984 0 0"));
        assert_eq!(state_of(b"garbage"), None);
    }

    #[test]
    fn what_is_not_there_is_said_in_one_line() {
        let error = check_process(4_194_305).unwrap_err().to_string();
        assert_eq!(error, "there is no process 4194305");
        let error = check_process(2);
        if let Err(error) = error {
            assert!(
                error.to_string().contains("kernel thread")
                    || error.to_string().contains("no process")
            );
        }
    }
}

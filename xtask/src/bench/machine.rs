//! On what a benchmark ran, and where its table is kept.

use std::{fs, process::Command};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use crate::{exec, project::Project};

/// The document.
const DOCUMENT: &str = "docs/overhead.md";

/// The machine at the time.
#[derive(Clone, Debug)]
pub struct Machine {
    cpu: String,
    cpus: usize,
    kernel: String,
    commit: String,
    load: (f64, f64),
}

impl Machine {
    /// Before a benchmark.
    ///
    /// # Errors
    /// When the kernel does not say.
    pub fn now(project: &Project) -> Result<Self> {
        let info = fs::read_to_string("/proc/cpuinfo").context("/proc/cpuinfo")?;
        let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
        let read = |path: &str| fs::read_to_string(path).map(|text| text.trim().to_owned());
        let mut git = Command::new("git");
        git.args(["describe", "--always", "--dirty", "--abbrev=12"]).current_dir(&project.root);
        let load = load()?;
        Ok(Self {
            cpu: model.map_or_else(|| "unknown processor".to_owned(), |(_, name)| name.to_owned()),
            cpus: info.lines().filter(|line| line.starts_with("processor")).count(),
            kernel: read("/proc/sys/kernel/osrelease")?,
            commit: exec::output(&mut git)
                .map_or_else(|_| "unknown".to_owned(), |id| id.trim().to_owned()),
            load: (load, load),
        })
    }

    /// After it.
    ///
    /// # Errors
    /// When the kernel does not say.
    pub fn until_now(self) -> Result<Self> {
        Ok(Self { load: (self.load.0, load()?), ..self })
    }

    /// One line.
    pub fn text(&self) -> String {
        let Self { cpu, cpus, kernel, commit, load } = self;
        format!(
            "Commit {commit} · Linux {kernel} · {cpus} × {cpu} · load average {:.1} before, {:.1} after\n",
            load.0, load.1
        )
    }

    /// The same for programs.
    pub fn json(&self) -> Value {
        let Self { cpu, cpus, kernel, commit, load } = self;
        json!({ "cpu": cpu, "cpus": cpus, "kernel": kernel, "commit": commit, "load": [load.0, load.1] })
    }
}

fn load() -> Result<f64> {
    let text = fs::read_to_string("/proc/loadavg").context("/proc/loadavg")?;
    text.split(' ').next().and_then(|word| word.parse().ok()).context("/proc/loadavg")
}

/// The last CPU that this process may run on.
///
/// # Errors
/// When the kernel does not say.
pub fn last_cpu() -> Result<usize> {
    let status = fs::read_to_string("/proc/self/status").context("/proc/self/status")?;
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let last = list.and_then(|list| list.trim().rsplit([',', '-']).next()?.parse().ok());
    last.context("/proc/self/status names no CPU")
}

/// Puts a section between its marks in the document.
///
/// # Errors
/// When the document or its mark is not there.
pub fn record(project: &Project, title: &str, text: &str) -> Result<()> {
    let file = project.root.join(DOCUMENT);
    let old = fs::read_to_string(&file).with_context(|| format!("cannot read {DOCUMENT}"))?;
    let new = replaced(&old, title, text)
        .with_context(|| format!("{DOCUMENT} has lost the mark of {title:?}"))?;
    fs::write(&file, new).with_context(|| format!("cannot write {DOCUMENT}"))
}

fn replaced(old: &str, title: &str, text: &str) -> Option<String> {
    let begin = format!("<!-- made by `cargo xtask bench --record`: {title} -->\n");
    let end = "<!-- end -->";
    let (before, rest) = old.split_once(&begin)?;
    let (_, after) = rest.split_once(end)?;
    Some(format!("{before}{begin}{text}{end}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_is_replaced_and_its_neighbours_stay() {
        let old = "a\n<!-- made by `cargo xtask bench --record`: x -->\nold\n<!-- end -->\nb\n\
                   <!-- made by `cargo xtask bench --record`: y -->\nkept\n<!-- end -->\n";
        let new = replaced(old, "x", "new\n").unwrap();
        assert_eq!(new, old.replace("old\n", "new\n"));
        assert_eq!(replaced(old, "z", ""), None);
    }

    #[test]
    fn every_mark_is_in_the_document() {
        let text = include_str!("../../../docs/overhead.md");
        for title in [
            "switch",
            "switch, perf bench sched pipe",
            "switch, each hook",
            "syscall",
            "start",
            "start, by step",
            "scale",
            "soak",
            "export",
        ] {
            assert!(replaced(text, title, "").is_some(), "{title}");
        }
    }
}

//! `cargo xtask setup`: finds or installs what a build needs. Asks nothing; may be run again at any time.

mod linker;

use std::{
    fmt, io,
    path::PathBuf,
    process::{Command, Stdio},
    time::Instant,
};

use anyhow::{Context, Result, anyhow, bail};

use crate::{apt, exec, project::Project, toolchain::Toolchain};

/// Debian's compiler with a precompiled core for the bpf targets.
const COMPILER_PACKAGES: &[&str] = &["rustc-web", "cargo-web", "libstd-rust-web-dev-bpf"];
/// Clippy of that compiler.
const CLIPPY_PACKAGE: &str = "rust-web-clippy";

/// How much is needed, and how much of it is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// What a build needs; nothing is printed while all is there.
    BuildQuietly,
    /// What a build needs.
    Build,
    /// Also what all test tiers need, as far as this machine can have it.
    Tests,
}

/// Makes sure that the project can be built.
///
/// # Errors
/// When something is missing that cannot be installed from here: the text says what a person must run.
pub fn ensure(project: &Project, wanted: Wanted) -> Result<Toolchain> {
    let steps = Steps { quiet: wanted == Wanted::BuildQuietly };
    let started = Instant::now();
    let toolchain = compiler(&steps)?;
    if !matches!(toolchain, Toolchain::ReadyObject(_)) {
        linker::ensure(project, &toolchain, &steps)?;
    }
    if wanted == Wanted::Tests {
        for_tests(&toolchain, &steps);
    }
    steps.say("setup", &format!("done in {:.1} s", started.elapsed().as_secs_f64()));
    Ok(toolchain)
}

fn compiler(steps: &Steps) -> Result<Toolchain> {
    const STEP: &str = "eBPF compiler";
    if let Some(toolchain) = Toolchain::find()? {
        steps.found(STEP, &toolchain);
        return Ok(toolchain);
    }
    // Debian's compiler first: it is a stable one and needs no source of core.
    let by_apt = steps
        .install(STEP, "Debian's rustc-web, about a minute", || apt::install(COMPILER_PACKAGES));
    let by_rustup = |apt_error: anyhow::Error| {
        steps.say(STEP, &format!("not by apt: {apt_error:#}"));
        steps.install(STEP, "rustup's nightly with rust-src", || {
            if exec::which("rustup").is_none() {
                bail!("there is no rustup here");
            }
            let mut command = Command::new("rustup");
            command.args(["toolchain", "install", "nightly", "--component", "rust-src"]);
            command.args(["--profile", "minimal", "--no-self-update"]);
            exec::run(command.stdin(Stdio::null()).stdout(io::stderr()))
        })
    };
    by_apt.or_else(by_rustup).map_err(no_compiler)?;
    let found = Toolchain::find()?;
    found.ok_or_else(|| no_compiler(anyhow!("what was installed cannot compile for eBPF")))
}

fn no_compiler(reason: anyhow::Error) -> anyhow::Error {
    reason.context(format!(
        "no compiler for the kernel side could be installed. Run one of\n  \
         rustup toolchain install nightly --component rust-src\n  \
         sudo apt-get install --no-install-recommends {}\n\
         and then `cargo xtask setup` again",
        COMPILER_PACKAGES.join(" ")
    ))
}

/// What only some tiers need. A tier that lacks it is skipped later, with the reason.
fn for_tests(toolchain: &Toolchain, steps: &Steps) {
    if *toolchain == Toolchain::Folder("/usr".into()) {
        let clippy = PathBuf::from("/usr/bin/cargo-clippy");
        let there = Some(clippy).filter(|file| exec::is_executable(file));
        steps.optional("eBPF clippy", there, CLIPPY_PACKAGE);
    }
    let arch = &crate::vm::kernels::X86_64;
    steps.optional("virtual machine", exec::which(arch.qemu), arch.qemu_package);
}

/// Says what happens, one line for each step and state, on standard error.
pub struct Steps {
    quiet: bool,
}

impl Steps {
    /// The step has nothing to do.
    pub fn found(&self, step: &str, what: &dyn fmt::Display) {
        self.say(step, &format!("found {what}"));
    }

    fn say(&self, step: &str, text: &str) {
        if !self.quiet {
            print(step, text);
        }
    }

    /// Does what takes long. Said even when quiet: the user waits for it.
    ///
    /// # Errors
    /// Those of `action`.
    pub fn install<T>(
        &self,
        step: &str,
        what: &str,
        action: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        print(step, &format!("installing ({what})"));
        let started = Instant::now();
        let result = action().with_context(|| format!("{step} could not be installed"));
        let end = if result.is_ok() { "done" } else { "failed" };
        print(step, &format!("{end} after {:.1} s", started.elapsed().as_secs_f64()));
        result
    }

    fn optional(&self, step: &str, there: Option<PathBuf>, package: &str) {
        if let Some(path) = there {
            self.found(step, &path.display());
        } else if let Err(error) = self.install(step, package, || apt::install(&[package])) {
            self.say(step, &format!("left out: {error:#}"));
        }
    }
}

fn print(step: &str, text: &str) {
    eprintln!("{step:>16}: {text}");
}

//! `cargo xtask lint`: rustfmt, and clippy on both sides of the kernel border.

use std::{
    path::Path,
    process::{Command, ExitCode},
};

use anyhow::{Result, bail};

use crate::{
    exec,
    project::Project,
    setup::{self, Wanted},
    toolchain::{TARGET, Toolchain},
};

/// What was not checked, and why.
pub type Skipped = Vec<String>;

/// Sets up and lints.
///
/// # Errors
/// When a check fails.
pub fn task(project: &Project) -> Result<ExitCode> {
    let toolchain = setup::ensure(project, Wanted::BuildQuietly)?;
    lint(project, &toolchain)?;
    Ok(ExitCode::SUCCESS)
}

/// Runs every check, also after a failed one, so that one run shows all there is to mend.
///
/// # Errors
/// When at least one check fails.
pub fn lint(project: &Project, toolchain: &Toolchain) -> Result<Skipped> {
    let mut failed = Vec::new();
    let mut check = |name: &'static str, command: &mut Command| {
        if let Err(error) = exec::run(command) {
            eprintln!("lint: {error:#}");
            failed.push(name);
        }
    };
    check("format", project.cargo("fmt").args(["--all", "--check"]));
    check("clippy", &mut host_clippy(project));
    let mut skipped = Skipped::new();
    match kernel_clippy(project, toolchain) {
        Ok(mut command) => check("eBPF clippy", &mut command),
        Err(why) => {
            let why = format!("clippy of observer-ebpf: {why}");
            eprintln!("SKIPPED: {why}");
            skipped.push(why);
        }
    }
    if !failed.is_empty() {
        bail!("lint: {} failed", failed.join(", "));
    }
    Ok(skipped)
}

/// observer-ebpf is an empty stub on the host: it is checked for its own target below.
fn host_clippy(project: &Project) -> Command {
    let mut command = project.cargo("clippy");
    command.args(["--workspace", "--exclude", "observer-ebpf", "--all-targets"]);
    command.args(["--", "-D", "warnings"]);
    command
}

/// Clippy of the compiler that the kernel side is built with, if it has one.
fn kernel_clippy(project: &Project, toolchain: &Toolchain) -> Result<Command> {
    let mut command = match toolchain {
        Toolchain::ReadyObject(_) => bail!("the object is ready, nothing is compiled"),
        Toolchain::Folder(folder) => {
            let bin = folder.join("bin");
            let clippy = bin.join("cargo-clippy");
            if !exec::is_executable(&clippy) {
                bail!(
                    "{} is not there (Debian: apt-get install rust-web-clippy)",
                    clippy.display()
                );
            }
            // Not `cargo clippy`: that prefers the cargo-clippy in ~/.cargo/bin, of another compiler.
            let mut command = Command::new(clippy);
            command.env("CARGO", bin.join("cargo")).env("RUSTC", bin.join("rustc"));
            command.env_remove("RUSTUP_TOOLCHAIN");
            command
        }
        Toolchain::Rustup(name) => {
            let mut command = Command::new("rustup");
            command.env("RUSTUP_AUTO_INSTALL", "0").args(["run", name, "cargo-clippy"]);
            if !exec::succeeds(Command::new("rustup").args([
                "run",
                name,
                "cargo-clippy",
                "--version",
            ])) {
                bail!(
                    "rustup's {name} has no clippy (rustup component add clippy --toolchain {name})"
                );
            }
            command
        }
    };
    command.args(["clippy", "--package", "observer-ebpf", "--target", TARGET, "--release"]);
    if toolchain.builds_core()? {
        command.args(["-Z", "build-std=core"]);
    }
    // The same flags as in the build (aya-build), in a folder of its own: they differ from the host's.
    let flags = format!("--cfg=bpf_target_arch=\"{}\"\x1f-Cdebuginfo=2", std::env::consts::ARCH);
    command.env("CARGO_ENCODED_RUSTFLAGS", flags).arg("--target-dir");
    command.arg(project.target.join("ebpf-clippy")).args(["--", "-D", "warnings"]);
    Ok(in_project(command, &project.root))
}

fn in_project(mut command: Command, root: &Path) -> Command {
    command.current_dir(root);
    crate::project::forget_cargo_run(&mut command);
    command
}

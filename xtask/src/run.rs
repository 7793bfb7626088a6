//! `cargo xtask run`: builds as the invoking user, runs as root.

use std::{ffi::OsString, os::unix::process::CommandExt, process::Command};

use anyhow::{Result, anyhow, bail};

use crate::{
    build, exec,
    project::{self, Project},
};

/// Build observer and run it as root.
#[derive(clap::Args)]
pub struct Arguments {
    /// Build without optimisation
    #[arg(long)]
    debug: bool,
    /// For observer
    #[arg(last = true)]
    observer: Vec<OsString>,
}

/// Returns only when observer could not be started.
///
/// # Errors
/// When the build fails, or there is no way to become root.
pub fn run(project: &Project, arguments: &Arguments) -> Result<()> {
    let binary = build::observer(project, !arguments.debug)?;
    let mut command = if exec::is_root() {
        Command::new(&binary)
    } else if exec::which("sudo").is_some() {
        let mut sudo = Command::new("sudo");
        sudo.arg("-E").arg(&binary);
        sudo
    } else {
        bail!("observer needs root, and there is no sudo here: run {} as root", binary.display());
    };
    command.args(&arguments.observer);
    project::forget_cargo_run(&mut command);
    // observer takes the place of this process instead of being its child: Ctrl-C then reaches it
    // once, and whoever waits for us sees its exit status, or the signal that ended it.
    let error = command.exec();
    Err(anyhow!(error).context(format!("cannot start `{}`", exec::show(&command))))
}

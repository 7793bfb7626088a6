//! `cargo xtask build`, and the build that `cargo xtask run` starts with.

use std::{io, path::PathBuf};

use anyhow::Result;

use crate::{exec, project::Project};

/// Builds all crates of the host (and, by observer's build script, the kernel side).
///
/// # Errors
/// When the build fails.
pub fn everything(project: &Project, release: bool) -> Result<()> {
    let mut cargo = project.cargo("build");
    if release {
        cargo.arg("--release");
    }
    exec::run(&mut cargo)?;
    println!("{}", binary(project, release).display());
    Ok(())
}

/// Builds observer alone and returns the path of the binary.
///
/// # Errors
/// When the build fails.
pub fn observer(project: &Project, release: bool) -> Result<PathBuf> {
    let mut cargo = project.cargo("build");
    cargo.args(["--package", "observer"]);
    if release {
        cargo.arg("--release");
    }
    // Standard output belongs to observer.
    exec::run(cargo.stdout(io::stderr()))?;
    Ok(binary(project, release))
}

fn binary(project: &Project, release: bool) -> PathBuf {
    project.target.join(if release { "release" } else { "debug" }).join("observer")
}

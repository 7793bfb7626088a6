//! `cargo xtask picture`: a recording of the live view for the README.

use std::{
    path::PathBuf,
    process::{Child, Command, Stdio},
};

use anyhow::{Context as _, Result, bail};

use crate::{build, exec, project::Project};

/// What is recorded: a shell that lists files again and again, under strace. It waits until observer has
/// attached, and ends with its tracer, since whoever ends strace by force lets the tracee go on.
const SCENE: &str = "sleep 4; exec strace -f -o /dev/null \
    sh -c 'while kill -0 $PPID; do ls -lR /usr/share/doc; done' > /dev/null 2>&1";

/// The table; the tracer in detail; the pairs; the hooks. See `PictureArgs` in observer's `cli/picture.rs`.
const KEYS: &str = ".......xj.!<.!>!>>!";

/// Where the picture belongs.
const FILE: &str = "docs/live-view.svg";

/// A program that must not stay behind.
struct Scene(Child);

impl Drop for Scene {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Records; needs root and strace.
///
/// # Errors
/// When one of these is missing, the build fails, or observer does.
pub fn task(project: &Project) -> Result<()> {
    if !exec::is_root() {
        bail!("the recording needs root: observer loads its kernel side");
    }
    if exec::which("strace").is_none() {
        bail!("the recording shows strace, which is not installed");
    }
    let observer = build::observer(project, true)?;
    let file: PathBuf = project.root.join(FILE);
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder).with_context(|| format!("{}", folder.display()))?;
    }
    let scene = Command::new("sh")
        .args(["-c", SCENE])
        .stdin(Stdio::null())
        .spawn()
        .context("cannot start sh")?;
    let scene = Scene(scene);
    let mut command = Command::new(observer);
    command.args(["--pid", &scene.0.id().to_string(), "--picture-keys", KEYS, "--picture"]);
    exec::run(command.arg(&file).stdout(Stdio::null()))?;
    println!("{}", project.shown(&file));
    Ok(())
}

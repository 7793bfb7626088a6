//! What is inside a test kernel's machine: static programs in an initramfs.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, anyhow, bail};
use serde_json::Value;
use xtask::plan::{self, Plan};

use super::{cpio::Archive, cross::Cross, kernels::Arch};
use crate::{exec, project::Project};

/// The programs of the guest, built for it.
#[derive(Debug)]
pub struct Programs {
    init: PathBuf,
    observer: Option<PathBuf>,
    /// Test programs of observer/tests/live_*.rs: name and file.
    live: Vec<(String, PathBuf)>,
}

/// Builds the guest's programs, statically: its file system has no libraries.
///
/// # Errors
/// When a build fails.
pub fn build(
    project: &Project,
    arch: &Arch,
    cross: &Cross,
    observer: bool,
    live: bool,
) -> Result<Programs> {
    let folder = project.target.join("vm");
    let mut cargo = cargo_static(project, arch, cross, "build", &folder);
    cargo.args(["--package", "xtask", "--bin", "vm-init"]);
    if observer {
        cargo.args(["--package", "observer", "--bin", "observer"]);
    }
    exec::run(&mut cargo)?;
    let built = folder.join(arch.triple).join("release");
    Ok(Programs {
        init: built.join("vm-init"),
        observer: observer.then(|| built.join("observer")),
        live: if live { build_live(project, arch, cross, &folder)? } else { Vec::new() },
    })
}

fn build_live(
    project: &Project,
    arch: &Arch,
    cross: &Cross,
    folder: &Path,
) -> Result<Vec<(String, PathBuf)>> {
    let mut cargo = cargo_static(project, arch, cross, "test", folder);
    cargo.args(["--package", "observer", "--test", "live*", "--no-run"]);
    cargo.args(["--message-format", "json-render-diagnostics"]);
    let mut programs = Vec::new();
    let output = cargo.stderr(std::process::Stdio::inherit()).output();
    let output = output.with_context(|| format!("cannot start `{}`", exec::show(&cargo)))?;
    if !output.status.success() {
        bail!("`{}` failed: {}", exec::show(&cargo), output.status);
    }
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        programs.extend(test_program(line));
    }
    programs.sort();
    if programs.is_empty() {
        bail!("observer/tests has no live_*.rs");
    }
    Ok(programs)
}

/// Name and file in one of cargo's messages, if it is about a test program.
fn test_program(message: &str) -> Option<(String, PathBuf)> {
    let message: Value = serde_json::from_str(message).ok()?;
    let kinds = message["target"]["kind"].as_array()?;
    if !kinds.iter().any(|kind| kind == "test") {
        return None;
    }
    let file = message["executable"].as_str()?;
    Some((message["target"]["name"].as_str()?.to_owned(), file.into()))
}

fn cargo_static(
    project: &Project,
    arch: &Arch,
    cross: &Cross,
    subcommand: &str,
    folder: &Path,
) -> Command {
    let mut cargo = project.cargo(subcommand);
    cargo.args(["--release", "--target", arch.triple, "--target-dir"]).arg(folder);
    // With --target, these do not touch build scripts and procedural macros.
    cross.apply(&mut cargo, arch, "-C target-feature=+crt-static");
    cargo.env_remove("CARGO_ENCODED_RUSTFLAGS");
    cargo
}

impl Programs {
    /// The live test programs: name and path in the guest.
    pub fn live_in_guest(&self) -> Vec<(String, String)> {
        self.live.iter().map(|(name, _)| (name.clone(), format!("/tests/{name}"))).collect()
    }

    /// The guest's whole file system.
    ///
    /// # Errors
    /// When a program cannot be read.
    pub fn initramfs(&self, busybox: &Path, plan: &Plan) -> Result<Vec<u8>> {
        let mut archive = Archive::default();
        // The kernel opens it for init, before there is a devtmpfs.
        archive.device("/dev/console", 0o600, 5, 1);
        archive.folder("/root");
        archive.file(
            "/etc/passwd",
            0o644,
            b"root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000::/tmp:/bin/sh\n",
        );
        archive.file("/etc/group", 0o644, b"root:x:0:\nuser:x:1000:\n");
        archive.file("/init", 0o755, &read(&self.init)?);
        archive.file("/bin/busybox", 0o755, &read(busybox)?);
        if let Some(observer) = &self.observer {
            archive.file("/bin/observer", 0o755, &read(observer)?);
            // Test programs call it by the path that cargo has compiled into them.
            let compiled_in =
                observer.to_str().ok_or_else(|| anyhow!("the target path is no text"))?;
            archive.link(compiled_in, "/bin/observer");
        }
        for (name, file) in &self.live {
            archive.file(&format!("/tests/{name}"), 0o755, &read(file)?);
        }
        archive.file(plan::PATH, 0o644, plan.to_string().as_bytes());
        Ok(archive.finish())
    }
}

fn read(file: &Path) -> Result<Vec<u8>> {
    fs::read(file).with_context(|| format!("cannot read {}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_test_programs_are_taken_from_cargos_messages() {
        let test = r#"{"reason":"compiler-artifact","target":{"kind":["test"],"name":"live_run"},"executable":"/t/live_run-1f"}"#;
        assert_eq!(test_program(test), Some(("live_run".into(), "/t/live_run-1f".into())));
        for other in [
            r#"{"reason":"compiler-artifact","target":{"kind":["bin"],"name":"observer"},"executable":"/t/observer"}"#,
            r#"{"reason":"compiler-artifact","target":{"kind":["lib"],"name":"observer"},"executable":null}"#,
            r#"{"reason":"build-finished","success":true}"#,
            "not JSON",
        ] {
            assert_eq!(test_program(other), None);
        }
    }
}

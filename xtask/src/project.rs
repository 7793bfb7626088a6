//! Where the project lies, and cargo as every task calls it.

use std::{
    env,
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, anyhow};
use serde_json::Value;

use crate::exec;

/// The folders of the workspace.
#[derive(Clone, Debug)]
pub struct Project {
    /// Where the workspace's Cargo.toml lies.
    pub root: PathBuf,
    /// Where cargo builds; follows CARGO_TARGET_DIR and the user's configuration.
    pub target: PathBuf,
}

impl Project {
    /// Asks cargo.
    ///
    /// # Errors
    /// When cargo cannot read the workspace.
    pub fn find() -> Result<Self> {
        let mut command = Command::new(cargo_path());
        command.args(["metadata", "--no-deps", "--format-version", "1"]);
        // Set by `cargo run`: finds the workspace from whatever folder the task was started in.
        if let Some(xtask) = env::var_os("CARGO_MANIFEST_DIR") {
            command.arg("--manifest-path").arg(Path::new(&xtask).join("Cargo.toml"));
        }
        let text = exec::output(&mut command)?;
        let metadata: Value = serde_json::from_str(&text).context("output of cargo metadata")?;
        let folder = |key: &str| {
            let path = metadata[key].as_str();
            path.map(PathBuf::from).ok_or_else(|| anyhow!("cargo metadata names no {key}"))
        };
        Ok(Self { root: folder("workspace_root")?, target: folder("target_directory")? })
    }

    /// Where the tools of this project, and of no other, are installed.
    pub fn tools(&self) -> PathBuf {
        self.root.join(".tools")
    }

    /// The linker of the kernel side.
    pub fn bpf_linker(&self) -> PathBuf {
        self.tools().join("bin/bpf-linker")
    }

    /// Where downloads are kept.
    pub fn cache(&self) -> PathBuf {
        self.root.join(".cache")
    }

    /// Cargo with this subcommand, in the workspace, with the project's own tools first in PATH.
    pub fn cargo(&self, subcommand: &str) -> Command {
        let mut command = Command::new(cargo_path());
        command.arg(subcommand).current_dir(&self.root);
        command.env("PATH", exec::path_with(&self.tools().join("bin")));
        forget_cargo_run(&mut command);
        command
    }

    /// `path` relative to the workspace where it lies inside, for messages.
    pub fn shown<'a>(&self, path: &'a Path) -> std::path::Display<'a> {
        path.strip_prefix(&self.root).unwrap_or(path).display()
    }
}

/// The cargo that started us.
pub fn cargo_path() -> OsString {
    env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

/// Takes out of a command's environment what `cargo run` has put into ours: the variables of the
/// xtask package and the library folders of its build. A program started with these would differ from
/// one that the user starts.
pub fn forget_cargo_run(command: &mut Command) {
    const PACKAGE: [&str; 3] = ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_CRATE_"];
    for (name, _) in env::vars_os() {
        let text = name.to_string_lossy();
        if PACKAGE.iter().any(|prefix| text.starts_with(prefix)) {
            command.env_remove(&name);
        }
    }
    command.env_remove("CARGO_BIN_NAME").env_remove("CARGO_PRIMARY_PACKAGE");
    if let Some(libraries) = env::var_os("LD_LIBRARY_PATH") {
        match without_build_folders(&libraries) {
            Some(kept) => command.env("LD_LIBRARY_PATH", kept),
            None => command.env_remove("LD_LIBRARY_PATH"),
        };
    }
}

/// LD_LIBRARY_PATH without the folders that cargo puts in front: those of the running binary and of
/// the toolchain. None when no other is left.
fn without_build_folders(libraries: &OsStr) -> Option<OsString> {
    let own = env::current_exe().ok()?;
    let own = own.parent()?;
    let kept = env::split_paths(libraries).filter(|folder| {
        let of_build = folder.starts_with(own) || Some(folder.as_path()) == own.parent();
        let of_toolchain = folder.components().any(|part| part.as_os_str() == "rustlib")
            || folder.join("rustlib").is_dir();
        !(of_build || of_toolchain || folder.as_os_str().is_empty())
    });
    env::join_paths(kept).ok().filter(|joined| !joined.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_foreign_library_folders_are_kept() {
        let own = env::current_exe().unwrap();
        let own = own.parent().unwrap();
        let toolchain = Path::new("/rust/lib/rustlib/x86_64-unknown-linux-gnu/lib");
        let mixed = [own, &own.join("deps"), toolchain, Path::new("/opt/lib")];
        let mixed = env::join_paths(mixed).unwrap();
        assert_eq!(without_build_folders(&mixed), Some("/opt/lib".into()));
        assert_eq!(without_build_folders(own.as_os_str()), None);
    }

    #[test]
    fn paths_are_shown_short_inside_the_workspace() {
        let project = Project { root: "/a/b".into(), target: "/a/b/target".into() };
        assert_eq!(project.shown(Path::new("/a/b/c/d")).to_string(), "c/d");
        assert_eq!(project.shown(Path::new("/a/x")).to_string(), "/a/x");
    }
}

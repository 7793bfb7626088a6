//! The compiler of the kernel side. observer's build script looks in the same order.

use std::{
    env,
    ffi::OsString,
    fmt, fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, anyhow, bail};

use crate::exec;

/// The target that observer-ebpf is built for.
pub const TARGET: &str = "bpfel-unknown-none";

/// Names a ready object file: then nothing of the kernel side is compiled.
const OBJECT_VARIABLE: &str = "OBSERVER_EBPF_OBJECT";
/// Names a toolchain: a name that rustup knows, or a folder with bin/rustc.
const TOOLCHAIN_VARIABLE: &str = "OBSERVER_EBPF_TOOLCHAIN";

/// Where the object file of the kernel side comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Toolchain {
    /// It is ready.
    ReadyObject(PathBuf),
    /// Compiled by the rustc in this folder's bin.
    Folder(PathBuf),
    /// Compiled by the rustc that rustup has under this name.
    Rustup(String),
}

impl Toolchain {
    /// The first that this machine has, in the order of the variants above: what the environment names,
    /// then Debian's compiler in /usr, then rustup's nightly.
    ///
    /// # Errors
    /// When the environment names something that cannot be used: no other is taken then.
    pub fn find() -> Result<Option<Self>> {
        if let Some(object) = variable(OBJECT_VARIABLE) {
            let object = PathBuf::from(object);
            if !object.is_file() {
                bail!("{OBJECT_VARIABLE}: there is no file {}", object.display());
            }
            return Ok(Some(Self::ReadyObject(object)));
        }
        if let Some(named) = variable(TOOLCHAIN_VARIABLE) {
            let toolchain = Self::from_name(&named.to_string_lossy());
            toolchain.check().with_context(|| {
                format!("{TOOLCHAIN_VARIABLE}={} cannot be used", named.to_string_lossy())
            })?;
            return Ok(Some(toolchain));
        }
        let candidates = [Self::from_name("/usr"), Self::from_name("nightly")];
        Ok(candidates.into_iter().find(|toolchain| toolchain.check().is_ok()))
    }

    fn from_name(name: &str) -> Self {
        if name.contains('/') { Self::Folder(name.into()) } else { Self::Rustup(name.to_owned()) }
    }

    /// Fails with the reason when this toolchain cannot compile for the target.
    fn check(&self) -> Result<()> {
        let rustlib = self.rustlib()?;
        if !has_core(&rustlib) && !rustlib.join("src/rust/library/Cargo.lock").exists() {
            bail!("it has neither core for {TARGET} nor rust-src in {}", rustlib.display());
        }
        Ok(())
    }

    /// True when core must be compiled along, since this toolchain has none for the target.
    ///
    /// # Errors
    /// When rustc does not run.
    pub fn builds_core(&self) -> Result<bool> {
        Ok(!has_core(&self.rustlib()?))
    }

    fn rustlib(&self) -> Result<PathBuf> {
        let sysroot = exec::output(self.rustc()?.args(["--print", "sysroot"]))?;
        Ok(Path::new(sysroot.trim()).join("lib/rustlib"))
    }

    /// rustc of this toolchain.
    ///
    /// # Errors
    /// When the object is ready: then there is no compiler.
    pub fn rustc(&self) -> Result<Command> {
        match self {
            Self::ReadyObject(_) => bail!("a ready object file needs no compiler"),
            Self::Folder(folder) => Ok(Command::new(folder.join("bin/rustc"))),
            Self::Rustup(name) => {
                let mut command = Command::new("rustup");
                // It must not download anything unasked.
                command.env("RUSTUP_AUTO_INSTALL", "0").args(["run", name, "rustc"]);
                Ok(command)
            }
        }
    }

    /// The major version of the LLVM that this rustc was built with.
    ///
    /// # Errors
    /// When rustc does not run or does not say it.
    pub fn llvm_major(&self) -> Result<u32> {
        let text = exec::output(self.rustc()?.arg("-vV"))?;
        llvm_major(&text).ok_or_else(|| anyhow!("rustc -vV of {self} names no LLVM version"))
    }
}

impl fmt::Display for Toolchain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ReadyObject(file) => write!(f, "{} (ready object)", file.display()),
            Self::Folder(folder) => write!(f, "{}", folder.join("bin/rustc").display()),
            Self::Rustup(name) => write!(f, "rustup's {name}"),
        }
    }
}

/// True for the library folder of a toolchain with a compiled core for the target.
fn has_core(rustlib: &Path) -> bool {
    let is_core = |entry: fs::DirEntry| {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        name.starts_with("libcore-") && name.ends_with(".rlib")
    };
    let folder = fs::read_dir(rustlib.join(TARGET).join("lib"));
    folder.is_ok_and(|entries| entries.flatten().any(is_core))
}

fn variable(name: &str) -> Option<OsString> {
    env::var_os(name).filter(|value| !value.is_empty())
}

/// Reads `LLVM version: 22.1.2` in the output of `rustc -vV`.
fn llvm_major(verbose_version: &str) -> Option<u32> {
    let line = verbose_version.lines().find_map(|line| line.strip_prefix("LLVM version: "))?;
    line.split('.').next()?.trim().parse().ok()
}

/// The triple of the host, from `rustc -vV`.
///
/// # Errors
/// When rustc does not run or does not say it.
pub fn host_triple() -> Result<String> {
    let text = exec::output(Command::new("rustc").arg("-vV"))?;
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).ok_or_else(|| anyhow!("rustc -vV names no host"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_llvm_version_is_read_from_rustc() {
        let text =
            "rustc 1.96.0 (ac68faa20 2026-05-25)\nhost: x\nrelease: 1.96.0\nLLVM version: 22.1.8\n";
        assert_eq!(llvm_major(text), Some(22));
        assert_eq!(llvm_major("rustc 1.0.0\n"), None);
    }

    #[test]
    fn a_name_with_a_slash_is_a_folder() {
        assert_eq!(Toolchain::from_name("/opt/rust"), Toolchain::Folder("/opt/rust".into()));
        assert_eq!(Toolchain::from_name("nightly"), Toolchain::Rustup("nightly".into()));
    }

    #[test]
    fn an_empty_folder_of_the_target_is_no_core() {
        let rustlib = env::temp_dir().join(format!("xtask-rustlib-{}", std::process::id()));
        let libraries = rustlib.join(TARGET).join("lib");
        fs::create_dir_all(&libraries).unwrap();
        assert!(!has_core(&rustlib));
        fs::write(libraries.join("libcore-0a1b2c.rlib"), "").unwrap();
        assert!(has_core(&rustlib));
        fs::remove_dir_all(rustlib).unwrap();
    }

    #[test]
    fn a_folder_without_a_compiler_is_refused() {
        let error = Toolchain::from_name("/nonexistent/rust").check().unwrap_err().to_string();
        assert!(error.contains("/nonexistent/rust/bin/rustc"), "{error}");
    }
}

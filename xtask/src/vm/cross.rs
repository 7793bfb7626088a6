//! Building for another architecture than this machine's.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, anyhow, bail};

use super::{fetch, kernels::Arch, sources};
use crate::{apt, exec, toolchain};

/// How cargo builds for an architecture.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cross {
    linker: Option<&'static str>,
    rustc: Option<PathBuf>,
    sysroot: Option<PathBuf>,
}

/// The cross linker of Debian, its package, and the C library that it links.
const LINKER: &str = "aarch64-linux-gnu-gcc";
const LINKER_PACKAGES: &[&str] = &["gcc-aarch64-linux-gnu", "libc6-dev-arm64-cross"];
/// Debian's compiler, whose standard library for the other architecture is a package of that one.
const DEBIAN_RUSTC: &str = "/usr/bin/rustc";

impl Cross {
    /// What this machine needs for it: nothing for its own architecture.
    ///
    /// # Errors
    /// When there is neither a standard library for it nor a way to get one.
    pub fn find(cache: &Path, arch: &Arch) -> Result<Self> {
        if toolchain::host_triple()? == arch.triple {
            return Ok(Self::default());
        }
        if !can_link() {
            println!("vm: installing {}", LINKER_PACKAGES.join(", "));
            apt::install(LINKER_PACKAGES)
                .with_context(|| format!("{LINKER} is not installed, or its C library"))?;
        }
        let linker = Some(LINKER);
        let own = exec::output(Command::new("rustc").args(["--print", "sysroot"]))?;
        if has_std(Path::new(own.trim()), arch) {
            return Ok(Self { linker, ..Self::default() });
        }
        let sysroot = debian_sysroot(cache, arch).with_context(|| {
            format!("no Rust library for it; `rustup target add {}` installs one", arch.triple)
        })?;
        Ok(Self { linker, rustc: Some(DEBIAN_RUSTC.into()), sysroot: Some(sysroot) })
    }

    /// Sets it up for a build, after all else that sets RUSTFLAGS to `flags`.
    pub fn apply(&self, cargo: &mut Command, arch: &Arch, flags: &str) {
        let triple = arch.triple.to_uppercase().replace('-', "_");
        let mut flags = flags.to_owned();
        if let Some(sysroot) = &self.sysroot {
            flags.push_str(&format!(" --sysroot {}", sysroot.display()));
        }
        if let Some(linker) = self.linker {
            cargo.env(format!("CARGO_TARGET_{triple}_LINKER"), linker);
        }
        if let Some(rustc) = &self.rustc {
            cargo.env("RUSTC", rustc);
        }
        cargo.env("RUSTFLAGS", flags);
    }
}

/// The linker alone is not enough: its C library is a package that it only recommends.
fn can_link() -> bool {
    // It answers with the bare name where it has no such file.
    exec::which(LINKER).is_some()
        && exec::output(Command::new(LINKER).arg("-print-file-name=libc.a"))
            .is_ok_and(|path| Path::new(path.trim()).is_absolute())
}

/// The standard library that goes with Debian's compiler, from the package of the other architecture and the same
/// version; the machine's own packages stay as they are.
fn debian_sysroot(cache: &Path, arch: &Arch) -> Result<PathBuf> {
    if !exec::is_executable(Path::new(DEBIAN_RUSTC)) {
        bail!("there is no {DEBIAN_RUSTC}");
    }
    let own = exec::output(Command::new("rustc").arg("-vV"))?;
    let host = toolchain::host_triple()?;
    let library = format!("/usr/lib/rustlib/{host}/lib");
    let owner = exec::output(Command::new("dpkg-query").args(["--search", &library]))
        .with_context(|| own.lines().next().unwrap_or_default().to_owned())?;
    let package = owner_of(&owner).with_context(|| format!("no package owns {library}"))?;
    let version = exec::output(Command::new("dpkg-query").args([
        "--show",
        "--showformat",
        "${Version}",
        &package,
    ]))?;
    let release = fs::read_to_string("/etc/os-release")?;
    let codename = release
        .lines()
        .find_map(|line| line.strip_prefix("VERSION_CODENAME="))
        .context("/etc/os-release names no suite")?;
    let pattern = format!("*/rustlib/{}/*", arch.triple);
    // The compiler may have come with an update, which the release itself does not have.
    let suites = sources::suites_of_release(Path::new("/etc/apt"), codename);
    let mut tree = Err(anyhow!("the apt sources name no suite of {codename}"));
    for suite in &suites {
        tree = fetch::tree(cache, arch, suite, &package, version.trim(), &pattern);
        if tree.is_ok() {
            break;
        }
    }
    let tree = tree?;
    let sysroot = tree.join("usr");
    if !has_std(&sysroot, arch) {
        bail!("{package} of {} has no library for {}", arch.debian, arch.triple);
    }
    Ok(sysroot)
}

/// The development package in dpkg's answer `a:amd64, a-dev:amd64: /path`.
fn owner_of(answer: &str) -> Option<String> {
    let (owners, _) = answer.lines().next()?.rsplit_once(": ")?;
    let names = owners.split(", ").map(|name| name.split(':').next().unwrap_or(name));
    names.into_iter().find(|name| name.ends_with("-dev")).map(str::to_owned)
}

fn has_std(sysroot: &Path, arch: &Arch) -> bool {
    let folder = sysroot.join("lib/rustlib").join(arch.triple).join("lib");
    fs::read_dir(folder).is_ok_and(|entries| {
        entries.flatten().any(|entry| entry.file_name().to_string_lossy().starts_with("libstd-"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vm::kernels::ARM64;

    #[test]
    fn the_development_package_owns_the_library() {
        let answer = "libstd-rust-web-dev:amd64: /usr/lib/rustlib/x86_64-unknown-linux-gnu/lib\n";
        assert_eq!(owner_of(answer).as_deref(), Some("libstd-rust-web-dev"));
        let two = "libstd-rust-1.96:amd64, libstd-rust-dev:amd64: /usr/lib/rustlib/x/lib\n";
        assert_eq!(owner_of(two).as_deref(), Some("libstd-rust-dev"));
        assert_eq!(owner_of("dpkg-query: no path found\n"), None);
    }

    #[test]
    fn only_what_is_needed_reaches_cargo() {
        let shown = |cross: Cross| {
            let mut cargo = Command::new("cargo");
            cross.apply(&mut cargo, &ARM64, "-C target-feature=+crt-static");
            exec::show(&cargo)
        };
        assert_eq!(shown(Cross::default()), "RUSTFLAGS='-C target-feature=+crt-static' cargo");
        let all = shown(Cross {
            linker: Some(LINKER),
            rustc: Some("/r".into()),
            sysroot: Some("/s".into()),
        });
        for part in ["AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64", "RUSTC=/r", "--sysroot /s'"] {
            assert!(all.contains(part), "{all}");
        }
    }
}

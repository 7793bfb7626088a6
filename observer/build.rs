//! Builds the kernel side, or takes a ready object, and embeds it.
//!
//! In this order: `OBSERVER_EBPF_OBJECT` (a ready object, for distributions), `OBSERVER_EBPF_TOOLCHAIN` (a rustup
//! toolchain name or a path that holds `bin/cargo`), /usr when it has a precompiled `core` for the bpf target
//! (Debian's rustc-web), rustup's nightly with rust-src. `cargo xtask setup` provides one of the last two.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail};
use aya_build::{Package, Toolchain, build_ebpf};

const OBJECT: &str = "OBSERVER_EBPF_OBJECT";
const TOOLCHAIN: &str = "OBSERVER_EBPF_TOOLCHAIN";
const SYSTEM: &str = "/usr";
const SYSTEM_CORE: &str = "/usr/lib/rustlib/bpfel-unknown-none";

fn main() -> Result<()> {
    println!("cargo:rerun-if-env-changed={OBJECT}");
    println!("cargo:rerun-if-env-changed={TOOLCHAIN}");
    let out = PathBuf::from(env::var_os("OUT_DIR").context("OUT_DIR is not set")?);
    if let Some(object) = env::var_os(OBJECT) {
        println!("cargo:rerun-if-changed={}", Path::new(&object).display());
        fs::copy(&object, out.join("observer-ebpf")).with_context(|| {
            format!("{OBJECT}={} cannot be copied", Path::new(&object).display())
        })?;
        return Ok(());
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize()?;
    put_linker_in_path(&root)?;
    let chosen = env::var(TOOLCHAIN).ok();
    let toolchain = match &chosen {
        Some(name) => Toolchain::Custom(name),
        None if Path::new(SYSTEM_CORE).exists() => Toolchain::Custom(SYSTEM),
        None if nightly_has_source() => Toolchain::Nightly,
        None => bail!("no toolchain for the eBPF side was found: run `cargo xtask setup`"),
    };
    let kernel_side = root.join("observer-ebpf");
    let package = Package {
        name: "observer-ebpf",
        root_dir: kernel_side.to_str().context("the path of the project is not UTF-8")?,
        ..Package::default()
    };
    build_ebpf([package], toolchain)
        .context("the eBPF side did not build; `cargo xtask setup` checks its toolchain")
}

/// `cargo xtask setup` puts bpf-linker into the project's own folder.
fn put_linker_in_path(root: &Path) -> Result<()> {
    let own = root.join(".tools/bin");
    println!("cargo:rerun-if-changed={}", own.join("bpf-linker").display());
    let mut folders = vec![own];
    folders.extend(env::split_paths(&env::var_os("PATH").unwrap_or_default()));
    let path = env::join_paths(folders).context("PATH cannot be extended")?;
    // SAFETY: a build script has one thread at this point.
    unsafe { env::set_var("PATH", path) };
    let found = Command::new("bpf-linker").arg("--version").output();
    if !found.is_ok_and(|output| output.status.success()) {
        bail!("bpf-linker was not found or does not run: run `cargo xtask setup`");
    }
    Ok(())
}

fn nightly_has_source() -> bool {
    Command::new("rustup")
        .args(["run", "nightly", "rustc", "--print", "sysroot"])
        .output()
        .ok()
        .filter(|output| output.status.success())
        .and_then(|output| String::from_utf8(output.stdout).ok())
        .is_some_and(|root| {
            Path::new(root.trim()).join("lib/rustlib/src/rust/library/Cargo.lock").exists()
        })
}

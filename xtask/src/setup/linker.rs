//! bpf-linker, in the project's own folder. Its LLVM must be the one of the eBPF compiler.

use std::{
    env, fs, io,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail};

use super::Steps;
use crate::{apt, exec, project::Project, toolchain::Toolchain};

const STEP: &str = "bpf-linker";
const VERSION: &str = "0.13.0";
/// LLVM major versions that this version of bpf-linker can be built with: its features llvm-NN.
const LLVM_MAJORS: std::ops::RangeInclusive<u32> = 21..=23;

/// Finds or installs it.
pub fn ensure(project: &Project, toolchain: &Toolchain, steps: &Steps) -> Result<()> {
    let llvm = toolchain.llvm_major()?;
    let ours = project.bpf_linker();
    match check(&ours, llvm) {
        Ok(version) => {
            steps.found(STEP, &format!("{} ({version})", project.shown(&ours)));
            return Ok(());
        }
        Err(_) if !ours.exists() => {}
        Err(error) => steps.say(STEP, &format!("replacing {}: {error:#}", project.shown(&ours))),
    }
    if let Some(other) = exec::which("bpf-linker").filter(|other| *other != ours)
        && let Ok(version) = check(&other, llvm)
    {
        link(&other, &ours)?;
        steps.found(STEP, &format!("{} ({version}), linked into .tools", other.display()));
        return Ok(());
    }
    let what = format!("version {VERSION} with LLVM {llvm}, one to three minutes");
    steps.install(STEP, &what, || install(project, llvm))?;
    check(&ours, llvm).map(drop)
}

/// What the linker calls itself, if it runs and has the LLVM that is needed.
fn check(linker: &Path, llvm: u32) -> Result<String> {
    let version = exec::output(Command::new(linker).arg("--version"))?;
    let mut shown = version.trim().to_owned();
    // A statically linked one names no library; then what it is built with cannot be seen.
    let libraries = exec::output(Command::new("ldd").arg(linker)).unwrap_or_default();
    if let Some(found) = linked_llvm(&libraries) {
        if found < llvm {
            bail!("it was built with LLVM {found}, the eBPF compiler has LLVM {llvm}");
        }
        shown.push_str(&format!(", LLVM {found}"));
    }
    Ok(shown)
}

/// The major version of libLLVM in the output of ldd: `libLLVM.so.22.1 => …` or `libLLVM-14.so.1 => …`.
fn linked_llvm(ldd: &str) -> Option<u32> {
    let name = ldd.lines().find_map(|line| line.trim_start().strip_prefix("libLLVM"))?;
    let digits = name.strip_prefix(".so.").or_else(|| name.strip_prefix('-'))?;
    let len = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    digits[..len].parse().ok()
}

fn link(other: &Path, ours: &Path) -> Result<()> {
    if let Some(folder) = ours.parent() {
        fs::create_dir_all(folder)?;
    }
    if ours.symlink_metadata().is_ok() {
        fs::remove_file(ours)?;
    }
    symlink(other, ours).with_context(|| format!("cannot make the link {}", ours.display()))
}

fn install(project: &Project, llvm: u32) -> Result<()> {
    if !LLVM_MAJORS.contains(&llvm) {
        bail!(
            "the eBPF compiler has LLVM {llvm}, bpf-linker {VERSION} can be built with {} to {}: \
             put a bpf-linker with LLVM {llvm} into PATH",
            LLVM_MAJORS.start(),
            LLVM_MAJORS.end()
        );
    }
    let prefix = llvm_prefix(llvm)?;
    let mut cargo = project.cargo("install");
    cargo.args(["bpf-linker", "--version", VERSION, "--locked", "--force"]);
    cargo.args(["--no-default-features", "--features", &format!("llvm-{llvm}"), "--root"]);
    cargo.arg(project.tools());
    // Without the prefix its build script takes the first llvm-config in PATH, whatever its version.
    cargo.env("LLVM_PREFIX", prefix);
    // Built in a temporary folder of cargo's: what is left of it would be half a gigabyte.
    cargo.env_remove("CARGO_TARGET_DIR");
    exec::run(cargo.stdin(Stdio::null()).stdout(io::stderr()))
}

/// The folder of LLVM's development files of this version, installed if need be.
fn llvm_prefix(llvm: u32) -> Result<PathBuf> {
    if let Some(prefix) = find_llvm(llvm) {
        return Ok(prefix);
    }
    let (dev, polly) = (format!("llvm-{llvm}-dev"), format!("libpolly-{llvm}-dev"));
    apt::install(&[&dev, &polly]).with_context(|| {
        format!(
            "bpf-linker needs the development files of LLVM {llvm}; or put a bpf-linker that was \
             built with it into PATH"
        )
    })?;
    find_llvm(llvm).with_context(|| format!("{dev} has no llvm-config of version {llvm}"))
}

fn find_llvm(llvm: u32) -> Option<PathBuf> {
    let named = env::var_os("LLVM_PREFIX").map(PathBuf::from);
    let by_name = named.into_iter().chain([format!("/usr/lib/llvm-{llvm}").into()]);
    let configs = by_name.map(|prefix| prefix.join("bin/llvm-config"));
    let in_path = [format!("llvm-config-{llvm}"), "llvm-config".into()];
    let configs = configs.chain(in_path.iter().filter_map(|name| exec::which(name)));
    configs.into_iter().find_map(|config| {
        let ask = |what| exec::output(Command::new(&config).arg(what)).ok();
        let version = ask("--version")?;
        let major = version.trim().split('.').next()?;
        // llvm-config alone is not enough: headers and libraries come with the -dev package.
        let prefix = PathBuf::from(ask("--prefix")?.trim());
        let headers = PathBuf::from(ask("--includedir")?.trim()).join("llvm-c/Core.h");
        (major == llvm.to_string() && headers.exists()).then_some(prefix)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_llvm_of_a_linker_is_read_from_its_libraries() {
        let new = "\tlinux-vdso.so.1 (0x1)\n\tlibLLVM.so.22.1 => /usr/lib/llvm-22/lib/libLLVM.so.22.1 (0x2)\n";
        assert_eq!(linked_llvm(new), Some(22));
        assert_eq!(linked_llvm("\tlibLLVM-14.so.1 => /lib/libLLVM-14.so.1 (0x2)\n"), Some(14));
        assert_eq!(linked_llvm("\tlibc.so.6 => /lib/libc.so.6 (0x2)\n"), None);
        assert_eq!(linked_llvm("\tnot a dynamic executable\n"), None);
    }

    #[test]
    fn a_link_replaces_what_was_there() {
        let folder = env::temp_dir().join(format!("xtask-link-{}", std::process::id()));
        let ours = folder.join("bin/bpf-linker");
        link(Path::new("/nonexistent/one"), &ours).unwrap();
        link(Path::new("/nonexistent/two"), &ours).unwrap();
        assert_eq!(fs::read_link(&ours).unwrap(), Path::new("/nonexistent/two"));
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_linker_that_does_not_run_is_refused() {
        assert!(check(Path::new("/nonexistent/bpf-linker"), 22).is_err());
    }
}

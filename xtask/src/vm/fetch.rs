//! Gets kernels from Debian's archive, with an apt state of our own: the machine's sources and package
//! lists stay as they are, and apt verifies signatures and checksums as ever.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, anyhow, bail};

use super::{
    kernels::{Arch, Kernel},
    sources,
};
use crate::exec;

/// A kernel that is ready to boot.
#[derive(Clone, Debug)]
pub struct Image {
    /// The compressed kernel.
    pub vmlinuz: PathBuf,
    /// The package that it is from, with its version.
    pub package: String,
}

/// The folder that holds what was fetched for a kernel.
fn folder(cache: &Path, kernel: &Kernel) -> PathBuf {
    cache.join(kernel.arch.debian).join(kernel.name)
}

/// The kernel in the cache, if it is there.
pub fn cached(cache: &Path, kernel: &Kernel) -> Option<Image> {
    let folder = folder(cache, kernel);
    // Written last.
    let package = fs::read_to_string(folder.join("package")).ok()?;
    Some(Image { vmlinuz: folder.join("vmlinuz"), package: package.trim().to_owned() })
}

/// The kernel, fetched when it is not in the cache.
///
/// # Errors
/// When it is in neither the cache nor the archive, or the archive cannot be reached.
pub fn kernel(cache: &Path, kernel: &Kernel) -> Result<Image> {
    if let Some(image) = cached(cache, kernel) {
        return Ok(image);
    }
    let suite = Suite::open(cache, kernel.arch, kernel.suite)?;
    suite.update()?;
    let package = suite.kernel_package(kernel.meta_package)?;
    let version = suite.field(&package, "Version")?;
    let folder = folder(cache, kernel);
    suite.extract(&package, "*/vmlinuz*", &folder.join("vmlinuz"))?;
    fs::write(folder.join("package"), format!("{package} {version}\n"))?;
    cached(cache, kernel).ok_or_else(|| anyhow!("{} was not written", folder.display()))
}

/// The files of a package of this version that match a pattern, unpacked as they lie in it, below the cache.
///
/// # Errors
/// As for [`kernel`].
pub fn tree(
    cache: &Path,
    arch: &Arch,
    suite: &str,
    package: &str,
    version: &str,
    pattern: &str,
) -> Result<PathBuf> {
    let folder = cache.join(arch.debian).join(format!("{package}_{version}"));
    if folder.is_dir() {
        return Ok(folder);
    }
    let suite = Suite::open(cache, arch, suite)?;
    suite.update()?;
    let draft = suite.folder.join(format!("draft-{}", std::process::id()));
    fs::create_dir_all(&draft)?;
    let unpacked = suite.download(&format!("{package}={version}"), &draft).and_then(|deb| {
        let tree = draft.join("tree");
        fs::create_dir(&tree)?;
        unpack(&deb, pattern, &tree)?;
        // Last: a folder that is there is whole.
        fs::rename(&tree, &folder).with_context(|| format!("cannot write {}", folder.display()))
    });
    let cleaned = fs::remove_dir_all(&draft);
    unpacked.and(cleaned.context("cleaning up")).map(|()| folder)
}

/// A static busybox for the guest: the machine's own, or the one of the kernel's suite.
///
/// # Errors
/// As for [`kernel`].
pub fn busybox(cache: &Path, kernel: &Kernel) -> Result<PathBuf> {
    let kept = cache.join(kernel.arch.debian).join("busybox");
    let own = [Path::new("/bin/busybox"), Path::new("/usr/bin/busybox"), &kept];
    if let Some(found) = own.into_iter().find(|file| is_static(file, kernel.arch.elf_machine)) {
        return Ok(found.to_path_buf());
    }
    let suite = Suite::open(cache, kernel.arch, kernel.suite)?;
    suite.update()?;
    suite.extract("busybox-static", "*/bin/busybox", &kept)?;
    if !is_static(&kept, kernel.arch.elf_machine) {
        bail!("busybox-static of {} has no static program", kernel.suite);
    }
    Ok(kept)
}

/// True for a 64-bit little-endian ELF executable of this machine that asks for no dynamic loader.
fn is_static(file: &Path, machine: u16) -> bool {
    fs::read(file).is_ok_and(|bytes| elf_is_static(&bytes, machine).unwrap_or(false))
}

/// None where the file is cut short. Offsets and constants are those of elf.h, 64 bit.
fn elf_is_static(elf: &[u8], machine: u16) -> Option<bool> {
    const PT_INTERP: [u8; 4] = 3u32.to_le_bytes();
    let u16_at = |at: usize| Some(u16::from_le_bytes(elf.get(at..at + 2)?.try_into().ok()?));
    if elf.get(..6)? != b"\x7fELF\x02\x01" || u16_at(18)? != machine {
        return Some(false);
    }
    let table = u64::from_le_bytes(elf.get(32..40)?.try_into().ok()?);
    let (table, size, count) = (usize::try_from(table).ok()?, u16_at(54)?, u16_at(56)?);
    for index in 0..usize::from(count) {
        let at = table.checked_add(index * usize::from(size))?;
        if *elf.get(at..at.checked_add(4)?)? == PT_INTERP {
            return Some(false);
        }
    }
    Some(true)
}

/// A suite of the machine's Debian mirror, with an apt state in the cache.
struct Suite {
    folder: PathBuf,
    configuration: PathBuf,
}

impl Suite {
    fn open(cache: &Path, arch: &Arch, suite: &str) -> Result<Self> {
        for tool in ["apt-get", "apt-cache", "dpkg-deb", "tar"] {
            if exec::which(tool).is_none() {
                bail!("kernels come from Debian's archive, and there is no {tool} here");
            }
        }
        let mirror = sources::of_suite(Path::new("/etc/apt"), suite)?;
        let folder = cache.join(arch.debian).join("apt").join(suite);
        for part in ["sources", "lists/partial", "archives/partial"] {
            let part = folder.join(part);
            fs::create_dir_all(&part).with_context(|| part.display().to_string())?;
        }
        let paragraph = mirror.with_suite(suite, arch.debian);
        fs::write(folder.join("sources/debian.sources"), paragraph)?;
        // Nothing is installed in this state.
        fs::write(folder.join("status"), "")?;
        let configuration = folder.join("apt.conf");
        fs::write(&configuration, configuration_text(&folder, arch.debian))?;
        Ok(Self { folder, configuration })
    }

    fn tool(&self, name: &str) -> Command {
        let mut command = Command::new(name);
        command.env("LC_ALL", "C").arg("-c").arg(&self.configuration).current_dir(&self.folder);
        command
    }

    fn update(&self) -> Result<()> {
        // An error, not a warning, when the lists cannot be had: old ones name files that are gone.
        let mut command = self.tool("apt-get");
        exec::output(command.args(["-o", "APT::Update::Error-Mode=any", "update"])).map(drop)
    }

    /// A field of a package's newest version.
    fn field(&self, package: &str, name: &str) -> Result<String> {
        let text =
            exec::output(self.tool("apt-cache").args(["show", "--no-all-versions", package]))?;
        field_of(&text, name)
            .map(str::to_owned)
            .ok_or_else(|| anyhow!("the package {package} has no field {name}"))
    }

    /// The package with the kernel itself: the meta package depends on the image, and from 7.x on the
    /// image on a package with the binary.
    fn kernel_package(&self, meta_package: &str) -> Result<String> {
        let mut package = meta_package.to_owned();
        for prefix in ["linux-image-", "linux-binary-"] {
            let depends = self.field(&package, "Depends")?;
            match dependency(&depends, prefix) {
                Some(next) => package = next.to_owned(),
                None if prefix == "linux-binary-" => {}
                None => bail!("{package} depends on no {prefix}…: {depends}"),
            }
        }
        Ok(package)
    }

    /// Downloads a package and takes the one file out of it that matches `pattern`.
    fn extract(&self, package: &str, pattern: &str, to: &Path) -> Result<()> {
        let scratch = self.folder.join(format!("unpacked-{}", std::process::id()));
        fs::create_dir_all(&scratch)?;
        let result = self.extract_in(&scratch, package, pattern, to);
        let cleaned = fs::remove_dir_all(&scratch);
        result.and(cleaned.context("cleaning up"))
    }

    fn download(&self, package: &str, into: &Path) -> Result<PathBuf> {
        exec::output(self.tool("apt-get").args(["download", package]).current_dir(into))?;
        only_file(into).with_context(|| format!("apt-get download {package}"))
    }

    fn extract_in(&self, scratch: &Path, package: &str, pattern: &str, to: &Path) -> Result<()> {
        let deb = self.download(package, scratch)?;
        let tree = scratch.join("tree");
        fs::create_dir(&tree)?;
        unpack(&deb, pattern, &tree)?;
        let found = only_file(&tree).with_context(|| format!("{pattern} in {package}"))?;
        if let Some(folder) = to.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::rename(&found, to).with_context(|| format!("cannot write {}", to.display()))
    }
}

/// Writes the files of a package that match a pattern: dpkg-deb hands the whole tree to tar.
fn unpack(deb: &Path, pattern: &str, to: &Path) -> Result<()> {
    let mut command = Command::new("dpkg-deb");
    command.arg("--fsys-tarfile").arg(deb).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut tree = command.spawn().context("cannot start dpkg-deb")?;
    let output = tree.stdout.take().ok_or_else(|| anyhow!("dpkg-deb has no output"))?;
    let mut tar = Command::new("tar");
    tar.args(["-x", "-C"]).arg(to).args(["--wildcards", pattern]);
    let written = exec::run(tar.stdin(output));
    tree.wait()?;
    written
}

/// Read after the machine's own configuration, so that its proxies and the like stay in force and only
/// the hooks that belong to its own package lists are cleared.
fn configuration_text(folder: &Path, architecture: &str) -> String {
    let at = |part: &str| folder.join(part).display().to_string();
    format!(
        "#clear APT::Update::Pre-Invoke;\n\
         #clear APT::Update::Post-Invoke;\n\
         #clear APT::Update::Post-Invoke-Success;\n\
         #clear APT::Architectures;\n\
         APT::Architecture \"{architecture}\";\n\
         APT::Architectures {{ \"{architecture}\"; }};\n\
         APT::Sandbox::User \"root\";\n\
         Dir::Etc::sourcelist \"/dev/null\";\n\
         Dir::Etc::sourceparts \"{}\";\n\
         Dir::State \"{}\";\n\
         Dir::State::lists \"{}\";\n\
         Dir::State::status \"{}\";\n\
         Dir::Cache \"{}\";\n\
         Dir::Cache::archives \"{}\";\n",
        at("sources"),
        folder.display(),
        at("lists"),
        at("status"),
        folder.display(),
        at("archives"),
    )
}

/// The value of a field in the output of `apt-cache show`.
fn field_of<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

/// The first package of a Depends field whose name begins so.
fn dependency<'a>(depends: &'a str, prefix: &str) -> Option<&'a str> {
    let names = depends.split([',', '|']).filter_map(|item| item.split_whitespace().next());
    names.into_iter().find(|name| name.starts_with(prefix))
}

fn only_file(folder: &Path) -> Result<PathBuf> {
    let mut files = files_below(folder)?;
    match (files.pop(), files.len()) {
        (Some(file), 0) => Ok(file),
        (None, _) => bail!("there is no file"),
        (Some(_), more) => bail!("there are {} files instead of one", more + 1),
    }
}

fn files_below(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            files.append(&mut files_below(&entry.path())?);
        } else {
            files.push(entry.path());
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_is_found_through_the_dependencies() {
        let meta = "linux-base-cloud-amd64 (= 7.2.13-1), linux-image-7.2.13+deb14-cloud-amd64 (= 7.2.13-1)";
        let image = "dracut | initramfs-tools (>= 0.120+deb8u2), linux-base-7.2.13+deb14-cloud-amd64, \
                     linux-binary-7.2.13+deb14-cloud-amd64 (= 7.2.13-1)";
        assert_eq!(dependency(meta, "linux-image-"), Some("linux-image-7.2.13+deb14-cloud-amd64"));
        assert_eq!(
            dependency(image, "linux-binary-"),
            Some("linux-binary-7.2.13+deb14-cloud-amd64")
        );
        assert_eq!(dependency("kmod, linux-base (>= 4.3)", "linux-binary-"), None);
    }

    #[test]
    fn a_field_is_matched_by_its_whole_name() {
        let text = "Package: a\nPre-Depends: no\nDepends: b, c\nVersion: 6.12.117-1\n";
        assert_eq!(field_of(text, "Depends"), Some("b, c"));
        assert_eq!(field_of(text, "Version"), Some("6.12.117-1"));
        assert_eq!(field_of(text, "Vers"), None);
    }

    #[test]
    fn only_a_static_program_of_the_right_machine_is_taken() {
        let elf = |machine: u16, segment: u32| {
            let mut bytes = vec![0; 64 + 56];
            bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
            bytes[18..20].copy_from_slice(&machine.to_le_bytes());
            bytes[32] = 64;
            bytes[54] = 56;
            bytes[56] = 1;
            bytes[64..68].copy_from_slice(&segment.to_le_bytes());
            bytes
        };
        assert_eq!(elf_is_static(&elf(62, 1), 62), Some(true));
        assert_eq!(elf_is_static(&elf(62, 3), 62), Some(false));
        assert_eq!(elf_is_static(&elf(183, 1), 62), Some(false));
        assert_eq!(elf_is_static(&elf(62, 1)[..100], 62), Some(true));
        assert_eq!(elf_is_static(&elf(62, 1)[..60], 62), None);
        assert_eq!(elf_is_static(b"#!/bin/sh\n", 62), Some(false));
    }
}

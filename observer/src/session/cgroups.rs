//! The cgroups (version 2) of the machine: their paths by id, and what `cpu.stat` says of them.

use std::{
    collections::BTreeMap,
    fs, io,
    os::unix::{ffi::OsStrExt as _, fs::MetadataExt as _},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, anyhow};

use crate::{
    clock::now_ns,
    model::group::{Cgroup, CgroupUse},
};

/// Deeper trees than this are cut: the kernel's own limit is set per tree and hardly ever above 100.
const DEEPEST: usize = 128;

/// `cpu.stat` at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Stat {
    usage_ns: u64,
    user_ns: u64,
    system_ns: u64,
    /// When it had been read, by our clock.
    read_ns: u64,
}

/// One cgroup.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Folder {
    /// Below the mount; lossy where it is not UTF-8.
    path: String,
    stat: Option<Stat>,
}

/// All cgroups at one moment.
#[derive(Clone, Debug, Default)]
pub struct Cgroups {
    folders: BTreeMap<u64, Folder>,
    begin_ns: u64,
}

impl Cgroups {
    /// Walks the mounted hierarchy once.
    ///
    /// # Errors
    /// No hierarchy of version 2 is mounted, or it cannot be read.
    pub fn read() -> Result<Self> {
        let mounts =
            fs::read("/proc/self/mountinfo").context("cannot read /proc/self/mountinfo")?;
        let mount = mount_point(&mounts)
            .ok_or_else(|| anyhow!("no cgroup hierarchy of version 2 is mounted here"))?;
        Self::below(&mount)
    }

    /// Walks the hierarchy under `mount`.
    fn below(mount: &Path) -> Result<Self> {
        let mut cgroups = Self { folders: BTreeMap::new(), begin_ns: now_ns() };
        cgroups
            .walk(mount, "/", 0)
            .with_context(|| format!("cannot read the cgroups in {}", mount.display()))?;
        Ok(cgroups)
    }

    fn walk(&mut self, folder: &Path, path: &str, depth: usize) -> io::Result<()> {
        // The inode number of a folder is the id of its cgroup (`kernfs_ino`, include/linux/kernfs.h, on 64 bits).
        let id = fs::metadata(folder)?.ino();
        let stat = fs::read_to_string(folder.join("cpu.stat")).ok();
        let stat = stat.and_then(|text| parse(&text, now_ns()));
        self.folders.insert(id, Folder { path: path.to_owned(), stat });
        if depth == DEEPEST {
            return Ok(());
        }
        for entry in fs::read_dir(folder)?.flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                let name = entry.file_name();
                let name = String::from_utf8_lossy(name.as_bytes());
                let path = format!("{}/{name}", path.trim_end_matches('/'));
                // One that vanishes meanwhile is no fault.
                let _ = self.walk(&entry.path(), &path, depth + 1);
            }
        }
        Ok(())
    }

    /// What was used between this reading and a `later` one, of an observation that ended at `ended_ns`.
    ///
    /// A cgroup that did not exist yet began at zero; of one that is gone only the path is known.
    #[must_use]
    pub fn until(&self, later: &Self, ended_ns: u64) -> BTreeMap<u64, Cgroup> {
        let mut cgroups = BTreeMap::new();
        for (id, folder) in self.folders.iter().chain(&later.folders) {
            let end = later.folders.get(id).and_then(|folder| folder.stat);
            let used = end.and_then(|end| match self.folders.get(id) {
                Some(before) => Some(used(self.begin_ns, before.stat?, end, ended_ns)),
                None => {
                    let begin = Stat { read_ns: self.begin_ns, ..Stat::default() };
                    Some(used(self.begin_ns, begin, end, ended_ns))
                }
            });
            cgroups.insert(*id, Cgroup { path: folder.path.clone(), used });
        }
        cgroups
    }
}

fn used(begin_ns: u64, before: Stat, end: Stat, ended_ns: u64) -> CgroupUse {
    CgroupUse {
        usage_ns: end.usage_ns.saturating_sub(before.usage_ns),
        user_ns: end.user_ns.saturating_sub(before.user_ns),
        system_ns: end.system_ns.saturating_sub(before.system_ns),
        read_gap_ns: before.read_ns.saturating_sub(begin_ns) + end.read_ns.abs_diff(ended_ns),
    }
}

/// The three figures that every cgroup has, also without the cpu controller (`cgroup_base_stat_cputime_show`,
/// kernel/cgroup/rstat.c).
fn parse(text: &str, read_ns: u64) -> Option<Stat> {
    let figure = |name: &str| {
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
        value.trim().parse::<u64>().ok()?.checked_mul(1000)
    };
    Some(Stat {
        usage_ns: figure("usage_usec")?,
        user_ns: figure("user_usec")?,
        system_ns: figure("system_usec")?,
        read_ns,
    })
}

/// The first mount of type `cgroup2` in a mountinfo (proc(5)): the fifth field; the type follows a lone `-`.
fn mount_point(mountinfo: &[u8]) -> Option<PathBuf> {
    mountinfo.split(|byte| *byte == b'\n').find_map(|line| {
        let mut fields = line.split(|byte| *byte == b' ');
        let path = fields.nth(4)?;
        let kind = fields.skip_while(|field| *field != b"-").nth(1)?;
        (kind == b"cgroup2").then(|| PathBuf::from(std::ffi::OsStr::from_bytes(&unoctal(path))))
    })
}

/// Spaces and such are written as `\ooo`.
fn unoctal(path: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path;
    while let [first, after @ ..] = rest {
        let code = match after {
            [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', ..] if *first == b'\\' => {
                Some((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'))
            }
            _ => None,
        };
        bytes.push(code.unwrap_or(*first));
        rest = if code.is_some() { &after[3..] } else { after };
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str = "usage_usec 1000\nuser_usec 700\nsystem_usec 300\nnice_usec 0\n";
    const AFTER: &str = "usage_usec 5000\nuser_usec 4000\nsystem_usec 1000\nnice_usec 0\n";

    fn put(folder: &Path, stat: &str) -> u64 {
        fs::create_dir_all(folder).unwrap();
        fs::write(folder.join("cpu.stat"), stat).unwrap();
        fs::metadata(folder).unwrap().ino()
    }

    #[test]
    fn the_mount_is_found_by_its_type() {
        let info = b"25 1 0:23 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n\
            26 25 0:24 / /sys/fs/cgroup/cpu rw shared:9 - cgroup cgroup rw,cpu\n\
            27 25 0:25 / /sys/fs/a\\040b rw shared:9 master:1 - cgroup2 none rw\n";
        assert_eq!(mount_point(info), Some(PathBuf::from("/sys/fs/a b")));
        assert_eq!(mount_point(b"1 2 3\n\n - cgroup2"), None);
    }

    #[test]
    fn paths_are_found_by_the_number_of_the_folder() {
        let mount = tempfile::tempdir().unwrap();
        let top = put(mount.path(), BEFORE);
        let below = put(&mount.path().join("user.slice/a b"), BEFORE);
        let begin = Cgroups::below(mount.path()).unwrap();
        let used = begin.until(&begin, begin.begin_ns);
        assert_eq!(used[&top].path, "/");
        assert_eq!(used[&below].path, "/user.slice/a b");
        assert_eq!(used.len(), 3, "user.slice has no cpu.stat but a path");
    }

    #[test]
    fn a18_what_was_used_between_two_readings_and_their_gap() {
        let mount = tempfile::tempdir().unwrap();
        let id = put(&mount.path().join("a"), BEFORE);
        let begin = Cgroups::below(mount.path()).unwrap();
        put(&mount.path().join("a"), AFTER);
        let later = Cgroups::below(mount.path()).unwrap();
        let read_ns = |cgroups: &Cgroups| cgroups.folders[&id].stat.unwrap().read_ns;
        let ended_ns = read_ns(&later) - 200_000_000;
        let used = begin.until(&later, ended_ns)[&id].used.unwrap();
        assert_eq!((used.usage_ns, used.user_ns, used.system_ns), (4_000_000, 3_300_000, 700_000));
        assert_eq!(used.read_gap_ns, 200_000_000 + read_ns(&begin) - begin.begin_ns);
    }

    #[test]
    fn a_new_cgroup_begins_at_zero_and_one_that_is_gone_has_no_figures() {
        let mount = tempfile::tempdir().unwrap();
        let gone = put(&mount.path().join("gone"), BEFORE);
        let bare = put(&mount.path().join("bare"), "usage_usec x\n");
        let begin = Cgroups::below(mount.path()).unwrap();
        // Kept under another name elsewhere, so that its number is not used again.
        let elsewhere = tempfile::tempdir_in(mount.path().parent().unwrap()).unwrap();
        fs::rename(mount.path().join("gone"), elsewhere.path().join("gone")).unwrap();
        let new = put(&mount.path().join("new"), AFTER);
        let used = begin.until(&Cgroups::below(mount.path()).unwrap(), begin.begin_ns);
        assert_eq!(used[&new].used.unwrap().usage_ns, 5_000_000);
        assert_eq!((used[&gone].path.as_str(), used[&gone].used), ("/gone", None));
        assert_eq!((used[&bare].path.as_str(), used[&bare].used), ("/bare", None));
    }

    #[test]
    fn the_own_cgroup_is_found_on_this_machine() {
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let path = own.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or("");
        let mount = mount_point(&fs::read("/proc/self/mountinfo").unwrap_or_default());
        // A container may see another part of the tree than the one that it is in.
        let folder = mount.map(|mount| mount.join(path.trim_start_matches('/')));
        let Some(id) = folder.and_then(|folder| fs::metadata(folder).ok()).map(|data| data.ino())
        else {
            eprintln!(
                "SKIPPED: no cgroup hierarchy of version 2 with this process is mounted here"
            );
            return;
        };
        assert_eq!(Cgroups::read().unwrap().folders[&id].path, path);
    }

    #[test]
    fn a_tree_that_is_not_there_is_one_clear_line() {
        let error = Cgroups::below(Path::new("/nonexistent")).unwrap_err();
        assert_eq!(error.to_string(), "cannot read the cgroups in /nonexistent");
    }
}

//! What this kernel and these rights let us do: read before anything is loaded, so that a refusal
//! can be explained.

mod load_error;
mod rights;
mod uname;

pub use load_error::explain_load_error;
pub use rights::Rights;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
pub use uname::Uname;

use super::{Btf, CpuList, Unsupported, read_text};

/// The lockdown state (`security/lockdown/lockdown.c`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lockdown {
    /// Off.
    None,
    /// User space may not change the running kernel.
    Integrity,
    /// Nor may it read what the kernel keeps secret: `bpf_probe_read_kernel` is gone.
    Confidentiality,
    /// The file is not there (no such LSM, securityfs not mounted) or not readable.
    NotReadable,
}

impl Lockdown {
    /// The name of the state, for a header.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Integrity => "integrity",
            Self::Confidentiality => "confidentiality",
            Self::NotReadable => "not readable",
        }
    }

    /// `none [integrity] confidentiality`: the brackets mark the state.
    fn parse(text: Option<&str>) -> Self {
        let state = text.and_then(|text| {
            text.split_whitespace().find_map(|word| word.strip_prefix('[')?.strip_suffix(']'))
        });
        match state {
            Some("none") => Self::None,
            Some("integrity") => Self::Integrity,
            Some("confidentiality") => Self::Confidentiality,
            _ => Self::NotReadable,
        }
    }
}

/// The limit on locked memory, where the kernel charges BPF memory to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memlock {
    /// Whether this kernel charges maps and programs to the limit: before 5.11, found by the struct
    /// that went away with it (`struct bpf_map_memory`, `include/linux/bpf.h`). False when there is
    /// no BTF to ask; then nothing is loaded either.
    pub charged: bool,
    /// The soft limit in bytes; `None` is unlimited.
    pub soft: Option<u64>,
}

impl Memlock {
    fn detect(btf: Option<&Btf>) -> Self {
        Self {
            charged: btf.is_some_and(|btf| btf.has_struct("bpf_map_memory")),
            soft: getrlimit(Resource::Memlock).current,
        }
    }

    /// Whether the limit may be what refuses a map or a program.
    fn is_in_the_way(self) -> bool {
        self.charged && self.soft.is_some()
    }
}

/// What was found about this kernel and these rights.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Release, version and architecture.
    pub uname: Uname,
    /// Identifies this boot; recordings of different boots have unrelated clocks.
    pub boot_id: Option<String>,
    /// What this process may do.
    pub rights: Rights,
    /// The lockdown state.
    pub lockdown: Lockdown,
    /// The active Linux security modules; `None` when securityfs does not tell.
    pub lsms: Option<Vec<String>>,
    /// `kernel.unprivileged_bpf_disabled`: 0 allowed, 1 forbidden for good, 2 forbidden for now.
    pub unprivileged_bpf_disabled: Option<u32>,
    /// Whether a seccomp filter watches this process; containers often refuse bpf(2) that way.
    pub seccomp_filter: bool,
    /// The limit on locked memory.
    pub memlock: Memlock,
    /// CPUs that can ever come online: per-CPU maps have a slot for each.
    pub possible_cpus: CpuList,
    /// CPUs that are online now.
    pub online_cpus: CpuList,
    /// Exclusive upper bound of thread ids.
    pub pid_max: Option<u32>,
    /// Threads that lived when this was read, those of the kernel included.
    pub live_tasks: Option<u32>,
    /// Whether our pids are those that the kernel's programs see.
    pub initial_pid_namespace: Option<bool>,
}

impl Limits {
    /// Looks at the running kernel and this process.
    pub fn detect(btf: Option<&Btf>) -> Self {
        let number = |path: &str| read_text(path)?.parse().ok();
        let status = read_text("/proc/self/status");
        Self {
            uname: Uname::get(),
            boot_id: read_text("/proc/sys/kernel/random/boot_id").filter(|id| !id.is_empty()),
            rights: Rights::detect(),
            lockdown: Lockdown::parse(read_text("/sys/kernel/security/lockdown").as_deref()),
            lsms: read_text("/sys/kernel/security/lsm").as_deref().and_then(parse_lsms),
            unprivileged_bpf_disabled: number("/proc/sys/kernel/unprivileged_bpf_disabled"),
            seccomp_filter: status.as_deref().is_some_and(has_seccomp_filter),
            memlock: Memlock::detect(btf),
            possible_cpus: CpuList::read("/sys/devices/system/cpu/possible").unwrap_or_default(),
            online_cpus: CpuList::read("/sys/devices/system/cpu/online").unwrap_or_default(),
            pid_max: number("/proc/sys/kernel/pid_max"),
            live_tasks: read_text("/proc/loadavg").as_deref().and_then(parse_live_tasks),
            initial_pid_namespace: rights::is_initial_namespace("pid"),
        }
    }

    /// Lifts the limit on locked memory where the kernel charges BPF memory to it. A failure is not
    /// fatal: small maps may still fit, and [`explain_load_error`] names the limit if they do not.
    pub fn raise_memlock(&mut self) {
        if !self.memlock.is_in_the_way() {
            return;
        }
        let unlimited = Rlimit { current: None, maximum: None };
        if let Err(error) = setrlimit(Resource::Memlock, unlimited) {
            log::debug!("the limit on locked memory stays: {error}");
            // Without CAP_SYS_RESOURCE the soft limit can still rise to the hard one.
            let maximum = getrlimit(Resource::Memlock).maximum;
            if let Err(error) = setrlimit(Resource::Memlock, Rlimit { current: maximum, maximum }) {
                log::debug!("nor does its soft limit rise: {error}");
            }
        }
        self.memlock.soft = getrlimit(Resource::Memlock).current;
    }

    /// Refuses what cannot work whatever is loaded: rights that every program needs.
    pub fn check(&self) -> Result<(), Unsupported> {
        let Some((why, way_out)) = self.rights.refusal() else {
            return Ok(());
        };
        Err(Unsupported { what: "cannot load programs into the kernel".to_owned(), why, way_out })
    }
}

/// `lockdown,capability,yama,apparmor,bpf`; `None` for an empty file.
fn parse_lsms(text: &str) -> Option<Vec<String>> {
    let names: Vec<String> =
        text.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect();
    (!names.is_empty()).then_some(names)
}

/// The line `Seccomp: 2` of `/proc/PID/status` (`SECCOMP_MODE_FILTER`).
fn has_seccomp_filter(status: &str) -> bool {
    status.lines().any(|line| line.strip_prefix("Seccomp:").is_some_and(|mode| mode.trim() == "2"))
}

/// The second number of `2/85` in `/proc/loadavg`: `nr_threads` (`fs/proc/loadavg.c`).
fn parse_live_tasks(loadavg: &str) -> Option<u32> {
    loadavg.split_whitespace().nth(3)?.split_once('/')?.1.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::{super::btf::testing::Builder, *};

    #[test]
    fn the_brackets_mark_the_lockdown_state() {
        let cases = [
            (Some("[none] integrity confidentiality\n"), Lockdown::None),
            (Some("none [integrity] confidentiality"), Lockdown::Integrity),
            (Some("none integrity [confidentiality]"), Lockdown::Confidentiality),
            (Some("none integrity confidentiality"), Lockdown::NotReadable),
            (Some("[other]"), Lockdown::NotReadable),
            (Some("[none"), Lockdown::NotReadable),
            (Some(""), Lockdown::NotReadable),
            (None, Lockdown::NotReadable),
        ];
        for (text, state) in cases {
            assert_eq!(Lockdown::parse(text), state, "{text:?}");
        }
        assert_eq!(Lockdown::Integrity.as_str(), "integrity");
    }

    #[test]
    fn reads_the_list_of_security_modules() {
        let names = parse_lsms("lockdown,capability,bpf\n");
        assert_eq!(names, Some(vec!["lockdown".into(), "capability".into(), "bpf".into()]));
        assert_eq!(parse_lsms(""), None);
        assert_eq!(parse_lsms(",\n"), None);
    }

    #[test]
    fn a_seccomp_filter_is_mode_two() {
        assert!(has_seccomp_filter("Name:\tx\nNoNewPrivs:\t0\nSeccomp:\t2\nSeccomp_filters:\t1\n"));
        for status in ["Seccomp:\t0\nSeccomp_filters:\t2\n", "Seccomp:\t1", "Name:\tSeccomp:2", ""]
        {
            assert!(!has_seccomp_filter(status), "{status:?}");
        }
    }

    #[test]
    fn counts_the_live_tasks() {
        assert_eq!(parse_live_tasks("0.00 0.03 0.07 2/85 5560\n"), Some(85));
        for odd in ["", "0.00 0.03 0.07", "0 0 0 2 85", "0 0 0 2/x 1", "0 0 0 2/-1 1"] {
            assert_eq!(parse_live_tasks(odd), None, "{odd:?}");
        }
    }

    #[test]
    fn memory_is_charged_where_the_kernel_has_the_struct_for_it() {
        let mut b = Builder::new();
        assert!(!Memlock::detect(Some(&b.build())).charged);
        b.strukt("bpf_map_memory", 16, &[]);
        assert!(Memlock::detect(Some(&b.build())).charged);
        assert!(!Memlock::detect(None).charged);
        let limit = |charged, soft| Memlock { charged, soft };
        assert!(limit(true, Some(65536)).is_in_the_way());
        assert!(!limit(true, None).is_in_the_way() && !limit(false, Some(65536)).is_in_the_way());
    }

    #[test]
    fn describes_this_process() {
        let mut b = Builder::new();
        b.strukt("bpf_map_memory", 16, &[]);
        let mut limits = Limits::detect(Some(&b.build()));
        eprintln!("{limits:?}");
        assert!(!limits.uname.release.is_empty() && !limits.uname.arch.is_empty());
        assert!(limits.online_cpus.count() >= 1);
        assert!(limits.online_cpus.iter().all(|cpu| limits.possible_cpus.contains(cpu)));
        assert!(limits.live_tasks.is_some_and(|tasks| tasks >= 1));
        assert!(limits.pid_max.is_some_and(|max| max >= 1));
        assert!(limits.boot_id.as_ref().is_some_and(|id| id.len() == 36));
        let before = limits.memlock.soft;
        limits.raise_memlock();
        let raised = limits.memlock.soft.unwrap_or(u64::MAX);
        assert!(raised >= before.unwrap_or(u64::MAX), "{:?}", limits.memlock);
        assert_eq!(limits.check().is_ok(), limits.rights.refusal().is_none());
    }
}

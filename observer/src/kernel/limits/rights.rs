//! The rights of this process.

use std::fs;

use caps::{CapSet, Capability, has_cap};

use super::super::read_text;

/// What this process may do, as far as loading programs goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rights {
    /// Whether the kernel knows CAP_BPF and CAP_PERFMON (5.8): before, only CAP_SYS_ADMIN counts.
    pub kernel_has_cap_bpf: bool,
    /// CAP_BPF is effective.
    pub bpf: bool,
    /// CAP_PERFMON is effective.
    pub perfmon: bool,
    /// CAP_SYS_ADMIN is effective; it stands for both of the others.
    pub sys_admin: bool,
    /// Whether this is the initial user namespace. In any other one the kernel does not count our
    /// capabilities (`capable`, `kernel/capability.c`), however many we seem to have.
    pub initial_user_namespace: Option<bool>,
}

/// The inode numbers of the initial namespaces (`PROC_*_INIT_INO`, `include/linux/proc_ns.h`).
const INITIAL_NAMESPACES: [(&str, u64); 2] = [("user", 0xefff_fffd), ("pid", 0xefff_fffc)];

/// The number of CAP_BPF, the later of the two (`include/uapi/linux/capability.h`).
const CAP_BPF: u32 = 39;

impl Rights {
    pub(super) fn detect() -> Self {
        let has = |capability| has_cap(None, CapSet::Effective, capability).unwrap_or(false);
        let last: Option<u32> =
            read_text("/proc/sys/kernel/cap_last_cap").and_then(|text| text.parse().ok());
        Self {
            kernel_has_cap_bpf: last.is_some_and(|last| last >= CAP_BPF),
            bpf: has(Capability::CAP_BPF),
            perfmon: has(Capability::CAP_PERFMON),
            sys_admin: has(Capability::CAP_SYS_ADMIN),
            initial_user_namespace: is_initial_namespace("user"),
        }
    }

    /// The capabilities that programs of the tracing kind need, and that are not effective.
    pub fn missing(self) -> Vec<&'static str> {
        if self.sys_admin {
            return vec![];
        }
        if !self.kernel_has_cap_bpf {
            return vec!["CAP_SYS_ADMIN"];
        }
        [("CAP_BPF", self.bpf), ("CAP_PERFMON", self.perfmon)]
            .into_iter()
            .filter_map(|(name, has)| (!has).then_some(name))
            .collect()
    }

    /// Why these rights do not suffice, and the way out.
    pub(super) fn refusal(self) -> Option<(String, String)> {
        let missing = self.missing();
        if !missing.is_empty() {
            let (verb, names) =
                (if missing.len() == 1 { "is" } else { "are" }, missing.join(" and "));
            let way_out = if self.kernel_has_cap_bpf {
                "run as root, or give the program the rights: \
                 setcap cap_bpf,cap_perfmon=ep on its file"
            } else {
                "run as root"
            };
            return Some((format!("{names} {verb} missing"), way_out.to_owned()));
        }
        (self.initial_user_namespace == Some(false)).then(|| {
            let why = "this is a user namespace, where the kernel does not count capabilities";
            (why.to_owned(), "run it as root outside of the container".to_owned())
        })
    }
}

/// Whether this process is in the initial namespace of a kind; `None` when procfs does not tell.
pub(super) fn is_initial_namespace(kind: &str) -> Option<bool> {
    let link = fs::read_link(format!("/proc/self/ns/{kind}")).ok()?;
    is_initial_link(link.to_str()?)
}

/// `pid:[4026531836]`
fn is_initial_link(link: &str) -> Option<bool> {
    let (kind, inode) = link.split_once(':')?;
    let inode: u64 = inode.strip_prefix('[')?.strip_suffix(']')?.parse().ok()?;
    let (_, initial) = INITIAL_NAMESPACES.into_iter().find(|(name, _)| *name == kind)?;
    Some(inode == initial)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: Rights = Rights {
        kernel_has_cap_bpf: true,
        bpf: false,
        perfmon: false,
        sys_admin: false,
        initial_user_namespace: Some(true),
    };

    #[test]
    fn names_the_missing_capabilities() {
        assert_eq!(NOTHING.missing(), ["CAP_BPF", "CAP_PERFMON"]);
        assert_eq!(Rights { bpf: true, ..NOTHING }.missing(), ["CAP_PERFMON"]);
        assert!(Rights { bpf: true, perfmon: true, ..NOTHING }.missing().is_empty());
        assert!(Rights { sys_admin: true, ..NOTHING }.missing().is_empty());
        let old = Rights { kernel_has_cap_bpf: false, ..NOTHING };
        assert_eq!(old.missing(), ["CAP_SYS_ADMIN"]);
        assert_eq!(Rights { bpf: true, perfmon: true, ..old }.missing(), ["CAP_SYS_ADMIN"]);
    }

    #[test]
    fn a_refusal_says_why_and_what_to_do() {
        let text =
            |rights: Rights| rights.refusal().map(|(why, way_out)| format!("{why}; {way_out}"));
        let nothing = text(NOTHING).expect("refused");
        assert!(nothing.starts_with("CAP_BPF and CAP_PERFMON are missing; "), "{nothing}");
        assert!(nothing.contains("setcap"), "{nothing}");
        let old = text(Rights { kernel_has_cap_bpf: false, ..NOTHING }).expect("refused");
        assert_eq!(old, "CAP_SYS_ADMIN is missing; run as root");
        let root = Rights { sys_admin: true, ..NOTHING };
        assert_eq!(text(root), None);
        assert_eq!(text(Rights { initial_user_namespace: None, ..root }), None);
        let fake_root = text(Rights { initial_user_namespace: Some(false), ..root });
        assert!(fake_root.expect("refused").contains("user namespace"));
    }

    #[test]
    fn tells_the_initial_namespaces() {
        assert_eq!(is_initial_link("pid:[4026531836]"), Some(true));
        assert_eq!(is_initial_link("user:[4026531837]"), Some(true));
        assert_eq!(is_initial_link("pid:[4026531837]"), Some(false));
        assert_eq!(is_initial_link("pid:[4026532000]"), Some(false));
        for odd in ["", "pid", "pid:4026531836", "pid:[]", "pid:[x]", "mnt:[4026531836]"] {
            assert_eq!(is_initial_link(odd), None, "{odd}");
        }
        assert_eq!(is_initial_namespace("no-such-kind"), None);
    }
}

//! Why the kernel refused a program, in a line that the user can act on.

use std::io;

use super::{Limits, Lockdown};

/// The kernel's own `ENOTSUPP` (`include/linux/errno.h`), which the C library does not know.
const ENOTSUPP: i32 = 524;

/// The reason why loading or attaching a program failed, and the way out, in one line.
///
/// `errno` is what bpf(2) said. An empty verifier log means that the program was refused before the
/// verifier saw it, or after: by policy, by rights, or for want of what it attaches to.
pub fn explain_load_error(errno: i32, verifier_log_empty: bool, limits: &Limits) -> String {
    let locked = limits.lockdown == Lockdown::Confidentiality;
    let explanation = match (errno, verifier_log_empty) {
        (libc::EPERM, true) => refused_by_policy(limits),
        (libc::EACCES, true) => refused_by_module(limits),
        (libc::EINVAL, false) if locked => "lockdown=confidentiality takes away the helpers that \
            read kernel memory; boot with lockdown=integrity or none"
            .to_owned(),
        (_, true) => without_log(errno).to_owned(),
        (_, false) => with_log(errno).to_owned(),
    };
    format!("{}: {explanation}", error_name(errno))
}

/// What a refusal means that the verifier explained.
fn with_log(errno: i32) -> &'static str {
    match errno {
        libc::EPERM | libc::EACCES => {
            "the verifier refused the program and its log says where; this is a fault of observer \
             on this kernel: please report it with the log"
        }
        libc::EINVAL => {
            "the verifier does not know something in the program, and its log says what; \
             a newer kernel is needed for it"
        }
        libc::E2BIG => {
            "the program is too complex for this kernel's verifier; \
             a newer kernel is needed for it"
        }
        _ => without_log(errno),
    }
}

/// What a refusal means that nothing explained.
fn without_log(errno: i32) -> &'static str {
    match errno {
        libc::EINVAL => {
            "the kernel does not know this kind of program, map or attachment, or was built \
             without it; a newer kernel, or one with CONFIG_BPF_SYSCALL, CONFIG_BPF_EVENTS and \
             CONFIG_DEBUG_INFO_BTF, has it"
        }
        libc::ENOENT | libc::ESRCH => {
            "this kernel has no such function or tracepoint (renamed, inlined, or not built in); \
             what depends on it is not measured"
        }
        libc::EBUSY => {
            "the function cannot be attached to: the kernel must not trace it, or another tracer \
             holds it; stop the other tracer (bpftrace, perf, ftrace, a live patch) if there is one"
        }
        libc::ENOMEM => {
            "no memory for it: the machine or the memory limit of this cgroup is exhausted; \
             observe fewer tasks, or raise memory.max"
        }
        libc::E2BIG => {
            "the program, the map or the request is larger than this kernel takes; \
             a newer kernel is needed for it"
        }
        ENOTSUPP | libc::EOPNOTSUPP => {
            "this architecture or kernel has no trampolines for it (the BPF JIT is off, or arm64 \
             before 6.0); switch on net.core.bpf_jit_enable, or use a newer kernel"
        }
        libc::ENOSYS => "this kernel has no bpf(2); boot one with CONFIG_BPF_SYSCALL",
        _ => "not a refusal that observer knows; the kernel log may say more",
    }
}

/// `EPERM (Operation not permitted)`
fn error_name(errno: i32) -> String {
    let name = match errno {
        libc::EPERM => "EPERM",
        libc::EACCES => "EACCES",
        libc::EINVAL => "EINVAL",
        libc::ENOENT => "ENOENT",
        libc::ESRCH => "ESRCH",
        libc::EBUSY => "EBUSY",
        libc::ENOMEM => "ENOMEM",
        libc::E2BIG => "E2BIG",
        libc::ENOSYS => "ENOSYS",
        libc::EOPNOTSUPP => "EOPNOTSUPP",
        ENOTSUPP => return "ENOTSUPP".to_owned(),
        _ => return io::Error::from_raw_os_error(errno).to_string(),
    };
    let text = io::Error::from_raw_os_error(errno).to_string();
    // std adds " (os error N)", which repeats the name.
    let text = text.split(" (os error").next().unwrap_or_default().to_owned();
    format!("{name} ({text})")
}

/// EPERM before the verifier: what was found that does such a thing, the likeliest first.
fn refused_by_policy(limits: &Limits) -> String {
    if let Some((why, way_out)) = limits.rights.refusal() {
        return format!("{why}; {way_out}");
    }
    if let Some(bytes) = limits.memlock.soft.filter(|_| limits.memlock.charged) {
        return format!(
            "most likely the limit on locked memory ({} KiB), which this kernel charges BPF memory \
             to; raise it: ulimit -l unlimited",
            bytes / 1024
        );
    }
    let suspects = suspects(limits);
    if suspects.is_empty() {
        // What could not be read was not found either: the user should know the difference.
        let unread = limits.lockdown == Lockdown::NotReadable && limits.lsms.is_none();
        return if unread {
            "refused by policy, not by the verifier, and the rights suffice; which one could not \
             be read: mount -t securityfs none /sys/kernel/security shows it, or go without this hook"
        } else {
            "refused by a policy that does not show itself: the rights suffice, and neither \
             lockdown, nor a security module, nor a seccomp filter was found; ask who runs the \
             machine, or go without this hook"
        }
        .to_owned();
    }
    format!(
        "refused by policy, not by the verifier, and the rights suffice; most likely by {}; \
         ask who runs the machine, or go without this hook",
        suspects.join(" or ")
    )
}

/// EACCES before the verifier: how SELinux refuses.
fn refused_by_module(limits: &Limits) -> String {
    let suspects = suspects(limits);
    let by =
        if suspects.is_empty() { "a security module".to_owned() } else { suspects.join(" or ") };
    format!(
        "refused by policy, not by the verifier; most likely by {by}; its audit log says which rule"
    )
}

/// Everything that was found and that may refuse bpf(2) to a process whose rights suffice.
fn suspects(limits: &Limits) -> Vec<String> {
    let mut suspects = Vec::new();
    if limits.seccomp_filter {
        suspects.push("the seccomp filter on this process (a container?)".to_owned());
    }
    if matches!(limits.lockdown, Lockdown::Integrity | Lockdown::Confidentiality) {
        suspects.push(format!("lockdown={}", limits.lockdown.as_str()));
    }
    // selinux and bpf hook bpf(2) itself, apparmor takes capabilities away from confined programs
    // (`security/`, `LSM_HOOK_INIT(bpf...)`, `apparmor_capable`). The others have no say in it.
    let modules = limits.lsms.iter().flatten();
    let modules: Vec<&str> = modules
        .map(String::as_str)
        .filter(|name| matches!(*name, "selinux" | "bpf" | "apparmor"))
        .collect();
    if !modules.is_empty() {
        suspects.push(format!("a security module ({})", modules.join(", ")));
    }
    suspects
}

#[cfg(test)]
mod tests {
    use super::{
        super::{Memlock, Rights, Uname},
        *,
    };
    use crate::kernel::CpuList;

    /// Root on a kernel where nothing stands in the way.
    fn free() -> Limits {
        Limits {
            uname: Uname::default(),
            boot_id: None,
            rights: Rights {
                kernel_has_cap_bpf: true,
                bpf: true,
                perfmon: true,
                sys_admin: true,
                initial_user_namespace: Some(true),
            },
            lockdown: Lockdown::None,
            lsms: Some(vec!["capability".into(), "landlock".into()]),
            unprivileged_bpf_disabled: Some(2),
            seccomp_filter: false,
            memlock: Memlock { charged: false, soft: Some(65536) },
            possible_cpus: CpuList::default(),
            online_cpus: CpuList::default(),
            pid_max: Some(32768),
            live_tasks: Some(85),
            initial_pid_namespace: Some(true),
        }
    }

    #[test]
    fn eperm_without_a_log_names_what_was_found() {
        let explain = |limits: &Limits| explain_load_error(libc::EPERM, true, limits);
        let hidden = explain(&free());
        assert!(hidden.starts_with("EPERM (Operation not permitted): "), "{hidden}");
        assert!(hidden.contains("does not show itself"), "{hidden}");

        let unread = Limits { lockdown: Lockdown::NotReadable, lsms: None, ..free() };
        assert!(explain(&unread).contains("mount -t securityfs"));

        let mut limits = free();
        limits.lockdown = Lockdown::Integrity;
        limits.lsms = Some(vec!["lockdown".into(), "capability".into(), "selinux".into()]);
        let text = explain(&limits);
        assert!(text.contains("lockdown=integrity or a security module (selinux)"), "{text}");
        assert!(!text.contains("capability"), "{text}");

        limits.seccomp_filter = true;
        assert!(explain(&limits).contains("seccomp filter"));

        limits.memlock.charged = true;
        let text = explain(&limits);
        assert!(text.contains("64 KiB") && text.contains("ulimit -l"), "{text}");

        limits.rights.sys_admin = false;
        limits.rights.perfmon = false;
        let text = explain(&limits);
        assert!(text.contains("CAP_PERFMON is missing") && text.contains("setcap"), "{text}");
    }

    #[test]
    fn a_log_blames_the_verifier() {
        for errno in [libc::EPERM, libc::EACCES] {
            let text = explain_load_error(errno, false, &free());
            assert!(text.contains("verifier refused"), "{text}");
        }
        let without = explain_load_error(libc::EACCES, true, &free());
        assert!(without.contains("not by the verifier"), "{without}");
    }

    #[test]
    fn lockdown_explains_missing_helpers() {
        let mut limits = free();
        let plain = explain_load_error(libc::EINVAL, false, &limits);
        limits.lockdown = Lockdown::Confidentiality;
        let locked = explain_load_error(libc::EINVAL, false, &limits);
        assert!(locked.contains("lockdown") && !plain.contains("lockdown"), "{plain} / {locked}");
    }

    #[test]
    fn every_errno_has_one_line_that_names_it() {
        let known = [
            (libc::ENOENT, "ENOENT", "no such function"),
            (libc::ESRCH, "ESRCH", "no such function"),
            (libc::EBUSY, "EBUSY", "cannot be attached"),
            (libc::EINVAL, "EINVAL", "know"),
            (libc::ENOMEM, "ENOMEM", "memory"),
            (libc::E2BIG, "E2BIG", "newer kernel"),
            (libc::ENOSYS, "ENOSYS", "CONFIG_BPF_SYSCALL"),
            (libc::EOPNOTSUPP, "EOPNOTSUPP", "trampolines"),
            (524, "ENOTSUPP", "trampolines"),
            (libc::EIO, "os error 5", "not a refusal that observer knows"),
        ];
        for (errno, name, reason) in known {
            for log_empty in [true, false] {
                let text = explain_load_error(errno, log_empty, &free());
                assert!(text.contains(name) && text.contains(reason), "{text}");
                assert!(!text.contains('\n') && text.len() < 300, "{text}");
            }
        }
        for odd in [0, -1, i32::MIN, i32::MAX] {
            assert!(!explain_load_error(odd, true, &free()).is_empty());
        }
    }
}

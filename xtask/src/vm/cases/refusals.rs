//! What observer says where it is not allowed, or where something is not there. One boot for all: the lockdown can
//! only be raised, so it comes last.

use anyhow::{Result, ensure};
use xtask::wire::End;

use super::{Case, Counts, ONE_PASSED, Outcome, exit_zero, observer};
use crate::vm::records::{FILE, Records};

/// The documented exit status: this kernel or these rights do not allow it (README, Use).
const NOT_ALLOWED: i32 = 3;

pub fn cases() -> Vec<Case> {
    let run = format!("observer run --format jsonl -o {FILE} -- true");
    let lock = |state: &str| format!("echo {state} > /sys/kernel/security/lockdown && {run}");
    vec![
        observer("no-capability", "su -s /bin/sh user -c 'observer run -- true'", &[], |outcome| {
            refused(outcome, &["CAP_BPF and CAP_PERFMON are missing", "run as root"])
        }),
        observer(
            "no-btf",
            "mount -t tmpfs none /sys/kernel/btf && observer run -- true; s=$?; \
             umount /sys/kernel/btf; exit $s",
            &[],
            |outcome| refused(outcome, &["(BTF)", "CONFIG_DEBUG_INFO_BTF"]),
        ),
        observer(
            "no-tracefs",
            &format!(
                "umount /sys/kernel/tracing && umount /sys/kernel/debug && \
                 test ! -e /sys/kernel/tracing/events && {run}"
            ),
            &[FILE],
            all_active,
        ),
        observer("no-config", &format!("test ! -e /proc/config.gz && {run}"), &[FILE], all_active),
        observer("lockdown-integrity", &lock("integrity"), &[FILE], all_active),
        observer("lockdown-confidentiality", &lock("confidentiality"), &[FILE], |outcome| {
            refused(outcome, &["lockdown=confidentiality", "boot with lockdown=integrity or none"])
        }),
    ]
}

/// Status 3, and one line that has these words.
fn refused(outcome: &Outcome, words: &[&str]) -> Result<Counts> {
    ensure!(outcome.end == End::Exit(NOT_ALLOWED), "ended with {:?}", outcome.end);
    // Warnings may come before it (the verifier's log); what observer itself says is one line.
    let said: Vec<_> =
        outcome.stderr.lines().filter(|line| line.starts_with("observer: ")).collect();
    let [line] = said[..] else { anyhow::bail!("{} lines instead of one", said.len()) };
    for word in words {
        ensure!(line.contains(word), "nothing of {word:?} in {line:?}");
    }
    ensure!(!outcome.stderr.contains("panicked"), "it panicked");
    Ok(ONE_PASSED)
}

/// It works as ever: no hook is refused.
fn all_active(outcome: &Outcome) -> Result<Counts> {
    exit_zero(outcome)?;
    let records = Records::of(outcome)?;
    records.check_identities()?;
    let hooks = records.header["hooks"].as_array().cloned().unwrap_or_default();
    ensure!(hooks.len() >= 32, "only {} hooks are named", hooks.len());
    let refused = hooks.iter().find(|hook| hook["state"] == "refused");
    ensure!(refused.is_none(), "refused: {refused:?}");
    Ok(ONE_PASSED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_and_words_must_both_be_right() {
        let judged = |code: i32, stderr: &str| {
            let outcome = Outcome {
                end: End::Exit(code),
                took_ms: 1,
                stdout: String::new(),
                stderr: stderr.to_owned(),
                files: Default::default(),
            };
            refused(&outcome, &["CAP_BPF"]).is_ok()
        };
        assert!(judged(3, "observer: cannot: CAP_BPF is missing\n"));
        assert!(!judged(1, "observer: cannot: CAP_BPF is missing\n"));
        assert!(!judged(3, "observer: cannot\n"));
        assert!(!judged(3, "observer: CAP_BPF\nobserver: CAP_BPF\n"));
        assert!(!judged(3, ""));
    }
}

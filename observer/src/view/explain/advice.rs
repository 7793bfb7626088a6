//! What to do to get a reliable number: each piece of advice only where its condition holds.

use super::{
    Mechanism, Paragraph,
    partner::{self, Partner, Reason},
};
use crate::{
    model::{Header, causes::SplitIs},
    view::tracer,
};

/// The kernels from this one on know lazy preemption (`Kconfig.preempt`, 6.13).
const LAZY: (u32, u32) = (6, 13);

/// What would make the kernel's report better; empty where nothing is known to.
pub fn advice(paragraph: &Paragraph<'_>) -> Vec<String> {
    let mut ways: Vec<String> = Vec::new();
    if paragraph.total_matters {
        total(paragraph, &mut ways);
    }
    split(paragraph, &mut ways);
    ways
}

fn total(paragraph: &Paragraph<'_>, ways: &mut Vec<String>) {
    match (paragraph.mechanism, &paragraph.partner) {
        (Some(Mechanism::Skip), Some(partner)) => skip(paragraph, partner, ways),
        (Some(Mechanism::LeftOut), _) => ways.push(
            "run it on a CPU that takes no device interrupts (/proc/irq/*/smp_affinity), on a host that is not \
             overcommitted"
                .to_owned(),
        ),
        _ => {}
    }
}

/// On 6.18 with preemption mode none, in a virtual machine, a ptraced pair of 40,000 stops was billed 17 to 20 ms
/// wrong on one CPU, 0 to 8 ms as SCHED_BATCH, below 0.1 ms as SCHED_FIFO at one priority, and 1,000 ms on two CPUs,
/// idle or not. So nobody is told to pin a pair apart.
fn skip(paragraph: &Paragraph<'_>, partner: &Partner<'_>, ways: &mut Vec<String>) {
    let header = &paragraph.report.header;
    match partner.reason {
        // They were on one CPU, and the wakeup preempted its own waker.
        Reason::Wakeup if partner.is_waker => {
            ways.push(
                "give both one real-time priority (chrt -f 1, as root), since equal priorities do not preempt each \
                 other; chrt -b 0 needs no root and skips less"
                    .to_owned(),
            );
            if lazy_would_help(header) {
                ways.push(
                    "boot with preempt=lazy: a wakeup between ordinary tasks then asks for no skip"
                        .to_owned(),
                );
            }
        }
        // It was woken from another CPU, and billed until it ran.
        Reason::Wakeup | Reason::Idle if partner.gained_ns > 0 && header.cpus > 1 => {
            if let Some(waker) = partner::waker(paragraph.report, paragraph.task) {
                ways.push(format!(
                    "pin it and {}, which wakes it, to one CPU, both at one real-time priority (taskset -c, chrt -f 1, \
                     as root)",
                    tracer::name(waker),
                ));
            }
        }
        Reason::Yield => {
            ways.push("wait in the kernel (futex, poll) instead of sched_yield".to_owned())
        }
        _ => {}
    }
}

/// Only where the preemption mode is known, another one, and the kernel knows lazy.
fn lazy_would_help(header: &Header) -> bool {
    matches!(header.preempt.as_str(), "none" | "voluntary" | "full")
        && version(&header.kernel).is_some_and(|version| version >= LAZY)
}

/// `6.18.44-fc` is (6, 18).
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn split(paragraph: &Paragraph<'_>, ways: &mut Vec<String>) {
    let (Some(user), Some(word)) = (paragraph.causes.user, paragraph.causes.split_is()) else {
        return;
    };
    let header = &paragraph.report.header;
    let size_ns = u64::try_from(user.split_part_ns.unsigned_abs()).unwrap_or(u64::MAX);
    if !super::matters(header, size_ns, paragraph.task.oncpu_ns) {
        return;
    }
    match header.accounting.as_str() {
        "vtime dormant" => ways.push(
            "run it on a CPU booted with nohz_full=, where this kernel times each crossing"
                .to_owned(),
        ),
        "tick" => ways.push(
            "run it on a CPU booted with nohz_full=, which times each crossing (in a kernel with \
             CONFIG_VIRT_CPU_ACCOUNTING_GEN; this one counts ticks)"
                .to_owned(),
        ),
        _ => {}
    }
    // Chance shrinks with the number of ticks; a beat between bursts and ticks does not.
    if word != SplitIs::BeyondBoth && paragraph.causes.ticks.is_some() {
        ways.push("run longer: with four times the ticks chance halves".to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::version;

    #[test]
    fn releases_begin_with_two_numbers() {
        assert_eq!(version("6.18.44-fc-v669"), Some((6, 18)));
        assert_eq!(version("7.0-rc1"), Some((7, 0)));
        assert_eq!(version("unknown"), None);
        assert_eq!(version(""), None);
    }
}

//! From the books of pairs to figures.

use observer_common::{
    latency::{self, Latency},
    pair::{Origin as OriginBooks, Pair, context, origin, reason},
    ptrace::{Trace, kind},
};
use syscalls::Sysno;

use super::{
    account::Able,
    pair::{Origin, PairFigures, PairKind, Party, Skip, Stops},
};

impl PairFigures {
    /// A waker and its wakee, or two sides of a switch.
    #[must_use]
    pub fn of_pair(from: Party, to: Party, pair: &Pair, able: Able) -> Self {
        let on = |value: u64| able.bill.then_some(value);
        let of_skips = |value: u64| able.tells_skips().then_some(value);
        let skip = |reason: usize| Skip { count: pair.skips[reason], ns: pair.skip_ns[reason] };
        Self {
            kind: PairKind::Wake,
            from,
            to,
            count: pair.wakes.iter().sum(),
            by_task: pair.wakes[context::TASK],
            by_softirq: pair.wakes[context::SOFTIRQ],
            by_hardirq: pair.wakes[context::HARDIRQ],
            by_idle: pair.wakes[context::IDLE],
            preemptions: pair.preemptions,
            switches: pair.switches,
            skips: of_skips(pair.skips.iter().sum()),
            skip_ns: of_skips(pair.skip_ns.iter().sum()),
            skip_wakeup: skip(reason::WAKEUP),
            skip_idle: skip(reason::IDLE),
            skip_yield: skip(reason::YIELD),
            skip_other: skip(reason::OTHER),
            path_ns: on(pair.path_ns),
            wakeup_cost_ns: able.wait.then_some(pair.cost_ns),
            wakeup_cost_cycles: (able.wait && able.cycles).then_some(pair.cost_cycles),
            latency_sum_ns: pair.latency.sum_ns,
            latency_count: pair.latency.count,
            latency_max_ns: pair.latency.max_ns,
            latency: buckets(&pair.latency),
            origins: origins(&pair.origins),
            ..Self::default()
        }
    }

    /// A tracer and its tracee.
    #[must_use]
    pub fn of_trace(from: Party, to: Party, trace: &Trace) -> Self {
        let stops: u64 = trace.stops.iter().sum();
        Self {
            kind: PairKind::Ptrace,
            from,
            to,
            count: stops,
            latency_sum_ns: trace.latency.sum_ns,
            latency_count: trace.latency.count,
            latency_max_ns: trace.latency.max_ns,
            latency: buckets(&trace.latency),
            stops_by_kind: Some(Stops {
                syscall_entry: trace.stops[kind::ENTRY],
                syscall_exit: trace.stops[kind::EXIT_OF_SYSCALL],
                signal: trace.stops[kind::SIGNAL],
                event: trace.stops[kind::EVENT],
                group: trace.stops[kind::GROUP],
                exit: trace.stops[kind::EXIT],
            }),
            stopped_ns: Some(trace.stopped_ns),
            handoffs: Some(trace.handed_over),
            handoffs_across: Some(stops.saturating_sub(trace.handed_over)),
            ..Self::default()
        }
    }
}

/// The buckets that hold something: upper bound, count.
fn buckets(latency: &Latency) -> Vec<(u64, u64)> {
    let counts = latency.buckets.iter().enumerate().filter(|(_, count)| **count != 0);
    let bounds = counts.map(|(index, count)| (latency::upper_ns(index), u64::from(*count)));
    // The last bucket has no bound of its own.
    bounds
        .map(|(upper_ns, count)| match upper_ns {
            u64::MAX => (latency.max_ns, count),
            _ => (upper_ns, count),
        })
        .collect()
}

/// Most frequent first.
fn origins(books: &[OriginBooks]) -> Vec<Origin> {
    let mut origins: Vec<Origin> = books
        .iter()
        .filter(|books| books.count != 0)
        .map(|books| Origin {
            name: origin_name(books.code),
            count: books.count,
            cost_ns: books.cost_ns,
        })
        .collect();
    origins.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.name.cmp(&b.name)));
    origins
}

/// Soft interrupts by vector (include/linux/interrupt.h).
const SOFTIRQS: [&str; 10] =
    ["hi", "timer", "net-tx", "net-rx", "block", "irq-poll", "tasklet", "sched", "hrtimer", "rcu"];

/// What an origin is called.
#[must_use]
pub fn origin_name(code: u32) -> String {
    let vector = code.wrapping_sub(origin::SOFTIRQ) as usize;
    match code {
        origin::OTHER => "(other)".to_owned(),
        origin::EXIT => "(exit)".to_owned(),
        origin::FAULT => "(page fault)".to_owned(),
        origin::KERNEL => "(kernel thread)".to_owned(),
        origin::STOP => "(ptrace stop)".to_owned(),
        origin::IDLE => "(idle)".to_owned(),
        origin::TIMER => "(timer)".to_owned(),
        origin::DEVICE => "(device)".to_owned(),
        origin::IPI => "(ipi)".to_owned(),
        origin::WORK => "(irq work)".to_owned(),
        origin::FORK => "(new task)".to_owned(),
        _ if vector < SOFTIRQS.len() => format!("(softirq {})", SOFTIRQS[vector]),
        number if number < origin::OTHER => match Sysno::new(number as usize) {
            Some(syscall) => syscall.name().to_owned(),
            None => format!("syscall {number}"),
        },
        other => format!("({other})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_origin_has_a_name() {
        assert_eq!(origin_name(libc::SYS_futex as u32), "futex");
        assert_eq!(origin_name(libc::SYS_ptrace as u32), "ptrace");
        assert_eq!(origin_name(origin::SOFTIRQ + 3), "(softirq net-rx)");
        assert_eq!(origin_name(0xfff), "syscall 4095");
        assert_eq!(origin_name(origin::TIMER), "(timer)");
        assert_eq!(origin_name(u32::MAX), "(4294967295)");
    }

    #[test]
    fn the_parts_of_a_pair_are_its_sums() {
        let mut pair = Pair { skips: [1, 2, 3, 4], skip_ns: [10, 20, 30, 40], ..Pair::default() };
        pair.latency.add(5_000);
        let figures = PairFigures::of_pair(Party::default(), Party::default(), &pair, Able::ALL);
        assert_eq!((figures.skips, figures.skip_ns), (Some(10), Some(100)));
        let parts =
            [figures.skip_wakeup, figures.skip_idle, figures.skip_yield, figures.skip_other];
        assert_eq!(parts.iter().map(|skip| skip.ns).sum::<u64>(), 100);
        assert_eq!(figures.latency, [(5_120, 1)]);
        assert_eq!(figures.latency_ns(0.5), Some(5_000), "never above the longest");
    }

    #[test]
    fn without_the_run_queues_clocks_nothing_is_said_to_be_zero() {
        let able = Able { bill: false, wait: false, ..Able::ALL };
        let figures =
            PairFigures::of_pair(Party::default(), Party::default(), &Pair::default(), able);
        assert_eq!((figures.skip_ns, figures.path_ns, figures.wakeup_cost_ns), (None, None, None));
    }
}

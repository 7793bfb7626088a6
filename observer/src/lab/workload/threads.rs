//! `threads`: threads that burn different amounts and exit one by one.

use std::thread;

use anyhow::{Context as _, Result, anyhow};
use serde_json::{Value, json};

use super::clock::{Amount, Clock, Tally, now_ns, thread_cpu_ns};
use super::os::Place;
use super::report::{Report, Window};
use super::spin::LONGEST_MS;

/// Options of `threads`.
#[derive(clap::Args, Clone, Debug)]
pub struct ThreadsArgs {
    /// Threads besides the main one
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub count: u64,
    /// User time of the longest thread, milliseconds; thread i of N uses i/N of it
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=LONGEST_MS))]
    pub burn_ms: u64,
    #[command(flatten)]
    /// Where to run
    pub place: Place,
}

/// What one thread did.
#[derive(Clone, Copy, Debug)]
struct Done {
    tid: i32,
    tally: Tally,
    cpu_ns: u64,
    end_ns: u64,
}

/// Burns in all threads at the same time.
///
/// # Errors
/// If the CPU is not allowed or a thread cannot be started.
pub fn run(args: &ThreadsArgs) -> Result<Value> {
    args.place.apply()?;
    let clock = Clock::measure()?;
    let window = Window::open()?;
    let done = burn_all(&clock, args.count, args.burn_ms * 1_000_000)?;
    let closed = window.close()?;

    let mut sum = Tally::default();
    let mut threads = Vec::new();
    for one in &done {
        sum.merge(&one.tally);
        threads.push(json!({
            "tid": one.tid,
            "user_ns": clock.known(one.tally.user_ns),
            "gaps": clock.known(one.tally.gaps),
            "gap_ns": clock.known(one.tally.gap_ns),
            "thread_cpu_ns": one.cpu_ns,
            "end_ns": one.end_ns,
        }));
    }
    let report = Report::new("threads")
        .with("count", args.count)
        .with_tally(&clock, &sum)
        .with("threads", threads);
    Ok(closed.add_to(report).with_clock(&clock).finish())
}

fn burn_all(clock: &Clock, count: u64, longest_ns: u64) -> Result<Vec<Done>> {
    thread::scope(|scope| {
        let mut running = Vec::new();
        for index in 1..=count {
            let amount = Amount::UserNs(share_ns(longest_ns, index, count));
            let spawned = thread::Builder::new()
                .spawn_scoped(scope, move || burn_one(clock, amount))
                .with_context(|| format!("cannot start thread {index} of {count}"))?;
            running.push(spawned);
        }
        running
            .into_iter()
            .map(|one| one.join().map_err(|_| anyhow!("a burning thread panicked")))
            .collect()
    })
}

fn burn_one(clock: &Clock, amount: Amount) -> Done {
    let before_ns = thread_cpu_ns();
    let tally = clock.burn(amount);
    let cpu_ns = thread_cpu_ns().saturating_sub(before_ns);
    Done { tid: nix::unistd::gettid().as_raw(), tally, cpu_ns, end_ns: now_ns() }
}

/// `index / count` of the longest, without overflow.
fn share_ns(longest_ns: u64, index: u64, count: u64) -> u64 {
    longest_ns / count * index + longest_ns % count * index / count
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn shares_rise_to_the_longest() {
        assert_eq!(share_ns(1_000, 1, 3), 333);
        assert_eq!(share_ns(1_000, 2, 3), 666);
        assert_eq!(share_ns(1_000, 3, 3), 1_000);
        assert_eq!(share_ns(u64::MAX, 10_000, 10_000), u64::MAX);
    }

    #[test]
    fn each_thread_burns_its_share_even_on_one_cpu() {
        let cpu = Some(super::super::os::last_cpu().unwrap());
        let report = run(&ThreadsArgs { count: 5, burn_ms: 10, place: Place { cpu } }).unwrap();
        let threads = report["threads"].as_array().unwrap();
        assert_eq!(threads.len(), 5);
        for (index, one) in threads.iter().enumerate() {
            let wanted_ns = (index as u64 + 1) * 2_000_000;
            let user_ns = one["user_ns"].as_u64().unwrap();
            assert!((wanted_ns..wanted_ns * 102 / 100).contains(&user_ns), "{one}");
            // Preemption by the other threads is neither.
            assert!(one["thread_cpu_ns"].as_u64().unwrap() * 105 / 100 >= user_ns, "{one}");
        }
        let tids: HashSet<_> = threads.iter().map(|one| one["tid"].as_i64()).collect();
        assert_eq!(tids.len(), 5);
        assert!(report["user_ns"].as_u64() <= report["wall_ns"].as_u64(), "{report}");
    }
}

//! The report of a program: one JSON object, built field by field.

use anyhow::{Context as _, Result};
use nix::sys::resource::{Usage, UsageWho, getrusage};
use nix::sys::time::TimeVal;
use serde_json::{Map, Value};

use super::clock::{Clock, Tally, now_ns, thread_cpu_ns};

/// A report under construction.
#[derive(Debug, Default)]
pub struct Report(Map<String, Value>);

impl Report {
    /// Begins with the program's name and the calling thread.
    #[must_use]
    pub fn new(workload: &str) -> Self {
        Self::default()
            .with("workload", workload)
            .with("pid", nix::unistd::getpid().as_raw())
            .with("tid", nix::unistd::gettid().as_raw())
    }

    /// Adds a field.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.0.insert(name.to_owned(), value.into());
        self
    }

    /// Adds the truth of a burn: `user_ns` and what else its time was. Without marks the origin of
    /// the gaps is not known (null). `host_gap_ns` is time without a kernel entry, which a guest
    /// kernel and an observer in it can only see as user time.
    #[must_use]
    pub fn with_tally(self, clock: &Clock, tally: &Tally) -> Self {
        let by_mark = |value: u64| clock.known(value).filter(|_| clock.marks);
        self.with("steps", tally.steps)
            .with("user_ns", clock.known(tally.user_ns))
            .with("gaps", clock.known(tally.gaps))
            .with("gap_ns", clock.known(tally.gap_ns))
            .with("kernel_gaps", by_mark(tally.kernel_gaps))
            .with("kernel_gap_ns", by_mark(tally.kernel_gap_ns))
            .with("host_gaps", by_mark(tally.gaps - tally.kernel_gaps))
            .with("host_gap_ns", by_mark(tally.gap_ns - tally.kernel_gap_ns))
            .with("short_entries", by_mark(tally.short_entries))
    }

    /// Adds the clock's own figures.
    #[must_use]
    pub fn with_clock(self, clock: &Clock) -> Self {
        self.with("clock", clock.to_json())
    }

    /// The finished object.
    #[must_use]
    pub fn finish(self) -> Value {
        Value::Object(self.0)
    }
}

/// The time in which the truth of a report holds, for the calling thread.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    start_ns: u64,
    cpu_before_ns: u64,
    before: Usage,
}

impl Window {
    /// Opens it. Calls getrusage, which moves the kernel's own record of what it has reported
    /// (`prev_cputime`); so early in the thread's life that is without consequence.
    ///
    /// # Errors
    /// If the kernel refuses to tell the usage.
    pub fn open() -> Result<Self> {
        let before = usage(UsageWho::RUSAGE_THREAD)?;
        // In this order, so that the syscalls lie outside.
        let cpu_before_ns = thread_cpu_ns();
        Ok(Self { start_ns: now_ns(), cpu_before_ns, before })
    }

    /// Closes it.
    ///
    /// # Errors
    /// If the kernel refuses to tell the usage.
    pub fn close(self) -> Result<Closed> {
        let end_ns = now_ns();
        let cpu_ns = thread_cpu_ns();
        let after = usage(UsageWho::RUSAGE_THREAD)?;
        Ok(Closed { window: self, end_ns, cpu_ns, after })
    }
}

/// A window that has ended.
#[derive(Clone, Copy, Debug)]
pub struct Closed {
    window: Window,
    end_ns: u64,
    cpu_ns: u64,
    after: Usage,
}

impl Closed {
    /// Minor faults that the kernel counted in it.
    #[must_use]
    pub fn faults(&self) -> i64 {
        self.after.minor_page_faults() - self.window.before.minor_page_faults()
    }

    /// Adds its fields to a report: its bounds, and what the kernel says of the thread within it
    /// (`thread_cpu_ns` as billed, `reported_*` by getrusage).
    #[must_use]
    pub fn add_to(&self, report: Report) -> Report {
        let (window, before, after) = (&self.window, &self.window.before, &self.after);
        report
            .with("start_ns", window.start_ns)
            .with("end_ns", self.end_ns)
            .with("wall_ns", self.end_ns.saturating_sub(window.start_ns))
            .with("thread_cpu_ns", self.cpu_ns.saturating_sub(window.cpu_before_ns))
            .with("thread_cpu_before_ns", window.cpu_before_ns)
            .with("reported_user_ns", since(before.user_time(), after.user_time()))
            .with("reported_system_ns", since(before.system_time(), after.system_time()))
            .with(
                "switches_voluntary",
                after.voluntary_context_switches() - before.voluntary_context_switches(),
            )
            .with(
                "switches_involuntary",
                after.involuntary_context_switches() - before.involuntary_context_switches(),
            )
    }
}

/// Time from one reading of a usage to the next, ns.
#[must_use]
pub fn since(before: TimeVal, after: TimeVal) -> u64 {
    timeval_ns(after).saturating_sub(timeval_ns(before))
}

/// What the kernel reports of a thread or process.
///
/// # Errors
/// If the kernel refuses.
pub fn usage(who: UsageWho) -> Result<Usage> {
    getrusage(who).context("cannot read the resource usage")
}

/// A timeval in ns; negative ones (which the kernel never gives) as 0.
fn timeval_ns(time: TimeVal) -> u64 {
    u64::try_from(time.tv_sec()).unwrap_or(0) * 1_000_000_000
        + u64::try_from(time.tv_usec()).unwrap_or(0) * 1_000
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::workload::clock::Clock;

    fn report_with(vdso: bool, marks: bool) -> Value {
        let clock = Clock { step_ns: 50, threshold_ns: 1_000, marks, vdso };
        let tally = Tally::from_words([10, 500, 3, 9_000, 1, 4_000, 0]);
        Report::default().with_tally(&clock, &tally).finish()
    }

    #[test]
    fn what_is_not_known_is_null_and_not_zero() {
        let all = report_with(true, true);
        assert_eq!((&all["user_ns"], &all["gap_ns"]), (&500.into(), &9_000.into()));
        assert_eq!((&all["host_gaps"], &all["host_gap_ns"]), (&2.into(), &5_000.into()));
        let no_marks = report_with(true, false);
        assert_eq!((&no_marks["user_ns"], &no_marks["kernel_gap_ns"]), (&500.into(), &Value::Null));
        let no_vdso = report_with(false, true);
        assert_eq!((&no_vdso["user_ns"], &no_vdso["host_gap_ns"]), (&Value::Null, &Value::Null));
        assert_eq!(no_vdso["steps"], 10);
    }

    #[test]
    fn times_between_usages() {
        let (early, late) = (TimeVal::new(1, 999_999), TimeVal::new(2, 1));
        assert_eq!(since(early, late), 2_000);
        assert_eq!(since(late, early), 0);
    }
}

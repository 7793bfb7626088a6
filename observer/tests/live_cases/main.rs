//! Live on this kernel, as root: public fault cases of tools like this one, each named after its id.
//!
//! Groups: `a` utime and stime, `b` scheduler observers, `e` ptrace. Asserted are identities, counts, sums, orders and
//! ratios within one run, never how fast the machine is; how long a sleep or a held stop was only from below, and
//! generously from above.

#![expect(
    clippy::expect_used,
    reason = "a helper outside of a test function fails the test that calls it"
)]

mod names;
mod perf;
mod reported;
mod scheduler;
mod spread;
mod stops;
mod support;

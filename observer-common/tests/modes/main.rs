//! Event sequences as the kernel emits them, with the exact time and crossings that they must give.
//!
//! Each test tells one story: what the task really did, and what the books say of it. Times are small numbers
//! of nanoseconds that are told apart by their digits.

mod cases;
mod faults;
mod interrupts;
mod life;
mod missed;
mod rig;
mod stops;
mod syscalls;
mod waits;

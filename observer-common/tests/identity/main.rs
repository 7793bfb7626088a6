//! The identity between the kernel's bill and our own time, against a model of the kernel's side.
//!
//! `reported runtime - measured on-CPU = (skip_in + path_in) - (skip_out + path_out) - left_out`, for each task.
//!
//! Two checks, see [`audit`]: what the machine does with an estimate is exact to the nanosecond, and the
//! estimate itself is as good as the windowed minimum allows.

mod audit;
mod kernel;
mod mix;
mod pairs;
mod shift;

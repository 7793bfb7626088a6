//! Experiments and known-answer programs.

pub mod known;
pub mod workload;

//! Experiments and known-answer programs.

pub mod workload;

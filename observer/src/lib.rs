//! observer: how far the CPU time that the kernel reports is from the CPU time that a task really used.
//!
//! Data flows one way: kernel event -> `observer-ebpf` -> `observer-common` (the accounting machine) -> maps
//! -> [`probe`] -> [`session`] -> [`model`] -> [`view`] or [`export`].

pub mod cli;
pub mod clock;
pub mod export;
pub mod kernel;
pub mod lab;
pub mod model;
pub mod probe;
pub mod session;
pub mod view;

//! From accounts to figures. Pure: no clock, no kernel, no terminal.

pub mod account;
pub mod report;

pub use self::{
    account::{Account, Crossings},
    report::{CpuFigures, Header, HookLine, Report, TaskFigures, Trailer},
};

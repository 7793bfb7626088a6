//! From accounts to figures. Pure: no clock, no kernel, no terminal.

pub mod account;
mod ledger;
pub mod pair;
pub mod report;

pub use self::{
    account::{Account, Crossings},
    pair::{PairFigures, PairKind, Party},
    report::{CpuFigures, Header, HookLine, Report, TaskFigures, Trailer},
};

//! From accounts to figures. Pure: no clock, no kernel, no terminal.

pub mod account;
pub mod causes;
pub mod ended;
pub mod group;
mod ledger;
pub mod pair;
pub mod report;

pub use self::{
    account::{Account, Crossings},
    causes::Causes,
    ended::{Ended, Folded},
    group::{By, Group},
    pair::{PairFigures, PairKind, Party},
    report::{CpuFigures, Header, HookLine, Report, TaskFigures, Trailer},
};

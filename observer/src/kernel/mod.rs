//! What this kernel is: its type information, how it accounts CPU time, what it lets us do.
//!
//! Everything here is read before anything is loaded. Each module keeps what it reads (files,
//! clocks) apart from what it makes of it (pure functions on text and bytes).

pub mod accounting;
pub mod btf;
pub mod cpus;
pub mod limits;

pub use accounting::{Accounting, AccountingMode, Preempt};
pub use btf::{Btf, BtfError};
pub use cpus::CpuList;
pub use limits::{Limits, Lockdown, explain_load_error};

/// This kernel, or these rights, do not allow what was asked for. Not a fault of the program:
/// `main` ends with exit status 3.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {why}; {way_out}")]
pub struct Unsupported {
    /// What was wanted.
    pub what: String,
    /// What stands against it.
    pub why: String,
    /// What the user can do.
    pub way_out: String,
}

impl From<BtfError> for Unsupported {
    fn from(error: BtfError) -> Self {
        Self {
            what: "cannot read the kernel's type information (BTF)".to_owned(),
            why: error.to_string(),
            way_out: error.way_out().to_owned(),
        }
    }
}

/// A small text file of procfs or sysfs, without the white space around it; `None` when it cannot
/// be read.
fn read_text(path: &str) -> Option<String> {
    let bytes = std::fs::read(path).ok()?;
    Some(String::from_utf8_lossy(&bytes).trim().to_owned())
}

//! What the borders cost that no hook sees, on this machine, with these hooks.
//!
//! From the trap instruction to the first hook, and from the last hook to the first user instruction, a task is
//! in the kernel and the hooks do not know. So programs of ours are observed whose own user time is known or
//! next to nothing: what is left of their measured user time is the borders'.
//!
//! What was measured is kept for the next start of this boot, which takes a look whether it still holds.

mod cost;
mod judge;
mod kept;
mod measure;
mod place;
mod tracee;

use log::debug;

use self::measure::{look, measure};
use crate::{
    kernel::Limits,
    model::{Crossings, account::Able},
    probe::Probe,
};

/// The costs: those that were kept, if a look does not contradict them, else measured now. A kind that cannot be
/// measured stays unknown.
#[must_use]
pub fn crossings(probe: &mut Probe, limits: &Limits, able: Able) -> Crossings {
    if !able.split {
        return Crossings::default();
    }
    let key = kept::key(probe, limits, able);
    let Some(kept) = kept::load(&key) else {
        let measured = measure(probe);
        // What failed once, or was measured on a busy machine, may come out better at the next start.
        if judge::is_good(&measured) {
            kept::store(&key, &measured);
        }
        return measured;
    };
    let seen = look(probe);
    if judge::holds(&kept, &seen) {
        return kept;
    }
    let measured = measure(probe);
    debug!("calibration: kept {kept:?}, but a look gave {seen:?}, and all of it {measured:?}");
    let judged = judge::between(&kept, &seen, &measured);
    if judged.is_to_keep {
        kept::store(&key, &judged.costs);
    }
    judged.costs
}

//! The programs at tracepoints go through the verifier side by side, before any of them is attached: that is most of what a
//! start takes, and privileged users have no lock in common there (`bpf_check`, kernel/bpf/verifier.c).

use std::{
    collections::HashMap,
    num::NonZero,
    sync::{Mutex, PoisonError},
    thread,
};

use aya::{
    Btf as AyaBtf, Ebpf,
    programs::{BtfTracePoint, Program, ProgramError},
};

use super::hooks::{HOOKS, Hook, Via};

/// More would wait for the longest program alone.
const WORKERS: usize = 4;

/// What the kernel said of each program, by the index of its hook.
pub struct Verified<'a> {
    types: &'a AyaBtf,
    results: HashMap<usize, Result<(), ProgramError>>,
}

impl<'a> Verified<'a> {
    /// Loads the programs of the hooks that are `wanted`; `meanwhile` runs beside it.
    pub fn load<T>(
        ebpf: &mut Ebpf,
        types: &'a AyaBtf,
        wanted: impl Fn(&Hook) -> bool,
        meanwhile: impl FnOnce() -> T,
    ) -> (Self, T) {
        let mut programs: HashMap<&str, &mut BtfTracePoint> = ebpf
            .programs_mut()
            .filter_map(|(name, program)| match program {
                Program::BtfTracePoint(program) => Some((name, program)),
                _ => None,
            })
            .collect();
        // In the order of the table, which has the longest first.
        let queue: Vec<_> = HOOKS
            .iter()
            .filter(|hook| wanted(hook))
            .filter_map(|hook| {
                let (Via::Tracepoint(tracepoint) | Via::After(tracepoint)) = hook.via else {
                    return None;
                };
                Some((hook.index, tracepoint, programs.remove(hook.program())?))
            })
            .collect();
        let queue = Mutex::new(queue.into_iter());
        let results = Mutex::new(HashMap::new());
        let work = || {
            loop {
                let next = queue.lock().unwrap_or_else(PoisonError::into_inner).next();
                let Some((index, tracepoint, program)) = next else { break };
                let result = program.load(tracepoint, types);
                results.lock().unwrap_or_else(PoisonError::into_inner).insert(index, result);
            }
        };
        let others = thread::available_parallelism().map_or(1, NonZero::get).min(WORKERS) - 1;
        let beside = thread::scope(|scope| {
            for _ in 0..others {
                // Without more threads this one does it all.
                let _ = thread::Builder::new().spawn_scoped(scope, work);
            }
            let beside = meanwhile();
            work();
            beside
        });
        let results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
        (Self { types, results }, beside)
    }

    /// The kernel's types, for programs that are loaded one by one.
    pub fn types(&self) -> &'a AyaBtf {
        self.types
    }

    /// What the kernel said of one program at a tracepoint.
    pub fn result(&mut self, hook: &Hook) -> Result<(), ProgramError> {
        // One that was not wanted is not asked for; aya's word for one that was never loaded.
        self.results.remove(&hook.index).unwrap_or(Err(ProgramError::NotLoaded))
    }
}

//! The kernel side from here: loads it, says what works, and reads its books.

pub mod cycles;
pub mod hooks;
pub mod layout;
mod ledger;
mod load;
pub mod selection;
mod shared;
mod sys;
mod verify;

use std::{cell::Cell, io::Read as _, os::fd::AsFd as _};

use anyhow::{Context as _, Result, anyhow};
use aya::{
    Ebpf,
    maps::{CgroupArray, HashMap, MapData, RingBuf, Stack},
    programs::{Iter, RawTracePoint, RawTracePointRunOptions, TestRun as _},
};
use observer_common::{
    cpu::Cpu,
    glob::Glob,
    names::{self, hook, target},
    pair::{Pair, PairKey},
    ptrace::Trace,
    task::{Task, state},
};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

pub use self::{
    cycles::Cycles,
    hooks::{HookStatus, State, Via},
    load::{OBJECT, Request, SEES_REQUESTS},
    sys::ProgramStats,
};
use self::{ledger::Table, shared::SharedArray};
use crate::kernel::Limits;

/// Pairs of each kind for which there is room, unless the user says otherwise: 15 MB for both.
pub const MAX_PAIRS: u32 = 4_096;

/// Slots above the highest known one that may have been taken and not opened, beside one for each CPU.
const SLOTS_IN_FLIGHT: usize = 64;

/// Sizes of the maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// CPUs that can ever be there.
    pub cpus: u32,
    /// Accounts that can be open or unread at once, and one more: slot 0 is nobody's.
    pub slots: u32,
    /// One more than the largest tid.
    pub tids: u32,
    /// The ring of ended accounts; a power of two.
    pub ring_bytes: u32,
    /// Ids to observe.
    pub targets: u32,
    /// Pairs, of each kind, that can be open or unread at once.
    pub pairs: u32,
}

impl Sizes {
    /// What this machine needs; `max_tasks` and `max_pairs` are the user's word, if there is one.
    ///
    /// `all`: every task is observed, so there must be room for those that live now and as many again.
    #[must_use]
    pub fn choose(
        limits: &Limits,
        max_tasks: Option<u32>,
        max_pairs: Option<u32>,
        all: bool,
        targets: usize,
    ) -> Self {
        let live = limits.live_tasks.unwrap_or(0);
        let default = if all { live.saturating_mul(2).max(16_384) } else { 16_384 };
        Self {
            cpus: limits.possible_cpus.last().map_or(1, |last| last.saturating_add(1)),
            slots: max_tasks.unwrap_or(default).saturating_add(1),
            // PID_MAX_LIMIT (include/linux/threads.h) where it cannot be read.
            tids: limits.pid_max.unwrap_or(4 * 1024 * 1024).saturating_add(1),
            ring_bytes: 256 * 1024,
            // And one more, for `find_only`.
            targets: u32::try_from(targets).unwrap_or(u32::MAX).saturating_add(1).max(64),
            pairs: max_pairs.unwrap_or(MAX_PAIRS).max(1),
        }
    }
}

/// The loaded kernel side. Its drop, and the end of the process in any way, detaches everything.
pub struct Probe {
    ebpf: Ebpf,
    status: Vec<HookStatus>,
    cpus: SharedArray<Cpu>,
    tasks: SharedArray<Task>,
    pairs: Table<Pair>,
    traces: Table<Trace>,
    other_pairs: SharedArray<Pair>,
    other_traces: SharedArray<Trace>,
    free: Stack<MapData, u32>,
    ended: RingBuf<MapData>,
    targets: HashMap<MapData, u32, u32>,
    /// Every CPU that can ever be there: one that is offline answers so.
    possible: Vec<u32>,
    /// No slot above this one was ever used.
    highest_slot: usize,
    /// What each CPU's times left unaccounted at the last reading: see [`Probe::cpus`].
    residuals: Vec<Cell<u64>>,
}

impl Probe {
    /// Loads and attaches. Nothing is observed yet: see [`Probe::find_tasks`].
    pub fn load(request: &Request<'_>) -> Result<Self> {
        let Request { limits, sizes, .. } = *request;
        let load::Loaded { mut ebpf, status, free } = load::load(request)?;
        let cpus = SharedArray::map(map_fd(&ebpf, names::CPUS)?, sizes.cpus)
            .context("cannot map the CPUs' books")?;
        let residuals = vec![Cell::new(0); cpus.len()];
        let tasks = SharedArray::map(map_fd(&ebpf, names::TASKS)?, sizes.slots)
            .context("cannot map the tasks' books")?;
        let pairs = Table::new(map_fd(&ebpf, names::PAIRS)?).context("the table of pairs")?;
        let traces = Table::new(map_fd(&ebpf, names::TRACES)?).context("the table of tracers")?;
        let other_pairs = SharedArray::map(map_fd(&ebpf, names::OTHER_PAIRS)?, sizes.cpus)
            .context("cannot map the sum of the rest")?;
        let other_traces = SharedArray::map(map_fd(&ebpf, names::OTHER_TRACES)?, sizes.cpus)
            .context("cannot map the sum of the rest")?;
        let ended = RingBuf::try_from(take(&mut ebpf, names::ENDED)?)?;
        let targets = HashMap::try_from(take(&mut ebpf, names::TARGETS)?)?;
        let possible = limits.possible_cpus.iter().collect();
        Ok(Self {
            ebpf,
            status,
            cpus,
            tasks,
            pairs,
            traces,
            other_pairs,
            other_traces,
            free,
            ended,
            targets,
            possible,
            highest_slot: 0,
            residuals,
        })
    }

    /// What became of each hook.
    #[must_use]
    pub fn status(&self) -> &[HookStatus] {
        &self.status
    }

    /// True when this hook works.
    #[must_use]
    pub fn is_active(&self, index: usize) -> bool {
        self.status.iter().any(|status| status.hook.index == index && status.is_active())
    }

    /// Lets the programs read these counters; they were told so when they were loaded ([`Config::cycles`]).
    ///
    /// [`Config::cycles`]: observer_common::layout::Config
    pub fn count_cycles(&mut self, cycles: &Cycles) -> Result<()> {
        cycles.hand_over(&mut self.ebpf)
    }

    /// aya's handle, for the logger.
    pub fn ebpf_mut(&mut self) -> &mut Ebpf {
        &mut self.ebpf
    }

    /// Sets the pattern for names.
    pub fn set_glob(&mut self, glob: &Glob) -> Result<()> {
        let map = self.ebpf.map_mut(names::GLOB).ok_or_else(|| anyhow!("no map GLOB"))?;
        aya::maps::Array::try_from(map)?.set(0, *glob, 0).context("cannot set the name pattern")
    }

    /// Sets the cgroup below which new programs are observed.
    pub fn set_cgroup(&mut self, folder: &std::fs::File) -> Result<()> {
        let map = self.ebpf.map_mut(names::CGROUP).ok_or_else(|| anyhow!("no map CGROUP"))?;
        CgroupArray::try_from(map)?.set(0, folder.as_fd(), 0).context("cannot set the cgroup")
    }

    /// Names ids to observe; `what` is of [`names::target`]. Takes effect with [`Probe::find_tasks`].
    pub fn add_target(&mut self, id: u32, what: u32) -> Result<()> {
        let known = self.targets.get(&id, 0).unwrap_or(0);
        self.targets.insert(id, known | what, 0).context("cannot name a task to observe")
    }

    /// Goes to each CPU once, so that the offset between the clocks is known there before anything is booked.
    ///
    /// A CPU that this thread may not run on learns it at its first tick or switch.
    pub fn learn_offsets(&self) -> Result<()> {
        let home = sched_getaffinity(None)?;
        for cpu in &self.possible {
            let mut there = CpuSet::new();
            there.set(*cpu as usize);
            if sched_setaffinity(None, &there).is_ok() {
                self.read_cpu(*cpu)?;
            }
        }
        sched_setaffinity(None, &home).context("cannot go back to the CPUs that observer ran on")
    }

    /// Opens accounts for the tasks that exist and are wanted, then for those that run right now.
    pub fn find_tasks(&mut self) -> Result<()> {
        let program: &mut Iter = self
            .ebpf
            .program_mut(names::PROGRAMS[hook::FIND])
            .ok_or_else(|| anyhow!("no task iterator"))?
            .try_into()?;
        let link = program.attach()?;
        let mut pass = program.take_link(link)?.into_file()?;
        // The program writes nothing; reading to the end runs it once for each task.
        std::io::copy(&mut pass.by_ref(), &mut std::io::sink()).context("task iterator")?;
        self.read_cpus()
    }

    /// Opens an account for one thread, whoever else is wanted.
    pub fn find_only(&mut self, tid: u32) -> Result<()> {
        self.targets.insert(target::ONLY, tid, 0).context("cannot name a thread to observe")?;
        let found = self.find_tasks();
        self.targets.remove(&target::ONLY).context("cannot take back a thread to observe")?;
        found
    }

    /// Closes the open interval of each CPU, on that CPU.
    pub fn read_cpus(&self) -> Result<()> {
        self.possible.iter().try_for_each(|cpu| self.read_cpu(*cpu))
    }

    /// Closes the open interval of one CPU. One that went offline has none.
    pub fn read_cpu(&self, cpu: u32) -> Result<()> {
        let program: &RawTracePoint = self
            .ebpf
            .program(names::PROGRAMS[hook::READ])
            .ok_or_else(|| anyhow!("no reader"))?
            .try_into()?;
        let options = RawTracePointRunOptions { cpu: Some(cpu), ..Default::default() };
        match program.test_run(options) {
            Ok(_) => Ok(()),
            // ENXIO: the CPU is offline (smp_call_function_single, kernel/smp.c).
            Err(error) if errno(&error) == Some(libc::ENXIO) => Ok(()),
            Err(error) => Err(error).context("cannot read the open intervals"),
        }
    }

    /// The state of each CPU that has had an event. Its times are of one moment.
    pub fn cpus(&self) -> impl Iterator<Item = (u32, Cpu)> + '_ {
        self.residuals.iter().enumerate().filter_map(|(index, residual_ns)| {
            // Two copies are alike also where a hypervisor holds the CPU in the middle of booking: then its times do not
            // add up. So it is read again as long as they add up to something else than they did last.
            let is_settled = |a: &Cpu, b: &Cpu| {
                (a.since_ns, a.owner_ns) == (b.since_ns, b.owner_ns)
                    && unaccounted_ns(b) == residual_ns.get()
            };
            let cpu = shared::settled(|| self.cpus.read(index), is_settled)?;
            residual_ns.set(unaccounted_ns(&cpu));
            Some((u32::try_from(index).ok()?, cpu)).filter(|(_, cpu)| cpu.since_ns != 0)
        })
    }

    /// A consistent copy of the account in a slot.
    ///
    /// Its CPU may be booking: then the copy is taken again. `None` for a slot out of range, or if it does not
    /// hold still for some 30 ms, which is counted by the caller.
    #[must_use]
    pub fn task(&self, slot: u32) -> Option<Task> {
        let element = self.tasks.at(slot as usize)?;
        // SAFETY: inside the mapping; a field of it, read whole.
        let sequence = || unsafe { (&raw const (*element.as_ptr()).sequence).read_volatile() };
        let mut patience = shared::Patience::default();
        loop {
            let before = sequence();
            std::sync::atomic::fence(std::sync::atomic::Ordering::Acquire);
            let copy = self.tasks.read(slot as usize)?;
            std::sync::atomic::fence(std::sync::atomic::Ordering::Acquire);
            if before % 2 == 0 && before == sequence() {
                return Some(copy);
            }
            if !patience.wait() {
                return None;
            }
        }
    }

    /// How many slots there are.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.tasks.len()
    }

    /// True when the account in a slot is what this copy says: most tasks sleep, and comparing costs less than
    /// copying and counting anew.
    #[must_use]
    pub fn is_unchanged(&self, slot: u32, copy: &Task) -> bool {
        let Some(element) = self.tasks.at(slot as usize) else { return false };
        let (theirs, ours) =
            (element.as_ptr().cast::<u64>(), std::ptr::from_ref(copy).cast::<u64>());
        // The sequence is one of the words: a booking meanwhile is a difference.
        (0..size_of::<Task>() / size_of::<u64>()).all(|word| {
            // SAFETY: inside the mapping and the copy, which are of this size, without padding, and aligned.
            unsafe { theirs.add(word).read_volatile() == ours.add(word).read() }
        })
    }

    /// The accounts that have ended since the last call, by the ring: slot, and the low half of `opened_ns`.
    pub fn take_ended(&mut self) -> Vec<(u32, u32)> {
        let mut ended = Vec::new();
        while let Some(record) = self.ended.next() {
            if let Some(bytes) = record.first_chunk::<8>() {
                let record = u64::from_ne_bytes(*bytes);
                ended.push((record as u32, (record >> 32) as u32));
            }
        }
        ended
    }

    /// The slots in use, ended ones included: those that the ring had no room for are found here.
    pub fn used_slots(&mut self) -> Vec<(u32, u32)> {
        let mut used = Vec::new();
        let mut unused_run = 0;
        for slot in 1..self.tasks.len() {
            let Some(element) = self.tasks.at(slot) else { break };
            // SAFETY: inside the mapping; a field of it, read whole.
            let life = unsafe { (&raw const (*element.as_ptr()).state).read_volatile() };
            if life != state::FREE {
                used.push((slot as u32, life));
                self.highest_slot = self.highest_slot.max(slot);
                unused_run = 0;
            } else if slot > self.highest_slot {
                // Slots are taken from a stack, lowest first, so all below the highest were used once; those taken
                // just now, one on each CPU, may not be open yet.
                unused_run += 1;
                if unused_run > self.possible.len() + SLOTS_IN_FLIGHT {
                    break;
                }
            }
        }
        used
    }

    /// Gives a slot back after its final account was read.
    pub fn release(&mut self, slot: u32) -> Result<()> {
        let element = self.tasks.at(slot as usize).ok_or_else(|| anyhow!("no slot {slot}"))?;
        self.highest_slot = self.highest_slot.max(slot as usize);
        // SAFETY: inside the mapping; its task has ended, so only this process writes it.
        unsafe { (&raw mut (*element.as_ptr()).state).write_volatile(state::FREE) };
        self.free.push(slot, 0).context("cannot give a slot back")
    }

    /// Shows every waker with its wakee.
    pub fn for_each_pair(&mut self, see: impl FnMut(&PairKey, &Pair)) -> std::io::Result<()> {
        self.pairs.for_each(see)
    }

    /// Shows every tracer with its tracee.
    pub fn for_each_trace(&mut self, see: impl FnMut(&PairKey, &Trace)) -> std::io::Result<()> {
        self.traces.for_each(see)
    }

    /// Takes out a waker and its wakee that get no more events.
    pub fn remove_pair(&self, key: &PairKey) -> std::io::Result<()> {
        self.pairs.remove(key)
    }

    /// Takes out a tracer and its tracee that get no more events.
    pub fn remove_trace(&self, key: &PairKey) -> std::io::Result<()> {
        self.traces.remove(key)
    }

    /// What found no room in the tables, all CPUs together.
    #[must_use]
    pub fn folded(&self) -> (Pair, Trace) {
        let (mut pairs, mut traces) = (Pair::default(), Trace::default());
        for cpu in 0..self.cpus.len() {
            self.other_pairs.read(cpu).iter().for_each(|pair| pairs.add(pair));
            self.other_traces.read(cpu).iter().for_each(|trace| traces.add(trace));
        }
        (pairs, traces)
    }

    /// Forgets it. Whoever is observed meanwhile loses what is booked at that moment.
    pub fn forget_folded(&mut self) -> Result<()> {
        self.blank::<Pair>(names::OTHER_PAIRS)?;
        self.blank::<Trace>(names::OTHER_TRACES)
    }

    fn blank<V: aya::Pod + Default>(&mut self, name: &str) -> Result<()> {
        let map = self.ebpf.map_mut(name).ok_or_else(|| anyhow!("no map {name}"))?;
        let mut array = aya::maps::Array::try_from(map)?;
        let mut all = 0..array.len();
        all.try_for_each(|cpu| array.set(cpu, V::default(), 0))
            .with_context(|| format!("cannot clear {name}"))
    }

    /// The ring's descriptor: readable when it holds more than the reader should let lie.
    pub fn ring(&self) -> &RingBuf<MapData> {
        &self.ended
    }

    /// A program's statistics, where the kernel keeps them.
    #[must_use]
    pub fn stats(&self, status: &HookStatus) -> Option<ProgramStats> {
        let program = self.ebpf.program(status.hook.program())?;
        sys::program_stats(program.fd().ok()?.as_fd()).ok()
    }
}

/// What a CPU's owners and modes leave of its time: none but for what an interrupt booked in the middle of another hook.
fn unaccounted_ns(cpu: &Cpu) -> u64 {
    cpu.elapsed_ns().wrapping_sub(cpu.accounted_ns())
}

fn errno(error: &aya::programs::ProgramError) -> Option<i32> {
    match error {
        aya::programs::ProgramError::SyscallError(error) => error.io_error.raw_os_error(),
        _ => None,
    }
}

fn take(ebpf: &mut Ebpf, name: &str) -> Result<aya::maps::Map> {
    ebpf.take_map(name).ok_or_else(|| anyhow!("the object has no map {name}"))
}

/// Runs of each program, over CPUs.
#[must_use]
pub fn runs(cpus: impl Iterator<Item = (u32, Cpu)>) -> [u64; names::HOOKS] {
    let mut runs = [0_u64; names::HOOKS];
    for (_, cpu) in cpus {
        runs.iter_mut().zip(cpu.runs.0).for_each(|(sum, count)| *sum = sum.saturating_add(count));
    }
    runs
}

/// The descriptor of a map that the program side owns.
fn map_fd(ebpf: &Ebpf, name: &str) -> Result<std::os::fd::OwnedFd> {
    match ebpf.map(name) {
        Some(aya::maps::Map::Array(map) | aya::maps::Map::HashMap(map)) => {
            Ok(map.fd().as_fd().try_clone_to_owned()?)
        }
        _ => Err(anyhow!("the object has no map {name} of this kind")),
    }
}

//! Loads the object, then each program alone: what one kernel refuses must not take the rest with it.

use std::io;

use aya::{
    Btf as AyaBtf, Ebpf, EbpfLoader,
    maps::{MapData, MapError, ProgramArray, Stack},
    programs::{
        Program, ProgramError,
        perf_event::{PerfEventConfig, PerfEventScope, SamplePolicy},
    },
};
use log::debug;
use observer_common::{
    layout::{ABSENT, Config, Layout},
    names::{self, hook},
};

use super::{
    Sizes,
    hooks::{HOOKS, Hook, HookStatus, State, Via},
    selection::Selection,
    verify::Verified,
};
use crate::kernel::{Btf, Limits, Unsupported, explain_load_error};

/// The kernel side, as its build script left it.
pub static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/observer-ebpf"));

/// The loaded object and what became of each hook.
pub struct Loaded {
    /// aya's handle; its drop detaches everything.
    pub ebpf: Ebpf,
    /// One per row of the table, in its order.
    pub status: Vec<HookStatus>,
    /// Slots that are nobody's, full.
    pub free: Stack<MapData, u32>,
}

/// What is loaded, and for what.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    /// The running kernel's types.
    pub btf: &'a Btf,
    /// Its limits, to explain a refusal.
    pub limits: &'a Limits,
    /// Where its members lie.
    pub layout: &'a Layout,
    /// What the session wants.
    pub config: &'a Config,
    /// Sizes of the maps.
    pub sizes: &'a Sizes,
    /// Hooks that the user wants.
    pub selection: &'a Selection,
}

/// Hooks that see a clock skip being asked for.
pub const SEES_REQUESTS: [usize; 3] = [hook::ENTRY, hook::WAKEUP, hook::PREEMPT];

/// Loads and attaches. Fails only for what is required.
pub fn load(request: &Request<'_>) -> Result<Loaded, Unsupported> {
    let Request { btf, config, .. } = *request;
    let types = AyaBtf::parse(btf.bytes(), aya::Endianness::default())
        .map_err(|error| unsupported("read the kernel's type information", &error.to_string()))?;
    debug!("start: types read once more, by aya");
    let loaded = load_once(request, &types)?;
    let is_active =
        |index: &usize| loaded.status.iter().any(|s| s.hook.index == *index && s.is_active());
    let found = Config {
        has_entry: config.has_entry & u64::from(is_active(&hook::ENTRY)),
        has_requests: config.has_requests & u64::from(SEES_REQUESTS.iter().any(is_active)),
        has_exit: config.has_exit & u64::from(is_active(&hook::LEAVE)),
        ..*config
    };
    if found == *config {
        return Ok(loaded);
    }
    // The programs were told to rely on a hook that does not work: tell them so.
    drop(loaded);
    load_once(&Request { config: &found, ..*request }, &types)
}

fn load_once(request: &Request<'_>, types: &AyaBtf) -> Result<Loaded, Unsupported> {
    let Request { limits, layout, config, sizes, .. } = *request;
    let mut ebpf = EbpfLoader::new()
        .btf(Some(types))
        .override_global(names::LAYOUT, layout, true)
        .override_global(names::CONFIG, config, true)
        .map_max_entries(names::CPUS, sizes.cpus)
        .map_max_entries(names::TASKS, sizes.slots)
        .map_max_entries(names::SLOTS, sizes.tids)
        .map_max_entries(names::FREE, sizes.slots)
        .map_max_entries(names::PAIRS, sizes.pairs)
        .map_max_entries(names::TRACES, sizes.pairs)
        .map_max_entries(names::OTHER_PAIRS, sizes.cpus)
        .map_max_entries(names::OTHER_TRACES, sizes.cpus)
        .map_max_entries(names::ENDED, sizes.ring_bytes)
        .map_max_entries(names::TARGETS, sizes.targets)
        .load(OBJECT)
        .map_err(|error| object_error(&error, limits))?;
    debug!("start: object relocated, maps made");
    let mut free = take_free(&mut ebpf).map_err(|error| no_free_slots(&error))?;
    let is_wanted = |hook: &Hook| {
        request.selection.excludes(hook).is_none() && missing_event(hook, request.btf).is_none()
    };
    // Before anything is attached: each push is a syscall, and would run the syscall hooks.
    let fill = || (1..sizes.slots).rev().try_for_each(|slot| free.push(slot, 0));
    let (mut verified, filled) = Verified::load(&mut ebpf, types, is_wanted, fill);
    filled.map_err(|error| no_free_slots(&error))?;
    debug!("start: free slots filled, programs verified");
    let mut status: Vec<HookStatus> = Vec::with_capacity(HOOKS.len());
    for hook in &HOOKS {
        let (state, function) = start(&mut ebpf, hook, request, &mut verified, &status);
        debug!("{}: {state:?}", hook.name);
        status.push(HookStatus { hook: *hook, state, function });
    }
    let lost = status.iter().find(|status| status.hook.required && !status.is_active());
    if let Some(lost) = lost {
        return Err(unsupported(
            &format!("attach {}, which observer needs", lost.hook.name),
            lost.reason().unwrap_or("unknown"),
        ));
    }
    Ok(Loaded { ebpf, status, free })
}

fn take_free(ebpf: &mut Ebpf) -> Result<Stack<MapData, u32>, MapError> {
    let map = ebpf.take_map(names::FREE);
    Stack::try_from(map.ok_or_else(|| MapError::InvalidName { name: names::FREE.into() })?)
}

fn no_free_slots(error: &MapError) -> Unsupported {
    unsupported("fill the stack of free slots", &one_line(&error.to_string()))
}

/// Attaches one program, loaded by now or here; also says which function it meets, where there is a choice.
fn start(
    ebpf: &mut Ebpf,
    hook: &Hook,
    request: &Request<'_>,
    verified: &mut Verified<'_>,
    before: &[HookStatus],
) -> (State, Option<&'static str>) {
    if let Some(why) = request.selection.excludes(hook) {
        return (State::Off(why.to_owned()), None);
    }
    // No register holds a preset result: arm64.
    if hook.needs_result && request.layout.regs_result == ABSENT {
        let why = "an entry stop cannot be told from an exit stop here";
        return (State::Absent(why.to_owned()), None);
    }
    let is_active = |index: usize| before.iter().any(|s| s.hook.index == index && s.is_active());
    if hook.needs.is_some_and(|index| !is_active(index)) {
        return (State::Absent("of no use without its counterpart".to_owned()), None);
    }
    if hook.instead_of.is_some_and(is_active) {
        return (State::Absent("not needed: the function itself can be entered".to_owned()), None);
    }
    match hook.via {
        Via::Entry(functions) | Via::Return(functions) => {
            meet_function(ebpf, hook, functions, request, verified.types())
        }
        Via::Probe(symbols) | Via::ReturnProbe(symbols) => {
            meet_symbol(ebpf, hook, symbols, request.limits)
        }
        Via::After(_) => (follow(ebpf, hook, request.limits, verified), None),
        _ => (meet(ebpf, hook, request, verified), None),
    }
}

/// A program that another one at the same tracepoint goes on in: loaded, and not attached itself.
fn follow(ebpf: &mut Ebpf, hook: &Hook, limits: &Limits, verified: &mut Verified<'_>) -> State {
    let Some(Program::BtfTracePoint(program)) = ebpf.program_mut(hook.program()) else {
        return State::Absent("the object has no such program".to_owned());
    };
    let descriptor = verified.result(hook).and_then(|()| Ok(program.fd()?.try_clone()?));
    let result = descriptor.and_then(|descriptor| {
        let map = ebpf.map_mut(names::AFTER_SWITCH);
        let map = map.ok_or_else(|| MapError::InvalidName { name: names::AFTER_SWITCH.into() })?;
        Ok(ProgramArray::try_from(map)?.set(0, &descriptor, 0)?)
    });
    match result {
        Ok(()) => State::Active(verified_instructions(ebpf, hook)),
        Err(error) => refusal(&error, limits),
    }
}

/// The tracepoint of a hook that this kernel does not have.
fn missing_event(hook: &Hook, btf: &Btf) -> Option<&'static str> {
    match hook.via {
        Via::Tracepoint(tracepoint) if !btf.has_tracepoint(tracepoint) => Some(tracepoint),
        _ => None,
    }
}

/// Everything but functions: there is one event to meet.
fn meet(ebpf: &mut Ebpf, hook: &Hook, request: &Request<'_>, verified: &mut Verified<'_>) -> State {
    if let Some(tracepoint) = missing_event(hook, request.btf) {
        return State::Absent(format!("this kernel has no tracepoint {tracepoint}"));
    }
    let Some(program) = ebpf.program_mut(hook.program()) else {
        return State::Absent("the object has no such program".to_owned());
    };
    let result = match (program, hook.via) {
        (Program::BtfTracePoint(program), Via::Tracepoint(_)) => {
            verified.result(hook).and_then(|()| program.attach().map(drop))
        }
        (Program::Iter(program), Via::TaskIterator) => program.load("task", verified.types()),
        (Program::RawTracePoint(program), Via::Reader) => program.load(),
        (Program::PerfEvent(program), Via::Software(event)) => program.load().and_then(|()| {
            request.limits.online_cpus.iter().try_for_each(|cpu| {
                let scope = PerfEventScope::AllProcessesOneCpu { cpu };
                let config = PerfEventConfig::Software(event);
                program.attach(config, scope, SamplePolicy::Period(1), false).map(drop)
            })
        }),
        _ => return State::Absent("the object has another kind of program".to_owned()),
    };
    match result {
        Ok(()) => State::Active(verified_instructions(ebpf, hook)),
        Err(error) => refusal(&error, request.limits),
    }
}

/// The first of some functions that this kernel has, and lets be met: a static one may be there in one build and
/// inlined in the next, and one that loads may still refuse to be attached to.
fn meet_function(
    ebpf: &mut Ebpf,
    hook: &Hook,
    functions: &'static [&'static str],
    request: &Request<'_>,
    types: &AyaBtf,
) -> (State, Option<&'static str>) {
    let mut state = State::Absent(format!("this kernel has no function {}", functions.join(", ")));
    for function in functions.iter().filter(|function| request.btf.has_func(function)) {
        let result = match ebpf.program_mut(hook.program()) {
            Some(Program::FEntry(program)) => {
                // One that was loaded for the function before holds that: each has its own.
                let _ = program.unload();
                program.load(function, types).and_then(|()| program.attach().map(drop))
            }
            Some(Program::FExit(program)) => {
                let _ = program.unload();
                program.load(function, types).and_then(|()| program.attach().map(drop))
            }
            _ => return (State::Absent("the object has no such program".to_owned()), None),
        };
        match result {
            Ok(()) => return (State::Active(verified_instructions(ebpf, hook)), Some(function)),
            Err(error) => state = refusal(&error, request.limits),
        }
    }
    (state, None)
}

/// Where the kernel says that it has kprobes (`CONFIG_KPROBE_EVENTS` and perf's PMU for them, 4.17).
const KPROBES: &str = "/sys/bus/event_source/devices/kprobe/type";

/// The first of some symbols that can be probed.
fn meet_symbol(
    ebpf: &mut Ebpf,
    hook: &Hook,
    symbols: &'static [&'static str],
    limits: &Limits,
) -> (State, Option<&'static str>) {
    if !std::path::Path::new(KPROBES).exists() {
        return (State::Absent("this kernel has no kprobes".to_owned()), None);
    }
    let Some(Program::KProbe(program)) = ebpf.program_mut(hook.program()) else {
        return (State::Absent("the object has no such program".to_owned()), None);
    };
    if let Err(error) = program.load() {
        return (refusal(&error, limits), None);
    }
    let mut state = State::Absent(format!("this kernel has no symbol {}", symbols.join(", ")));
    for symbol in symbols {
        match program.attach(symbol, 0) {
            Ok(_) => return (State::Active(verified_instructions(ebpf, hook)), Some(symbol)),
            Err(error) => state = refusal(&error, limits),
        }
    }
    (state, None)
}

fn verified_instructions(ebpf: &Ebpf, hook: &Hook) -> Option<u32> {
    ebpf.program(hook.program())?.info().ok()?.verified_instruction_count()
}

/// Tells apart what the kernel does not have and what it does not allow.
fn refusal(error: &ProgramError, limits: &Limits) -> State {
    let (io_error, log_empty, log) = match error {
        ProgramError::LoadError { io_error, verifier_log } => {
            let log = verifier_log.to_string();
            (io_error, log.trim().is_empty(), log)
        }
        ProgramError::SyscallError(error) => (&error.io_error, true, String::new()),
        ProgramError::IOError(io_error) => (io_error, true, String::new()),
        other => return State::Absent(one_line(&other.to_string())),
    };
    if !log_empty {
        log::warn!("{log}");
    }
    let errno = io_error.raw_os_error().unwrap_or(0);
    State::Refused(errno, explain_load_error(errno, log_empty, limits))
}

/// The object as a whole was refused: its maps.
fn object_error(error: &aya::EbpfError, limits: &Limits) -> Unsupported {
    let errno = source_errno(error);
    let why = match errno {
        Some(errno) => explain_load_error(errno, true, limits),
        None => one_line(&error.to_string()),
    };
    unsupported("load the kernel side", &why)
}

/// The errno at the bottom of an error, if there is one.
fn source_errno(error: &(dyn std::error::Error + 'static)) -> Option<i32> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(errno) = error.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error) {
            return Some(errno);
        }
        next = error.source();
    }
    None
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn unsupported(what: &str, why: &str) -> Unsupported {
    Unsupported {
        what: format!("cannot {what}"),
        why: why.to_owned(),
        way_out: "`observer doctor` shows each hook and what stands against it".to_owned(),
    }
}

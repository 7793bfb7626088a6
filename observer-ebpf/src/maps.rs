//! The maps, and the few ways in which the hooks use them.

use aya_ebpf::{
    bindings::{BPF_ANY, BPF_F_MMAPABLE, BPF_RB_FORCE_WAKEUP, BPF_RB_NO_WAKEUP},
    helpers::{bpf_get_smp_processor_id, bpf_ktime_get_ns},
    macros::map,
    maps::{Array, CgroupArray, HashMap, ProgramArray, RingBuf, Stack},
};
use observer_common::{
    cpu::{Cpu, NO_SLOT},
    glob::Glob,
    names::RING_WAKE_BYTES,
    pair::{Pair, PairKey},
    ptrace::Trace,
    task::{Task, state},
};

// The sizes here are placeholders: the loader sets each to what this machine and this session need.

/// By CPU number. Not a per-CPU map: wakers write a request for another CPU, and the reader maps it.
#[map]
static CPUS: Array<Cpu> = Array::with_max_entries(1, BPF_F_MMAPABLE);
/// By slot.
#[map]
static TASKS: Array<Task> = Array::with_max_entries(2, BPF_F_MMAPABLE);
/// From tid to slot: two instructions for a task that is not observed, where a hash would be a call.
#[map]
static SLOTS: Array<u32> = Array::with_max_entries(1, 0);
#[map]
static FREE: Stack<u32> = Stack::with_max_entries(1, 0);
#[map]
static ENDED: RingBuf = RingBuf::with_byte_size(4096, 0);
#[map]
static PAIRS: HashMap<PairKey, Pair> = HashMap::with_max_entries(1, 0);
#[map]
static TRACES: HashMap<PairKey, Trace> = HashMap::with_max_entries(1, 0);
/// By CPU number: the sum of what found no room.
#[map]
static OTHER_PAIRS: Array<Pair> = Array::with_max_entries(1, BPF_F_MMAPABLE);
#[map]
static OTHER_TRACES: Array<Trace> = Array::with_max_entries(1, BPF_F_MMAPABLE);
/// Never written: what a new pair begins with, too large for a program's stack.
#[map]
static BLANK_PAIR: Array<Pair> = Array::with_max_entries(1, 0);
#[map]
static BLANK_TRACE: Array<Trace> = Array::with_max_entries(1, 0);
/// What the program of sched_switch goes on in: that of its pairs.
#[map]
pub static AFTER_SWITCH: ProgramArray = ProgramArray::with_max_entries(1, 0);
#[map]
static TARGETS: HashMap<u32, u32> = HashMap::with_max_entries(1, 0);
#[map]
static GLOB: Array<Glob> = Array::with_max_entries(1, 0);
#[map]
static CGROUP: CgroupArray = CgroupArray::with_max_entries(1, 0);

/// `BPF_RB_AVAIL_DATA` (include/uapi/linux/bpf.h).
const RB_AVAIL_DATA: u64 = 0;

/// Our clock, ns.
#[inline(always)]
pub fn now_ns() -> u64 {
    // SAFETY: a helper without arguments.
    unsafe { bpf_ktime_get_ns() }
}

/// This CPU's number.
#[inline(always)]
pub fn cpu_id() -> u32 {
    // SAFETY: a helper without arguments.
    unsafe { bpf_get_smp_processor_id() }
}

/// The state of this CPU, with its run counted.
#[inline(always)]
pub fn enter(hook: usize) -> Option<&'static mut Cpu> {
    let cpu = cpu(cpu_id())?;
    cpu.runs.0[hook] += 1;
    Some(cpu)
}

/// The state of a CPU.
#[inline(always)]
pub fn cpu(id: u32) -> Option<&'static mut Cpu> {
    // SAFETY: the map outlives the program. Each CPU writes its own entry with interrupts off or from one
    // context at a time (each hook runs to its end on its CPU); others write only `request`, a flag, and
    // `offset` under that run queue's lock.
    CPUS.get_ptr_mut(id).map(|cpu| unsafe { &mut *cpu })
}

/// The account in a slot; `None` for [`NO_SLOT`].
#[inline(always)]
pub fn task(slot: u32) -> Option<&'static mut Task> {
    if slot == NO_SLOT {
        return None;
    }
    // SAFETY: the map outlives the program; the account is written by the CPU that its task runs on, and by
    // wakers under the task's own lock.
    TASKS.get_ptr_mut(slot).map(|task| unsafe { &mut *task })
}

/// The account of the observed task that owns this CPU.
#[inline(always)]
pub fn owner(cpu: &Cpu) -> Option<&'static mut Task> {
    task(cpu.slot)
}

/// The slot of a task; [`NO_SLOT`] if it is not observed. pid 0 is idle, one per CPU, and has no slot.
#[inline(always)]
pub fn slot_of(tid: u32) -> u32 {
    SLOTS.get(tid).copied().unwrap_or(NO_SLOT)
}

/// Binds a tid to a slot.
#[inline(always)]
pub fn bind(tid: u32, slot: u32) -> bool {
    match SLOTS.get_ptr_mut(tid) {
        Some(entry) => {
            // SAFETY: an aligned u32 of a map that outlives the program.
            unsafe { entry.write_volatile(slot) };
            true
        }
        None => false,
    }
}

/// Unbinds a tid if it is bound to this slot.
#[inline(always)]
pub fn unbind(tid: u32, slot: u32) {
    if slot_of(tid) == slot {
        bind(tid, NO_SLOT);
    }
}

/// Takes a free slot.
#[inline(always)]
pub fn take_slot(cpu: &mut Cpu) -> Option<u32> {
    match FREE.pop() {
        Ok(Some(slot)) if slot != NO_SLOT => Some(slot),
        _ => {
            cpu.map_full += 1;
            None
        }
    }
}

/// Puts a slot back that was not used.
#[inline(always)]
pub fn return_slot(slot: u32) {
    // It cannot be full: it held this slot before.
    let _ = FREE.push(slot, 0);
}

/// Hands a final account to the reader. If the ring is full the reader's sweep finds it by its state.
#[inline(always)]
pub fn ended(cpu: &mut Cpu, task: &mut Task, slot: u32) {
    unbind(task.tid, slot);
    task.state = state::EXITED;
    let flags = if ENDED.query(RB_AVAIL_DATA) < RING_WAKE_BYTES {
        BPF_RB_NO_WAKEUP
    } else {
        BPF_RB_FORCE_WAKEUP
    };
    // The slot may be used again before the record is read: half of the opening time tells which account it is.
    let record = u64::from(slot) | task.opened_ns << 32;
    if ENDED.output::<u64>(record, u64::from(flags)).is_err() {
        cpu.ring_full += 1;
    }
}

/// What the session asked for by this id: see [`observer_common::names::target`].
#[inline(always)]
pub fn target(id: u32) -> u32 {
    // SAFETY: the value is copied at once; the map is written only while nothing is being looked for.
    unsafe { TARGETS.get(id) }.copied().unwrap_or(0)
}

/// The compiled name pattern.
#[inline(always)]
pub fn glob() -> Option<&'static Glob> {
    GLOB.get(0)
}

/// The current task lies below the session's cgroup.
#[inline(always)]
pub fn current_in_cgroup() -> bool {
    matches!(CGROUP.current_task_under_cgroup(0), Ok(true))
}

macro_rules! ledger {
    ($(#[$doc:meta])* $name:ident, $map:ident, $other:ident, $blank:ident, $value:ty) => {
        $(#[$doc])*
        #[inline(always)]
        pub fn $name(cpu: &mut Cpu, key: &PairKey) -> Option<(&'static mut $value, bool)> {
            if let Some(entry) = $map.get_ptr_mut(key) {
                // SAFETY: a value of a preallocated map, which outlives the program. It has one writer at a
                // time: see `observer_common::pair`.
                return Some((unsafe { &mut *entry }, false));
            }
            let added = match $blank.get(0) {
                Some(blank) => $map.insert(key, blank, u64::from(BPF_ANY)).is_ok(),
                None => false,
            };
            if added && let Some(entry) = $map.get_ptr_mut(key) {
                // SAFETY: as above.
                return Some((unsafe { &mut *entry }, true));
            }
            cpu.pairs_folded += 1;
            // SAFETY: as above; each CPU writes its own.
            $other.get_ptr_mut(cpu_id()).map(|entry| (unsafe { &mut *entry }, false))
        }
    };
}

ledger!(
    /// The books of a pair, and whether they are new. What finds no room goes to this CPU's sum of the rest.
    pair, PAIRS, OTHER_PAIRS, BLANK_PAIR, Pair
);
ledger!(
    /// The same of a tracer and its tracee.
    trace, TRACES, OTHER_TRACES, BLANK_TRACE, Trace
);

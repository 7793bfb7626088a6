//! The PMU's counters of this CPU, where there are any: else nothing here is left after the verifier.

use core::ptr;

use aya_ebpf::{
    bindings::{BPF_F_CURRENT_CPU, bpf_perf_event_value},
    helpers::bpf_perf_event_read_value,
    macros::map,
    maps::PerfEventArray,
};
use observer_common::{
    cpu::Cpu,
    cycles::{SYSTEM, Sample, USER},
    pair::Pair,
    task::Task,
};

use crate::{kernel::config, maps};

/// By CPU number; the loader puts the counters in, and sets the size to the number of possible CPUs.
#[map]
static CYCLES_USER: PerfEventArray<u64> = PerfEventArray::new(0);
#[map]
static CYCLES_SYSTEM: PerfEventArray<u64> = PerfEventArray::new(0);

/// Reads this CPU's counter; false if there is none, or it does not count now.
#[inline(always)]
fn read(counters: &PerfEventArray<u64>, sample: &mut Sample) -> bool {
    // SAFETY: the helper takes the map and fills `sample`, which has the layout and the size of what it writes; the
    // wrapper of the map is transparent.
    let result = unsafe {
        bpf_perf_event_read_value(
            ptr::from_ref(counters).cast_mut().cast(),
            BPF_F_CURRENT_CPU,
            ptr::from_mut(sample).cast::<bpf_perf_event_value>(),
            size_of::<Sample>() as u32,
        )
    };
    result == 0
}

/// The run of this CPU's owner ends here and another begins, perhaps of the same: both sides of a switch, and a reader's
/// look. Before the owner changes.
#[inline(always)]
pub fn turn(cpu: &mut Cpu) {
    if config!(cycles) == 0 {
        return;
    }
    let meter = &mut cpu.meter;
    let is_read =
        read(&CYCLES_USER, &mut meter.now[USER]) & read(&CYCLES_SYSTEM, &mut meter.now[SYSTEM]);
    meter.turn(maps::task(cpu.slot), is_read);
}

/// A wakeup begins that somebody wants to know the cost of.
#[inline(always)]
pub fn wakeup_begins(cpu: &mut Cpu) {
    if config!(cycles) & config!(pairs) == 0 {
        return;
    }
    let is_read = read(&CYCLES_SYSTEM, &mut cpu.meter.now[SYSTEM]);
    cpu.meter.wakeup_begins(is_read);
}

/// It ends: its cycles, 0 if they are not known.
#[inline(always)]
pub fn wakeup_ends(cpu: &mut Cpu) -> u64 {
    if config!(cycles) & config!(pairs) == 0 {
        return 0;
    }
    let is_read = read(&CYCLES_SYSTEM, &mut cpu.meter.now[SYSTEM]);
    cpu.meter.wakeup_ends(is_read)
}

/// Books the cycles of the wakeup that `wakee` answers.
#[inline(always)]
pub fn answered(pair: &mut Pair, wakee: &mut Task) {
    if config!(cycles) != 0 {
        pair.cost_cycles += wakee.wake_cycles;
        wakee.wake_cycles = 0;
    }
}

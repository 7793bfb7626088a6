//! `sched_switch`: one task stops, another runs, and the kernel closes its bill with the clock it has.
//!
//! The tracepoint fires after `__schedule` updated the run queue's clock (or skipped that), so the time from
//! that clock to now, the staleness W, is billed to the next task although the previous one used it.

use crate::{
    bill::{Bill, RQCF_ACT_SKIP, RunQueue},
    clock::JUMP_NS,
    cpu::{Cpu, NO_SLOT, owner},
    task::{Task, crossing, flag, mode, state},
};

/// `__TASK_STOPPED` (include/linux/sched.h): a job-control stop.
pub const TASK_STOPPED: u64 = 0x4;
/// `__TASK_TRACED`: a ptrace stop, in every version.
pub const TASK_TRACED: u64 = 0x8;
/// `TASK_DEAD`: the last switch of a task, after which it never runs again.
pub const TASK_DEAD: u64 = 0x80;

/// What the saved user registers say about a task that is in the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Place {
    /// They could not be read.
    #[default]
    Unknown,
    /// It came by an interrupt or an exception.
    Exception,
    /// It came by a syscall whose body has not begun or not ended (the result is still the preset one).
    Entry,
    /// It came by a syscall whose body has ended or set a result.
    Syscall,
}

/// The staleness of one switch, split by its cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shift {
    /// The clock update of this switch was skipped on request.
    pub skipped: bool,
    /// The part above the usual switch path; zero unless `skipped`.
    pub skip_ns: u64,
    /// The switch path: what an ordinary switch shifts too.
    pub path_ns: u64,
}

impl Shift {
    /// All of it.
    #[must_use]
    #[inline(always)]
    pub fn total_ns(&self) -> u64 {
        self.skip_ns + self.path_ns
    }
}

/// A switch, as far as both sides need it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Moment {
    /// Our clock at the entry of the hook.
    pub now_ns: u64,
    /// The CPU's number.
    pub cpu: u32,
    /// Interrupt and steal time that the run queue has left out so far.
    pub left_out_ns: u64,
    /// What this switch shifts from the previous to the next task.
    pub shift: Shift,
}

/// The task that stops.
#[derive(Clone, Copy, Debug, Default)]
pub struct Departure {
    /// It could have run on: preempted in the kernel, or still runnable.
    pub involuntary: bool,
    /// Its state, `TASK_*` bits.
    pub state: u64,
    /// Where it came into the kernel; only looked at if [`wants_place`] says so.
    pub place: Place,
    /// Its state says that it sleeps, yet a pending signal keeps it runnable (`signal_pending_state` in
    /// `__schedule`): no sleep and no stop.
    pub kept: bool,
    /// Its tracer's tid; 0 = none.
    pub tracer_tid: u32,
    /// The kernel's bill, closed a moment ago.
    pub bill: Bill,
}

/// The task that runs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Arrival {
    /// The slot of its account.
    pub slot: u32,
    /// Where it came into the kernel; only looked at when the account is new ([`flag::BASED`]).
    pub place: Place,
    /// The kernel's bill, not yet running again; likewise.
    pub bill: Bill,
}

/// What a switch leaves to the ledger of pairs, a program of its own that this one goes on in, where pairs are wanted.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Handover {
    /// Time of the switch.
    pub now_ns: u64,
    /// See [`Shift`].
    pub skip_ns: u64,
    /// See [`Shift`].
    pub path_ns: u64,
    /// Slots of both sides; [`NO_SLOT`] for one that is not observed.
    pub prev_slot: u32,
    /// See `prev_slot`.
    pub next_slot: u32,
    /// Why its clock update was skipped: see [`crate::pair::reason`].
    pub reason: u32,
    /// See [`handover`].
    pub flags: u32,
}

/// Bits of [`Handover::flags`].
pub mod handover {
    /// The clock update was skipped.
    pub const SKIPPED: u32 = 1 << 0;
    /// The previous task could have run on.
    pub const RUNNABLE: u32 = 1 << 1;
    /// The previous task begins a ptrace stop.
    pub const STOPS: u32 = 1 << 2;
    /// The next task was in a ptrace stop.
    pub const RESUMES: u32 = 1 << 3;
}

impl Handover {
    /// What the switch moved.
    #[must_use]
    #[inline(always)]
    pub fn shift(&self) -> Shift {
        Shift {
            skipped: self.flags & handover::SKIPPED != 0,
            skip_ns: self.skip_ns,
            path_ns: self.path_ns,
        }
    }
}

/// Notes who has the CPU after this switch; true if the one before it was missed, `prev` not being who had it.
#[inline(always)]
pub fn follow(cpu: &mut Cpu, prev: u64, next: u64) -> bool {
    let missed = cpu.current != 0 && cpu.current != prev;
    cpu.current = next;
    if missed {
        cpu.missed_switches += 1;
    }
    missed
}

/// Takes the CPU from its owner after a switch that was missed. Its time up to now stays with it: when in the
/// interval it left is not known. The next owner follows by [`arrive`] or [`pass`].
#[inline(always)]
pub fn dispossess(cpu: &mut Cpu, owner: Option<&mut Task>, now_ns: u64) {
    leave_interrupts(cpu);
    match owner {
        Some(task) => {
            task.begin();
            cpu.charge(now_ns, Some(task));
            task.base_mode = cpu.base_mode;
            task.end();
        }
        None => cpu.charge(now_ns, None),
    }
    own(cpu, owner::OTHER);
}

/// When a task got the CPU by a switch that was missed: `arrival_ns` is what the kernel noted by its run queue's clock
/// (`sched_info_arrive`, kernel/sched/stats.h), 0 = nothing. By our clock, and not before what is booked already;
/// without a note, now.
#[must_use]
#[inline(always)]
pub fn arrived_ns(cpu: &Cpu, arrival_ns: u64, now_ns: u64) -> u64 {
    let Some(offset_ns) = cpu.offset.get() else { return now_ns };
    if arrival_ns == 0 {
        return now_ns;
    }
    let noted_ns = (arrival_ns as i64).wrapping_add(offset_ns) as u64;
    // Unsigned, a note from before the clock's origin lies far above.
    let latest_ns = if noted_ns < now_ns { noted_ns } else { now_ns };
    if latest_ns > cpu.since_ns { latest_ns } else { cpu.since_ns }
}

/// Books the run of a task whose switch-in was missed, from `at` up to now, as it is switched out. What it did
/// meanwhile no hook could tell, so its mode is not known.
#[inline(always)]
pub fn arrive_late(cpu: &mut Cpu, task: &mut Task, at: &Moment, slot: u32, now_ns: u64) {
    // See `may_arrive_late`: there is no bill to open.
    task.begin();
    task.set(flag::BASED);
    run(cpu, task, at, slot);
    let mode = if task.has(flag::KERNEL) { mode::SYSTEM } else { mode::UNCLASSIFIED };
    task.begin();
    cpu.charge_as(now_ns, Some(task), mode);
    task.end();
}

/// True when the opening bill of an account is known, so that it may be closed later than it begins.
#[must_use]
#[inline(always)]
pub fn may_arrive_late(task: &Task) -> bool {
    task.flags & (flag::BASED | flag::BORN) != 0
}

/// Splits the staleness of the switch at `now_ns`; also learns the offset and the usual path from it.
///
/// `requested`: a skip request was seen and not consumed before this `__schedule`.
#[inline(always)]
pub fn shift(cpu: &mut Cpu, now_ns: u64, rq: &RunQueue, requested: bool) -> Shift {
    let skipped = requested || rq.update_flags & RQCF_ACT_SKIP != 0;
    let difference_ns = (now_ns as i64).wrapping_sub(rq.clock_ns as i64);
    if !skipped {
        cpu.offset.sample(now_ns, difference_ns);
    }
    let Some(offset_ns) = cpu.offset.get() else {
        return Shift::default();
    };
    let signed_ns = difference_ns.wrapping_sub(offset_ns);
    if signed_ns > JUMP_NS as i64 || signed_ns < -(JUMP_NS as i64) {
        cpu.offset.reset();
        cpu.clock_jumps += 1;
        return Shift::default();
    }
    let stale_ns = if signed_ns < 0 { 0 } else { signed_ns as u64 };
    compare(cpu, now_ns, stale_ns, skipped);
    cpu.switches += 1;
    if !skipped {
        cpu.path_ns = cpu.path_ns - cpu.path_ns / 8 + stale_ns / 8;
        return Shift { skipped, skip_ns: 0, path_ns: stale_ns };
    }
    cpu.skips += 1;
    let path_ns = if stale_ns < cpu.path_ns { stale_ns } else { cpu.path_ns };
    Shift { skipped, skip_ns: stale_ns - path_ns, path_ns }
}

/// True when the run queue's clock has not moved since the next task was put on it: the way to tell a skipped update
/// where no hook sees the request. `queued_ns` is what the kernel noted then (`sched_info_enqueue`, kernel/sched/stats.h,
/// by `rq_clock`), 0 = nothing.
///
/// A request is missed where something moved the clock after the wakeup that made it, another wakeup or the tick; and a task
/// that an idle CPU pulled within `__schedule` (`sched_balance_newidle`) looks like one. Neither changes what the switch
/// shifts, only whether it counts as skip or as path.
#[must_use]
#[inline(always)]
pub fn stood_still(rq: &RunQueue, queued_ns: u64) -> bool {
    queued_ns != 0 && rq.clock_ns == queued_ns
}

/// Forgets the void clock updates up to this switch.
#[inline(always)]
pub fn mark_clock(cpu: &mut Cpu) {
    cpu.clock_skipped_mark = cpu.clock_skipped;
}

/// Holds the staleness by the offset against the one by the stamp of the last effective clock update, where
/// there is one.
#[inline(always)]
fn compare(cpu: &mut Cpu, now_ns: u64, stale_ns: u64, skipped: bool) {
    if cpu.clock_updated_ns == 0 {
        return;
    }
    let stamped_ns = now_ns.saturating_sub(cpu.clock_updated_ns);
    let apart_ns = stamped_ns.abs_diff(stale_ns);
    cpu.compared += 1;
    if (cpu.clock_skipped != cpu.clock_skipped_mark) != skipped {
        cpu.disagreed += 1;
    }
    cpu.compared_apart_ns += apart_ns;
    if apart_ns > cpu.compared_max_ns {
        cpu.compared_max_ns = apart_ns;
    }
}

/// True when [`depart`] looks at the saved registers of a task: not in the middle of a syscall whose entry was seen,
/// which is where most tasks leave a CPU.
#[must_use]
#[inline(always)]
pub fn wants_place(cpu: &Cpu, task: &Task, traced: bool) -> bool {
    traced || cpu.base_mode != mode::SYSTEM as u32 || !task.has(flag::IN_SYSCALL)
}

/// Ends the run of an observed task. The CPU has no owner of its own until [`arrive`] or [`yield_to`].
#[inline(always)]
pub fn depart(cpu: &mut Cpu, task: &mut Task, at: &Moment, from: &Departure) {
    task.begin();
    leave_interrupts(cpu);
    let stays = from.involuntary || from.kept;
    let traced = !stays && from.state & TASK_TRACED != 0;
    let interval = departing_mode(cpu, task, from, traced);
    cpu.charge_as(at.now_ns, Some(task), interval);
    task.base_mode = next_mode(cpu, task, from, traced) as u32;
    if traced {
        task.ptrace_stops += 1;
        task.stopped_since_ns = at.now_ns;
        task.set(flag::STOPPED);
        task.stop.forget();
        task.tracer_tid = from.tracer_tid;
    } else if !stays && from.state & TASK_STOPPED != 0 {
        task.job_stops += 1;
        task.job_stopped_since_ns = at.now_ns;
    }
    if !from.involuntary && !task.has(flag::STOP_TIMED) {
        task.clear(flag::STOP_SEEN);
    }
    settle(task, at, &from.bill);
    shift_out(task, &at.shift);
    if from.involuntary {
        task.switches_involuntary += 1;
    } else {
        task.switches_voluntary += 1;
    }
    task.wait_since_ns = if stays { at.now_ns } else { 0 };
    if from.state & TASK_DEAD != 0 {
        task.state = state::EXITED;
    }
    task.end();
    cpu.slot = NO_SLOT;
}

/// Ends the run of idle or of an unobserved task, where an observed one is the other side.
#[inline(always)]
pub fn depart_unobserved(cpu: &mut Cpu, at: &Moment) {
    leave_interrupts(cpu);
    cpu.charge(at.now_ns, None);
    let kind = (cpu.owner & 1) as usize;
    cpu.shift_ns[kind] -= at.shift.total_ns() as i64;
}

/// Begins the run of an observed task.
#[inline(always)]
pub fn arrive(cpu: &mut Cpu, task: &mut Task, at: &Moment, to: &Arrival) {
    task.begin();
    base(task, &to.bill, to.place);
    run(cpu, task, at, to.slot);
}

/// The rest of an arrival, of a task whose bill is open; it ends the writing that its caller began.
#[inline(always)]
fn run(cpu: &mut Cpu, task: &mut Task, at: &Moment, slot: u32) {
    if task.wait_since_ns != 0 {
        task.wait_ns += at.now_ns.saturating_sub(task.wait_since_ns);
        task.waits += 1;
        task.wait_since_ns = 0;
    }
    if task.cpu != at.cpu {
        if task.cpu != u32::MAX {
            task.migrations += 1;
        }
        task.cpu = at.cpu;
    }
    let kind = if task.has(flag::STOPPED) { crossing::STOP } else { crossing::PREEMPTION };
    if task.base_mode == mode::USER as u32 && task.updated_ns != 0 {
        task.cross(kind);
    }
    end_stop(task, at.now_ns);
    task.clear(flag::STOPPED);
    task.left_out_mark_ns = at.left_out_ns;
    if at.shift.skipped {
        task.skip_in += 1;
        task.skip_in_ns += at.shift.skip_ns;
    }
    task.path_in_ns += at.shift.path_ns;
    task.updated_ns = at.now_ns;
    task.end();
    cpu.slot = slot;
    cpu.owner = owner::TASK as u32;
    cpu.base_mode = task.base_mode;
}

/// Gives the CPU to idle or to an unobserved task (`kind`, see [`owner`]), after an observed one.
#[inline(always)]
pub fn yield_to(cpu: &mut Cpu, kind: usize, at: &Moment) {
    cpu.shift_ns[kind & 1] += at.shift.total_ns() as i64;
    own(cpu, kind);
}

/// Between idle and unobserved tasks: only the owner's kind changes.
#[inline(always)]
pub fn pass(cpu: &mut Cpu, kind: usize, now_ns: u64) {
    leave_interrupts(cpu);
    cpu.charge(now_ns, None);
    own(cpu, kind);
}

/// Idle (or the rest) owns the CPU from here on.
#[inline(always)]
fn own(cpu: &mut Cpu, kind: usize) {
    cpu.slot = NO_SLOT;
    cpu.owner = kind as u32;
    cpu.base_mode = mode::SYSTEM as u32;
}

/// Books the kernel's bill at a moment when it cannot be changing, and what it left out since the last one.
#[inline(always)]
pub(crate) fn settle(task: &mut Task, at: &Moment, bill: &Bill) {
    task.bill = *bill;
    task.left_out_ns += at.left_out_ns.saturating_sub(task.left_out_mark_ns);
    task.left_out_mark_ns = at.left_out_ns;
}

/// Opens the bill of a new account, at the first moment at which it cannot be changing.
#[inline(always)]
pub(crate) fn base(task: &mut Task, bill: &Bill, place: Place) {
    if task.has(flag::BASED) {
        return;
    }
    task.set(flag::BASED);
    if task.has(flag::BORN) {
        return;
    }
    task.bill_begin = *bill;
    task.bill = *bill;
    task.base_mode = match place {
        _ if task.has(flag::KERNEL) => mode::SYSTEM,
        Place::Entry | Place::Syscall => mode::SYSTEM,
        Place::Exception | Place::Unknown => mode::USER,
    } as u32;
}

/// Closes the stop that is open, if any.
#[inline(always)]
pub fn end_stop(task: &mut Task, now_ns: u64) {
    if task.stopped_since_ns != 0 {
        task.stop.length_ns = now_ns.saturating_sub(task.stopped_since_ns);
        task.stop.resumed_ns = now_ns;
        task.stopped_ns += task.stop.length_ns;
        task.stopped_since_ns = 0;
    }
    if task.job_stopped_since_ns != 0 {
        task.job_stopped_ns += now_ns.saturating_sub(task.job_stopped_since_ns);
        task.job_stopped_since_ns = 0;
    }
}

/// An interrupt cannot last over a switch: an exit was lost.
#[inline(always)]
pub(crate) fn leave_interrupts(cpu: &mut Cpu) {
    if cpu.in_interrupt() {
        cpu.unmatched += 1;
        cpu.hardirq = 0;
        cpu.softirq = 0;
    }
}

/// The mode of the interval that a switch-out closes, and the crossing that goes with it.
#[inline(always)]
fn departing_mode(cpu: &Cpu, task: &mut Task, from: &Departure, traced: bool) -> usize {
    let base_mode = cpu.mode();
    if base_mode == mode::UNCLASSIFIED && !from.involuntary {
        // It sleeps in the fault that began the interval.
        return mode::SYSTEM;
    }
    if base_mode != mode::USER {
        return base_mode;
    }
    match from.place {
        // No hook since sys_exit, yet the registers still hold that syscall: no user instruction ran since.
        Place::Syscall => mode::SYSTEM,
        // User code, then a syscall that stopped before sys_enter.
        Place::Entry => {
            task.cross(if traced { crossing::STOP } else { crossing::SYSCALL });
            mode::USER
        }
        Place::Exception | Place::Unknown => {
            task.cross(if traced { crossing::STOP } else { crossing::PREEMPTION });
            mode::USER
        }
    }
}

/// The mode in which the task goes on when it is switched in again.
#[inline(always)]
fn next_mode(cpu: &Cpu, task: &mut Task, from: &Departure, traced: bool) -> usize {
    let base_mode = (cpu.base_mode & 7) as usize;
    if task.has(flag::KERNEL) {
        return mode::SYSTEM;
    }
    if traced {
        let inside = if task.has(flag::STOP_SEEN) {
            task.has(flag::STOP_INSIDE)
        } else {
            stops_inside(base_mode, from.place)
        };
        return if inside { mode::SYSTEM } else { mode::USER };
    }
    match (base_mode, from.place) {
        // On its way into a syscall: sys_enter is still to come.
        (mode::USER, Place::Entry) => mode::SYSTEM,
        (mode::SYSTEM, Place::Exception)
            if task.flags & (flag::IN_SYSCALL | flag::EXITING | flag::STOP_SEEN) == 0 =>
        {
            mode::USER
        }
        _ => base_mode,
    }
}

/// True when a stop leads back into the kernel: in the middle of a syscall, or before its body.
#[must_use]
#[inline(always)]
pub(crate) fn stops_inside(base_mode: usize, place: Place) -> bool {
    base_mode == mode::SYSTEM || place == Place::Entry
}

#[inline(always)]
fn shift_out(task: &mut Task, shift: &Shift) {
    if shift.skipped {
        task.skip_out += 1;
        task.skip_out_ns += shift.skip_ns;
    }
    task.path_out_ns += shift.path_ns;
}

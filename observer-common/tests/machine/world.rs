//! Threads, CPUs and slots, with the hooks of observer-ebpf between them and the machine.

use std::collections::BTreeMap;

use observer_common::{
    bill::{Bill, RQCF_ACT_SKIP, RQCF_REQ_SKIP, RunQueue},
    cpu::{Cpu, NO_SLOT, owner},
    fault, irq,
    lifecycle::{self, Identity, PF_KTHREAD},
    pair::Wake,
    switch::{self, Arrival, Departure, Moment, Place, TASK_DEAD, TASK_TRACED},
    syscall,
    task::{Task, flag, mode, state},
    wakeup::{self, Waker},
};

/// Slots for observed tasks; slot 0 is nobody's.
pub const SLOTS: usize = 9;
/// Threads that exist at a time.
pub const THREADS: usize = 11;
/// Fewer ids than incarnations, so that they come back.
const TIDS: u32 = 12;

/// What happens, before it is known to whom.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    Switch,
    Waking,
    Wakeup,
    SysEnter,
    SysExit,
    Fault,
    FaultEnd,
    HardEnter,
    HardExit,
    SoftEnter,
    SoftExit,
    Fork,
    Exec,
    ProcessExit,
    Free,
    Read,
}

/// One event. `who` and `bits` choose what the kind leaves open.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    pub kind: Kind,
    pub cpu: u8,
    pub who: u8,
    pub bits: u64,
    /// Our clock since the event before; it may run backwards.
    pub step_ns: i64,
    /// The hook does not see it.
    pub lost: bool,
}

/// A thread of the kernel, observed or not.
#[derive(Clone, Copy, Debug, Default)]
struct Thread {
    address: u64,
    tid: u32,
    kernel: bool,
    wanted: bool,
    cpu: Option<usize>,
}

/// Everything.
pub struct World {
    pub cpus: Vec<Cpu>,
    pub accounts: [Task; SLOTS],
    /// Incarnation of each slot.
    pub incarnation: [u64; SLOTS],
    /// Time of accounts that were closed and whose slot has a new tenant.
    pub retired_ns: u64,
    threads: [Thread; THREADS],
    current: Vec<Option<usize>>,
    bound: BTreeMap<u32, u32>,
    free: Vec<u32>,
    addresses: u64,
    now_ns: u64,
}

fn place(bits: u64) -> Place {
    match bits & 3 {
        0 => Place::Unknown,
        1 => Place::Exception,
        2 => Place::Entry,
        _ => Place::Syscall,
    }
}

/// The states of a thread that leaves the CPU: runnable, asleep, job-control stop, ptrace stop, parked, dead.
fn task_state(bits: u64) -> u64 {
    match (bits >> 2) & 31 {
        0..8 => 0,
        8..16 => 1,
        16..19 => 2,
        19..21 => 4,
        21..30 => TASK_TRACED,
        30 => 0x40,
        _ => TASK_DEAD,
    }
}

fn bill(bits: u64) -> Bill {
    let ns = bits >> 8;
    Bill {
        runtime_ns: ns,
        utime_ns: ns / 2,
        stime_ns: ns / 3,
        prev_utime_ns: 0,
        prev_stime_ns: bits,
    }
}

impl World {
    /// `cpus` idle CPUs; even threads are to be observed. Nothing was seen yet.
    pub fn new(cpus: usize) -> Self {
        let mut world = Self {
            cpus: vec![Cpu::default(); cpus],
            accounts: [Task::default(); SLOTS],
            incarnation: [0; SLOTS],
            retired_ns: 0,
            threads: [Thread::default(); THREADS],
            current: vec![None; cpus],
            bound: BTreeMap::new(),
            free: (1..SLOTS as u32).rev().collect(),
            addresses: 0,
            now_ns: 1_000_000_000,
        };
        for index in 0..THREADS {
            world.begin_thread(index, index % 7 == 3, index % 4 != 1);
            let thread = world.threads[index];
            if let Some(slot) = thread.wanted.then(|| world.open(&thread, 0)).flatten() {
                lifecycle::found(&mut world.accounts[slot as usize], &bill(index as u64));
            }
        }
        // Threads that run already, for the reader to find.
        for cpu in 0..cpus {
            world.current[cpu] = Some(cpu * 2);
            world.threads[cpu * 2].cpu = Some(cpu);
        }
        world
    }

    fn begin_thread(&mut self, index: usize, kernel: bool, wanted: bool) {
        self.addresses += 1;
        let taken =
            |tid| self.threads.iter().any(|thread| thread.address != 0 && thread.tid == tid);
        let tid = (0..TIDS).map(|n| 1 + (n + index as u32) % TIDS).find(|tid| !taken(*tid));
        assert!(tid.is_some(), "more ids than threads");
        let tid = tid.unwrap_or_default();
        self.threads[index] = Thread { address: self.addresses, tid, kernel, wanted, cpu: None };
    }

    fn slot_of(&self, tid: u32) -> u32 {
        self.bound.get(&tid).copied().unwrap_or(NO_SLOT)
    }

    fn open(&mut self, thread: &Thread, extra: u32) -> Option<u32> {
        let slot = self.free.pop()?;
        let account = &mut self.accounts[slot as usize];
        self.retired_ns += account.mode_ns.iter().sum::<u64>();
        self.incarnation[slot as usize] += 1;
        let who = Identity {
            address: thread.address,
            start_ns: thread.address,
            tid: thread.tid,
            tgid: thread.tid,
            parent_tgid: 1,
            flags: if thread.kernel { PF_KTHREAD } else { 0 },
        };
        lifecycle::open(account, &who, extra, self.now_ns);
        self.bound.insert(thread.tid, slot);
        Some(slot)
    }

    /// The hand-over to the reader, who takes the account at once.
    fn ended(&mut self, slot: u32) {
        let account = &mut self.accounts[slot as usize];
        account.state = state::EXITED;
        let tid = account.tid;
        if self.slot_of(tid) == slot {
            self.bound.remove(&tid);
        }
        self.free.push(slot);
    }

    /// The kernel does `event`; the machine hears of it unless it is lost.
    pub fn step(&mut self, event: &Event) {
        self.now_ns = self.now_ns.saturating_add_signed(event.step_ns).max(1);
        let cpu = usize::from(event.cpu) % self.cpus.len();
        match event.kind {
            Kind::Switch => self.switch(cpu, event),
            Kind::Waking => self.waking(cpu, event),
            Kind::Wakeup => self.wakeup(cpu, event),
            Kind::Fork => self.fork(cpu, event),
            Kind::Exec => self.exec(cpu, event),
            Kind::Free if event.bits & 7 == 0 && !event.lost => {
                self.free(usize::from(event.who) % THREADS);
            }
            Kind::Free => {}
            _ if event.lost => {}
            Kind::SysEnter => {
                self.of_owner(cpu, |cpu, task, now_ns| syscall::enter(cpu, task, now_ns, 0))
            }
            Kind::SysExit => self.of_owner(cpu, syscall::exit),
            Kind::Fault => self.of_owner(cpu, fault::begin),
            Kind::FaultEnd => self.of_owner(cpu, fault::end),
            Kind::ProcessExit => self.of_owner(cpu, |_, task, _| task.set(flag::EXITING)),
            Kind::HardEnter => {
                self.interrupt(cpu, |cpu, task, now_ns| irq::hard_enter(cpu, task, now_ns, 0))
            }
            Kind::HardExit => self.interrupt(cpu, irq::hard_exit),
            Kind::SoftEnter => {
                self.interrupt(cpu, |cpu, task, now_ns| irq::soft_enter(cpu, task, now_ns, 0))
            }
            Kind::SoftExit => self.interrupt(cpu, irq::soft_exit),
            Kind::Read => self.read(cpu, event),
        }
    }

    fn of_owner(&mut self, cpu: usize, hook: impl FnOnce(&mut Cpu, &mut Task, u64)) {
        let cpu = &mut self.cpus[cpu];
        if cpu.slot != NO_SLOT {
            hook(cpu, &mut self.accounts[cpu.slot as usize], self.now_ns);
        }
    }

    fn interrupt(&mut self, cpu: usize, hook: impl FnOnce(&mut Cpu, Option<&mut Task>, u64)) {
        let cpu = &mut self.cpus[cpu];
        let slot = cpu.slot as usize;
        let task = (cpu.slot != NO_SLOT).then(|| &mut self.accounts[slot]);
        hook(cpu, task, self.now_ns);
    }

    /// A run queue whose clock is stale by up to 65 us, by more, or has jumped.
    fn clocks(&self, bits: u64) -> RunQueue {
        let stale_ns = match bits % 64 {
            0 => bits >> 20,
            1..8 => (bits >> 20) % 5_000_000,
            _ => (bits >> 20) % 65_536,
        };
        let clock_ns = self.now_ns.wrapping_add(777_777).wrapping_sub(stale_ns);
        let left_out_ns = (bits >> 40) % 1_000;
        let flags = [0, 0, RQCF_REQ_SKIP, RQCF_ACT_SKIP][(bits >> 8) as usize & 3];
        RunQueue {
            clock_ns,
            clock_task_ns: clock_ns.wrapping_sub(left_out_ns),
            update_flags: flags,
        }
    }

    fn switch(&mut self, cpu: usize, event: &Event) {
        let prev = self.current[cpu];
        let next = Some(usize::from(event.who) % (THREADS + 2)).filter(|next| *next < THREADS);
        let next = next.filter(|next| self.threads[*next].cpu.is_none());
        let prev_state = task_state(event.bits);
        if let Some(prev) = prev {
            self.threads[prev].cpu = None;
        }
        self.current[cpu] = next;
        if let Some(next) = next {
            self.threads[next].cpu = Some(cpu);
        }
        let prev_thread = prev.map(|prev| self.threads[prev]);
        let next_thread = next.map(|next| self.threads[next]);
        if !event.lost {
            self.switched(cpu, event, prev_thread, next_thread, prev_state);
        }
        if let Some(prev) = prev.filter(|_| prev_state & TASK_DEAD != 0) {
            // Reaped and replaced: a new thread with the next free id.
            self.threads[prev].address = 0;
            let thread = self.threads[prev];
            self.begin_thread(prev, thread.kernel, false);
        }
    }

    /// `hooks/switch.rs`: `switched`.
    fn switched(
        &mut self,
        cpu_index: usize,
        event: &Event,
        prev: Option<Thread>,
        next: Option<Thread>,
        prev_state: u64,
    ) {
        let next_slot = next.map_or(NO_SLOT, |thread| self.slot_of(thread.tid));
        let next_kind = if next.is_some() { owner::OTHER } else { owner::IDLE };
        let clocks = self.clocks(event.bits);
        let cpu = &mut self.cpus[cpu_index];
        let requested = cpu.request;
        cpu.request = 0;
        let prev_slot = cpu.slot;
        if prev_slot | next_slot == NO_SLOT {
            if cpu.owner != next_kind as u32 || cpu.since_ns == 0 {
                switch::pass(cpu, next_kind, self.now_ns);
            }
            return;
        }
        let mut at = Moment { now_ns: self.now_ns, cpu: cpu_index as u32, ..Moment::default() };
        if event.bits >> 60 != 0 {
            at.left_out_ns = clocks.left_out_ns();
            at.shift = switch::shift(cpu, self.now_ns, &clocks, requested != 0);
        }
        if prev_slot == NO_SLOT {
            switch::depart_unobserved(cpu, &at);
        } else {
            let account = &mut self.accounts[prev_slot as usize];
            let from = Departure {
                involuntary: event.bits >> 16 & 3 == 0 || prev_state == 0,
                state: prev_state,
                place: place(event.bits),
                tracer_tid: (event.bits >> 18) as u32 & 3,
                kept: event.bits >> 21 & 15 == 0,
                bill: bill(event.bits),
            };
            switch::depart(cpu, account, &at, &from);
            if prev_state & TASK_DEAD != 0 {
                self.ended(prev_slot);
            } else if let Some(prev) = prev.filter(|prev| prev.tid != account.tid) {
                let former = std::mem::replace(&mut account.tid, prev.tid);
                account.former_tid = former;
                self.bound.remove(&former);
                self.bound.insert(prev.tid, prev_slot);
            }
        }
        self.arrive(cpu_index, event, next, next_slot, next_kind, &at);
    }

    fn arrive(
        &mut self,
        cpu: usize,
        event: &Event,
        next: Option<Thread>,
        next_slot: u32,
        next_kind: usize,
        at: &Moment,
    ) {
        let cpu = &mut self.cpus[cpu];
        let account = &mut self.accounts[next_slot as usize];
        if next_slot == NO_SLOT {
            switch::yield_to(cpu, next_kind, at);
        } else if next.is_none_or(|next| next.address != account.address) {
            cpu.stale_slots += 1;
            switch::yield_to(cpu, owner::OTHER, at);
        } else {
            let place = place(event.bits >> 24);
            let to = Arrival { slot: next_slot, place, bill: bill(event.bits >> 4) };
            switch::arrive(cpu, account, at, &to);
        }
    }

    fn waking(&mut self, cpu: usize, event: &Event) {
        let wakee_tid = self.threads[usize::from(event.who) % THREADS].tid;
        let wakee_slot = self.slot_of(wakee_tid);
        let cpu = &mut self.cpus[cpu];
        if event.lost || cpu.slot | wakee_slot == NO_SLOT {
            return;
        }
        if cpu.slot != NO_SLOT {
            let waker = &mut self.accounts[cpu.slot as usize];
            let seen = if wakeup::wants_evidence(cpu) {
                Waker { state: task_state(event.bits), place: place(event.bits) }
            } else {
                Waker::default()
            };
            wakeup::waking(cpu, waker, self.now_ns, &seen);
        }
        if wakee_slot != NO_SLOT {
            wakeup::woken(&mut self.accounts[wakee_slot as usize], &Wake::at(self.now_ns));
        }
    }

    fn wakeup(&mut self, cpu: usize, event: &Event) {
        let wakee_tid = self.threads[usize::from(event.who) % THREADS].tid;
        let wakee_slot = self.slot_of(wakee_tid);
        let clocks = self.clocks(event.bits);
        let target = &mut self.cpus[cpu];
        if event.lost || target.slot | wakee_slot == NO_SLOT {
            return;
        }
        if wakee_slot != NO_SLOT {
            wakeup::enqueued(&mut self.accounts[wakee_slot as usize], self.now_ns);
        }
        wakeup::requested(target, self.now_ns, &clocks);
    }

    /// A thread that does not run is freed and replaced by a child of the current one.
    fn fork(&mut self, cpu: usize, event: &Event) {
        let index = usize::from(event.who) % THREADS;
        if self.threads[index].cpu.is_some() {
            return;
        }
        if !event.lost {
            self.free(index);
        }
        self.threads[index].address = 0;
        self.begin_thread(index, event.bits & 7 == 0, true);
        // Followed from its parent, or wanted by a rule.
        let wanted = self.cpus[cpu].slot != NO_SLOT || event.bits & 16 != 0;
        if event.lost || !wanted {
            return;
        }
        let child = self.threads[index];
        if let Some(slot) = self.open(&child, flag::BORN | flag::FOLLOW) {
            if event.bits & 8 != 0 {
                self.accounts[slot as usize].base_mode = mode::USER as u32;
            }
        } else {
            self.cpus[cpu].map_full += 1;
        }
    }

    /// The current thread execs; with some luck it was not the leader.
    fn exec(&mut self, cpu: usize, event: &Event) {
        let slot = self.cpus[cpu].slot;
        let Some(current) = self.current[cpu] else {
            return;
        };
        if event.lost || slot == NO_SLOT {
            return;
        }
        let former_tid = self.threads[current].tid;
        let leader = usize::from(event.who) % THREADS;
        if self.threads[leader].cpu.is_none() {
            self.threads[current].tid = self.threads[leader].tid;
            self.threads[leader].tid = former_tid;
        }
        let thread = self.threads[current];
        let account = &mut self.accounts[slot as usize];
        let who = Identity {
            address: thread.address,
            start_ns: thread.address,
            tid: thread.tid,
            tgid: thread.tid,
            parent_tgid: 1,
            flags: 0,
        };
        self.bound.remove(&former_tid);
        self.bound.remove(&account.tid);
        self.bound.insert(who.tid, slot);
        lifecycle::exec(account, &who, former_tid);
    }

    /// `hooks/lifecycle.rs`: `process_free`. The account is still open only if the last switch was lost.
    fn free(&mut self, index: usize) {
        let thread = self.threads[index];
        let slot = self.slot_of(thread.tid);
        let account = &self.accounts[slot as usize];
        let ours = account.address == thread.address && account.state == state::LIVE;
        if slot != NO_SLOT && ours && thread.cpu.is_none() {
            self.ended(slot);
        }
    }

    /// `hooks/read.rs`: `read_cpu`.
    fn read(&mut self, cpu_index: usize, event: &Event) {
        let left_out_ns = self.clocks(event.bits).left_out_ns();
        let at =
            Moment { now_ns: self.now_ns, cpu: cpu_index as u32, left_out_ns, ..Moment::default() };
        let current = self.current[cpu_index].map(|index| self.threads[index]);
        let slot = current.map_or(NO_SLOT, |thread| self.slot_of(thread.tid));
        let cpu = &mut self.cpus[cpu_index];
        let bill = bill(event.bits);
        if cpu.slot != NO_SLOT {
            lifecycle::read(cpu, &mut self.accounts[cpu.slot as usize], &at, &bill);
            return;
        }
        let account = &mut self.accounts[slot as usize];
        match current {
            Some(thread) if slot != NO_SLOT && account.address == thread.address => {
                lifecycle::adopt(cpu, account, slot, &at, &bill, place(event.bits));
            }
            _ => {
                if cpu.since_ns == 0 {
                    cpu.owner = if current.is_none() { owner::IDLE } else { owner::OTHER } as u32;
                    cpu.base_mode = mode::SYSTEM as u32;
                }
                cpu.charge(at.now_ns, None);
            }
        }
    }
}

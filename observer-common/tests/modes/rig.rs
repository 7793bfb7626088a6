//! Two CPUs and their accounts, driven in the order in which the hooks call the machine.

use observer_common::{
    bill::Bill,
    cpu::{Cpu, NO_SLOT, owner},
    fault, irq,
    lifecycle::{self, Identity},
    pair::Wake,
    ptrace,
    switch::{self, Arrival, Departure, Moment, Place, Shift, TASK_DEAD, TASK_TRACED},
    syscall,
    task::{Task, flag, mode, state},
    wakeup::{self, Waker},
};

/// `TASK_INTERRUPTIBLE` (include/linux/sched.h).
pub const TASK_INTERRUPTIBLE: u64 = 0x1;
/// The tid of the tracer in all stops.
pub const TRACER: u32 = 7;
/// The first event of each CPU.
pub const START_NS: u64 = 1_000_000;
/// How many tasks a rig can hold.
const SLOTS: usize = 8;

/// Nothing in any mode, or no crossing of any kind.
pub const NONE: [u64; 5] = [0; 5];

/// `[user, system, 0, 0, 0]`.
pub fn split(user_ns: u64, system_ns: u64) -> [u64; mode::COUNT] {
    [user_ns, system_ns, 0, 0, 0]
}

/// Who runs next.
#[derive(Clone, Copy, Debug)]
pub enum Next {
    Idle,
    Other,
    Task(u32),
}

/// How the running task leaves its CPU.
#[derive(Clone, Copy, Debug)]
pub struct Out {
    pub preempt: bool,
    pub state: u64,
    pub place: Place,
}

impl Out {
    /// It waits for something.
    pub fn sleep(place: Place) -> Self {
        Self { preempt: false, state: TASK_INTERRUPTIBLE, place }
    }

    /// It could have run on. Preemption of user mode arrives with `preempt` false and a state of zero
    /// (`exit_to_user_mode_loop`, kernel/entry/common.c).
    pub fn preempted(place: Place) -> Self {
        Self { preempt: false, state: 0, place }
    }

    /// It stops for its tracer.
    pub fn stop(place: Place) -> Self {
        Self { preempt: false, state: TASK_TRACED, place }
    }
}

/// The machine with a clock.
pub struct Rig {
    pub cpus: [Cpu; 2],
    accounts: [Task; SLOTS],
    opened: u32,
    cpu: usize,
    pub now_ns: u64,
    /// Interrupt and steal time that the run queue has left out so far.
    pub left_out_ns: u64,
}

impl Rig {
    /// Both CPUs idle.
    pub fn new() -> Self {
        let mut rig = Self {
            cpus: [Cpu::default(); 2],
            accounts: [Task::default(); SLOTS],
            opened: 0,
            cpu: 0,
            now_ns: START_NS,
            left_out_ns: 0,
        };
        for cpu in &mut rig.cpus {
            switch::pass(cpu, owner::IDLE, START_NS);
        }
        rig
    }

    /// A rig whose first CPU runs a task in user mode, and that task's slot.
    pub fn in_user() -> (Self, u32) {
        let mut rig = Self::new();
        let slot = rig.found();
        rig.runs_from(slot, Place::Exception);
        (rig, slot)
    }

    /// Lets time pass.
    pub fn after(&mut self, ns: u64) -> &mut Self {
        self.now_ns += ns;
        self
    }

    /// What follows happens on this CPU.
    pub fn on(&mut self, cpu: usize) -> &mut Self {
        self.cpu = cpu;
        self
    }

    pub fn account(&self, slot: u32) -> &Task {
        &self.accounts[slot as usize]
    }

    pub fn account_mut(&mut self, slot: u32) -> &mut Task {
        &mut self.accounts[slot as usize]
    }

    /// `[user, system, hardirq, softirq, unclassified]`.
    pub fn modes(&self, slot: u32) -> [u64; mode::COUNT] {
        self.account(slot).mode_ns
    }

    /// `[syscall, stop, preemption, interrupt, fault]`.
    pub fn crossings(&self, slot: u32) -> [u64; 5] {
        self.account(slot).crossings
    }

    /// Who a task is, by its slot.
    pub fn identity(slot: u32, flags: u32) -> Identity {
        let tid = 100 + slot;
        let start_ns = u64::from(slot);
        Identity { address: start_ns << 12, start_ns, tid, tgid: tid, parent_tgid: 1, flags }
    }

    /// Opens an account with `PF_*` flags and [`flag`]s.
    pub fn open(&mut self, pf_flags: u32, extra: u32) -> u32 {
        self.opened += 1;
        let slot = self.opened;
        let who = Self::identity(slot, pf_flags);
        lifecycle::open(&mut self.accounts[slot as usize], &who, extra, self.now_ns);
        slot
    }

    /// A task that existed already, found while it sleeps.
    pub fn found(&mut self) -> u32 {
        let slot = self.open(0, 0);
        lifecycle::found(self.account_mut(slot), &Bill::default());
        slot
    }

    /// A child of an observed task.
    pub fn born(&mut self) -> u32 {
        self.open(0, flag::BORN | flag::FOLLOW)
    }

    fn moment(&self) -> Moment {
        Moment {
            now_ns: self.now_ns,
            cpu: self.cpu as u32,
            left_out_ns: self.left_out_ns,
            shift: Shift::default(),
        }
    }

    /// `sched_switch`, as observer-ebpf's hook takes it apart. `out` is looked at if the previous task is
    /// observed, `to` if the next one is new.
    pub fn switch(&mut self, out: Out, next: Next, to: Place) -> &mut Self {
        let at = self.moment();
        let cpu = &mut self.cpus[self.cpu];
        let kind = if matches!(next, Next::Idle) { owner::IDLE } else { owner::OTHER };
        let next_slot = if let Next::Task(slot) = next { slot } else { NO_SLOT };
        if cpu.slot | next_slot == NO_SLOT {
            if cpu.owner != kind as u32 {
                switch::pass(cpu, kind, at.now_ns);
            }
            return self.check();
        }
        if cpu.slot == NO_SLOT {
            switch::depart_unobserved(cpu, &at);
        } else {
            let traced = out.state & TASK_TRACED != 0;
            let account = &mut self.accounts[cpu.slot as usize];
            let from = Departure {
                involuntary: out.preempt || out.state == 0,
                state: out.state,
                // As the adapter does: the registers are not read where the rule does not look at them.
                place: if switch::wants_place(cpu, account, traced) {
                    out.place
                } else {
                    Place::Unknown
                },
                tracer_tid: if traced { TRACER } else { 0 },
                kept: false,
                bill: Bill::default(),
            };
            switch::depart(cpu, account, &at, &from);
        }
        if next_slot == NO_SLOT {
            switch::yield_to(cpu, kind, &at);
        } else {
            let arrival = Arrival { slot: next_slot, place: to, bill: Bill::default() };
            switch::arrive(cpu, &mut self.accounts[next_slot as usize], &at, &arrival);
        }
        self.check()
    }

    /// The running task leaves the CPU to idle.
    pub fn leaves(&mut self, out: Out) -> &mut Self {
        self.switch(out, Next::Idle, Place::Unknown)
    }

    /// A known task gets the CPU from idle or from an unobserved task.
    pub fn runs(&mut self, slot: u32) -> &mut Self {
        self.runs_from(slot, Place::Unknown)
    }

    /// The same for a task that is seen for the first time.
    pub fn runs_from(&mut self, slot: u32, place: Place) -> &mut Self {
        assert_eq!(self.cpus[self.cpu].slot, NO_SLOT, "two observed tasks: use `switch`");
        self.switch(Out::sleep(Place::Unknown), Next::Task(slot), place)
    }

    /// The last switch of the running task.
    pub fn dies(&mut self, place: Place) -> &mut Self {
        self.leaves(Out { preempt: false, state: TASK_DEAD, place })
    }

    /// A reader closes the open interval of the CPU.
    pub fn read(&mut self) -> &mut Self {
        let at = self.moment();
        self.booked(|cpu, task, _| lifecycle::read(cpu, task, &at, &Bill::default()))
    }

    /// The task that runs on this CPU is found at the start of the observation.
    pub fn adopts(&mut self, slot: u32, place: Place) -> &mut Self {
        let at = self.moment();
        let task = &mut self.accounts[slot as usize];
        lifecycle::adopt(&mut self.cpus[self.cpu], task, slot, &at, &Bill::default(), place);
        self.check()
    }

    pub fn sys_enter(&mut self) -> &mut Self {
        self.booked(|cpu, task, now_ns| syscall::enter(cpu, task, now_ns, 0))
    }

    /// `ptrace_stop` is entered, where a hook sees that.
    pub fn stop_enter(&mut self, place: Place) -> &mut Self {
        self.booked(|cpu, task, now_ns| ptrace::enter(cpu, task, now_ns, place))
    }

    /// It is left.
    pub fn stop_leave(&mut self) -> &mut Self {
        self.booked(ptrace::leave)
    }

    pub fn exiting(&mut self) -> &mut Self {
        self.booked(lifecycle::exiting)
    }

    pub fn sys_exit(&mut self) -> &mut Self {
        self.booked(syscall::exit)
    }

    pub fn fault(&mut self) -> &mut Self {
        self.booked(fault::begin)
    }

    pub fn fault_end(&mut self) -> &mut Self {
        self.booked(fault::end)
    }

    pub fn irq_enter(&mut self) -> &mut Self {
        self.interrupted(|cpu, task, now_ns| irq::hard_enter(cpu, task, now_ns, 0))
    }

    pub fn irq_exit(&mut self) -> &mut Self {
        self.interrupted(irq::hard_exit)
    }

    pub fn softirq_enter(&mut self) -> &mut Self {
        self.interrupted(|cpu, task, now_ns| irq::soft_enter(cpu, task, now_ns, 0))
    }

    pub fn softirq_exit(&mut self) -> &mut Self {
        self.interrupted(irq::soft_exit)
    }

    /// `sched_waking` of `wakee` in the context of this CPU, by a task whose state and registers are `state`
    /// and `place`. As in the hook, they are only looked at when the machine wants them.
    pub fn waking(&mut self, wakee: Option<u32>, state: u64, place: Place) -> &mut Self {
        let cpu = &mut self.cpus[self.cpu];
        let now_ns = self.now_ns;
        if cpu.slot != NO_SLOT {
            let waker = &mut self.accounts[cpu.slot as usize];
            let wanted = wakeup::wants_evidence(cpu);
            let seen = if wanted { Waker { state, place } } else { Waker::default() };
            wakeup::waking(cpu, waker, now_ns, &seen);
        }
        if let Some(slot) = wakee {
            wakeup::woken(&mut self.accounts[slot as usize], &Wake::at(now_ns));
        }
        self.check()
    }

    /// `sched_waking` by somebody unobserved on another CPU.
    pub fn woken(&mut self, wakee: u32) -> &mut Self {
        let now_ns = self.now_ns;
        wakeup::woken(self.account_mut(wakee), &Wake::at(now_ns));
        self.check()
    }

    /// `sched_wakeup`.
    pub fn enqueued(&mut self, wakee: u32) -> &mut Self {
        let now_ns = self.now_ns;
        wakeup::enqueued(self.account_mut(wakee), now_ns);
        self.check()
    }

    /// A syscall that takes `inside_ns`, `before_ns` from now.
    pub fn syscall(&mut self, before_ns: u64, inside_ns: u64) -> &mut Self {
        self.after(before_ns).sys_enter().after(inside_ns).sys_exit()
    }

    fn booked(&mut self, event: impl FnOnce(&mut Cpu, &mut Task, u64)) -> &mut Self {
        let cpu = &mut self.cpus[self.cpu];
        assert_ne!(cpu.slot, NO_SLOT, "no observed task runs here");
        event(cpu, &mut self.accounts[cpu.slot as usize], self.now_ns);
        self.check()
    }

    fn interrupted(&mut self, event: impl FnOnce(&mut Cpu, Option<&mut Task>, u64)) -> &mut Self {
        let cpu = &mut self.cpus[self.cpu];
        let slot = cpu.slot;
        let task = (slot != NO_SLOT).then(|| &mut self.accounts[slot as usize]);
        event(cpu, task, self.now_ns);
        self.check()
    }

    /// What holds after each event.
    fn check(&mut self) -> &mut Self {
        for cpu in &self.cpus {
            assert_eq!(cpu.accounted_ns(), cpu.elapsed_ns(), "time is lost or booked twice");
        }
        for task in &self.accounts {
            assert_eq!(task.sequence % 2, 0, "a booking was left open");
            assert!(task.state != state::FREE || task.oncpu_ns() == 0, "time of nobody");
        }
        self
    }
}

//! A kernel with sense: what its tasks do is known, and the books must say exactly that.
//!
//! Each task has a script (see [`crate::script`]); the scheduler is whimsical.

use std::collections::VecDeque;

use observer_common::{
    bill::Bill,
    cpu::{Cpu, NO_SLOT, owner},
    fault, irq,
    lifecycle::{self, Identity, PF_KTHREAD},
    pair::Wake,
    switch::{self, Arrival, Departure, Moment, Place, TASK_TRACED},
    syscall,
    task::{Task, flag, mode},
    wakeup::{self, Waker},
};
use proptest::prelude::*;

use crate::script::{
    Action,
    Step::{self, *},
    kernel_script, script,
};

const CPUS: usize = 2;
const START_NS: u64 = 1_000_000;

/// What is true of a task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Truth {
    mode_ns: [u64; mode::COUNT],
    waits: u64,
    wait_ns: u64,
    stops: u64,
    stopped_ns: u64,
    voluntary: u64,
    involuntary: u64,
    migrations: u64,
}

impl Truth {
    fn of(task: &Task) -> Self {
        Self {
            mode_ns: task.mode_ns,
            waits: task.waits,
            wait_ns: task.wait_ns,
            stops: task.ptrace_stops,
            stopped_ns: task.stopped_ns,
            voluntary: task.switches_voluntary,
            involuntary: task.switches_involuntary,
            migrations: task.migrations,
        }
    }
}

struct Actor {
    script: VecDeque<Step>,
    truth: Truth,
    /// When it can run: `Some` while it is asleep or stopped.
    wakes_ns: Option<u64>,
    queued_ns: Option<u64>,
    cpu: Option<usize>,
}

struct Kernel {
    cpus: [Cpu; CPUS],
    time_ns: [u64; CPUS],
    current: [Option<usize>; CPUS],
    accounts: Vec<Task>,
    actors: Vec<Actor>,
    /// The scheduler's whims.
    whims: VecDeque<u8>,
}

impl Kernel {
    /// Actor 0 is a kernel thread, actor 1 is born while observed, the others were found in user mode.
    fn new(actions: &[Vec<Action>], whims: &[u8]) -> Self {
        let mut kernel = Self {
            cpus: [Cpu::default(); CPUS],
            time_ns: [START_NS; CPUS],
            current: [None; CPUS],
            accounts: vec![Task::default(); actions.len()],
            actors: Vec::new(),
            whims: whims.iter().copied().collect(),
        };
        for cpu in &mut kernel.cpus {
            switch::pass(cpu, owner::IDLE, START_NS);
        }
        for (index, actions) in actions.iter().enumerate() {
            let (flags, extra) = (if index == 0 { PF_KTHREAD } else { 0 }, flag::BORN);
            let who = Identity { address: 1 + index as u64, flags, ..Identity::default() };
            let account = &mut kernel.accounts[index];
            lifecycle::open(account, &who, if index == 1 { extra } else { 0 }, START_NS);
            let mut steps = if index == 0 { kernel_script(actions) } else { script(actions) };
            if index == 1 {
                // ret_from_fork
                steps.push_front(SysExit);
                steps.push_front(Spend(mode::SYSTEM, 40));
            } else {
                lifecycle::found(account, &Bill::default());
            }
            kernel.actors.push(Actor {
                script: steps,
                truth: Truth::default(),
                wakes_ns: Some(START_NS + 10 * index as u64),
                queued_ns: None,
                cpu: None,
            });
        }
        kernel
    }

    fn whim(&mut self) -> u8 {
        let whim = self.whims.pop_front().unwrap_or(1);
        self.whims.push_back(whim.wrapping_mul(5).wrapping_add(3));
        whim
    }

    /// Runs to the end of all scripts.
    fn run(&mut self) {
        while let Some(cpu) = self.next_cpu() {
            match self.current[cpu] {
                Some(actor) => match self.actors[actor].script.pop_front() {
                    Some(step) => self.step(cpu, actor, step),
                    // Off to a sleep without end.
                    None => self.leave(cpu, actor, 1, Place::Unknown, u64::MAX / 2),
                },
                None => self.schedule(cpu, None),
            }
        }
    }

    /// The CPU that is behind, unless nothing is left to do for it.
    fn next_cpu(&self) -> Option<usize> {
        let open = |actor: &Actor| !actor.script.is_empty() || actor.cpu.is_some();
        if !self.actors.iter().any(open) {
            return None;
        }
        (0..CPUS).min_by_key(|cpu| self.time_ns[*cpu])
    }

    fn step(&mut self, index: usize, actor: usize, step: Step) {
        let now_ns = self.time_ns[index];
        let cpu = &mut self.cpus[index];
        let task = &mut self.accounts[actor];
        match step {
            Spend(mode, ns) => {
                self.actors[actor].truth.mode_ns[mode] += ns;
                self.time_ns[index] += ns;
            }
            SysEnter => syscall::enter(cpu, task, now_ns, 0),
            SysExit => syscall::exit(cpu, task, now_ns),
            Fault => fault::begin(cpu, task, now_ns),
            FaultEnd => fault::end(cpu, task, now_ns),
            HardEnter => irq::hard_enter(cpu, Some(task), now_ns, 0),
            HardExit => irq::hard_exit(cpu, Some(task), now_ns),
            SoftEnter => irq::soft_enter(cpu, Some(task), now_ns, 0),
            SoftExit => irq::soft_exit(cpu, Some(task), now_ns),
            Waking(state, place) => {
                let seen = if wakeup::wants_evidence(cpu) {
                    Waker { state, place }
                } else {
                    Waker::default()
                };
                wakeup::waking(cpu, task, now_ns, &seen);
            }
            Leave { state, place, away_ns } => self.leave(index, actor, state, place, away_ns),
        }
    }

    fn leave(&mut self, index: usize, actor: usize, state: u64, place: Place, away_ns: u64) {
        let now_ns = self.time_ns[index];
        let truth = &mut self.actors[actor].truth;
        if state == 0 {
            truth.involuntary += 1;
            self.actors[actor].queued_ns = Some(now_ns);
        } else {
            truth.voluntary += 1;
            if state & TASK_TRACED != 0 {
                truth.stops += 1;
                truth.stopped_ns += away_ns;
            }
            self.actors[actor].wakes_ns = Some(now_ns.saturating_add(away_ns));
        }
        let from = Departure {
            involuntary: state == 0,
            state,
            place,
            tracer_tid: 1,
            kept: false,
            bill: Bill::default(),
        };
        self.schedule(index, Some(from));
    }

    /// Who is awake by now gets on a run queue, each at its own time.
    fn wake(&mut self, now_ns: u64) {
        for (actor, account) in self.actors.iter_mut().zip(&mut self.accounts) {
            if let Some(wakes_ns) = actor.wakes_ns.filter(|ns| *ns <= now_ns) {
                actor.wakes_ns = None;
                actor.queued_ns = Some(wakes_ns);
                wakeup::woken(account, &Wake::at(wakes_ns));
                wakeup::enqueued(account, wakes_ns);
            }
        }
    }

    /// Switches from the current owner to any actor that waits, to an unobserved task, or to idle.
    fn schedule(&mut self, index: usize, from: Option<Departure>) {
        let now_ns = self.time_ns[index];
        let prev = self.current[index].take();
        let prev_slot = prev.map_or(NO_SLOT, |prev| prev as u32 + 1);
        if let Some(prev) = prev {
            self.actors[prev].cpu = None;
        }
        self.wake(now_ns);
        let whim = self.whim();
        let ready: Vec<usize> =
            (0..self.actors.len()).filter(|a| self.actors[*a].queued_ns.is_some()).collect();
        let next = (!whim.is_multiple_of(4) && !ready.is_empty())
            .then(|| ready[usize::from(whim) / 4 % ready.len()]);
        let at = Moment { now_ns, cpu: index as u32, ..Moment::default() };
        let kind = if whim & 16 == 0 { owner::IDLE } else { owner::OTHER };
        let cpu = &mut self.cpus[index];
        assert_eq!(cpu.slot, prev_slot);
        match (prev, &from) {
            (Some(prev), Some(from)) => switch::depart(cpu, &mut self.accounts[prev], &at, from),
            _ if next.is_some() => switch::depart_unobserved(cpu, &at),
            _ => switch::pass(cpu, kind, now_ns),
        }
        if let Some(next) = next {
            self.arrive(index, next, &at);
        } else {
            if prev.is_some() {
                switch::yield_to(cpu, kind, &at);
            }
            self.time_ns[index] += 1 + 7 * u64::from(whim);
        }
    }

    fn arrive(&mut self, index: usize, next: usize, at: &Moment) {
        let actor = &mut self.actors[next];
        actor.truth.waits += 1;
        let queued_ns = actor.queued_ns.take();
        actor.truth.wait_ns += at.now_ns - queued_ns.unwrap_or(u64::MAX);
        actor.cpu = Some(index);
        let account = &mut self.accounts[next];
        let ran_before = account.cpu != u32::MAX;
        actor.truth.migrations += u64::from(ran_before && account.cpu != index as u32);
        let to = Arrival { slot: next as u32 + 1, place: Place::Exception, bill: Bill::default() };
        switch::arrive(&mut self.cpus[index], account, at, &to);
        self.current[index] = Some(next);
    }
}

fn action() -> impl Strategy<Value = Action> {
    (any::<u8>(), any::<u8>(), 0_u64..3_000, 0_u64..3_000, 0_u64..20_000).prop_map(
        |(what, choice, a_ns, b_ns, away_ns)| Action { what, choice, a_ns, b_ns, away_ns },
    )
}

proptest! {
    #[test]
    fn the_books_say_what_the_tasks_did(
        actions in prop::collection::vec(prop::collection::vec(action(), 1..40), 4),
        whims in prop::collection::vec(any::<u8>(), 1..100),
    ) {
        let mut kernel = Kernel::new(&actions, &whims);
        kernel.run();
        for (index, (actor, account)) in kernel.actors.iter().zip(&kernel.accounts).enumerate() {
            prop_assert_eq!(Truth::of(account), actor.truth, "actor {}", index);
        }
        for cpu in &kernel.cpus {
            prop_assert_eq!(cpu.accounted_ns(), cpu.elapsed_ns());
            prop_assert_eq!(cpu.unmatched, 0);
        }
    }
}

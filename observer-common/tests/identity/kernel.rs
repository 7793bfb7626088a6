//! The part of kernel/sched/core.c that makes the bill: run queue clocks, skip requests, `__schedule`.
//!
//! One clock, `sched_clock()`, is the truth. The run queues' clocks are what it was at their last update; ours
//! differs by an offset and a drift. Idle is the task `None`.

use std::collections::VecDeque;

use observer_common::{
    bill::{Bill, RQCF_ACT_SKIP, RQCF_REQ_SKIP, RunQueue},
    cpu::{Cpu, NO_SLOT, owner},
    lifecycle::{self, Identity},
    pair::Wake,
    switch::{self, Arrival, Departure, Moment, Place},
    task::Task,
    wakeup::{self, Waker},
};

/// From the update of a run queue's clock to the hook, in a switch as in a wakeup: 70 to 200 ns.
pub const PATH_NS: std::ops::Range<u64> = 70..201;
/// From the update to the end of a timer interrupt.
pub const TICK_NS: std::ops::Range<u64> = 500..3_000;
/// Mean of the path.
pub const PATH_MEAN_NS: i64 = 135;

impl Thread {
    /// What the changes of the machine's offset during its runs must leave unexplained.
    pub fn unexplained_ns(&self) -> i64 {
        self.offsets_ns + self.open_offsets_ns
    }
}

/// How a skipped update shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Era {
    /// Up to 6.6: `RQCF_ACT_SKIP` is still set at `sched_switch`.
    Act,
    /// 6.7 to 6.17: only the request, at the wakeup.
    Wakeup,
    /// 6.18 and later: `sched_entry_tp` sees the request.
    Entry,
    /// Not at all: totals have no hook but `sched_switch`, which looks at how long the clock stands still.
    Queued,
}

/// What a model is like.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    pub era: Era,
    /// Requests are made at all. Not so between tasks of one FIFO priority.
    pub skips: bool,
    /// Interrupt time is left out of `clock_task` (`CONFIG_IRQ_TIME_ACCOUNTING`).
    pub irq_time: bool,
    /// One path in a hundred takes up to 20 us more.
    pub long_paths: bool,
    /// Our clock against `sched_clock()`.
    pub drift_ppm: i64,
    pub seed: u64,
}

/// xorshift64.
pub struct Random(u64);

impl Random {
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 20) % bound
    }

    pub fn within(&mut self, range: std::ops::Range<u64>) -> u64 {
        range.start + self.below(range.end - range.start)
    }

    pub fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// Why `__schedule` was called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// The current task sleeps.
    Block,
    /// It goes to the tail of the queue.
    Preempt,
    /// It is picked again.
    Stay,
}

#[derive(Default)]
pub struct Rq {
    pub clock_ns: u64,
    pub clock_task_ns: u64,
    flags: u32,
    pending_irq_ns: u64,
    pub current: Option<usize>,
    pub queue: VecDeque<usize>,
    pub need_resched: bool,
}

/// A task, and what is true of it.
#[derive(Clone, Default)]
pub struct Thread {
    pub observed: bool,
    pub cpu: usize,
    /// On a run queue, or running.
    pub on_rq: bool,
    pub runtime_ns: u64,
    exec_start_ns: u64,
    /// `sched_info.last_queued`.
    queued_ns: u64,
    pub skip_in: u64,
    pub skip_out: u64,
    /// What skipped updates added to its bill, above the mean path.
    pub skip_in_ns: i64,
    /// What they took.
    pub skip_out_ns: i64,
    /// Sum over its runs of the machine's offset at the begin minus that at the end.
    offsets_ns: i64,
    /// The offset at the begin of the run that is open.
    begin_offset_ns: i64,
    /// Begin minus end of the run that is open, if it was read.
    open_offsets_ns: i64,
}

pub struct Kernel {
    pub setup: Setup,
    pub random: Random,
    pub time_ns: u64,
    /// Added to our clock: a restored machine.
    pub jump_ns: i64,
    pub rqs: Vec<Rq>,
    pub threads: Vec<Thread>,
    pub cpus: Vec<Cpu>,
    pub accounts: Vec<Task>,
    /// Largest deviation of the machine's offset from the true one, both ways, at switches.
    pub offset_error_ns: (i64, i64),
    /// Skipped updates of switches with an observed task on either side.
    pub skips: u64,
    /// What was cut off because a staleness came out negative.
    pub clamped_ns: i64,
}

impl Kernel {
    /// Idle CPUs, and threads asleep on them in turn; the first `observed` ones are observed.
    pub fn new(setup: Setup, cpus: usize, threads: usize, observed: usize) -> Self {
        let mut kernel = Self {
            setup,
            random: Random(setup.seed | 1),
            time_ns: 3_600_000_000_000,
            jump_ns: 0,
            rqs: (0..cpus).map(|_| Rq::default()).collect(),
            threads: vec![Thread::default(); threads],
            cpus: vec![Cpu::default(); cpus],
            accounts: vec![Task::default(); threads],
            offset_error_ns: (i64::MAX, i64::MIN),
            skips: 0,
            clamped_ns: 0,
        };
        for cpu in 0..cpus {
            kernel.rqs[cpu].clock_ns = kernel.time_ns;
            kernel.rqs[cpu].clock_task_ns = kernel.time_ns - 5_000_000 * cpu as u64;
            let now_ns = kernel.now_ns();
            switch::pass(&mut kernel.cpus[cpu], owner::IDLE, now_ns);
        }
        for index in 0..threads {
            let now_ns = kernel.now_ns();
            let thread = &mut kernel.threads[index];
            thread.observed = index < observed;
            thread.cpu = index % cpus;
            // It has a history that is not observed.
            thread.runtime_ns = 1_000_000_007 * index as u64;
            let bill = kernel.bill(index);
            let who = Identity { address: 1 + index as u64, ..Identity::default() };
            lifecycle::open(&mut kernel.accounts[index], &who, 0, now_ns);
            lifecycle::found(&mut kernel.accounts[index], &bill);
        }
        if setup.era == Era::Queued {
            // No wakeup shows a young clock before the first switch, so a session looks at each CPU as it begins.
            for cpu in 0..cpus {
                kernel.update_rq_clock(cpu);
                kernel.path();
                kernel.learn_offset(cpu);
            }
        }
        kernel
    }

    /// The true offset between our clock and the run queues'.
    pub fn true_offset_ns(&self) -> i64 {
        let drift = i128::from(self.time_ns) * i128::from(self.setup.drift_ppm) / 1_000_000;
        drift as i64 - 777_000_000 + self.jump_ns
    }

    /// Our clock.
    pub fn now_ns(&self) -> u64 {
        self.time_ns.saturating_add_signed(self.true_offset_ns())
    }

    pub fn spend(&mut self, range: std::ops::Range<u64>) {
        self.time_ns += self.random.within(range);
    }

    /// From the update of a clock to the hook.
    fn path(&mut self) {
        self.spend(PATH_NS);
        if self.setup.long_paths && self.random.percent(1) {
            self.spend(5_000..20_000);
        }
    }

    fn bill(&self, thread: usize) -> Bill {
        Bill { runtime_ns: self.threads[thread].runtime_ns, ..Bill::default() }
    }

    fn clocks(&self, cpu: usize) -> RunQueue {
        let rq = &self.rqs[cpu];
        RunQueue { clock_ns: rq.clock_ns, clock_task_ns: rq.clock_task_ns, update_flags: rq.flags }
    }

    fn slot(&self, thread: usize) -> u32 {
        if self.threads[thread].observed { thread as u32 + 1 } else { NO_SLOT }
    }

    fn update_rq_clock(&mut self, cpu: usize) {
        let rq = &mut self.rqs[cpu];
        if rq.flags & RQCF_ACT_SKIP != 0 {
            return;
        }
        let delta_ns = self.time_ns - rq.clock_ns;
        rq.clock_ns = self.time_ns;
        let irq_ns = rq.pending_irq_ns.min(delta_ns);
        rq.pending_irq_ns -= irq_ns;
        rq.clock_task_ns += delta_ns - irq_ns;
    }

    fn update_curr(&mut self, cpu: usize) {
        let rq = &self.rqs[cpu];
        if let Some(current) = rq.current {
            let thread = &mut self.threads[current];
            thread.runtime_ns += rq.clock_task_ns - thread.exec_start_ns;
            thread.exec_start_ns = rq.clock_task_ns;
        }
    }

    /// `sched_tick`, and the hook at the end of the interrupt that it came in.
    pub fn tick(&mut self, cpu: usize) {
        self.update_rq_clock(cpu);
        self.update_curr(cpu);
        self.spend(TICK_NS);
        self.learn_offset(cpu);
    }

    fn learn_offset(&mut self, cpu: usize) {
        let (now_ns, clocks) = (self.now_ns(), self.clocks(cpu));
        self.cpus[cpu].learn_offset(now_ns, &clocks);
    }

    pub fn interrupt(&mut self, cpu: usize, ns: u64) {
        self.time_ns += ns;
        if self.setup.irq_time {
            self.rqs[cpu].pending_irq_ns += ns;
        }
    }

    /// `try_to_wake_up` on `by`, onto `target`. `preempts`: `TIF_NEED_RESCHED` is set there.
    pub fn wake(&mut self, by: usize, wakee: usize, target: usize, preempts: bool) {
        assert!(!self.threads[wakee].on_rq);
        let now_ns = self.now_ns();
        let wakee_slot = self.slot(wakee);
        let is_seen = self.setup.era != Era::Queued;
        if is_seen && self.cpus[by].slot != NO_SLOT {
            let waker = &mut self.accounts[self.cpus[by].slot as usize - 1];
            wakeup::waking(&mut self.cpus[by], waker, now_ns, &Waker::default());
        }
        if is_seen && wakee_slot != NO_SLOT {
            wakeup::woken(&mut self.accounts[wakee], &Wake::at(now_ns));
        }
        self.spend(50..150);
        self.update_rq_clock(target);
        self.threads[wakee].cpu = target;
        self.threads[wakee].on_rq = true;
        self.threads[wakee].queued_ns = self.rqs[target].clock_ns;
        let rq = &mut self.rqs[target];
        rq.queue.push_back(wakee);
        rq.need_resched |= preempts || rq.current.is_none();
        if rq.need_resched && self.setup.skips {
            rq.flags |= RQCF_REQ_SKIP;
        }
        self.path();
        if is_seen && self.cpus[target].slot | wakee_slot != NO_SLOT {
            let now_ns = self.now_ns();
            if wakee_slot != NO_SLOT {
                wakeup::enqueued(&mut self.accounts[wakee], now_ns);
            }
            let clocks = self.clocks(target);
            wakeup::requested(&mut self.cpus[target], now_ns, &clocks);
        }
    }

    /// `yield_task_fair`: a fresh clock, then a request.
    pub fn sched_yield(&mut self, cpu: usize) {
        self.update_rq_clock(cpu);
        self.update_curr(cpu);
        if self.setup.skips {
            self.rqs[cpu].flags |= RQCF_REQ_SKIP;
        }
        self.spend(150..300);
        self.schedule(cpu, Call::Preempt);
    }

    /// `__schedule`.
    pub fn schedule(&mut self, cpu: usize, call: Call) {
        self.spend(20..60);
        let requested = self.rqs[cpu].flags & RQCF_REQ_SKIP;
        self.cpus[cpu].entry_request = requested;
        self.rqs[cpu].flags <<= 1;
        self.update_rq_clock(cpu);
        if self.setup.era != Era::Act {
            self.rqs[cpu].flags = 0;
        }
        self.rqs[cpu].need_resched = false;
        self.path();
        let prev = self.rqs[cpu].current;
        if let (Some(prev), Call::Preempt) = (prev, call) {
            self.rqs[cpu].queue.push_back(prev);
        }
        let next = if call == Call::Stay { prev } else { self.rqs[cpu].queue.pop_front() };
        if next.is_none() && self.random.percent(50) {
            // newidle_balance; without effect while ACT is set.
            self.spend(300..2_000);
            self.update_rq_clock(cpu);
            self.spend(PATH_NS);
        }
        self.update_curr(cpu);
        if next == prev {
            self.rqs[cpu].flags = 0;
            return;
        }
        if let (Some(prev), Call::Block) = (prev, call) {
            self.threads[prev].on_rq = false;
        }
        if let Some(next) = next {
            self.threads[next].exec_start_ns = self.rqs[cpu].clock_task_ns;
        }
        self.sched_switch(cpu, prev, next, call, requested != 0);
        self.sched_info_switch(cpu, prev, next);
        self.rqs[cpu].flags = 0;
        self.rqs[cpu].current = next;
        self.spend(50..100);
    }

    /// `sched_info_switch`: who could run on is queued again, who runs is not.
    fn sched_info_switch(&mut self, cpu: usize, prev: Option<usize>, next: Option<usize>) {
        if let Some(prev) = prev.filter(|prev| self.threads[*prev].on_rq) {
            self.threads[prev].queued_ns = self.rqs[cpu].clock_ns;
        }
        if let Some(next) = next {
            self.threads[next].queued_ns = 0;
        }
    }

    /// The hook, and the truth beside it.
    fn sched_switch(
        &mut self,
        cpu: usize,
        prev: Option<usize>,
        next: Option<usize>,
        call: Call,
        skipped: bool,
    ) {
        let prev_slot = prev.map_or(NO_SLOT, |prev| self.slot(prev));
        let next_slot = next.map_or(NO_SLOT, |next| self.slot(next));
        let next_kind = if next.is_some() { owner::OTHER } else { owner::IDLE };
        let now_ns = self.now_ns();
        let clocks = self.clocks(cpu);
        let queued_ns = next.map_or(0, |next| self.threads[next].queued_ns);
        let requested = match self.setup.era {
            Era::Entry => self.cpus[cpu].entry_request != 0,
            Era::Act | Era::Wakeup => self.cpus[cpu].request != 0,
            Era::Queued => switch::stood_still(&clocks, queued_ns),
        };
        self.cpus[cpu].request = 0;
        assert_eq!(self.cpus[cpu].slot, prev_slot);
        if prev_slot | next_slot == NO_SLOT {
            if self.cpus[cpu].owner != next_kind as u32 {
                switch::pass(&mut self.cpus[cpu], next_kind, now_ns);
            }
            return;
        }
        let shift = switch::shift(&mut self.cpus[cpu], now_ns, &clocks, requested);
        let left_out_ns = clocks.left_out_ns();
        let at = Moment { now_ns, cpu: cpu as u32, left_out_ns, shift };
        self.record(cpu, prev, next, &at, skipped);
        match prev.filter(|_| prev_slot != NO_SLOT) {
            Some(prev) => {
                let from = Departure {
                    involuntary: call != Call::Block,
                    state: u64::from(call == Call::Block),
                    place: Place::Entry,
                    tracer_tid: 0,
                    kept: false,
                    bill: self.bill(prev),
                };
                switch::depart(&mut self.cpus[cpu], &mut self.accounts[prev], &at, &from);
            }
            None => switch::depart_unobserved(&mut self.cpus[cpu], &at),
        }
        match next.filter(|_| next_slot != NO_SLOT) {
            Some(next) => {
                let bill = self.bill(next);
                let to = Arrival { slot: next_slot, place: Place::Entry, bill };
                switch::arrive(&mut self.cpus[cpu], &mut self.accounts[next], &at, &to);
            }
            None => switch::yield_to(&mut self.cpus[cpu], next_kind, &at),
        }
    }

    fn record(
        &mut self,
        cpu: usize,
        prev: Option<usize>,
        next: Option<usize>,
        at: &Moment,
        skipped: bool,
    ) {
        self.skips += u64::from(skipped);
        let rq = &self.rqs[cpu];
        let difference_ns = at.now_ns as i64 - rq.clock_ns as i64;
        let offset_ns = difference_ns - at.shift.total_ns() as i64;
        let error_ns = offset_ns - self.true_offset_ns();
        let (least_ns, most_ns) = self.offset_error_ns;
        self.offset_error_ns = (least_ns.min(error_ns), most_ns.max(error_ns));
        if let Some(estimate_ns) = self.cpus[cpu].offset.get() {
            self.clamped_ns += estimate_ns - offset_ns;
        }
        let skip_ns = (self.time_ns - rq.clock_ns) as i64 - PATH_MEAN_NS;
        if let Some(prev) = prev.map(|prev| &mut self.threads[prev]) {
            prev.offsets_ns += prev.begin_offset_ns - offset_ns;
            prev.open_offsets_ns = 0;
            if skipped {
                prev.skip_out += 1;
                prev.skip_out_ns += skip_ns;
            }
        }
        if let Some(next) = next.map(|next| &mut self.threads[next]) {
            next.begin_offset_ns = offset_ns;
            if skipped {
                next.skip_in += 1;
                next.skip_in_ns += skip_ns;
            }
        }
    }

    /// What `read_cpu` takes for the bill of the running task (observer-ebpf, hooks/read.rs), and for the offset.
    fn bill_now(&self, cpu: usize, thread: usize) -> (Bill, i64) {
        let (now_ns, clocks) = (self.now_ns(), self.clocks(cpu));
        let exec_start_ns = self.threads[thread].exec_start_ns;
        let left_out_ns = clocks.left_out_ns();
        let run_queue_ns = self.cpus[cpu].run_queue_now_ns(now_ns, &clocks);
        let clock_task_ns = run_queue_ns.saturating_sub(left_out_ns);
        let open_ns = clock_task_ns.saturating_sub(exec_start_ns);
        let mut bill = self.bill(thread);
        bill.runtime_ns += open_ns;
        (bill, now_ns as i64 - (exec_start_ns + open_ns + left_out_ns) as i64)
    }

    /// A reader closes the open interval of a CPU, or finds an observed task there.
    pub fn read(&mut self, cpu: usize) {
        let Some(current) = self.rqs[cpu].current.filter(|current| self.threads[*current].observed)
        else {
            return;
        };
        let (bill, offset_ns) = self.bill_now(cpu, current);
        let left_out_ns = self.clocks(cpu).left_out_ns();
        let at =
            Moment { now_ns: self.now_ns(), cpu: cpu as u32, left_out_ns, ..Moment::default() };
        let (state, account) = (&mut self.cpus[cpu], &mut self.accounts[current]);
        if state.slot == NO_SLOT {
            lifecycle::adopt(state, account, current as u32 + 1, &at, &bill, Place::Exception);
            self.threads[current].offsets_ns = 0;
            self.threads[current].begin_offset_ns = offset_ns;
        } else {
            lifecycle::read(state, account, &at, &bill);
        }
        let thread = &mut self.threads[current];
        thread.open_offsets_ns = thread.begin_offset_ns - offset_ns;
    }

    /// The bills are made out up to now: those who run are read, the others have theirs already.
    pub fn read_all(&mut self) {
        for cpu in 0..self.cpus.len() {
            self.read(cpu);
        }
    }
}

//! What holds after every event.

use observer_common::{
    cpu::{Cpu, owner},
    task::{Task, mode, state},
};
use proptest::prelude::*;

use crate::world::{Event, Kind, SLOTS, World};

/// Everything in an account that only grows.
fn counters(task: &Task) -> Vec<u64> {
    let mut all = vec![
        task.left_out_ns,
        task.skip_in,
        task.skip_in_ns,
        task.skip_out,
        task.skip_out_ns,
        task.path_in_ns,
        task.path_out_ns,
        task.wait_ns,
        task.waits,
        task.wakeups,
        task.wakes_made,
        task.switches_voluntary,
        task.switches_involuntary,
        task.migrations,
        task.ptrace_stops,
        task.stopped_ns,
    ];
    all.extend(task.mode_ns);
    all.extend(task.crossings);
    all
}

/// Everything of a CPU that only grows.
fn cpu_counters(cpu: &Cpu) -> Vec<u64> {
    let mut all = vec![
        cpu.elapsed_ns(),
        cpu.switches,
        cpu.skips,
        cpu.clock_backwards,
        cpu.clock_jumps,
        cpu.unmatched,
        cpu.stale_slots,
        cpu.map_full,
    ];
    all.extend(cpu.owner_ns.iter().flatten());
    all
}

/// What an account was after the event before.
#[derive(Clone, Default)]
struct Before {
    incarnation: u64,
    counters: Vec<u64>,
    closed: Option<Task>,
}

struct Auditor {
    accounts: Vec<Before>,
    cpus: Vec<Vec<u64>>,
}

impl Auditor {
    fn new(world: &World) -> Self {
        let accounts = vec![Before::default(); SLOTS];
        Self { accounts, cpus: world.cpus.iter().map(cpu_counters).collect() }
    }

    /// `lossless`: nothing was lost so far, so a closed account is closed.
    fn audit(&mut self, world: &World, lossless: bool) {
        let mut tasks_ns = 0;
        for (cpu, before) in world.cpus.iter().zip(&mut self.cpus) {
            assert_eq!(
                cpu.accounted_ns(),
                cpu.elapsed_ns(),
                "owners and modes are the elapsed time"
            );
            assert!(cpu.mode() < mode::COUNT);
            assert!(cpu.skips <= cpu.switches);
            tasks_ns += cpu.owner_ns[owner::TASK].iter().sum::<u64>();
            let now = cpu_counters(cpu);
            assert!(now.iter().zip(before.iter()).all(|(now, before)| now >= before));
            *before = now;
        }
        let mut accounts_ns = world.retired_ns;
        for (slot, account) in world.accounts.iter().enumerate() {
            accounts_ns += account.mode_ns.iter().sum::<u64>();
            assert_eq!(account.sequence % 2, 0, "slot {slot}: a booking was left open");
            assert!(account.base_mode < mode::COUNT as u32);
            self.audit_account(slot, account, world.incarnation[slot], lossless);
        }
        assert_eq!(accounts_ns, tasks_ns, "tasks have what the CPUs gave them");
    }

    fn audit_account(&mut self, slot: usize, account: &Task, incarnation: u64, lossless: bool) {
        let before = &mut self.accounts[slot];
        let now = counters(account);
        if before.incarnation == incarnation && !before.counters.is_empty() {
            let pairs = now.iter().zip(&before.counters).enumerate();
            for (index, (now, before)) in pairs {
                assert!(now >= before, "slot {slot}, counter {index}: {before} became {now}");
            }
            if let Some(closed) = &before.closed {
                assert!(!lossless || closed == account, "slot {slot} was closed");
            }
        }
        let closed = (account.state == state::EXITED).then_some(*account);
        *before = Before { incarnation, counters: now, closed };
    }
}

fn kind() -> impl Strategy<Value = Kind> {
    prop_oneof![
        8 => Just(Kind::Switch),
        3 => Just(Kind::Waking),
        3 => Just(Kind::Wakeup),
        4 => Just(Kind::SysEnter),
        4 => Just(Kind::SysExit),
        2 => Just(Kind::Fault),
        2 => Just(Kind::FaultEnd),
        2 => Just(Kind::HardEnter),
        2 => Just(Kind::HardExit),
        2 => Just(Kind::SoftEnter),
        2 => Just(Kind::SoftExit),
        1 => Just(Kind::Fork),
        1 => Just(Kind::Exec),
        1 => Just(Kind::ProcessExit),
        1 => Just(Kind::Free),
        2 => Just(Kind::Read),
    ]
}

/// Zero, short, long (with a suspend in it), and backwards.
fn step_ns() -> impl Strategy<Value = i64> {
    prop_oneof![
        2 => Just(0_i64),
        8 => 0_i64..5_000,
        3 => 0_i64..10_000_000,
        1 => 0_i64..10_000_000_000,
        1 => -100_000_i64..0,
    ]
}

fn event(loss: f64) -> impl Strategy<Value = Event> {
    let lost = prop::bool::weighted(loss);
    (kind(), any::<u8>(), any::<u8>(), any::<u64>(), step_ns(), lost).prop_map(
        |(kind, cpu, who, bits, step_ns, lost)| Event { kind, cpu, who, bits, step_ns, lost },
    )
}

/// Up to four CPUs; now and then nothing is lost at all.
fn run() -> impl Strategy<Value = (usize, Vec<Event>)> {
    let loss = prop_oneof![Just(0.0), Just(0.02), Just(0.3)];
    (1_usize..=4, loss)
        .prop_flat_map(|(cpus, loss)| (Just(cpus), prop::collection::vec(event(loss), 1..400)))
}

proptest! {
    #[test]
    fn the_books_balance_after_every_event((cpus, events) in run()) {
        let mut world = World::new(cpus);
        let mut auditor = Auditor::new(&world);
        auditor.audit(&world, true);
        let mut lossless = true;
        for event in &events {
            lossless &= !event.lost;
            world.step(event);
            auditor.audit(&world, lossless);
        }
    }
}

/// The random runs above must not be empty ones: over many events each counter is reached.
#[test]
fn the_world_reaches_everything() {
    let mut world = World::new(3);
    let mut auditor = Auditor::new(&world);
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
    let kinds = [
        Kind::Switch,
        Kind::Waking,
        Kind::Wakeup,
        Kind::SysEnter,
        Kind::SysExit,
        Kind::Fault,
        Kind::FaultEnd,
        Kind::HardEnter,
        Kind::HardExit,
        Kind::SoftEnter,
        Kind::SoftExit,
        Kind::Fork,
        Kind::Exec,
        Kind::ProcessExit,
        Kind::Free,
        Kind::Read,
        Kind::Switch,
        Kind::Switch,
        Kind::Switch,
    ];
    let mut reached = vec![0_u64; counters(&Task::default()).len()];
    for _ in 0..20_000 {
        let event = Event {
            kind: kinds[(random() >> 32) as usize % kinds.len()],
            cpu: random() as u8,
            who: random() as u8,
            bits: random(),
            step_ns: (random() % 5_000) as i64 - 200,
            lost: random() % 50 == 0,
        };
        world.step(&event);
        auditor.audit(&world, false);
        for account in &world.accounts {
            for (reached, now) in reached.iter_mut().zip(counters(account)) {
                *reached = (*reached).max(now);
            }
        }
    }
    assert!(reached.iter().all(|value| *value > 0), "never reached: {reached:?}");
    for cpu in &world.cpus {
        let stuck = cpu_counters(cpu).iter().filter(|value| **value == 0).count();
        // Idle has neither user nor unclassified time.
        assert!(stuck <= 5, "{cpu:?}");
        assert!(cpu.shift_ns[owner::IDLE] != 0 && cpu.shift_ns[owner::OTHER] != 0);
    }
    assert!(world.retired_ns > 0, "no slot was used twice");
}

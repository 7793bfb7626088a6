//! What tasks do, step by step, as user code and the kernel do it (kernel/entry/common.c, kernel/signal.c).
//!
//! The way from a trap to its first hook takes no time here, since no hook can see it; everything else takes any
//! time.

use std::collections::VecDeque;

use observer_common::{
    switch::{Place, TASK_TRACED},
    task::mode,
};

/// What one step of a script is.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// So many nanoseconds, truly in this mode.
    Spend(usize, u64),
    SysEnter,
    SysExit,
    Fault,
    FaultEnd,
    HardEnter,
    HardExit,
    SoftEnter,
    SoftExit,
    /// A wakeup of somebody, by a task in this state that came into the kernel from there.
    Waking(u64, Place),
    /// Off the CPU. Not runnable for so long; zero: preempted.
    Leave {
        state: u64,
        place: Place,
        away_ns: u64,
    },
}
use Step::*;

/// What a task does next, in user mode at its begin and at its end.
#[derive(Clone, Copy, Debug)]
pub struct Action {
    pub what: u8,
    pub choice: u8,
    pub a_ns: u64,
    pub b_ns: u64,
    pub away_ns: u64,
}

fn preempted(place: Place) -> Step {
    Leave { state: 0, place, away_ns: 0 }
}

fn stop(place: Place, away_ns: u64) -> Step {
    Leave { state: TASK_TRACED, place, away_ns: away_ns + 1 }
}

fn sleep(place: Place, away_ns: u64) -> Step {
    Leave { state: 1, place, away_ns: away_ns + 1 }
}

/// Interrupts, one in the other or after the other, from whatever mode.
fn interrupt(action: &Action) -> Vec<Step> {
    let hard = Spend(mode::HARDIRQ, action.a_ns % 1_000);
    let soft = Spend(mode::SOFTIRQ, action.b_ns % 1_000);
    match action.choice % 4 {
        0 => vec![HardEnter, hard, HardExit],
        1 => vec![HardEnter, hard, HardExit, SoftEnter, soft, SoftExit],
        2 => vec![
            HardEnter, hard, HardExit, SoftEnter, soft, HardEnter, hard, HardExit, soft, SoftExit,
        ],
        _ => vec![SoftEnter, soft, Waking(0, Place::Unknown), soft, SoftExit],
    }
}

/// What can happen inside the body of a syscall.
fn body(action: &Action) -> Vec<Step> {
    let system = Spend(mode::SYSTEM, action.a_ns);
    let inside = if action.choice & 8 == 0 { Place::Entry } else { Place::Syscall };
    let mut steps = vec![system];
    match action.choice % 8 {
        0 => {}
        1 => steps.push(sleep(inside, action.away_ns)),
        // In the kernel, or in rt_sigreturn, which has taken the number back.
        2 => steps.push(preempted(inside)),
        3 => steps.push(preempted(Place::Exception)),
        4 => steps.extend([Waking(TASK_TRACED, inside), system, stop(inside, action.away_ns)]),
        5 => steps.extend([system, stop(inside, action.away_ns)]),
        6 => steps.extend([Waking(0, inside), FaultEnd]),
        _ => steps.extend(interrupt(action)),
    }
    steps.push(Spend(mode::SYSTEM, action.b_ns));
    steps
}

/// From the syscall instruction to the body, or past it.
fn entry(action: &Action) -> Vec<Step> {
    let system = Spend(mode::SYSTEM, action.b_ns);
    match (action.choice >> 4) % 6 {
        // The tracer was waiting, or it was not: then the switch is the first evidence.
        0 => vec![
            Waking(TASK_TRACED, Place::Entry),
            system,
            stop(Place::Entry, action.away_ns),
            system,
        ],
        1 => vec![stop(Place::Entry, action.away_ns), system],
        // A seccomp supervisor is asked.
        2 => vec![Waking(0, Place::Entry), sleep(Place::Entry, action.away_ns), system],
        _ => vec![],
    }
}

/// From the end of the body to user mode.
fn exit(action: &Action) -> Vec<Step> {
    let system = Spend(mode::SYSTEM, action.a_ns);
    let place = Place::Syscall;
    match (action.choice >> 2) % 8 {
        0 => vec![system, Waking(TASK_TRACED, place), system, stop(place, action.away_ns)],
        1 => vec![system, stop(place, action.away_ns)],
        2 => vec![system, preempted(place)],
        3 => vec![system, Waking(0, place)],
        4 => vec![system, preempted(place), system, preempted(place)],
        5 => vec![system, Waking(0, place), system, Waking(TASK_TRACED, place), stop(place, 5)],
        _ => vec![],
    }
}

fn user_fault(action: &Action) -> Vec<Step> {
    let system = Spend(mode::SYSTEM, action.a_ns);
    match action.choice % 5 {
        0 => vec![Fault, system, FaultEnd],
        1 => vec![Fault, system, sleep(Place::Exception, action.away_ns), system, FaultEnd],
        // A bad address: the signal stops it.
        2 => vec![Fault, system, Waking(TASK_TRACED, Place::Exception), stop(Place::Exception, 7)],
        3 => vec![Fault, system, stop(Place::Exception, action.away_ns)],
        _ => vec![FaultEnd],
    }
}

fn signal(action: &Action) -> Vec<Step> {
    let system = Spend(mode::SYSTEM, action.a_ns);
    let stop = stop(Place::Exception, action.away_ns);
    if action.choice & 1 == 0 {
        vec![Waking(TASK_TRACED, Place::Exception), system, stop]
    } else {
        vec![stop]
    }
}

pub fn script(actions: &[Action]) -> VecDeque<Step> {
    let mut steps = VecDeque::new();
    for action in actions {
        steps.push_back(Spend(mode::USER, action.b_ns));
        match action.what % 8 {
            0 => {}
            1 => steps.extend(interrupt(action)),
            2 => {
                steps.extend(interrupt(action));
                steps.push_back(preempted(Place::Exception));
            }
            3 => steps.extend(user_fault(action)),
            4 => steps.extend(signal(action)),
            kind => {
                steps.extend(entry(action));
                // A tracer that was told of the entry may have cancelled it.
                if kind != 5 || (action.choice >> 4) % 6 > 1 {
                    steps.push_back(SysEnter);
                    steps.extend(body(action));
                }
                steps.push_back(SysExit);
                steps.extend(exit(action));
            }
        }
        steps.push_back(Spend(mode::USER, action.a_ns));
    }
    steps
}

/// The same for a thread that never leaves the kernel.
pub fn kernel_script(actions: &[Action]) -> VecDeque<Step> {
    let mut steps = VecDeque::new();
    for action in actions {
        steps.extend(body(&Action { choice: [0, 1, 2, 7][action.choice as usize % 4], ..*action }));
    }
    steps
}

//! Readings made by hand, for the tests of this view.

use std::time::Duration;

use super::{HookRow, Model, Press, Reading, Settings, Theme, draw};
use crate::{
    model::{
        CpuFigures, HookLine, PairFigures, PairKind, Party, TaskFigures,
        pair::{Origin, Skip, Stops},
    },
    view::samples,
};

pub const MS: u64 = 1_000_000;
pub const SECOND: u64 = 1_000 * MS;

/// A task whose bill is off by `delta_ms`, all of it by clock skips.
pub fn task(tid: u32, name: &[u8], oncpu_ms: u64, delta_ms: i64) -> TaskFigures {
    let base = samples::task("", oncpu_ms * MS);
    let delta_ns = delta_ms * MS as i64;
    TaskFigures {
        tid,
        tgid: tid,
        parent_tgid: 1,
        start_ns: u64::from(tid),
        comm: name.to_vec(),
        user_ns: Some(oncpu_ms * MS * 3 / 4),
        system_ns: Some(oncpu_ms * MS / 4),
        reported_user_ns: (oncpu_ms * MS * 3 / 4).saturating_add_signed(delta_ns),
        reported_system_ns: oncpu_ms * MS / 4,
        reported_runtime_ns: (oncpu_ms * MS).saturating_add_signed(delta_ns),
        delta_runtime_ns: delta_ns,
        delta_user_ns: Some(delta_ns),
        delta_user_total_ns: Some(delta_ns * 3 / 4),
        delta_user_split_ns: Some(delta_ns - delta_ns * 3 / 4),
        skip_in: Some(delta_ms.max(0) as u64 * 100),
        skip_in_ns: Some(delta_ns.max(0) as u64),
        skip_out: Some((-delta_ms).max(0) as u64 * 100),
        skip_out_ns: Some((-delta_ns).max(0) as u64),
        wait_ns: Some(oncpu_ms * MS / 10),
        waits: Some(oncpu_ms),
        wakeups: Some(oncpu_ms * 2),
        wakes_made: Some(0),
        ..base
    }
}

fn party(tid: u32, name: &str) -> Party {
    Party { account: None, tid: Some(tid), tgid: Some(tid), comm: name.as_bytes().to_vec() }
}

/// A tracer and its tracee, a waker and its wakee, and what an interrupt woke; `times` as much of each.
pub fn pairs(times: u64) -> Vec<PairFigures> {
    let wake = |from, to, count, skip_ns| PairFigures {
        from,
        to,
        count: count * times,
        preemptions: count * times / 10,
        switches: count * times,
        skips: Some(count * times / 2),
        skip_ns: Some(skip_ns * times),
        skip_wakeup: Skip { count: count * times / 2, ns: skip_ns * times },
        path_ns: Some(count * times * 10),
        wakeup_cost_ns: Some(count * times * 900),
        latency_sum_ns: count * times * 2_500,
        latency_count: count * times,
        latency_max_ns: 2 * MS,
        latency: vec![
            (1_024, count * times / 2),
            (2_048, count * times / 4),
            (8_192, count * times / 4),
            (2_097_152, 1),
        ],
        origins: vec![Origin { name: "ptrace".to_owned(), count: count * times, cost_ns: 5_000 }],
        ..PairFigures::default()
    };
    let interrupt = Party { comm: b"hardirq".to_vec(), ..Party::default() };
    vec![
        PairFigures {
            kind: PairKind::Ptrace,
            stops_by_kind: Some(Stops {
                syscall_entry: 500 * times,
                syscall_exit: 500 * times,
                signal: 1,
                ..Stops::default()
            }),
            stopped_ns: Some(40 * MS * times),
            handoffs: Some(990 * times),
            handoffs_across: Some(10 * times),
            ..wake(party(200, "strace"), party(201, "cc1"), 1_001, 12 * MS)
        },
        wake(party(201, "cc1"), party(200, "strace"), 1_000, 30 * MS),
        wake(interrupt, party(300, "sh"), 7, 0),
    ]
}

fn hook(name: &str, reason: Option<&str>) -> HookRow {
    HookRow {
        line: HookLine {
            function: None,
            refines: false,
            name: name.to_owned(),
            via: "tp_btf".to_owned(),
            state: if reason.is_some() { "absent" } else { "active" }.to_owned(),
            reason: reason.map(str::to_owned),
            lost: reason
                .map(|_| "switches that the machine does not show are not made good".to_owned()),
        },
        instructions: reason.is_none().then_some(1_234),
        runs: 0,
        run_ns: reason.is_none().then_some(150),
    }
}

/// What is read after `second` seconds.
pub fn reading(second: u64, tasks: Vec<TaskFigures>) -> Reading {
    let mut report = samples::report(tasks);
    report.header.target = "pid 200".to_owned();
    report.trailer.elapsed_ns = second * SECOND;
    report.trailer.observer_cpu_ns = second * 3 * MS;
    report.trailer.hook_ns = Some(second * 12 * MS);
    report.pairs = pairs(second);
    report.cpus = (0..2)
        .map(|cpu| CpuFigures {
            cpu,
            elapsed_ns: second * SECOND,
            busy_ns: second * 400 * MS,
            observed_ns: second * 300 * MS,
            idle_ns: second * 590 * MS,
            hardirq_ns: second * 8 * MS,
            softirq_ns: second * 2 * MS,
            residual_ns: 0,
        })
        .collect();
    let mut hooks = vec![
        hook("sched_switch", None),
        hook("sched_exit_tp", Some("this kernel has no such tracepoint")),
        hook("sys_enter", None),
    ];
    for hook in &mut hooks {
        hook.runs = if hook.line.state == "active" { second * 2_000 } else { 0 };
    }
    report.header.hooks = hooks.iter().map(|hook| hook.line.clone()).collect();
    Reading { now_ns: 1_000 * SECOND + second * SECOND, report, hooks }
}

/// A traced compiler, its tracer, a shell with a hostile name, a thread, and a task that has ended.
pub fn tasks(second: u64) -> Vec<TaskFigures> {
    let s = second as i64;
    let tracee = TaskFigures {
        parent_tgid: 200,
        ptrace_stops: 1_001 * second,
        ptrace_stopped_ns: 40 * MS * second,
        tracer_tid: Some(200),
        ..task(201, b"cc1", 400 * second, -18 * s)
    };
    let thread =
        TaskFigures { tgid: 200, ..task(204, "日本語の名前".as_bytes(), 20 * second, 0) };
    let ended = TaskFigures { state: "exited", ..task(205, b"as", 30, -1) };
    vec![
        tracee,
        task(200, b"strace", 150 * second, 19 * s),
        thread,
        task(300, b"sh\x1b[31m\n\xe2\x80\xaee", 2 * second, 0),
        ended,
    ]
}

/// The view of such a session after two seconds, without colour.
pub fn model(columns: u16, lines: u16) -> Model {
    let settings = Settings {
        interval: Duration::from_secs(1),
        theme: Theme { color: false },
        size: (columns, lines),
    };
    let mut model = Model::new(reading(0, Vec::new()), settings);
    model.take(reading(1, tasks(1)));
    model.take(reading(2, tasks(2)));
    model
}

/// Presses keys; characters as they are, and `\t`, `\n`, `\x1b` for Tab, Enter and Esc.
pub fn type_keys(model: &mut Model, keys: &str) {
    for key in keys.chars() {
        model.press(match key {
            '\t' => Press::Tab,
            '\n' => Press::Enter,
            '\x1b' => Press::Esc,
            other => Press::Char(other),
        });
    }
}

/// The screen as lines of text.
pub fn screen(model: &mut Model) -> String {
    use ratatui::{Terminal, backend::TestBackend};
    let (columns, lines) = model.size;
    let mut terminal =
        Terminal::new(TestBackend::new(columns, lines)).expect("no terminal can fail less");
    terminal.draw(|frame| draw(model, frame.buffer_mut())).expect("it cannot fail");
    let buffer = terminal.backend().buffer();
    let mut text = String::new();
    for y in 0..lines {
        let mut line = String::new();
        let mut x = 0;
        while x < columns {
            let symbol = buffer[(x, y)].symbol();
            line.push_str(symbol);
            x += (unicode_width::UnicodeWidthStr::width(symbol) as u16).max(1);
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

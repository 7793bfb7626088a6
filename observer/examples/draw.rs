//! How long the live view takes to draw, and to take in a reading, with many tasks.
//!
//! The inner half of `cargo xtask bench draw`, which makes a table of it. `draw [TASKS]`; no root needed. One JSON line
//! per step: its name, and every time of it in microseconds.

use std::time::{Duration, Instant};

use observer::{
    model::{Header, Report, TaskFigures, Trailer},
    view::live::{Model, Press, Reading, Settings, Theme, draw},
};
use ratatui::{buffer::Buffer, layout::Rect};

const DRAWS: usize = 500;
const READINGS: u64 = 50;
const SIZE: (u16, u16) = (200, 60);

fn main() {
    let count = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(10_000);
    let settings =
        Settings { interval: Duration::from_secs(1), theme: Theme { color: true }, size: SIZE };
    let mut model = Model::new(reading(0, count), settings);
    let mut takes = Vec::new();
    for second in 1..=READINGS {
        let next = reading(second, count);
        takes.push(time(|| model.take(next)));
    }
    show("take in a reading", &takes);
    measure("scroll by a row", &mut model, &[Press::Down]);
    measure("scroll by a page", &mut model, &[Press::PageDown]);
    model.press(Press::Char('t'));
    measure("scroll in the tree", &mut model, &[Press::Down]);
    model.press(Press::Char('t'));
    model.press(Press::Enter);
    measure("scroll with the detail", &mut model, &[Press::Up]);
    let mut sorts = Vec::new();
    for _ in 0..READINGS {
        sorts.push(time(|| {
            model.press(Press::Char('s'));
        }));
    }
    show("sort by the next column", &sorts);
}

/// Times the key and the drawing after it: what a user waits for.
fn measure(name: &str, model: &mut Model, presses: &[Press]) {
    let mut buffer = Buffer::empty(Rect::new(0, 0, SIZE.0, SIZE.1));
    let times = (0..DRAWS).map(|_| {
        time(|| {
            for press in presses {
                model.press(*press);
            }
            buffer.reset();
            draw(model, &mut buffer);
        })
    });
    show(name, &times.collect::<Vec<_>>());
}

fn time(work: impl FnOnce()) -> Duration {
    let start = Instant::now();
    work();
    start.elapsed()
}

fn show(name: &str, times: &[Duration]) {
    let micros: Vec<f64> = times.iter().map(|time| time.as_secs_f64() * 1e6).collect();
    println!("{}", serde_json::json!({"name": name, "us": micros}));
}

/// Every third task runs, and each of these gets another bill than it should.
fn reading(second: u64, count: u32) -> Reading {
    let tasks = (1..=count).map(|tid| {
        let oncpu_ns = if tid % 3 == 0 { second * u64::from(tid) * 10_000 } else { 0 };
        let delta_ns = (oncpu_ns / 100) as i64 * if tid % 2 == 0 { 1 } else { -1 };
        TaskFigures {
            tid,
            tgid: tid - tid % 5 + 1,
            parent_tgid: tid / 7 * 5 + 1,
            start_ns: u64::from(tid),
            comm: format!("task-{tid}").into_bytes(),
            state: if tid % 50 == 0 { "exited" } else { "running" },
            oncpu_ns,
            user_ns: Some(oncpu_ns),
            system_ns: Some(0),
            reported_user_ns: oncpu_ns.saturating_add_signed(delta_ns),
            reported_runtime_ns: oncpu_ns.saturating_add_signed(delta_ns),
            delta_runtime_ns: delta_ns,
            skip_in_ns: Some(delta_ns.max(0) as u64),
            skip_out_ns: Some((-delta_ns).max(0) as u64),
            residual_ns: Some(0),
            ..TaskFigures::default()
        }
    });
    let report = Report {
        header: Header {
            schema: "observer/1".to_owned(),
            version: "0".to_owned(),
            kernel: "0".to_owned(),
            arch: "any".to_owned(),
            hz: 250,
            tick_ns: 4_000_000,
            accounting: "tick".to_owned(),
            preempt: "none".to_owned(),
            clock: "CLOCK_MONOTONIC".to_owned(),
            clocksource: "tsc".to_owned(),
            target: "all tasks".to_owned(),
            ..Header::default()
        },
        tasks: tasks.collect(),
        trailer: Trailer { elapsed_ns: second * 1_000_000_000, ..Trailer::default() },
        ..Report::default()
    };
    Reading { now_ns: second * 1_000_000_000, report, hooks: Vec::new() }
}

//! The live view with many tasks: drawing allocates for what is drawn, not for what there is.

#![expect(
    clippy::expect_used,
    reason = "a helper outside of a test function fails the test that calls it"
)]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    time::Duration,
};

use observer::{
    model::{Header, Report, TaskFigures, Trailer},
    view::live::{Model, Press, Reading, Settings, Theme, draw},
};
use ratatui::{buffer::Buffer, layout::Rect};

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

/// Counts the allocations of each thread.
struct Counting;

// SAFETY: every call goes to the system's allocator unchanged; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: by this function's own contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: by this function's own contract.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn reading(second: u64, count: u32) -> Reading {
    let tasks = (1..=count).map(|tid| TaskFigures {
        tid,
        tgid: tid,
        start_ns: u64::from(tid),
        comm: b"task".to_vec(),
        state: "running",
        oncpu_ns: second * 1_000_000,
        user_ns: Some(second * 1_000_000),
        system_ns: Some(0),
        ..TaskFigures::default()
    });
    let word = || "word".to_owned();
    let header = Header {
        schema: word(),
        version: word(),
        kernel: word(),
        arch: word(),
        hz: 250,
        tick_ns: 4_000_000,
        accounting: word(),
        preempt: word(),
        clock: word(),
        clocksource: word(),
        target: word(),
        ..Header::default()
    };
    let report = Report {
        header,
        tasks: tasks.collect(),
        trailer: Trailer { elapsed_ns: second * 1_000_000_000, ..Trailer::default() },
        ..Report::default()
    };
    Reading { now_ns: second * 1_000_000_000, report, hooks: Vec::new() }
}

/// Allocations of one step and the drawing after it, in a table of `count` rows whose shown cells are alike.
fn allocations(count: u32) -> u64 {
    let settings = Settings {
        interval: Duration::from_secs(1),
        theme: Theme { color: true },
        size: (120, 40),
    };
    let mut model = Model::new(reading(0, count), settings);
    model.take(reading(1, count));
    let mut buffer = Buffer::empty(Rect::new(0, 0, 120, 40));
    model.press(Press::Down);
    draw(&model, &mut buffer);
    let before = ALLOCATIONS.with(Cell::get);
    model.press(Press::Down);
    draw(&model, &mut buffer);
    ALLOCATIONS.with(Cell::get).checked_sub(before).expect("it only counts up")
}

#[test]
fn drawing_allocates_only_for_what_is_drawn() {
    let (few, many) = (allocations(100), allocations(10_000));
    assert!(few > 0);
    // The header shows how many tasks there are; nothing else may depend on it.
    assert!(many <= few + few / 20, "{few} allocations with 100 tasks, {many} with 10000");
}

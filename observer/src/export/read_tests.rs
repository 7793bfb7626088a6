use std::io::Cursor;

use super::{super::read::*, *};

fn back(text: &str) -> Result<Recorded, Foreign> {
    read(Cursor::new(text.as_bytes().to_vec()))
}

#[test]
fn what_was_written_is_read_back() {
    let recorded = back(&jsonl()).unwrap();
    assert_eq!(recorded.gap, None);
    let report = recorded.report;
    assert_eq!(json(&report.header), json(&header()));
    // The one with most time comes first.
    assert_eq!(json(&report.tasks[1]), json(&tasks()[0]));
    assert_eq!(json(&report.tasks[0]), json(&tasks()[1]));
    assert_eq!(report.tasks[0].comm, tasks()[1].comm);
    assert_eq!(report.trailer.hook_ns, Some(2));
    assert_eq!(report.cpus.len(), 1);
    assert_eq!(report.pairs, pairs());
}

/// Compared as they are written.
fn json(value: &impl serde::Serialize) -> Value {
    serde_json::to_value(value).unwrap()
}

#[test]
fn unknown_fields_and_records_are_ignored_and_missing_ones_are_empty() {
    let text = "{\"type\":\"header\",\"schema\":\"observer/1\",\"new\":[1]}\n\
        {\"type\":\"novelty\",\"x\":{}}\n\
        {\"type\":\"task\",\"tid\":5,\"novel\":null}\n{\"type\":\"trailer\"}\n";
    let recorded = back(text).unwrap();
    assert_eq!(recorded.gap, None);
    assert_eq!((recorded.report.tasks.len(), recorded.report.tasks[0].tid), (1, 5));
    assert_eq!(recorded.report.tasks[0].user_ns, None);
}

#[test]
fn a_file_cut_anywhere_never_panics_and_says_so() {
    let text = jsonl();
    for end in 0..text.len() {
        if !text.is_char_boundary(end) {
            continue;
        }
        match back(&text[..end]) {
            Ok(recorded) => {
                let trailer = recorded.report.trailer.elapsed_ns == 0 && recorded.gap.is_none();
                // The last two records are trailers: the first one makes the file whole.
                assert!(recorded.gap.is_some() || trailer, "{end}");
            }
            Err(error) => assert!(!error.to_string().contains('\n')),
        }
    }
    let cut = &text[..text.find("{\"type\":\"group\"").unwrap() + 20];
    let recorded = back(cut).unwrap();
    assert_eq!(recorded.report.tasks.len(), 2);
    assert_eq!(
        recorded.gap.unwrap(),
        "the file is not whole (line 6 is broken, there is no trailer): what is said rests on 2 tasks"
    );
}

#[test]
fn without_its_end_the_last_whole_interval_counts() {
    let text = "{\"type\":\"header\",\"schema\":\"observer/1\"}\n\
        {\"type\":\"interval\",\"interval\":1,\"tid\":1}\n\
        {\"type\":\"interval\",\"interval\":2,\"tid\":1}\n\
        {\"type\":\"interval\",\"interval\":2,\"tid\":2}\n\
        {\"type\":\"interval\",\"interval\":3,\"tid\":1}\n";
    let recorded = back(text).unwrap();
    assert_eq!(recorded.report.tasks.len(), 2);
    assert_eq!(
        recorded.gap.unwrap(),
        "the file is not whole (it ends early, there is no trailer): what is said rests on 2 tasks at the end of \
         interval 2"
    );
}

/// A record of one task, and the trailer, as lines.
fn line(kind: &str, interval: u64, account: u64, state: &str, oncpu_ns: u64) -> String {
    format!(
        "{{\"type\":\"{kind}\",\"interval\":{interval},\"account\":{account},\"tid\":{account},\"state\":\"{state}\",\
         \"oncpu_ns\":{oncpu_ns}}}\n"
    )
}

#[test]
fn without_its_end_those_that_ended_in_any_interval_count_once() {
    let text = [
        "{\"type\":\"header\",\"schema\":\"observer/1\"}\n".to_owned(),
        line("interval", 1, 1, "running", 5),
        line("interval", 1, 2, "exited", 20),
        line("interval", 1, 3, "exited", 300),
        // No longer kept one by one: final, and its interval was before.
        line("task", 0, 2, "exited", 20),
        line("interval", 2, 1, "running", 6),
        line("interval", 2, 4, "exited", 4_000),
        // A file of before: it has them in every interval.
        line("interval", 3, 1, "running", 7),
        line("interval", 3, 4, "exited", 4_000),
        line("interval", 4, 1, "running", 8),
    ]
    .concat();
    let recorded = back(&text).unwrap();
    let mut found: Vec<(u64, u64)> =
        recorded.report.tasks.iter().map(|task| (task.account, task.oncpu_ns)).collect();
    found.sort_unstable();
    assert_eq!(found, [(1, 7), (2, 20), (3, 300), (4, 4_000)]);
    assert!(recorded.gap.unwrap().ends_with("4 tasks at the end of interval 3"));
    // The same with a trailer: what is in intervals does not count.
    let recorded = back(&(text + "{\"type\":\"trailer\"}\n")).unwrap();
    assert_eq!((recorded.report.tasks.len(), recorded.gap), (1, None));
}

#[test]
fn tasks_that_were_written_early_are_in_their_place() {
    let text = [
        "{\"type\":\"header\",\"schema\":\"observer/1\"}\n".to_owned(),
        line("task", 0, 2, "exited", 20),
        line("task", 0, 3, "exited", 10),
        line("task", 0, 1, "running", 5_000),
        line("task", 0, 4, "exited", 4_000),
        "{\"type\":\"trailer\"}\n".to_owned(),
    ]
    .concat();
    let tasks = back(&text).unwrap().report.tasks;
    assert_eq!(tasks.iter().map(|task| task.account).collect::<Vec<_>>(), [1, 4, 2, 3]);
}

#[test]
fn a_foreign_file_is_named_as_such() {
    let error = |text: &str| back(text).unwrap_err().to_string();
    assert_eq!(error(""), "the file is empty");
    for text in ["PK\x03\x04\0\0", "{\"a\":1}\n", "[]\n", "\n", "{\"type\":\"task\"}\n"] {
        assert!(error(text).starts_with("not a file of observer: "), "{text:?}");
    }
    assert_eq!(
        error("{\"type\":\"header\",\"schema\":\"observer/9\"}\n"),
        "the file is of schema \"observer/9\"; this observer reads \"observer/1\""
    );
}

#[test]
fn a_second_session_in_a_file_is_not_mixed_in() {
    let text = format!("{}{}", jsonl(), jsonl());
    let recorded = back(&text).unwrap();
    assert_eq!(recorded.report.tasks.len(), 2);
    assert_eq!(recorded.gap.unwrap(), "another session begins in line 13");
}

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
    assert_eq!(json(&report.tasks), json(&tasks()));
    assert_eq!(report.tasks[1].comm, tasks()[1].comm);
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

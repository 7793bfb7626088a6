use std::{
    collections::BTreeSet,
    io::{self, Write},
    path::Path,
    sync::{Arc, Mutex},
};

use serde_json::Value;

use super::{schema::schema, *};
use crate::model::{
    By, HookLine, PairKind, Party,
    group::{self, Cgroup, CgroupUse},
    pair::{Origin, Skip, Stops},
    report::SCHEMA,
};

/// What was written, and how often it was flushed.
#[derive(Clone, Default)]
struct Sink(Arc<Mutex<(Vec<u8>, usize)>>);

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().0.extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.lock().unwrap().1 += 1;
        Ok(())
    }
}

impl Sink {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().0.clone()).unwrap()
    }
}

fn header() -> Header {
    let hook = |lost: Option<&str>| HookLine {
        name: "sched_switch".to_owned(),
        refines: false,
        function: lost.map(|_| "ptrace_notify".to_owned()),
        via: "tp_btf".to_owned(),
        state: if lost.is_some() { "refused" } else { "active" }.to_owned(),
        reason: lost.map(str::to_owned),
        lost: lost.map(str::to_owned),
    };
    Header {
        schema: SCHEMA.to_owned(),
        version: "0.1.0".to_owned(),
        kernel: "6.18.44".to_owned(),
        arch: "x86_64".to_owned(),
        hz: 250,
        tick_ns: 4_000_000,
        accounting: "vtime dormant".to_owned(),
        preempt: "none".to_owned(),
        cpus: 2,
        clock: "CLOCK_MONOTONIC".to_owned(),
        clocksource: "tsc".to_owned(),
        started_unix_ns: 1,
        started_ns: 2,
        hooks: vec![hook(None), hook(Some("everything"))],
        crossing_costs_ns: vec![("syscall".to_owned(), Some(90)), ("fault".to_owned(), None)],
        crossing_spreads_ns: vec![("syscall".to_owned(), Some(3)), ("fault".to_owned(), None)],
        target: "command".to_owned(),
        cycles: "absent".to_owned(),
        cycles_reason: Some("no PMU".to_owned()),
    }
}

fn tasks() -> Vec<TaskFigures> {
    let bare = TaskFigures { state: "running", ..TaskFigures::default() };
    let full = TaskFigures {
        tid: u32::MAX,
        comm: b"a,\"b\"\n\x1b\xff=\xe6\x97\xa5".to_vec(),
        state: "exited",
        oncpu_ns: u64::MAX,
        user_ns: Some(u64::MAX),
        delta_user_ns: Some(i64::MIN),
        delta_system_ns: Some(-1),
        delta_runtime_ns: -2,
        delta_user_split_ns: Some(-3),
        delta_user_total_ns: Some(-4),
        residual_ns: Some(-5),
        tracer_tid: Some(7),
        former_tid: Some(8),
        cgroup_id: Some(1),
        skip_in: Some(9),
        ..TaskFigures::default()
    };
    vec![bare, full]
}

fn groups() -> Vec<Group> {
    let used = CgroupUse { usage_ns: 3, user_ns: 1, system_ns: 2, read_gap_ns: 9 };
    let cgroups = [(1, Cgroup { path: "/a,b".to_owned(), used: Some(used) })].into_iter().collect();
    group::groups(&tasks(), &[], By::Cgroup, &cgroups)
}

fn pairs() -> Vec<PairFigures> {
    let bare = PairFigures {
        from: Party { comm: b"softirq".to_vec(), ..Party::default() },
        ..PairFigures::default()
    };
    let party = |tid: u32, comm: &[u8]| Party {
        account: None,
        tid: Some(tid),
        tgid: Some(tid - 1),
        comm: comm.to_vec(),
    };
    let skip = |count| Skip { count, ns: 10 * count };
    let full = PairFigures {
        kind: PairKind::Ptrace,
        from: party(7, b"strace"),
        to: party(9, b"a,\"b\"\n\xff"),
        count: 5,
        by_task: 2,
        by_softirq: 1,
        by_hardirq: 1,
        by_idle: 1,
        preemptions: 4,
        switches: 3,
        skips: Some(10),
        skip_ns: Some(100),
        skip_wakeup: skip(1),
        skip_idle: skip(2),
        skip_yield: skip(3),
        skip_other: skip(4),
        path_ns: Some(u64::MAX),
        wakeup_cost_ns: Some(6),
        wakeup_cost_cycles: Some(60),
        latency_sum_ns: 7_000,
        latency_count: 100,
        latency_max_ns: 900,
        latency: vec![(100, 90), (1_000, 10)],
        origins: vec![Origin { name: "futex".to_owned(), count: 2, cost_ns: 3 }],
        stops_by_kind: Some(Stops { syscall_entry: 1, exit: 2, ..Stops::default() }),
        stopped_ns: Some(11),
        handoffs: Some(12),
        handoffs_across: Some(13),
    };
    vec![bare, full]
}

fn write_all(exporter: &mut dyn Exporter) -> io::Result<()> {
    exporter.header(&header())?;
    exporter.tasks(Some(3), &tasks())?;
    exporter.tasks(None, &tasks())?;
    exporter.groups(&groups())?;
    exporter.pairs(&pairs())?;
    exporter.cpus(&[CpuFigures { residual_ns: -1, ..CpuFigures::default() }])?;
    exporter.trailer(&Trailer::default())?;
    exporter.trailer(&Trailer {
        recursion_misses: Some(1),
        hook_ns: Some(2),
        residual_ns: Some(-3),
        ..Trailer::default()
    })
}

fn written(format: Format, table: Table) -> String {
    let sink = Sink::default();
    write_all(&mut *exporter(format, table, Box::new(sink.clone()))).unwrap();
    sink.text()
}

fn jsonl() -> String {
    written(Format::Jsonl, Table::Tasks)
}

fn lines() -> Vec<Value> {
    jsonl().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn names(object: &Value) -> Vec<&str> {
    object.as_object().unwrap().keys().map(String::as_str).collect()
}

fn record_schema<'a>(schema: &'a Value, kind: &Value) -> &'a Value {
    let records = schema["oneOf"].as_array().unwrap();
    records.iter().find(|record| record["properties"]["type"]["const"] == *kind).unwrap()
}

/// As much of JSON Schema as ours uses.
fn check(value: &Value, schema: &Value, at: &str) {
    let kind = match value {
        Value::Null => "null",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::Bool(_) => "boolean",
    };
    match &schema["type"] {
        Value::Null => assert_eq!(*value, schema["const"], "{at}"),
        Value::String(allowed) => assert_eq!(kind, allowed, "{at}"),
        allowed => assert!(allowed.as_array().unwrap().contains(&kind.into()), "{at}: {kind}"),
    }
    if let Some(words) = schema["enum"].as_array() {
        assert!(words.contains(value), "{at}: {value}");
    }
    if schema["minimum"] == 0 {
        assert!(value.is_null() || value.is_u64(), "{at}: {value}");
    }
    if let Value::Object(fields) = value {
        assert_eq!(names(value), names(&schema["properties"]), "{at}: names, in their order");
        let required = schema["required"].as_array().unwrap();
        assert_eq!(required.len(), fields.len(), "{at}");
        for (name, value) in fields {
            check(value, &schema["properties"][name], &format!("{at}.{name}"));
        }
    }
    for (index, item) in value.as_array().into_iter().flatten().enumerate() {
        let schema = match schema["prefixItems"].get(index) {
            Some(schema) => schema,
            None => &schema["items"],
        };
        check(item, schema, &format!("{at}[{index}]"));
    }
}

#[test]
fn every_line_is_as_the_schema_says_and_the_other_way_round() {
    let schema = schema();
    let mut kinds = BTreeSet::new();
    for line in lines() {
        check(&line, record_schema(&schema, &line["type"]), line["type"].as_str().unwrap());
        kinds.insert(line["type"].as_str().unwrap().to_owned());
    }
    assert_eq!(kinds.len(), schema["oneOf"].as_array().unwrap().len(), "every kind was written");
}

#[test]
fn what_may_be_null_is_what_can_be_none() {
    let schema = schema();
    let records = [
        ("task", serde_json::to_value(TaskFigures::default()).unwrap()),
        ("group", serde_json::to_value(&groups()[1]).unwrap()),
        ("pair", serde_json::to_value(PairRecord::default()).unwrap()),
        ("cpu", serde_json::to_value(CpuFigures::default()).unwrap()),
        ("trailer", serde_json::to_value(Trailer::default()).unwrap()),
    ];
    for (kind, record) in records {
        let properties = &record_schema(&schema, &kind.into())["properties"];
        for (name, value) in record.as_object().unwrap() {
            assert_eq!(value.is_null(), properties[name]["type"].is_array(), "{kind}.{name}");
        }
    }
}

#[test]
fn every_field_has_a_description_and_every_number_a_unit() {
    fn walk(properties: &Value) {
        for (name, property) in properties.as_object().unwrap() {
            let description = property["description"].as_str().unwrap_or("");
            assert!(description.ends_with('.'), "{name}: {description:?}");
            let is_number = property["type"] == "integer" || property["type"][0] == "integer";
            assert_eq!(
                is_number || name == "crossing_costs_ns" || name == "crossing_spreads_ns",
                property["unit"].is_string(),
                "{name}"
            );
            assert_eq!(name.ends_with("_ns"), property["unit"] == "ns", "{name}");
            if property["items"]["properties"].is_object() {
                walk(&property["items"]["properties"]);
            }
            if property["properties"].is_object() {
                walk(&property["properties"]);
            }
        }
    }
    for record in schema()["oneOf"].as_array().unwrap() {
        walk(&record["properties"]);
    }
}

#[test]
fn lines_begin_with_their_type_and_are_flushed_by_block() {
    let text = jsonl();
    let types: Vec<&str> =
        text.lines().map(|line| line.split('"').nth(3).unwrap_or_default()).collect();
    assert_eq!(
        types,
        [
            "header", "interval", "interval", "task", "task", "group", "group", "pair", "pair",
            "cpu", "trailer", "trailer"
        ]
    );
    assert!(text.lines().all(|line| line.starts_with("{\"type\":\"")));
    for format in [Format::Jsonl, Format::Csv] {
        let sink = Sink::default();
        let mut exporter = exporter(format, Table::Tasks, Box::new(sink.clone()));
        exporter.header(&header()).unwrap();
        exporter.tasks(None, &tasks()).unwrap();
        // Not dropped yet: what a killed observer leaves behind.
        assert!(sink.text().ends_with('\n'), "{format:?}");
        assert_eq!(sink.0.lock().unwrap().1, 2, "{format:?}");
    }
}

#[test]
fn numbers_stay_whole_and_names_are_escaped() {
    let task = lines().into_iter().filter(|line| line["type"] == "task").nth(1).unwrap();
    assert_eq!(task["oncpu_ns"], u64::MAX);
    assert_eq!(task["delta_user_ns"], i64::MIN);
    assert_eq!(task["softirq_ns"], Value::Null);
    assert_eq!(task["comm"], "a,\"b\"\\x0a\\x1b\\xff=日");
}

#[test]
fn csv_has_the_names_and_the_values_of_the_json_lines() {
    for (table, kinds, rows) in [
        (Table::Tasks, &["interval", "task"][..], 4),
        (Table::Groups, &["group"], 2),
        (Table::Pairs, &["pair"], 2),
        (Table::Cpus, &["cpu"], 1),
    ] {
        let text = written(Format::Csv, table);
        assert_eq!(text.lines().count(), 1 + rows, "{table:?}: one line per row, and the names");
        let mut reader =
            ::csv::ReaderBuilder::new().has_headers(false).from_reader(text.as_bytes());
        let rows: Vec<::csv::StringRecord> = reader.records().map(Result::unwrap).collect();
        let records: Vec<Value> = lines()
            .into_iter()
            .filter(|line| kinds.iter().any(|kind| line["type"] == *kind))
            .collect();
        assert_eq!(rows.len(), records.len() + 1);
        let columns: Vec<&str> = rows[0].iter().collect();
        let own = if table == Table::Tasks { &columns[1..] } else { &columns[..] };
        assert_eq!(columns[0] == "interval", table == Table::Tasks);
        assert_eq!(own, &names(records.last().unwrap())[1..], "all but the type");
        for (row, record) in rows[1..].iter().zip(&records) {
            for (column, cell) in columns.iter().zip(row) {
                let expected = match &record[column] {
                    Value::Null => String::new(),
                    Value::String(text) => text.clone(),
                    other => other.to_string(),
                };
                assert_eq!(cell, expected, "{column}");
            }
        }
    }
}

#[test]
fn a_pair_is_flat_and_says_what_woke() {
    let pairs: Vec<Value> = lines().into_iter().filter(|line| line["type"] == "pair").collect();
    assert_eq!(pairs[0]["from_context"], "softirq");
    assert_eq!((&pairs[0]["from_tid"], &pairs[0]["skips_idle"]), (&Value::Null, &Value::Null));
    assert_eq!(pairs[0]["latency_p50_ns"], Value::Null);
    assert_eq!(pairs[1]["from_context"], "task");
    assert_eq!(pairs[1]["to_comm"], "a,\"b\"\\x0a\\xff");
    assert_eq!((&pairs[1]["skips_yield"], &pairs[1]["skip_yield_ns"]), (&3.into(), &30.into()));
    assert_eq!(pairs[1]["latency_buckets"], serde_json::json!([[100, 90], [1_000, 10]]));
    let shares = ["latency_p50_ns", "latency_p90_ns", "latency_p99_ns"].map(|name| &pairs[1][name]);
    assert_eq!(shares, [100, 100, 900]);
    assert_eq!(pairs[1]["stops_by_kind"]["exit"], 2);
}

#[path = "read_tests.rs"]
mod reading;

#[test]
fn csv_without_tasks_still_has_names() {
    let sink = Sink::default();
    let mut exporter = exporter(Format::Csv, Table::Tasks, Box::new(sink.clone()));
    exporter.header(&header()).unwrap();
    exporter.tasks(None, &[]).unwrap();
    exporter.trailer(&Trailer::default()).unwrap();
    assert!(sink.text().starts_with("interval,tid,tgid,"));
    assert_eq!(sink.text().lines().count(), 1);
}

#[test]
fn a_sink_that_fails_is_an_error_of_its_kind() {
    struct Closed;
    impl Write for Closed {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    for format in [Format::Jsonl, Format::Csv] {
        let error = write_all(&mut *exporter(format, Table::Tasks, Box::new(Closed))).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe, "{format:?}");
    }
}

#[test]
fn extensions_name_formats() {
    for (path, format) in [
        ("a.jsonl", Some(Format::Jsonl)),
        ("dir.csv/a.ndjson", Some(Format::Jsonl)),
        ("a.json", Some(Format::Jsonl)),
        ("a.b.csv", Some(Format::Csv)),
        ("a.txt", None),
        ("csv", None),
        (".csv", None),
        ("-", None),
    ] {
        assert_eq!(Format::from_path(Path::new(path)), format, "{path}");
    }
}

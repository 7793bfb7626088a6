//! The JSON schema of the records, made from the records themselves: it cannot drift from them.

use serde_json::{Map, Value, json};

use crate::model::{CpuFigures, Header, HookLine, TaskFigures, Trailer, report::SCHEMA};

/// The schema of one line.
#[must_use]
pub fn schema() -> Value {
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": SCHEMA,
        "description": "Each line is one record. Integers; a name that ends in _ns is in nanoseconds; null is \
            not measured. comm: every byte that is not printable, and the backslash, is written \\xNN.",
        "oneOf": [
            record("header", &header_example(), &[]),
            record("task", &json!(TaskFigures::default()), &[]),
            record("interval", &json!(TaskFigures::default()), &["interval"]),
            record("cpu", &json!(CpuFigures::default()), &[]),
            record("trailer", &json!(Trailer::default()), &[]),
        ],
    })
}

fn header_example() -> Value {
    let hook = HookLine {
        name: String::new(),
        via: String::new(),
        state: String::new(),
        reason: None,
        lost: None,
    };
    json!(Header {
        schema: SCHEMA.to_owned(),
        version: String::new(),
        kernel: String::new(),
        arch: String::new(),
        hz: 0,
        tick_ns: 0,
        accounting: String::new(),
        preempt: String::new(),
        cpus: 0,
        clock: String::new(),
        clocksource: String::new(),
        started_unix_ns: 0,
        started_ns: 0,
        hooks: vec![hook],
        crossing_costs_ns: Vec::new(),
        target: String::new(),
    })
}

fn record(kind: &str, example: &Value, numbers: &[&str]) -> Value {
    let mut properties = Map::new();
    properties.insert("type".to_owned(), json!({ "const": kind }));
    for number in numbers {
        properties.insert((*number).to_owned(), json!({ "type": "integer" }));
    }
    if let Value::Object(fields) = example {
        for (name, value) in fields {
            properties.insert(name.clone(), property(name, value));
        }
    }
    let required: Vec<String> = properties.keys().cloned().collect();
    json!({ "type": "object", "properties": properties, "required": required })
}

fn property(name: &str, value: &Value) -> Value {
    let mut property = match value {
        Value::String(_) => json!({ "type": "string" }),
        Value::Array(_) => json!({ "type": "array" }),
        Value::Null if name == "reason" || name == "lost" => json!({ "type": ["string", "null"] }),
        Value::Null => json!({ "type": ["integer", "null"] }),
        _ => json!({ "type": "integer" }),
    };
    if name.ends_with("_ns") && !name.starts_with("crossing_costs") {
        property["description"] = json!("nanoseconds");
    }
    property
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_of_the_contract_is_there() {
        let schema = schema();
        let task = schema["oneOf"][1]["properties"].as_object().unwrap();
        for field in "type tid tgid start_ns comm state oncpu_ns user_ns system_ns hardirq_ns softirq_ns \
            unclassified_ns crossings crossing_ns reported_user_ns reported_system_ns reported_runtime_ns \
            raw_utime_ns raw_stime_ns delta_user_ns delta_system_ns delta_runtime_ns delta_user_split_ns \
            delta_user_total_ns skip_in skip_in_ns skip_out skip_out_ns path_in_ns path_out_ns residual_ns \
            wait_ns waits wakeups wakes_made wakeup_cost_ns switches_voluntary switches_involuntary \
            migrations ptrace_stops ptrace_stopped_ns tracer_tid cycles_user cycles_system"
            .split_whitespace()
        {
            assert!(task.contains_key(field), "{field}");
        }
        let trailer = schema["oneOf"][4]["properties"].as_object().unwrap();
        for field in "elapsed_ns lost_events map_full recursion_misses clock_backwards unmatched \
            observer_cpu_ns hook_runs hook_ns residual_ns"
            .split_whitespace()
        {
            assert!(trailer.contains_key(field), "{field}");
        }
    }
}

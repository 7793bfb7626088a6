//! The JSON schema (draft 2020-12) of the records. A test holds it against what is really written.

mod fields;

use serde_json::{Map, Value, json};

use self::fields::{Field, Kind, Record};
use crate::model::report::SCHEMA;

/// The schema of one line.
///
/// Every field has a description, and every number a `unit`: `ns`, `1` (a count), `id` or `Hz`.
#[must_use]
pub fn schema() -> Value {
    let records: Vec<Value> = fields::RECORDS.iter().map(record).collect();
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": SCHEMA,
        "description": "Each line is one record. Integers only; a name that ends in _ns is in nanoseconds; null is \
            not measured, which is not zero. Fields may be added, none is ever renamed. CSV has the fields \
            of one kind of record as columns, without `type`; with tasks, `interval` comes before them; an empty \
            cell is null, and a list or an object is JSON text.",
        "oneOf": records,
    })
}

fn record(record: &Record) -> Value {
    let mut properties = Map::new();
    let kind = json!({ "description": "The kind of record.", "const": record.kind });
    properties.insert("type".to_owned(), kind);
    for field in record.fields.iter().copied().flatten() {
        properties.insert(field.name.to_owned(), property(field));
    }
    object(record.description, properties)
}

/// All fields are always written, so all are required; more may come.
fn object(description: &str, properties: Map<String, Value>) -> Value {
    let required: Vec<String> = properties.keys().cloned().collect();
    json!({
        "type": "object",
        "description": description,
        "properties": properties,
        "required": required,
    })
}

fn properties(fields: &[Field]) -> Map<String, Value> {
    fields.iter().map(|field| (field.name.to_owned(), property(field))).collect()
}

fn property(field: &Field) -> Value {
    let mut property = match field.kind {
        Kind::Bool => json!({ "type": "boolean" }),
        Kind::Text => json!({ "type": "string" }),
        Kind::MaybeText => json!({ "type": ["string", "null"] }),
        Kind::Word(words) => json!({ "type": "string", "enum": words }),
        Kind::Natural(unit) => json!({ "type": "integer", "minimum": 0, "unit": unit }),
        Kind::MaybeNatural(unit) => {
            json!({ "type": ["integer", "null"], "minimum": 0, "unit": unit })
        }
        Kind::Integer(unit) => json!({ "type": "integer", "unit": unit }),
        Kind::MaybeInteger(unit) => json!({ "type": ["integer", "null"], "unit": unit }),
        Kind::Costs => json!({
            "type": "array",
            "unit": "ns",
            "items": {
                "type": "array",
                "prefixItems": [{ "type": "string" }, { "type": ["integer", "null"], "minimum": 0 }],
                "minItems": 2,
                "items": false,
            },
        }),
        Kind::Buckets => json!({
            "type": "array",
            "items": {
                "type": "array",
                "prefixItems": [
                    { "type": "integer", "minimum": 0, "unit": "ns" },
                    { "type": "integer", "minimum": 0, "unit": "1" },
                ],
                "minItems": 2,
                "items": false,
            },
        }),
        Kind::List(fields) => {
            json!({ "type": "array", "items": object("One of them.", properties(fields)) })
        }
        Kind::MaybeObject(fields) => {
            let mut property = object("", properties(fields));
            property["type"] = json!(["object", "null"]);
            property
        }
    };
    property["description"] = json!(field.description);
    property
}

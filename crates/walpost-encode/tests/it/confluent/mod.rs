//! Confluent's converters themselves as the oracle: values and the schemas that
//! they register, compared byte for byte.
//!
//! Their jars are in no public repository that the tests use, so what they
//! answered, at version 8.1.5, is kept in `records.json`. With
//! `WALPOST_TEST_CONFLUENT`, a class path of `kafka-connect-avro-converter`,
//! `kafka-connect-json-schema-converter` and `kafka-connect-protobuf-converter`
//! with what they need, they are asked again, random values as well, and what is
//! kept is written anew.

mod cases;
mod ways;

use std::{collections::BTreeMap, env, fs, sync::Arc};

use serde_json::{Value as Json, json};
use walpost_encode::connect::{Converter, Kind, Schema, SchemaField, Unconverted, Value};

use self::ways::Way;
use crate::oracle::{ask::Oracle, notation, random::Random};

const RECORDS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/confluent/records.json");
const RANDOM_CASES: usize = 300;

/// Bytes, and what is registered on the way; a failure is one, whatever its text.
fn ours(converter: &mut Converter, schema: &Arc<Schema>, value: &Value) -> Json {
    let mut answer = json!({});
    loop {
        match converter.convert("topic", Some(schema), value) {
            Ok(bytes) => {
                answer["hex"] = bytes.map_or(Json::Null, |bytes| {
                    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>().into()
                });
                return answer;
            }
            Err(Unconverted::Ask(asked)) => {
                answer["subject"] = (*asked.subject).into();
                answer["schema"] = (*asked.schema).into();
                answer["type"] = asked.schema_type.name().into();
                converter.learn(&asked, 1);
            }
            Err(Unconverted::Failed(_)) => return json!({ "failed": true }),
        }
    }
}

/// The same of Confluent's.
fn theirs(oracle: &mut Oracle, way: &Way, number: usize, schema: &Schema, value: &Value) -> Json {
    let mut config = way.config.clone();
    // A registry for each question, whose first id is 1.
    config["schema.registry.url"] = format!("mock://{number}").into();
    let converter = json!({ "class": way.class, "config": config, "key": way.is_key });
    let question = json!({
        "op": "convert",
        "converter": converter,
        "schema": notation::schema(schema),
        "value": notation::value(value),
    });
    let answer = oracle.ask(&question);
    match answer.get("error") {
        Some(error) => {
            eprintln!("{} fails: {error}", way.name);
            json!({ "failed": true })
        }
        None => answer,
    }
}

#[test]
fn values_and_schemas_are_those_of_confluents_converters() {
    let cases = cases::cases();
    let mut oracle =
        env::var("WALPOST_TEST_CONFLUENT").ok().map(|jars| Oracle::start_beside(&jars));
    let mut asked = 0;
    let mut records: BTreeMap<String, Json> = match &oracle {
        Some(_) => BTreeMap::new(),
        None => serde_json::from_str(&fs::read_to_string(RECORDS).unwrap()).unwrap(),
    };
    let ways = ways::ways();
    if let Some(oracle) = &mut oracle {
        for way in &ways {
            for (name, schema, value) in &cases {
                asked += 1;
                let answer = theirs(oracle, way, asked, schema, value);
                records.insert(format!("{}: {name}", way.name), answer);
            }
        }
        fs::write(RECORDS, serde_json::to_string_pretty(&records).unwrap() + "\n").unwrap();
    }
    let (mut compared, mut wrong) = (0, Vec::new());
    for way in &ways {
        for (name, schema, value) in &cases {
            let name = format!("{}: {name}", way.name);
            let ours = ours(&mut (way.ours)(), schema, value);
            if ours != records[&name] {
                wrong.push(format!("{name}\nours:   {ours}\ntheirs: {}", records[&name]));
            }
            compared += 1;
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(compared, records.len(), "each record is of a case");
    let Some(mut oracle) = oracle else { return };
    let mut random = Random::new("confluent");
    for _ in 0..RANDOM_CASES {
        let schema = Arc::new(random.schema(2));
        let value = random.value(&schema);
        if is_beyond(&schema, false, false) {
            continue;
        }
        for way in &ways {
            asked += 1;
            let theirs = theirs(&mut oracle, way, asked, &schema, &value);
            let ours = ours(&mut (way.ours)(), &schema, &value);
            if ours != theirs {
                let (name, schema) = (way.name, notation::schema(&schema));
                wrong.push(format!("{name} {schema}\nours:   {ours}\ntheirs: {theirs}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What Debezium has not, and the conversion does not follow: defaults with maps
/// or structs in them, and a struct within another one of the same name.
fn is_beyond(schema: &Schema, in_default: bool, in_struct: bool) -> bool {
    let in_default = in_default || schema.default.is_some();
    match &schema.kind {
        Kind::Map(key, value) => {
            in_default || is_beyond(key, false, in_struct) || is_beyond(value, false, in_struct)
        }
        Kind::Array(element) => is_beyond(element, in_default, in_struct),
        Kind::Struct(fields) => {
            let is_beyond = |field: &SchemaField| is_beyond(&field.schema, false, true);
            in_default || in_struct || fields.iter().any(is_beyond)
        }
        _ => false,
    }
}

//! What a payload may ask for.

use std::time::Instant;

use super::*;
use crate::connect::{JsonConverter, JsonConverterOptions, Kind};

fn expand(payload: &str) -> Result<Option<(Arc<Schema>, Value)>, Difference> {
    let expanded = Expander::default().expand(&"payload".into(), &payload.into())?;
    Ok(expanded.map(|typed| (typed.schema.expect("no empty array at the top"), typed.value)))
}

#[test]
fn an_empty_array_at_the_top_is_text_without_a_schema_unless_it_has_one() {
    let expanded = Expander::default().expand(&"payload".into(), &"[ ]".into());
    let text = TypedValue { schema: None, value: Value::String("[ ]".into()) };
    assert_eq!(expanded, Ok(Some(text)));
    let empty_array = EmptyArray::OptionalString;
    let options = ExpandOptions { empty_array, ..ExpandOptions::default() };
    let expanded = Expander::new(options).expand(&"payload".into(), &"[]".into());
    assert_eq!(expanded, Err(Difference::TopLevelArray));
}

fn expanded(payload: &str) -> (Arc<Schema>, Value) {
    expand(payload).unwrap().expect("an object")
}

fn json((schema, value): &(Arc<Schema>, Value)) -> Vec<u8> {
    let mut converter = JsonConverter::new(JsonConverterOptions::default());
    converter.convert(Some(schema), value).unwrap().unwrap().into()
}

fn joined(parts: impl Iterator<Item = String>) -> String {
    parts.collect::<Vec<_>>().join(",")
}

#[test]
fn a_payload_as_deep_as_jackson_reads_needs_no_more_stack_than_a_pipeline_has() {
    const STACK_BYTES: usize = 2 << 20;
    const DEPTH: usize = 1_000;
    let run = || {
        let objects = format!("{}1{}", "{\"a\":".repeat(DEPTH), "}".repeat(DEPTH));
        let lists = format!("{{\"a\":{}1{}}}", "[".repeat(DEPTH - 1), "]".repeat(DEPTH - 1));
        for payload in [objects, lists] {
            let one = expanded(&payload);
            let other = expanded(&payload);
            assert!(one == other);
            assert!(String::from_utf8(json(&one)).unwrap().contains("\"payload\":{\"a\":"));
        }
    };
    let thread = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(run).unwrap();
    thread.join().unwrap();
}

#[test]
fn names_of_nested_structs_are_bounded() {
    let name = "n".repeat(10_000);
    let open = format!("{{\"{name}\":");
    let nested = |depth| format!("{}1{}", open.repeat(depth), "}".repeat(depth));
    assert!(expand(&nested(20)).is_ok());
    // A megabyte, whose schema would have fifty.
    assert_eq!(expand(&nested(100)), Err(Difference::TooLarge));
    let options =
        ExpandOptions { on_difference: OnDifference::PassUnexpanded, ..ExpandOptions::default() };
    let mut passing = Expander::new(options);
    assert_eq!(passing.expand(&"payload".into(), &nested(100).as_str().into()), Ok(None));
}

#[test]
fn members_are_bounded_and_elements_are_not() {
    let members = |count: usize| joined((0..count).map(|at| format!("\"m{at}\":{at}")));
    let (schema, value) = expanded(&format!("{{{}}}", members(10_000)));
    let (Kind::Struct(fields), Value::Struct(values)) = (&schema.kind, &value) else {
        panic!("a struct")
    };
    assert_eq!((fields.len(), values.len()), (10_000, 10_000));
    assert_eq!(values[9_999], Value::Int32(9_999));
    assert_eq!(expand(&format!("{{{}}}", members(100_000))), Err(Difference::TooLarge));

    let element = r#"{"id":1,"of":{"name":"n","more":[{"x":1}]}}"#.to_owned();
    let (_, value) = expanded(&format!("{{\"a\":[{}]}}", vec![element; 50_000].join(",")));
    let Value::Struct(values) = value else { panic!("a struct") };
    assert!(matches!(&values[..], [Value::Array(elements)] if elements.len() == 50_000));
}

/// Steps that multiply would take minutes, even of a fast machine.
#[test]
fn time_grows_with_the_payload_alone() {
    const LIMIT_SECONDS: u64 = 120;
    let start = Instant::now();
    let many = 15_000;
    let objects = |count| joined((0..count).map(|at| format!("{{\"m{at}\":1}}")));
    assert!(expand(&format!("{{\"a\":[{}]}}", objects(900))).is_ok());
    let different = format!("{{\"a\":[{}]}}", objects(many));
    assert_eq!(expand(&different), Err(Difference::TooLarge));
    let wide = joined((0..many).map(|at| format!("\"m{at}\":1")));
    let narrow = vec!["{\"m1\":1}"; 200_000].join(",");
    let uneven = format!("{{\"a\":[{{{wide}}},{narrow}]}}");
    assert_eq!(expand(&uneven), Err(Difference::TooLarge));
    let twice = joined((0..100_000).map(|at| format!("\"m{}\":1", at % many)));
    assert!(expand(&format!("{{{twice}}}")).is_ok());
    let nulls = joined((0..400_000).map(|at| format!("\"m{at}\":null")));
    assert!(expand(&format!("{{{nulls}}}")).is_ok());
    let long = "n".repeat(200_000);
    let empty = joined((0..100_000).map(|at| format!("{{\"m{}\":{{}}}}", at % 5)));
    assert!(expand(&format!("{{\"{long}\":[{empty}]}}")).is_ok());
    assert!(start.elapsed().as_secs() < LIMIT_SECONDS, "{:?}", start.elapsed());
}

#[test]
fn equal_payloads_share_a_schema() {
    let mut expander = Expander::default();
    let mut schema = |payload: &str| {
        let expanded = expander.expand(&"payload".into(), &payload.into()).unwrap();
        expanded.and_then(|typed| typed.schema).expect("an object")
    };
    let one = schema(r#"{"a":1,"b":[{"x":"y"}]}"#);
    assert!(Arc::ptr_eq(&one, &schema(r#"{"a":2,"b":[{"x":"z"},{"x":""}]}"#)));
    assert!(!Arc::ptr_eq(&one, &schema(r#"{"a":"2"}"#)));
}

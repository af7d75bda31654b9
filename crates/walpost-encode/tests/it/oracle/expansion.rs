//! JSON payloads that the router expands.

use serde_json::{Value as Json, json};
use walpost_encode::connect::{
    Converter, Difference, EmptyArray, ExpandOptions, Expander, JsonConverter, Kind,
    NameAdjustment, NullField, OnDifference, Schema, TypedValue, Value,
};

use super::{
    ask::{Oracle, Verdict},
    converters::json_options,
    random::Random,
};

const CASES: usize = 1_500;

/// Payloads with what is said of each in Debezium's own documents, in complaints
/// of its users, or by its code.
const PAYLOADS: [&str; 40] = [
    r#"{"id":1,"f":1.10,"big":3000000000,"e":1e3,"n":null,"t":[],"o":{},"oo":{"z":null},"b":true}"#,
    r#"{"id":1,"n":null,"arr":[null]}"#,
    r#"{"n": null, "t": []}"#,
    r#"{"a": 1.10, "b": 1e3, "c": 1234567890123456789012345.5, "d": 1e400}"#,
    "[1, 2]",
    "[]",
    "[{\"a\":1}]",
    r#"{"a": 9223372036854775807}"#,
    r#"{"a": 9223372036854775808}"#,
    r#"{"x":[{"a":1},{"a":2.5}]}"#,
    r#"{"x":[{"a":1},{"a":"q"}]}"#,
    r#"{"x":[[1],[2.5]]}"#,
    r#"{"x":[null,{"a":1},{"b":2}]}"#,
    r#"{"x":[null,{"a":1},{"a":2}]}"#,
    r#"{"x":[1, 3000000000]}"#,
    r#"{"x":[1,"a"]}"#,
    r#"{"x":[[],[1]]}"#,
    r#"{"x":[null,null]}"#,
    r#"{"x":[{"a":{"x":1}},{"a":{"y":2}}]}"#,
    r#"{"x":[{"a":1},{"b":"q"}]}"#,
    r#"{"x":[{"a":null},{"a":1}]}"#,
    r#"{"x":[{"a":1},{"a":null}]}"#,
    r#"{"a":1,"a":2}"#,
    r#"{"a":1,"b":2,"a":"x"}"#,
    r#" {"a":1}"#,
    r#"{"a":1} trailing"#,
    r#"{"a":01}"#,
    r#"{"a":1.}"#,
    r#"{"a":-0}"#,
    r#"{"a":"\u00e4\u20ac\ud83d\ude00\/\b"}"#,
    "{\"a\":\"\u{7f}\u{2028}<>&'\"}",
    r#"{"a":tru}"#,
    r#"{"a":{"b":{"c":[{"d":[1,2,3]}]}}}"#,
    r#"{"a-b":1,"1c":2,"ä":{"x y":true}}"#,
    r#"{"a.b":1,"a":{"b":2}}"#,
    r#"{"":1}"#,
    "{}",
    "text",
    "",
    r#"{"a":[[[1]],[[2]]]}"#,
];

struct Way {
    options: ExpandOptions,
    converter: Converter,
    theirs: Json,
    router: Json,
}

fn ways() -> Vec<Way> {
    let mut ways = Vec::new();
    for bits in 0..24 {
        let null_field = [NullField::Ignore, NullField::OptionalBytes][bits & 1];
        let empty_array = [EmptyArray::Ignore, EmptyArray::OptionalString][bits >> 1 & 1];
        let names =
            [NameAdjustment::None, NameAdjustment::Avro, NameAdjustment::AvroUnicode][bits % 3];
        let router = json!({
            "table.expand.json.payload": "true",
            "table.json.payload.null.behavior": (["ignore", "optional_bytes"][bits & 1]),
            "table.json.payload.empty.array.behavior": (["ignore", "optional_string"][bits >> 1 & 1]),
            "field.name.adjustment.mode": (["none", "avro", "avro_unicode"][bits % 3]),
        });
        let options =
            ExpandOptions { null_field, empty_array, names, on_difference: OnDifference::Park };
        let is_text = bits >= 20;
        let (json, config) = json_options(bits >> 2 & 1 != 0, false, true);
        let (converter, class, config) = if is_text {
            let class = "org.apache.kafka.connect.storage.StringConverter";
            (Converter::String, class, json!({}))
        } else {
            let class = "org.apache.kafka.connect.json.JsonConverter";
            (Converter::Json(JsonConverter::new(json)), class, config)
        };
        let theirs = json!({ "class": class, "config": config });
        ways.push(Way { options, converter, theirs, router });
    }
    ways
}

/// What we make of a payload, and what we say of it.
fn ours(way: &mut Way, payload: &str) -> (Verdict, Option<Difference>) {
    let expanded = match Expander::new(way.options).expand(&"payload".into(), &payload.into()) {
        Ok(expanded) => expanded,
        Err(difference) => return (Verdict::Failed(difference.to_string()), Some(difference)),
    };
    let TypedValue { schema, value } = expanded.unwrap_or_else(|| TypedValue {
        schema: Some(Schema::new(Kind::String).optional().into()),
        value: Value::String(payload.into()),
    });
    let bytes = way.converter.convert("topic", schema.as_ref(), &value);
    (Verdict::of_ours(bytes), None)
}

fn compare(oracle: &mut Oracle, way: &mut Way, payload: &str) -> Option<Difference> {
    let question = json!({
        "op": "expand", "router": way.router, "converter": way.theirs, "payload": payload,
    });
    let theirs = Verdict::of(&oracle.ask(&question));
    let (ours, difference) = ours(way, payload);
    let said = || format!("{question}\nours:   {}\ntheirs: {}", ours.text(), theirs.text());
    let is_text = matches!(way.converter, Converter::String);
    match difference {
        Some(Difference::TopLevelArray | Difference::IntegerTooLarge | Difference::MixedTypes)
            if is_text =>
        {
            assert_eq!(theirs, Verdict::Bytes(payload.into()), "{}", said());
        }
        Some(Difference::TopLevelArray | Difference::IntegerTooLarge | Difference::MixedTypes) => {
            assert!(matches!(theirs, Verdict::Failed(_)), "{}", said());
        }
        Some(_) => assert_ne!(ours, theirs, "{}", said()),
        None if ours == theirs => {}
        None => assert_eq!(sorted(&ours), sorted(&theirs), "{}", said()),
    }
    difference
}

/// JSON whose fields have no order: what is left where objects of different
/// shapes were merged.
fn sorted(verdict: &Verdict) -> String {
    fn sort(json: &mut Json) {
        match json {
            Json::Array(elements) => {
                elements.iter_mut().for_each(sort);
                if elements.iter().all(|element| element.get("field").is_some()) {
                    elements.sort_by_key(|element| element["field"].to_string());
                }
            }
            Json::Object(members) => members.values_mut().for_each(sort),
            _ => {}
        }
    }
    let text = verdict.text();
    let mut json: Json = serde_json::from_str(&text).unwrap_or_else(|_| {
        // Of a struct's text the characters are the same.
        let mut chars: Vec<char> = text.chars().collect();
        chars.sort_unstable();
        chars.into_iter().collect::<String>().into()
    });
    sort(&mut json);
    json.to_string()
}

#[test]
#[ignore = "deep: needs a Java compiler and Kafka Connect"]
fn payloads_are_expanded_as_debezium_does() {
    let mut oracle = Oracle::start();
    let mut seen = Vec::new();
    for way in &mut ways() {
        for payload in PAYLOADS {
            seen.extend(compare(&mut oracle, way, payload));
        }
    }
    for difference in [
        Difference::TopLevelArray,
        Difference::IntegerTooLarge,
        Difference::MixedTypes,
        Difference::LostMember,
        Difference::AdjustedMember,
    ] {
        assert!(seen.contains(&difference), "{difference:?} is met nowhere");
    }
}

/// Of the objects in an array Debezium merges the shapes in an order that differs
/// from run to run. What it makes of members that have a shape of their own in
/// each follows from that order: of those payloads there is nothing to compare.
fn payload(random: &mut Random) -> String {
    loop {
        let payload = format!("{{\"p\":{},\"q\":{}}}", random.json(3), random.json(2));
        if !depends_on_order(&serde_json::from_str(&payload).unwrap()) {
            return payload;
        }
    }
}

fn depends_on_order(json: &Json) -> bool {
    match json {
        Json::Array(elements) => {
            let contends = |one| elements.iter().any(|other| contend(one, other));
            elements.iter().any(|one| contends(one) || depends_on_order(one))
        }
        Json::Object(members) => members.values().any(depends_on_order),
        _ => false,
    }
}

/// Whether objects have objects or arrays of different shapes under one name.
fn contend(one: &Json, other: &Json) -> bool {
    let (Json::Object(one), Json::Object(other)) = (one, other) else { return false };
    let has_shape = |json: &Json| json.is_object() || json.is_array();
    one.iter()
        .filter_map(|(name, value)| Some((value, other.get(name)?)))
        .any(|(one, other)| has_shape(one) && has_shape(other) && shape(one) != shape(other))
}

/// Where it is equal, the schema is, but for the order of its fields.
fn shape(json: &Json) -> Json {
    match json {
        Json::Null => Json::Null,
        Json::Bool(_) => "boolean".into(),
        Json::String(_) => "string".into(),
        Json::Number(number) => match number.as_i64() {
            Some(number) if i32::try_from(number).is_ok() => "int32".into(),
            Some(_) => "int64".into(),
            None => "double".into(),
        },
        Json::Array(elements) => {
            let mut shapes: Vec<Json> = elements.iter().map(shape).collect();
            shapes.dedup();
            shapes.into()
        }
        Json::Object(members) => {
            members.iter().map(|(name, value)| (name.clone(), shape(value))).collect()
        }
    }
}

#[test]
#[ignore = "deep: needs a Java compiler and Kafka Connect"]
fn random_payloads_are_expanded_as_debezium_does() {
    let mut oracle = Oracle::start();
    let mut ways = ways();
    let mut random = Random::new("payloads");
    for case in 0..CASES {
        let count = ways.len();
        let payload = payload(&mut random);
        compare(&mut oracle, &mut ways[case % count], &payload);
    }
}

/// What is looked up by hash, and what grows with the payload.
#[test]
#[ignore = "deep: needs a Java compiler and Kafka Connect"]
fn large_payloads_are_expanded_as_debezium_does() {
    let joined = |parts: Vec<String>| parts.join(",");
    let member = |at: usize| format!("\"m{at}\":{at}");
    let wide = joined((0..40).map(member).chain((10..30).map(member)).collect());
    let shape = |at: usize| format!("{{{},{}}}", member(at % 23), member(23 + at % 7));
    let shapes = joined((0..60).map(shape).collect());
    let nested = |at: usize| format!("{{\"o\":{{\"p\":{{{}}}}},\"l\":[{{}}]}}", member(at % 2));
    let same = joined((0..60).map(|_| nested(0)).collect());
    let blank = r#"{" ":{"a":{"b":1}},"a":{"b":{"c":2}}}"#.to_owned();
    let depth = 120;
    let deep = format!("{}1{}", "{\"n\":".repeat(depth), "}".repeat(depth));
    let mut oracle = Oracle::start();
    for way in &mut ways() {
        for payload in [
            &format!("{{{wide}}}"),
            &format!("{{\"x\":[{shapes}]}}"),
            &format!("{{\"x\":[{same}]}}"),
        ] {
            assert_eq!(compare(&mut oracle, way, payload), None);
        }
        compare(&mut oracle, way, &blank);
        assert_eq!(compare(&mut oracle, way, &deep), None);
    }
}

//! Texts of a configuration as Kafka Connect takes them.

use serde_json::json;
use walpost_encode::connect::{
    Converter, HeaderConverter, JsonConverter, JsonConverterOptions, TypedValue, literal,
};

use super::{
    ask::{Oracle, Verdict, difference},
    random::Random,
};

const RANDOM_TEXTS: usize = 4_000;

const TEXTS: [&str; 34] = [
    "",
    "text",
    "[1, 2, 3]",
    "[1,300,70000,5000000000]",
    "[1, 2.5, 1e300]",
    "[3.25, 7]",
    r#"["a", "b"]"#,
    r#"["a"  "b"]"#,
    r#"[" a", " ", ""]"#,
    r#"["a\"b", "c\\d", "e:f", "{g}"]"#,
    "[a, b]",
    "[true, false]",
    "[1,]",
    "[,1]",
    "[1",
    "[1] and more",
    "[[1], [2, 3]]",
    "[[1, 2], {}]",
    r#"[{"a": 1}, {"b": 2}]"#,
    "[1, null]",
    "[1, [x]]",
    "[2020-01-02, 2021-01-02]",
    r#"["2020-01-02T10:30:00.000Z"]"#,
    "[10:30:00.000Z, 11:30:00.000Z]",
    r#"{"a": "b"}"#,
    r#"{"a": "b", "c": "d", "a": "e"}"#,
    r#"{"a": 1 "b": 300}"#,
    "{1: true, 300: false}",
    r#"{"a": [1, 2], "b": [3]}"#,
    r#"{"a": {"b": {"c": 1.5}}}"#,
    r#"{"a" 1}"#,
    r#"{"a": null}"#,
    r#"{null: 1}"#,
    r#"{"a": 1} {"b": 2}"#,
];

/// A text that is mostly an array, a map or what stands in one.
fn text(random: &mut Random, depth: u32) -> String {
    const SCALARS: [&str; 16] = [
        "1",
        "-7",
        "300",
        "70000",
        "5000000000",
        "1.5",
        "1e300",
        "0.25",
        "true",
        "\"a\"",
        "\"b c\"",
        "\"\"",
        "\"d:e\"",
        "null",
        "x",
        "2020-02-29",
    ];
    const COMMAS: [&str; 3] = [",", ", ", " , "];
    const KEYS: [&str; 4] = ["\"k\":", "\"l\": ", "7 : ", "300:"];
    const MARKS: [&str; 8] = ["[", "]", "{", "}", ",", ":", "\"", " "];
    if random.chance(4) {
        return (*random.pick(&MARKS)).to_owned();
    }
    let opened = [("[", "]"), ("{", "}")][random.below(2) as usize];
    if depth == 0 || (depth < 3 && random.chance(60)) {
        return (*random.pick(&SCALARS)).to_owned();
    }
    let (alike, scalar) = (random.chance(70), (*random.pick(&SCALARS)).to_owned());
    let mut all = opened.0.to_owned();
    for index in 0..random.below(4) {
        if index > 0 {
            all.push_str(random.pick::<&str>(&COMMAS));
        }
        if opened.0 == "{" {
            all.push_str(random.pick::<&str>(&KEYS));
        }
        all.push_str(&if alike { scalar.clone() } else { text(random, depth - 1) });
    }
    all + opened.1
}

#[test]
#[ignore = "deep: needs a Java compiler and Kafka Connect"]
fn literals_are_what_kafka_connect_takes_them_for() {
    const PACKAGE: &str = "org.apache.kafka.connect";
    let mut oracle = Oracle::start();
    let mut random = Random::new("literals");
    let json = Converter::Json(JsonConverter::new(JsonConverterOptions::default()));
    let mut ways = [
        (format!("{PACKAGE}.storage.SimpleHeaderConverter"), HeaderConverter::Simple),
        (format!("{PACKAGE}.json.JsonConverter"), HeaderConverter::Of(json)),
    ];
    let (mut equal, mut collections, mut found) = (0, 0, Vec::new());
    let drawn = (0..RANDOM_TEXTS).map(|_| text(&mut random, 3)).collect::<Vec<_>>();
    for text in TEXTS.iter().map(|text| (*text).to_owned()).chain(drawn) {
        // Of no type in common: told at the start, where it is written.
        let Some(TypedValue { schema, value }) = literal(text.trim()) else { continue };
        for (class, converter) in &mut ways {
            let way = json!({ "class": class, "config": {}, "header": true });
            let asked = json!({ "op": "literal", "text": text.trim(), "converter": way });
            let theirs = Verdict::of(&oracle.ask(&asked));
            let ours = Verdict::of_ours(converter.convert("topic", schema.as_ref(), &value));
            collections += usize::from(ours.text().starts_with(['[', '{']));
            match (&ours, &theirs) {
                (Verdict::Failed(_), Verdict::Failed(_)) => equal += 1,
                _ if ours == theirs => equal += 1,
                _ => found.push(format!("{text}:{}", difference(&ours.text(), &theirs.text()))),
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
    assert!(equal > 2_000 && collections > 1_000, "{equal} alike, {collections} with parts");
}

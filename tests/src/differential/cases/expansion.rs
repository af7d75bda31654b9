//! `table.expand.json.payload`: JSON that becomes a structure.

use super::{
    super::{
        case::Converter::{Bytes, Json, JsonWithSchema, Text},
        difference::Difference,
    },
    Case,
    Group::Expansion,
};

const NULLS: &str = "table.json.payload.null.behavior";
const EMPTY: &str = "table.json.payload.empty.array.behavior";

/// As text, so that it is expanded as it was written.
fn case(name: &str) -> Case {
    Case::new(Expansion, name)
        .column("payload", "text")
        .router("table.expand.json.payload", "true")
        .value(Json)
}

fn payloads<const N: usize>(case: Case, payloads: [&str; N]) -> Case {
    payloads.iter().fold(case, |case, payload| {
        let quoted = format!("'{}'", payload.replace('\'', "''"));
        case.insert([("payload", &quoted)])
    })
}

pub(super) fn all() -> Vec<Case> {
    [objects(), numbers(), arrays(), behaviours(), abandoned(), failing(), elsewhere()].concat()
}

const OBJECTS: [&str; 12] = [
    r#"{"a": 1}"#,
    r#"{"text": "x", "flag": true, "no": false}"#,
    r#"{"z": 1, "a": 2, "m": 3}"#,
    r#"{"o": {"p": {"q": "deep"}}}"#,
    r#"{"o": {}, "oo": {"z": null}}"#,
    "{}",
    r#"{"n": null}"#,
    r#"{"n": null, "t": []}"#,
    r#"{"a": 1, "a": "two"}"#,
    r#"{"": 1, "a b": 2, "a.b": 3, "ä": 4, "0": 5}"#,
    r#"{"escaped": "\"\\\/\b\f\n\r\t\u0041\u00e4\ud83c\udf89"}"#,
    "{\n  \"spread\" : \"over\" ,\n  \"lines\":1\n}  ",
];

fn objects() -> Vec<Case> {
    let mut all = Vec::new();
    for converter in [Json, JsonWithSchema, Text] {
        let name = |what: &str| format!("{what}, {converter:?}");
        all.push(payloads(case(&name("expand: objects of text")).value(converter), OBJECTS));
        all.push(payloads(
            case(&name("expand: objects of jsonb")).column("payload", "jsonb").value(converter),
            OBJECTS,
        ));
    }
    all
}

fn numbers() -> Vec<Case> {
    vec![
        payloads(
            case("expand: numbers"),
            [
                r#"{"n": 0, "m": -0, "i": 2147483647, "j": -2147483648}"#,
                r#"{"n": 2147483648, "m": -2147483649, "i": 9223372036854775807}"#,
                r#"{"f": 1.10, "g": 1e3, "h": 1.5E-7, "i": -0.0, "j": 100.0}"#,
                r#"{"f": 1e7, "g": 12345678.9, "h": 0.001, "i": 0.0001, "j": 1e-5}"#,
                r#"{"f": 3.141592653589793238462643, "g": 0.1234567890123456789}"#,
                r#"{"f": 1e400, "g": -1e400, "h": 1e-400}"#,
                r#"{"f": 1.7976931348623157e308, "g": 4.9e-324, "h": 2.2250738585072014e-308}"#,
                r#"{"f": 123456789012345678901234.5}"#,
            ],
        ),
        payloads(
            case("expand: numbers with their schemas").value(JsonWithSchema),
            [r#"{"i": 1, "l": 3000000000, "f": 1.10, "e": 1e3}"#],
        ),
        payloads(
            case("expand: numbers of jsonb").column("payload", "jsonb"),
            [r#"{"f": 1.10, "g": 1e3, "h": 1e-7, "i": -0.0, "z": 1.5e10}"#],
        ),
        payloads(
            case("expand: a fraction that jsonb makes an integer beyond 64 bits")
                .column("payload", "jsonb")
                .dies("Invalid type for STRUCT"),
            [r#"{"z": 1e25}"#],
        ),
    ]
}

fn arrays() -> Vec<Case> {
    vec![
        payloads(
            case("expand: arrays").value(JsonWithSchema),
            [
                r#"{"a": [1, 2], "b": ["x"], "c": [true], "d": [1.5, 2.5], "e": [3000000000]}"#,
                r#"{"a": [null, 1], "b": ["x", null]}"#,
                r#"{"a": [[1, 2], [3]], "b": [["x"]]}"#,
                r#"{"a": [], "b": 1}"#,
                r#"{"a": [{"x": 1}, {"x": 2}]}"#,
                r#"{"a": [{}]}"#,
            ],
        ),
        payloads(
            case("expand: objects of an array are merged"),
            [
                r#"{"a": [{"a": 1}, {"b": "q"}]}"#,
                r#"{"items": [{"sku": "x", "count": 1}, {"sku": "y", "note": "n"}, {"price": 1.5}]}"#,
            ],
        )
        .differs(Difference::MemberOrder),
        payloads(
            case("expand: objects within objects of an array are those of the first"),
            [r#"{"a": [{"a": {"x": 1}}, {"a": {"y": 2}}]}"#],
        )
        .differs(Difference::Loses),
    ]
}

fn behaviours() -> Vec<Case> {
    let all = [
        r#"{"id": 1, "n": null, "arr": [null]}"#,
        r#"{"t": [], "o": {"t": [], "n": null}}"#,
        r#"{"a": [{"n": null}, {"n": 1}], "b": [[]]}"#,
    ];
    let with = |name: &str, nulls: &str, empty: &str| {
        case(name).router(NULLS, nulls).router(EMPTY, empty).value(JsonWithSchema)
    };
    vec![
        payloads(with("expand: nulls as bytes", "optional_bytes", "ignore"), [all[0], all[1]]),
        payloads(with("expand: empty arrays as text", "ignore", "optional_string"), [all[1]]),
        payloads(with("expand: both", "optional_bytes", "optional_string"), [all[0], all[1]]),
        payloads(with("expand: neither, in capitals", "IGNORE", "IGNORE"), [all[1]]),
        payloads(
            with("expand: nulls in objects of an array", "optional_bytes", "ignore"),
            [all[2]],
        ),
        case("expand: an unknown behaviour of nulls").router(NULLS, "drop").refused(NULLS),
        case("expand: an unknown behaviour of arrays").router(EMPTY, "drop").refused(EMPTY),
    ]
}

fn abandoned() -> Vec<Case> {
    let all = [
        r#"{"a": [1, 3000000000]}"#,
        r#"{"a": [1, "a"]}"#,
        r#"{"a": [[], [1]]}"#,
        r#"{"a": [null, null]}"#,
        "plain",
        "",
        " {\"a\": 1}",
        "{\"a\": 1",
        "{a: 1}",
        "12",
        "\"text\"",
        "null",
        "{\"a\": NaN}",
        "{\"a\": 01}",
        "[]",
        "{\"a\": 1} trailing",
    ];
    vec![
        payloads(case("expand: given up"), all),
        payloads(case("expand: given up, with schemas").value(JsonWithSchema), all),
        case("expand: NULL").insert([("payload", "null")]),
        case("expand: NULL as a tombstone")
            .router("route.tombstone.on.empty.payload", "true")
            .insert([("payload", "null")])
            .insert([("payload", "' '")]),
        case("expand: bytes are none")
            .column("payload", "bytea")
            .insert([("payload", r#"'{"a": 1}'"#)]),
        case("expand: bytes are none, and go as they are")
            .column("payload", "bytea")
            .value(Bytes)
            .insert([("payload", r#"'{"a": 1}'"#)])
            .insert([("payload", "null")]),
        case("expand: a number").column("payload", "int").insert([("payload", "1")]),
    ]
}

/// Each makes the task fail.
fn failing() -> Vec<Case> {
    let all = [
        ("expand: an array of numbers", "[1, 2]"),
        ("expand: an array of objects", r#"[{"a": 1}]"#),
        ("expand: an integer beyond 64 bits", r#"{"n": 9223372036854775808}"#),
        ("expand: an integer and a fraction in objects", r#"{"a": [{"a": 1}, {"a": 2.5}]}"#),
        ("expand: a number and a text in objects", r#"{"a": [{"a": 1}, {"a": "q"}]}"#),
        ("expand: an integer and a fraction in arrays", r#"{"a": [[1], [2.5]]}"#),
        ("expand: null before objects", r#"{"a": [null, {"a": 1}, {"b": 2}]}"#),
    ];
    let dies = |(name, payload): (&str, &str)| {
        let start = payloads(case(name), [r#"{"ok": 1}"#]).dies("Invalid type for");
        payloads(start, [payload, r#"{"ok": 2}"#])
    };
    all.into_iter().map(dies).collect()
}

fn elsewhere() -> Vec<Case> {
    vec![
        payloads(
            case("expand: in an envelope").place("type:envelope"),
            [r#"{"a": 1}"#, r#"{"b": "x"}"#, "plain"],
        ),
        payloads(
            case("expand: in an envelope with schemas")
                .place("type:envelope:kind")
                .value(JsonWithSchema),
            [r#"{"a": {"b": [1]}}"#, r#"{"a": {"b": [2]}}"#],
        ),
        payloads(
            case("expand: an empty array in an envelope")
                .place("type:envelope")
                .dies("NullPointer"),
            ["[]"],
        ),
        payloads(
            case("expand: names that Avro does not allow")
                .router("field.name.adjustment.mode", "avro")
                .value(JsonWithSchema),
            [r#"{"a-b": 1, "1st": {"x y": 2}, "ok": [{"c$d": 3}]}"#],
        )
        .differs(Difference::Loses),
        payloads(
            case("expand: names in unicode for Avro")
                .router("field.name.adjustment.mode", "avro_unicode")
                .value(JsonWithSchema),
            [r#"{"a-b": 1, "1st": {"x_y": 2}, "ä": 3}"#],
        )
        .differs(Difference::Loses),
        payloads(
            case("expand: another column names the structures")
                .column("body", "text")
                .router("table.field.event.payload", "body")
                .value(JsonWithSchema)
                .insert([("body", r#"'{"a": {"b": 1}, "l": [{"m": 2}]}'"#)]),
            [],
        ),
    ]
}

//! Cases from a seed: connectors, tables and rows that nobody thought of.

mod values;

use walpost_testkit::Seeded;

use self::values::{json, sql};
use super::{
    case::{
        Case,
        Converter::{self, BinaryOrJson, BinaryOrText, Bytes, Json, JsonWithSchema, Simple, Text},
        Group,
    },
    cases::{TYPES, Type},
    difference::Difference,
};

/// Rows of a case.
const ROWS: usize = 60;
/// Rows of a transaction of several.
const ROWS_AT_ONCE: usize = 6;
/// Where a column other than the usual one is the key, it may be NULL.
const KEY: &str = "transforms.outbox.table.field.event.key";
const EXPAND: &str = "transforms.outbox.table.expand.json.payload";
const EMPTY_ARRAY: &str = "transforms.outbox.table.json.payload.empty.array.behavior";

/// Cases with `records` records together, or a few more.
#[must_use]
pub fn random_cases(records: usize, seed: u64) -> Vec<Case> {
    let number = records.div_ceil(ROWS);
    (0..number).map(|index| random_case(seed, index)).collect()
}

/// A column beside those that every outbox has.
struct Column {
    /// As SQL names it.
    name: String,
    /// As a placement does.
    placed: String,
    kind: &'static Type,
}

fn random_case(seed: u64, index: usize) -> Case {
    // What a case is depends on its number alone, not on those before it.
    let mix = u64::try_from(index).expect("a usize fits in a u64").wrapping_mul(0x9e37_79b9);
    let seeded = &mut Seeded::new(seed ^ mix);
    let case = Case::new(Group::Random, format!("random {seed}-{index}"));
    let (case, hyphen) = names(case, seeded);
    let columns = columns(hyphen, seeded);
    let payload = *one(seeded, &["jsonb", "text", "bytea", "json", "varchar"]);
    let case = columns.iter().fold(case, |case, column| {
        let case = match column.kind.setup {
            "" => case,
            setup => case.setup(setup),
        };
        case.column(&column.name, column.kind.name)
    });
    let case = case.column("payload", payload).column("at", "timestamp").column("part", "int");
    let (case, in_envelope) = placements(case, &columns, seeded);
    let case = converters(case, payload, in_envelope, seeded);
    let case = routes(case, seeded);
    let case = modes(case, payload, seeded);
    let case = switches(case, seeded);
    rows(case, &columns, payload, in_envelope, seeded)
}

fn one<'a, T>(seeded: &mut Seeded, all: &'a [T]) -> &'a T {
    &all[seeded.below(all.len())]
}

/// How names of columns are adjusted, and what becomes of a hyphen in one; nothing
/// where none has any.
fn names(case: Case, seeded: &mut Seeded) -> (Case, Option<&'static str>) {
    let modes =
        [None, None, Some(("none", "-")), Some(("avro", "_")), Some(("avro_unicode", "_u002d"))];
    match *one(seeded, &modes) {
        None => (case, None),
        Some((mode, hyphen)) => (case.set("field.name.adjustment.mode", mode), Some(hyphen)),
    }
}

/// Different types, so that what one needs is set up once.
fn columns(hyphen: Option<&str>, seeded: &mut Seeded) -> Vec<Column> {
    let mut kinds: Vec<&'static Type> = TYPES.iter().collect();
    let number = 1 + seeded.below(7);
    let mut taken = Vec::new();
    for index in 0..number {
        let kind = kinds.swap_remove(seeded.below(kinds.len()));
        kinds.retain(|other| other.setup.is_empty() || other.setup != kind.setup);
        // The first one may be the key, whose name has to stay.
        let (name, placed) = match hyphen.filter(|_| index > 0) {
            Some(hyphen) => (format!("\"c-{index}\""), format!("c{hyphen}{index}")),
            None => (format!("c{index}"), format!("c{index}")),
        };
        taken.push(Column { name, placed, kind });
    }
    taken
}

/// Each column somewhere, and whether one is in an envelope.
fn placements(case: Case, columns: &[Column], seeded: &mut Seeded) -> (Case, bool) {
    let mut all = Vec::new();
    let mut in_envelope = false;
    let may_envelope = seeded.chance(50);
    for Column { placed: name, .. } in columns {
        let place = if may_envelope && seeded.chance(50) { "envelope" } else { "header" };
        in_envelope |= place == "envelope";
        all.push(match seeded.below(3) {
            0 => format!("{name}:{place}:as-{name}"),
            1 => format!(" {name} : {place} "),
            _ => format!("{name}:{place}"),
        });
    }
    all.push(one(seeded, &["type:header:eventType", "type:header", "id:header"]).to_string());
    if seeded.chance(30) {
        all.push("part:partition".to_owned());
    }
    let case = if seeded.chance(20) { case.set(KEY, "c0") } else { case };
    (case.place(&all.join(",")), in_envelope)
}

fn converters(case: Case, payload: &str, in_envelope: bool, seeded: &mut Seeded) -> Case {
    let keys = [Text, Text, Json, JsonWithSchema];
    let of_values: &[Converter] = match (payload, in_envelope) {
        (_, true) => &[Json, JsonWithSchema],
        ("bytea", false) => &[Json, JsonWithSchema, Bytes, BinaryOrJson, BinaryOrText],
        (_, false) => &[Text, Text, Json, JsonWithSchema, BinaryOrText, BinaryOrJson],
    };
    let headers = [Simple, Simple, Simple, Json, JsonWithSchema];
    let case =
        case.key(*one(seeded, &keys)).value(*one(seeded, of_values)).header(*one(seeded, &headers));
    // Converters other than of text pass over it.
    let encodings = ["utf8", "ISO-8859-1", "windows-1252", "US-ASCII", "UTF-16", "UTF-16LE"];
    ["key", "value"].into_iter().fold(case, |case, part| match seeded.chance(30) {
        true => {
            let name = format!("{part}.converter.converter.encoding");
            case.set(&name, encodings[seeded.below(encodings.len())])
        }
        false => case,
    })
}

fn routes(case: Case, seeded: &mut Seeded) -> Case {
    let (regex, replacement) = *one(
        seeded,
        &[
            ("(?<routedByValue>.*)", "outbox.event.${routedByValue}"),
            ("(z.+z)(.*)", "$2.$1.v1"),
            ("(z.+z)(?:Order|User)", "$1.known"),
            ("(?<id>z[0-9]+z)(?<kind>[A-Z][a-z]+)", "${kind}_${id}-v1"),
            (".*Order", "{n}.orders"),
            ("(z\\d+z)(?=O|U)(\\p{L}+?)(Line)?", "$2.$1$3"),
            ("(?i)(Z\\w+?Z)(?!user)([a-z]++)", "$1-$2"),
            ("(?<a>[^z]*)(?<b>z)(.+)\\k<b>(.*)$", "${b}$3${b}.$4"),
        ],
    );
    case.router("route.topic.regex", regex).router("route.topic.replacement", replacement)
}

fn modes(case: Case, payload: &str, seeded: &mut Seeded) -> Case {
    let all: [(&str, &[&str]); 7] = [
        ("time.precision.mode", &["adaptive", "adaptive_time_microseconds", "microseconds"]),
        ("decimal.handling.mode", &["precise", "double", "string"]),
        ("interval.handling.mode", &["numeric", "string"]),
        ("hstore.handling.mode", &["json", "map"]),
        ("extended.headers.enabled", &["true", "false"]),
        ("topic.delimiter", &["_", "-", "."]),
        ("schema.name.adjustment.mode", &["avro", "avro_unicode"]),
    ];
    let binary = ["base64", "base64-url-safe", "hex"];
    // A converter of bytes may be there for the payload.
    let case = match payload != "bytea" && seeded.chance(30) {
        true => case.set("binary.handling.mode", binary[seeded.below(binary.len())]),
        false => case,
    };
    all.into_iter().fold(case, |case, (name, modes)| match seeded.chance(50) {
        true => {
            let mode: &&str = one(seeded, modes);
            case.set(name, mode)
        }
        false => case,
    })
}

fn switches(case: Case, seeded: &mut Seeded) -> Case {
    let all = [
        ("route.tombstone.on.empty.payload", "true"),
        ("table.field.event.timestamp", "at"),
        ("table.expand.json.payload", "true"),
        ("table.json.payload.null.behavior", "optional_bytes"),
        ("table.json.payload.empty.array.behavior", "optional_string"),
        ("table.field.additional.missing", "ignore"),
    ];
    let case = all.into_iter().fold(case, |case, (name, value)| match seeded.chance(35) {
        true => case.router(name, value),
        false => case,
    });
    case.differs(Difference::MemberOrder)
}

fn rows(
    mut case: Case,
    columns: &[Column],
    payload: &str,
    in_envelope: bool,
    seeded: &mut Seeded,
) -> Case {
    let is_keyed = case.property(KEY).is_none();
    // An array at the top makes the task fail but for one without elements, where
    // that has no schema and is in no envelope.
    let is_expanded = case.property(EXPAND).is_some() && case.property(EMPTY_ARRAY).is_none();
    let has_arrays = is_expanded && !in_envelope;
    let mut written = 0;
    while written < ROWS {
        let number = if seeded.chance(30) { 1 + seeded.below(ROWS_AT_ONCE) } else { 1 };
        let number = number.min(ROWS - written);
        let next = |next| row(columns, payload, [is_keyed, has_arrays], written + next, seeded);
        let all: Vec<String> = (0..number).map(next).collect();
        written += number;
        let rows = all.join("; ");
        let gone = if seeded.chance(8) { "; delete from outbox" } else { "" };
        case = case.publishes(number, &format!("begin; {rows}{gone}; commit"));
        case = match seeded.below(20) {
            0 => case.silent("update outbox set type = 'changed'"),
            1 => case.silent("delete from outbox"),
            2 => case.silent("truncate outbox"),
            _ => case,
        };
    }
    case
}

fn row(
    columns: &[Column],
    payload: &str,
    [is_keyed, has_arrays]: [bool; 2],
    number: usize,
    seeded: &mut Seeded,
) -> String {
    let mut names = vec!["id", "aggregatetype", "aggregateid", "type", "payload", "at", "part"];
    names.extend(columns.iter().map(|column| column.name.as_str()));
    let kind = *one(seeded, &["Order", "User", "OrderLine"]);
    let key = if seeded.chance(90) { seeded.below(9).to_string() } else { sql::word(seeded) };
    let payload = match payload {
        _ if seeded.chance(10) => "null".to_owned(),
        "jsonb" | "json" | "text" if has_arrays && seeded.chance(10) => "'[]'".to_owned(),
        "jsonb" | "json" => sql::quoted(&json(seeded)),
        "bytea" => sql::bytes(seeded),
        _ if seeded.chance(50) => sql::quoted(&json(seeded)),
        _ => sql::quoted(&sql::word(seeded)),
    };
    let at = match seeded.below(5) {
        0 => "null".to_owned(),
        _ => format!("'2020-02-29 12:34:56.{:06}'", seeded.below(1_000_000)),
    };
    // One without a key has its partition from here alone.
    let part = match (seeded.below(4), is_keyed) {
        (3, true) => "null".to_owned(),
        (part, _) => (part % 3).to_string(),
    };
    let mut values = vec![
        format!("'00000000-0000-4000-8000-{number:012}'"),
        format!("'{{n}}{kind}'"),
        sql::quoted(&key),
        sql::quoted(&sql::word(seeded)),
        payload,
        at,
        part,
    ];
    values.extend(columns.iter().map(|column| sql::value(column.kind, seeded)));
    format!("insert into outbox ({}) values ({})", names.join(", "), values.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_cases_whatever_their_number() {
        let texts = |records| -> Vec<String> {
            random_cases(records, 7).iter().map(|case| format!("{case:?}")).collect()
        };
        let (few, many) = (texts(ROWS), texts(5 * ROWS));
        assert_eq!((few.len(), many.len()), (1, 5));
        assert_eq!(few[0], many[0]);
        assert_ne!(many[0], many[1]);
        let records: usize = random_cases(5 * ROWS, 7).iter().map(|case| case.expected).sum();
        assert_eq!(records, 5 * ROWS);
    }
}

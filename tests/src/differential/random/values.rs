//! Random values, as SQL and as JSON.

use serde_json::{Map, Number, Value};
use walpost_testkit::Seeded;

use super::one;

const WORDS: [&str; 12] = [
    "",
    " ",
    "a",
    "Order-7",
    "O'Neill",
    "line\nbreak\t\u{1}",
    "\"quoted\" \\ back",
    "größe",
    "世界",
    "🎉🎈",
    "null",
    "{curly}",
];
const MEMBERS: [&str; 8] = ["a", "b", "id", "total amount", "größe", "n1", "_x", "Z"];
const DEPTH: usize = 3;

/// A text of JSON: an object, whose members Debezium can expand.
pub(super) fn json(seeded: &mut Seeded) -> String {
    Value::Object(object(seeded, DEPTH)).to_string()
}

fn object(seeded: &mut Seeded, depth: usize) -> Map<String, Value> {
    let number = seeded.below(5);
    (0..number).map(|_| (member(seeded), value(seeded, depth))).collect()
}

fn member(seeded: &mut Seeded) -> String {
    one(seeded, &MEMBERS).to_string()
}

fn value(seeded: &mut Seeded, depth: usize) -> Value {
    match seeded.below(if depth == 0 { 5 } else { 8 }) {
        0 => Value::Null,
        1 => Value::Bool(seeded.chance(50)),
        2 => number(seeded),
        3 | 4 => word(seeded).into(),
        5 | 6 => Value::Object(object(seeded, depth - 1)),
        _ => list(seeded),
    }
}

/// Of one type, as the expansion needs it.
fn list(seeded: &mut Seeded) -> Value {
    let number = seeded.below(4);
    let kind = seeded.below(4);
    let all = (0..number).map(|_| match kind {
        0 => Value::Bool(seeded.chance(50)),
        1 => seeded.below(1_000_000).into(),
        2 => word(seeded).into(),
        _ => fraction(seeded),
    });
    all.collect()
}

fn number(seeded: &mut Seeded) -> Value {
    match seeded.below(3) {
        0 => seeded.below(100).into(),
        1 => i64::from_le_bytes(seeded.number().to_le_bytes()).into(),
        _ => fraction(seeded),
    }
}

fn fraction(seeded: &mut Seeded) -> Value {
    // A half keeps it from being an integer in its text.
    let whole = u32::try_from(seeded.below(1 << 30)).expect("it is below");
    let scale = *one(seeded, &[1.0, 1e-9, 1e9, -1e-3]);
    Number::from_f64((f64::from(whole) + 0.5) * scale).map_or(Value::Null, Value::Number)
}

/// A text, at times of several words.
pub(super) fn word(seeded: &mut Seeded) -> String {
    let number = if seeded.chance(80) { 1 } else { seeded.below(20) };
    (0..number).map(|_| *one(seeded, &WORDS)).collect::<Vec<_>>().join(" ")
}

/// The same as SQL.
pub(super) mod sql {
    use std::fmt::Write as _;

    use super::{super::one, Seeded};
    use crate::differential::cases::Type;

    pub(in super::super) use super::word;

    pub(in super::super) fn quoted(text: &str) -> String {
        format!("'{}'", text.replace('\'', "''"))
    }

    pub(in super::super) fn bytes(seeded: &mut Seeded) -> String {
        let number = seeded.below(20);
        let digits = (0..number).fold(String::new(), |mut text, _| {
            write!(text, "{:02x}", seeded.below(256)).expect("a string takes all");
            text
        });
        format!("'\\x{digits}'")
    }

    /// Of that type: NULL, one that is known to be odd, or any.
    pub(in super::super) fn value(kind: &Type, seeded: &mut Seeded) -> String {
        if seeded.chance(15) {
            return "null".to_owned();
        }
        if seeded.chance(50) {
            return one(seeded, kind.values).to_string();
        }
        match kind.name {
            "smallint" => {
                (i64::try_from(seeded.below(65_536)).expect("small") - 32_768).to_string()
            }
            "int" => i32::from_le_bytes(four(seeded)).to_string(),
            "bigint" => format!("({}::numeric - 9223372036854775808)::bigint", seeded.number()),
            "real" => format!("'{}'", f32::from_le_bytes(four(seeded))),
            "double precision" => {
                format!("'{}'", f64::from_le_bytes(seeded.number().to_le_bytes()))
            }
            "numeric(10,2)" => format!("{}.{:02}", seeded.below(99_999_999), seeded.below(100)),
            "numeric" => format!("{}e{}", seeded.number(), seeded.below(40)),
            "text" | "varchar(200)" => quoted(&word(seeded)),
            "bytea" => bytes(seeded),
            "jsonb" | "json" => quoted(&super::json(seeded)),
            "date" => format!("date '1900-01-01' + {}", seeded.below(100_000)),
            "timestamp" | "timestamp(3)" | "timestamp(0)" => moment(seeded),
            "timestamptz" | "timestamptz(3)" => format!("({}) at time zone 'UTC'", moment(seeded)),
            _ => one(seeded, kind.values).to_string(),
        }
    }

    fn moment(seeded: &mut Seeded) -> String {
        let micros = seeded.below(4_000_000_000_000_000);
        format!("timestamp '1950-01-01' + {micros} * interval '1 microsecond'")
    }

    fn four(seeded: &mut Seeded) -> [u8; 4] {
        let [a, b, c, d, ..] = seeded.number().to_le_bytes();
        [a, b, c, d]
    }
}

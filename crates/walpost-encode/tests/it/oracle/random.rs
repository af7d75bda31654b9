//! Schemas, values and JSON that follow from a seed.

use std::{
    env,
    hash::{BuildHasher, RandomState},
    sync::Arc,
};

use walpost_encode::connect::{Decimal, Kind, Schema, SchemaField, Value};

/// Numbers that follow from a seed (SplitMix64).
pub(crate) struct Random(u64);

impl Random {
    /// From `WALPOST_TEST_SEED`, else another one each time; it is printed.
    pub(crate) fn new(what: &str) -> Self {
        let seed = match env::var("WALPOST_TEST_SEED") {
            Ok(seed) => seed.parse().expect("WALPOST_TEST_SEED is a number"),
            Err(_) => RandomState::new().hash_one(what),
        };
        eprintln!("{what}: WALPOST_TEST_SEED={seed}");
        Self(seed)
    }

    pub(crate) fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.number() % limit
    }

    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub(crate) fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len() as u64) as usize]
    }

    pub(crate) fn text(&mut self) -> String {
        const PARTS: [&str; 22] = [
            "a", "Z", "0", " ", "\"", "\\", "/", "\n", "\t", "\u{1}", "\u{1f}", "\u{7f}", "ä", "€",
            "😀", "\u{2028}", "<", "=", ",", "}", "null", "é",
        ];
        (0..self.below(8)).map(|_| *self.pick(&PARTS)).collect()
    }

    /// Of every size.
    pub(crate) fn double(&mut self) -> f64 {
        match self.below(6) {
            0 => f64::from_bits(self.number()),
            1 => f64::from_bits(self.number() >> 12),
            2 => self.below(2_000_000) as f64 / 1000.0 - 1000.0,
            3 => *self.pick(&[0.0, -0.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 5e-324]),
            4 => 10_f64.powi(self.below(40) as i32 - 20),
            _ => self.below(1 << 40) as f64,
        }
    }

    pub(crate) fn single(&mut self) -> f32 {
        match self.below(4) {
            0 => f32::from_bits(self.number() as u32),
            1 => f32::from_bits(self.number() as u32 >> 9),
            2 => *self.pick(&[0.0, -0.0, f32::NAN, f32::INFINITY, 1e-45, 1e10]),
            _ => self.below(2_000_000) as f32 / 1000.0,
        }
    }

    pub(crate) fn decimal(&mut self, scale: i32) -> Decimal {
        let digits = 1 + self.below(30) + scale as u64;
        let digits: String = (0..digits).map(|_| self.below(10).to_string()).collect();
        let (integer, fraction) = digits.split_at(digits.len() - scale as usize);
        let sign = if self.chance(50) { "-" } else { "" };
        let point = if scale > 0 { "." } else { "" };
        Decimal::parse(&format!("{sign}{integer}{point}{fraction}")).unwrap()
    }

    pub(crate) fn schema(&mut self, depth: u32) -> Schema {
        let kinds = if depth == 0 { 13 } else { 16 };
        let mut schema = match self.below(kinds) {
            0 => Schema::new(Kind::Int8),
            1 => Schema::new(Kind::Int16),
            2 => Schema::new(Kind::Int32),
            3 => Schema::new(Kind::Int64),
            4 => Schema::new(Kind::Float32),
            5 => Schema::new(Kind::Float64),
            6 => Schema::new(Kind::Boolean),
            7 | 8 => Schema::new(Kind::String),
            9 => Schema::new(Kind::Bytes),
            10 => {
                let scale = self.below(12).to_string();
                Schema::logical(Kind::Bytes, "org.apache.kafka.connect.data.Decimal", 1)
                    .parameter("scale", &scale)
            }
            11 => Schema::logical(Kind::String, "io.debezium.data.Json", 1),
            12 => {
                let names =
                    [("Date", Kind::Int32), ("Time", Kind::Int32), ("Timestamp", Kind::Int64)];
                let (name, kind) = self.pick(&names).clone();
                Schema::logical(kind, &format!("org.apache.kafka.connect.data.{name}"), 1)
            }
            13 => Schema::array(self.schema(depth - 1)),
            14 => {
                let key = if self.chance(70) { Kind::String } else { Kind::Int32 };
                let value = self.schema(depth - 1);
                Schema::new(Kind::Map(Schema::new(key).into(), value.into()))
            }
            _ => {
                let count = 1 + self.below(3);
                let field = |at| SchemaField {
                    name: format!("f{at}\"").into(),
                    schema: Arc::new(self.schema(depth - 1)),
                };
                Schema::logical(Kind::Struct((0..count).map(field).collect()), "a.b.C", 2)
            }
        };
        schema.optional = self.chance(50);
        if self.chance(10) {
            schema = schema.documented("what \"it\" is");
        }
        if self.chance(15) && !matches!(schema.kind, Kind::Struct(_)) {
            schema.default = Some(self.value(&schema)).filter(|value| *value != Value::Null);
        }
        schema
    }

    pub(crate) fn value(&mut self, schema: &Schema) -> Value {
        const DAY: i64 = 86_400_000;
        if schema.optional && self.chance(20) {
            return Value::Null;
        }
        let millis = self.number() as i64 >> 20;
        match schema.name().and_then(|name| name.strip_prefix("org.apache.kafka.connect.data.")) {
            Some("Decimal") => {
                return Value::Decimal(self.decimal(schema.parameters[0].1.parse().unwrap()));
            }
            Some("Date") => return Value::Date(millis / DAY % 1_000_000 * DAY),
            Some("Time") => return Value::Date(millis.rem_euclid(DAY)),
            Some(_) => return Value::Date(millis % (DAY * 1_000_000)),
            None => {}
        }
        match &schema.kind {
            Kind::Int8 => Value::Int8(self.number() as i8),
            Kind::Int16 => Value::Int16(self.number() as i16),
            Kind::Int32 => Value::Int32(self.number() as i32),
            Kind::Int64 => Value::Int64(self.number() as i64),
            Kind::Float32 => Value::Float32(self.single()),
            Kind::Float64 => Value::Float64(self.double()),
            Kind::Boolean => Value::Boolean(self.chance(50)),
            Kind::String => Value::String(self.text().into()),
            Kind::Bytes => Value::Bytes(self.text().into_bytes().into()),
            Kind::Array(element) => {
                Value::Array((0..self.below(4)).map(|_| self.value(element)).collect())
            }
            Kind::Map(key, value) => {
                let entry = |at: u64| {
                    let key = match key.kind {
                        Kind::String => Value::String(format!("k{at}\"").into()),
                        _ => Value::Int32(at as i32),
                    };
                    (key, self.value(value))
                };
                Value::Map((0..3).map(entry).collect())
            }
            Kind::Struct(fields) => {
                Value::Struct(fields.iter().map(|field| self.value(&field.schema)).collect())
            }
        }
    }

    /// The text of a JSON value.
    pub(crate) fn json(&mut self, depth: u32) -> String {
        match self.below(if depth == 0 { 8 } else { 12 }) {
            0 => "null".to_owned(),
            1 => if self.chance(50) { "true" } else { "false" }.to_owned(),
            2 => self.below(100).to_string(),
            3 => format!("-{}", self.number() >> self.below(64)),
            4 => format!("{}.{}e{}", self.below(10), self.below(1000), self.below(30)),
            5 => format!("{:.3}", self.below(100_000) as f64 / 1000.0),
            6 | 7 => serde_json::Value::String(self.text()).to_string(),
            8 | 9 => {
                let count = self.below(4);
                let member = |_| {
                    let name = *self.pick(&["a", "b", "c-d", "1", "ä"]);
                    let value = self.json(depth - 1);
                    format!("\"{name}\" : {value}")
                };
                let members: Vec<String> = (0..count).map(member).collect();
                format!("{{{}}}", members.join(", "))
            }
            10 => {
                let element = self.json(depth - 1);
                format!("[{}]", vec![element; self.below(3) as usize].join(","))
            }
            _ => {
                let elements: Vec<String> =
                    (0..self.below(3)).map(|_| self.json(depth - 1)).collect();
                format!("[{}]", elements.join(","))
            }
        }
    }
}

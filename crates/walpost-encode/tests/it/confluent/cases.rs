//! Values of what Debezium gives: payloads, envelopes, and columns of all types.

use std::sync::Arc;

use walpost_encode::connect::{Decimal, Kind, Schema, Value};

type Case = (&'static str, Arc<Schema>, Value);

fn text() -> Schema {
    Schema::new(Kind::String)
}

fn string(text: &str) -> Value {
    Value::String(text.into())
}

fn connect(kind: Kind, name: &str) -> Schema {
    Schema::logical(kind, &format!("org.apache.kafka.connect.data.{name}"), 1)
}

fn with_default(kind: Kind, default: Value) -> Schema {
    Schema { default: Some(default), ..Schema::new(kind) }
}

fn json() -> Schema {
    Schema::logical(Kind::String, "io.debezium.data.Json", 1)
}

fn decimal(scale: &str) -> Schema {
    let decimal = connect(Kind::Bytes, "Decimal").parameter("connect.decimal.precision", "10");
    decimal.parameter("scale", scale)
}

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    let mut add = |name, schema: Schema, value| cases.push((name, Arc::new(schema), value));
    add("text", text(), string("a \"b\" \u{1} ü 😀 </script>"));
    add("text that is missing", text(), Value::Null);
    add("null", text().optional(), Value::Null);
    add("json", json().optional(), string("{\"a\": 1}"));
    add("bytes", Schema::new(Kind::Bytes), Value::Bytes(vec![0, 255, 1].into()));
    add("bytes or null", Schema::new(Kind::Bytes).optional(), Value::Bytes(vec![7].into()));
    add("long", Schema::new(Kind::Int64), Value::Int64(i64::MIN));
    add("uuid", Schema::logical(Kind::String, "io.debezium.data.Uuid", 1), string("u"));
    envelope(&mut add);
    nested(&mut add);
    columns(&mut add);
    defaults(&mut add);
    cases
}

fn envelope(add: &mut impl FnMut(&'static str, Schema, Value)) {
    let address = Schema::new(Schema::fields([("street", text().optional())]));
    let payload = Schema {
        name: Some("p.public.outbox.payload".into()),
        ..Schema::new(Schema::fields([
            ("id", Schema::new(Kind::Int32).optional()),
            ("address", Schema { name: Some("p.address".into()), ..address }.optional()),
            ("lines", Schema::array(text().optional()).optional()),
        ]))
    };
    let schema = Schema {
        name: Some("p.public.outbox.User.Value".into()),
        doc: Some("an \"event\"".into()),
        ..Schema::new(Schema::fields([
            ("payload", payload.optional()),
            ("eventType", text()),
            ("at", Schema::logical(Kind::Int64, "io.debezium.time.MicroTimestamp", 1)),
        ]))
    };
    let street = Value::Struct(vec![string("Straße")]);
    let lines = Value::Array(vec![string("x"), Value::Null]);
    let payload = Value::Struct(vec![Value::Int32(1), street, lines]);
    let value = Value::Struct(vec![payload, string("UserCreated"), Value::Int64(5)]);
    add("envelope", schema.clone(), value);
    let value = Value::Struct(vec![Value::Null, string("UserDeleted"), Value::Int64(5)]);
    add("envelope of nothing", schema.clone(), value.clone());
    add("envelope or null", schema.optional(), value);
    let names: [&str; 20] = [
        "id",
        "name",
        "created_at",
        "updated_at",
        "a",
        "b",
        "c",
        "aggregatetype",
        "aggregateid",
        "type",
        "payload",
        "tracingspancontext",
        "x1",
        "x2",
        "x3",
        "x4",
        "x5",
        "x6",
        "x7",
        "Ümlaut",
    ];
    let wide = Schema {
        name: Some("wide.Row".into()),
        version: Some(3),
        ..Schema::new(Schema::fields(names.map(|name| (name, text().optional()))))
    };
    add("many fields", wide, Value::Struct(names.map(string).to_vec()));
}

/// Structs in structs, arrays and maps, some of one name.
fn nested(add: &mut impl FnMut(&'static str, Schema, Value)) {
    let named = |name: &str, kind: Kind| Schema { name: Some(name.into()), ..Schema::new(kind) };
    let number = || Schema::new(Kind::Int32).optional();
    let line = || named("payload.l", Schema::fields([("x", number()), ("y", number())]));
    let within = named("payload.o.p", Schema::fields([("z", Schema::new(Kind::Int64))]));
    let object = Schema::fields([
        ("p", within.optional()),
        ("ns", Schema::array(Schema::new(Kind::Int16).optional()).optional()),
        ("at", connect(Kind::Int64, "Timestamp").optional()),
    ]);
    let entries = Schema::new(Kind::Map(text().into(), line().optional().into()));
    let schema = named(
        "payload",
        Schema::fields([
            ("lines", Schema::array(line().optional()).optional()),
            ("one", line().optional()),
            ("o", named("payload.o", object).optional()),
            ("m", entries.optional()),
            ("none", Schema::array(text().optional()).optional()),
            ("zero", Schema::new(Kind::Int32)),
            ("empty", text().optional()),
        ]),
    );
    let line = |x, y| Value::Struct(vec![x, y]);
    let value = Value::Struct(vec![
        Value::Array(vec![line(Value::Int32(1), Value::Null), line(Value::Int32(0), Value::Null)]),
        line(Value::Int32(-1), Value::Int32(300)),
        Value::Struct(vec![
            Value::Struct(vec![Value::Int64(i64::MAX)]),
            Value::Array(vec![Value::Int16(0), Value::Int16(-7)]),
            Value::Date(1_500),
        ]),
        Value::Map(vec![(string("k"), line(Value::Null, Value::Int32(2)))]),
        Value::Array(Vec::new()),
        Value::Int32(0),
        string(""),
    ]);
    add("nested", schema, value);
}

fn columns(add: &mut impl FnMut(&'static str, Schema, Value)) {
    let enumerated =
        Schema::logical(Kind::String, "io.debezium.data.Enum", 1).parameter("allowed", "new,paid");
    let several = text().parameter("a", "1").parameter("bb", "2").parameter("length", "3");
    let map = Schema::new(Kind::Map(text().into(), Schema::new(Kind::Int32).optional().into()));
    let pairs = Schema::new(Kind::Map(Schema::new(Kind::Int32).into(), text().into()));
    let schema = Schema {
        name: Some("p.columns.Value".into()),
        ..Schema::new(Schema::fields([
            ("int8", Schema::new(Kind::Int8)),
            ("int16", Schema::new(Kind::Int16).optional()),
            ("float32", Schema::new(Kind::Float32)),
            ("float64", Schema::new(Kind::Float64).optional()),
            ("boolean", Schema::new(Kind::Boolean)),
            ("flag", Schema::new(Kind::Boolean).optional().documented("a flag")),
            ("enum", enumerated),
            ("parameters", several),
            ("decimal", decimal("2").optional()),
            ("date", connect(Kind::Int32, "Date")),
            ("time", connect(Kind::Int32, "Time").optional()),
            ("timestamp", connect(Kind::Int64, "Timestamp")),
            ("hstore", map.optional()),
            ("pairs", pairs),
            ("matrix", Schema::array(Schema::array(Schema::new(Kind::Int64)))),
            ("bytes", Schema::new(Kind::Bytes).optional()),
        ]))
    };
    let value = Value::Struct(vec![
        Value::Int8(-1),
        Value::Int16(300),
        Value::Float32(1.5e10),
        Value::Float64(f64::NAN),
        Value::Boolean(true),
        Value::Null,
        string("paid"),
        string("p"),
        Value::Decimal(Decimal::parse("-12.30").unwrap()),
        Value::Date(86_400_000),
        Value::Date(1),
        Value::Date(1_234_567_890_123),
        Value::Map(vec![(string("k"), Value::Int32(1)), (string("a"), Value::Null)]),
        Value::Map(vec![(Value::Int32(3), string("three"))]),
        Value::Array(vec![Value::Array(vec![Value::Int64(1), Value::Int64(2)])]),
        Value::Bytes(vec![1, 2, 3, 4].into()),
    ]);
    add("columns", schema, value);
    let large = Value::Decimal(Decimal::parse("0.0000001").unwrap());
    add("small decimal", decimal("7"), large);
}

fn defaults(add: &mut impl FnMut(&'static str, Schema, Value)) {
    let number = Value::Decimal(Decimal::parse("1.50").unwrap());
    let bytes = Value::Bytes(vec![0, 200].into());
    let schema = Schema {
        name: Some("p.defaults.Value".into()),
        ..Schema::new(Schema::fields([
            ("number", with_default(Kind::Int32, Value::Int32(7)).optional()),
            ("required", with_default(Kind::Int64, Value::Int64(-7))),
            ("text", with_default(Kind::String, string("a \"b\"")).optional()),
            ("flag", with_default(Kind::Boolean, Value::Boolean(false))),
            ("half", with_default(Kind::Float64, Value::Float64(0.5)).optional()),
            ("one", with_default(Kind::Float64, Value::Float64(1.0))),
            ("large", with_default(Kind::Float64, Value::Float64(1e10))),
            ("single", with_default(Kind::Float32, Value::Float32(0.1))),
            ("bytes", with_default(Kind::Bytes, bytes).optional()),
            ("decimal", Schema { default: Some(number), ..decimal("2") }.optional()),
            (
                "day",
                Schema { default: Some(Value::Date(86_400_000)), ..connect(Kind::Int32, "Date") },
            ),
        ]))
    };
    let value = Value::Struct(vec![
        Value::Null,
        Value::Int64(3),
        Value::Null,
        Value::Boolean(true),
        Value::Null,
        Value::Float64(-0.0),
        Value::Float64(1e-5),
        Value::Float32(3.0),
        Value::Null,
        Value::Null,
        Value::Date(0),
    ]);
    add("defaults", schema, value);
    let rest = with_default(Kind::String, string("d"));
    add("a default alone", rest.clone(), Value::Null);
    add("a default or null", rest.optional(), Value::Null);
}

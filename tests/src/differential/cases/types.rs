//! Each type of column as key, payload, header and part of an envelope.

use super::{
    super::case::Converter::{Json, JsonWithSchema, Text},
    Case,
    Group::Types,
};

/// A type, what it needs, and values at its edges.
pub(in super::super) struct Type {
    pub(in super::super) name: &'static str,
    pub(in super::super) setup: &'static str,
    pub(in super::super) values: &'static [&'static str],
}

const fn plain(name: &'static str, values: &'static [&'static str]) -> Type {
    Type { name, setup: "", values }
}

const ENUM: &str = "create type mood as enum ('sad', 'so so', 'happy')";
const DOMAIN: &str = "create domain positive as int check (value > 0)";
const DOMAIN_OF_TEXT: &str = "create domain label as varchar(20)";
const DOMAIN_OF_BYTES: &str = "create domain content as bytea";
const COMPOSITE: &str = "create type pair as (a int, b text)";

pub(in super::super) const TYPES: &[Type] = &[
    plain("smallint", &["0", "32767", "-32768"]),
    plain("int", &["0", "2147483647", "-2147483648"]),
    plain("bigint", &["0", "9223372036854775807", "-9223372036854775808"]),
    plain("oid", &["0", "4294967295"]),
    plain("real", &["0", "1.5", "-0.1", "1e10", "3.4028235e38", "1.4e-45", "'NaN'", "'-Infinity'"]),
    plain(
        "double precision",
        &["0", "1e10", "0.1", "-0.0", "1e-5", "123456789.125", "5e-324", "'NaN'", "'Infinity'"],
    ),
    plain("numeric(10,2)", &["0", "12.30", "-0.01", "99999999.99"]),
    plain("numeric(5,0)", &["0", "99999", "-1"]),
    plain(
        "numeric",
        &["0", "12.30", "1e20", "-0.000000000000000000001", "123456789012345678901234567890.12"],
    ),
    plain("money", &["0", "12.34", "-1000000"]),
    plain("bool", &["true", "false"]),
    plain("text", &["''", "'a'", "'Größe ⟨🎉⟩'", "E'line\\nbreak \"quoted\" \\\\'"]),
    plain("varchar(10)", &["''", "'abc  '"]),
    plain("char(5)", &["''", "'ab'", "'abcde'"]),
    plain("\"char\"", &["'x'"]),
    plain("name", &["'some_name'"]),
    plain("uuid", &["'59A42EFD-B015-44A9-9DDE-CB36D9002425'"]),
    plain("json", &[r#"'{"b" : 1,  "a":[1.0, null]}'"#, "'1'", "'\"x\"'", "'null'"]),
    plain("jsonb", &[r#"'{"b" : 1,  "a":[1.0, null]}'"#, "'1'", "'null'"]),
    plain("bytea", &[r"'\x'", r"'\x00'", r"'\xdeadbeef'", "'text'"]),
    plain(
        "date",
        &["'1970-01-01'", "'2020-02-29'", "'0001-01-01'", "'9999-12-31'", "'0044-03-15 BC'"],
    ),
    plain("time", &["'00:00'", "'23:59:59.999999'", "'24:00'"]),
    plain("time(3)", &["'00:00'", "'12:34:56.789'"]),
    plain("timetz", &["'12:34:56.789+02'", "'00:00:00-12:30'"]),
    plain(
        "timestamp",
        &[
            "'1970-01-01'",
            "'2020-02-29 12:34:56.123456'",
            "'1600-01-01 00:00:00.000001'",
            "'9999-12-31 23:59:59'",
        ],
    ),
    plain("timestamp(3)", &["'2020-02-29 12:34:56.789'", "'1969-12-31 23:59:59.999'"]),
    plain("timestamp(0)", &["'2020-02-29 12:34:56'"]),
    plain(
        "timestamptz",
        &[
            "'1970-01-01Z'",
            "'2020-02-29 12:34:56.123456+02'",
            "'2020-02-29 12:34:56.5-11'",
            "'1600-01-01 00:00:00Z'",
        ],
    ),
    plain("timestamptz(3)", &["'2020-02-29 12:34:56.789+02'", "'2020-02-29 12:34:00Z'"]),
    plain("interval", &["'0'", "'1 year 2 mons 3 days 04:05:06.789'", "'-1 day +00:00:01'"]),
    plain("bit", &["B'0'", "B'1'"]),
    plain("bit(10)", &["B'1010101010'"]),
    plain("varbit", &["B''", "B'101'"]),
    plain("inet", &["'192.168.0.1/24'", "'::1'"]),
    plain("cidr", &["'10.0.0.0/8'"]),
    plain("macaddr", &["'08:00:2B:01:02:03'"]),
    plain("macaddr8", &["'08:00:2B:01:02:03:04:05'"]),
    plain("int4range", &["'[1,5)'", "'empty'"]),
    plain("numrange", &["'[1.5,)'"]),
    plain("tsrange", &["'[2020-01-01,2020-02-01)'"]),
    plain("tstzrange", &["'[2020-01-01Z,2020-02-01Z)'"]),
    plain("daterange", &["'[2020-01-01,2020-02-01]'"]),
    plain("int8range", &["'(,9]'"]),
    plain("point", &["'(1.5,-2)'"]),
    plain("xml", &["'<a b=\"c\">d</a>'"]),
    plain("tsvector", &["'a fat cat'"]),
    plain("int[]", &["'{}'", "'{1,NULL,-3}'"]),
    plain("bigint[]", &["'{9223372036854775807}'"]),
    plain("text[]", &["'{}'", r#"'{a,"b,c","d\"e",NULL,""}'"#]),
    plain("varchar(5)[]", &["'{a,b}'"]),
    plain("uuid[]", &["'{59a42efd-b015-44a9-9dde-cb36d9002425}'"]),
    plain("bool[]", &["'{t,f,NULL}'"]),
    plain("double precision[]", &["'{1.5,-0.1,NaN}'"]),
    plain("numeric(5,2)[]", &["'{1.50,-0.10}'"]),
    plain("date[]", &["'{2020-02-29}'"]),
    plain("timestamp[]", &["'{\"2020-02-29 12:34:56.123456\"}'"]),
    plain("timestamptz[]", &["'{\"2020-02-29 12:34:56.123456+02\"}'"]),
    plain("jsonb[]", &[r#"array['{"a": 1}'::jsonb]"#]),
    plain("bytea[]", &[r#"array['\x0102'::bytea]"#]),
    Type { name: "mood", setup: ENUM, values: &["'happy'", "'so so'"] },
    Type { name: "mood[]", setup: ENUM, values: &["'{happy,\"so so\"}'"] },
    Type { name: "positive", setup: DOMAIN, values: &["1", "2147483647"] },
    Type { name: "label", setup: DOMAIN_OF_TEXT, values: &["'x'"] },
    Type { name: "content", setup: DOMAIN_OF_BYTES, values: &[r"'\x'", r"'\x00ff41'"] },
    Type { name: "citext", setup: "create extension citext", values: &["'MiXed'"] },
    Type {
        name: "hstore",
        setup: "create extension hstore",
        values: &["'a=>1, b=>NULL, \"c d\"=>\"e\\\"f\"'", "''"],
    },
    Type { name: "ltree", setup: "create extension ltree", values: &["'Top.Science'", "''"] },
];

/// How many columns a table of the second kind has.
const TOGETHER: usize = 8;

pub(super) fn all() -> Vec<Case> {
    let alone = TYPES.iter().map(alone);
    let together = TYPES.chunks(TOGETHER).enumerate().flat_map(together);
    alone.chain(together).chain([composite()]).collect()
}

/// For Debezium there is no such column.
fn composite() -> Case {
    Case::new(Types, "a composite type as value")
        .setup(COMPOSITE)
        .column("c", "pair")
        .router("table.field.event.payload", "c")
        .dies("Unable to find payload field c in event")
        .insert([("c", "'(1,\"x y\")'")])
}

/// One column that is key, value and header.
fn alone(kind: &Type) -> Case {
    let case = Case::new(Types, format!("{} as key, value and header", kind.name));
    let case = with(case, "c", kind)
        .key(JsonWithSchema)
        .value(Text)
        .place("c:header:h")
        .router("table.field.event.key", "c")
        .router("table.field.event.payload", "c");
    kind.values.iter().fold(case, |case, value| case.insert([("c", value)])).insert([("c", "null")])
}

/// Several columns in an envelope and in headers of JSON.
fn together((number, kinds): (usize, &[Type])) -> [Case; 2] {
    [Json, JsonWithSchema].map(|converter| {
        let names: Vec<String> = (0..kinds.len()).map(|index| format!("c{index}")).collect();
        let placed = |name: &String| format!("{name}:envelope,{name}:header");
        let placement = names.iter().map(placed).collect::<Vec<_>>().join(",");
        let name = format!("types {number} in an envelope and headers, {converter:?}");
        let case = Case::new(Types, name).value(converter).header(converter).place(&placement);
        let case = names.iter().zip(kinds).fold(case, |case, (name, kind)| with(case, name, kind));
        let rows = kinds.iter().map(|kind| kind.values.len()).max().unwrap_or_default();
        (0..rows).fold(case, |case, row| {
            let value = |kind: &Type| kind.values[row % kind.values.len()];
            let values = kinds.iter().map(value).collect::<Vec<_>>().join(", ");
            let sql = format!(
                "insert into outbox values ('00000000-0000-4000-8000-{row:012}', '{{n}}Order', \
                 'a', 't', '{{}}', {values})"
            );
            case.publishes(1, &sql)
        })
    })
}

pub(super) fn with(case: Case, column: &str, kind: &Type) -> Case {
    let case = if kind.setup.is_empty() { case } else { case.setup(kind.setup) };
    case.column(column, kind.name)
}

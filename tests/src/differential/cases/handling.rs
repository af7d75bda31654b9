//! Handling modes of the connector: they change what columns hold before the
//! router sees them.

use super::{
    super::{
        case::Converter::{Json, JsonWithSchema, Text},
        difference::Difference,
    },
    Case,
    Group::Handling,
};

pub(super) fn all() -> Vec<Case> {
    [times(), numbers(), bytes(), others()].concat()
}

/// A case with these columns, in headers as they are and in an envelope, and a row
/// of NULL behind those given.
fn with(name: &str, columns: &[(&str, &str)], rows: &[&[&str]]) -> Case {
    let placed = |name: &str| format!("{name}:header,{name}:envelope");
    let placement = columns.iter().map(|(name, _)| placed(name)).collect::<Vec<_>>().join(",");
    let start = Case::new(Handling, name).value(JsonWithSchema).place(&placement);
    let case = columns.iter().fold(start, |case, (name, kind)| case.column(name, kind));
    let nulls = vec!["null"; columns.len()];
    let all = rows.iter().copied().chain([nulls.as_slice()]);
    all.enumerate().fold(case, |case, (number, values)| {
        let sql = format!(
            "insert into outbox values ('00000000-0000-4000-8000-{number:012}', '{{n}}Order', \
             'a', 't', '{{}}', {})",
            values.join(", ")
        );
        case.publishes(1, &sql)
    })
}

/// Columns of times, and rows of them.
const TIMES: [(&str, &str); 9] = [
    ("c_date", "date"),
    ("c_time", "time"),
    ("c_time3", "time(3)"),
    ("c_timetz", "timetz"),
    ("c_stamp", "timestamp"),
    ("c_stamp3", "timestamp(3)"),
    ("c_stamptz", "timestamptz"),
    ("c_stamps", "timestamp[]"),
    ("c_dates", "date[]"),
];
const TIME_ROWS: [&[&str]; 3] = [
    &[
        "'2020-02-29'",
        "'12:34:56.123456'",
        "'12:34:56.789'",
        "'12:34:56.5+02'",
        "'2020-02-29 12:34:56.123456'",
        "'2020-02-29 12:34:56.789'",
        "'2020-02-29 12:34:56.123456+02'",
        "'{\"2020-02-29 12:34:56.123456\"}'",
        "'{2020-02-29}'",
    ],
    &[
        "'1969-12-31'",
        "'00:00'",
        "'23:59:59.999'",
        "'00:00-01'",
        "'1969-12-31 23:59:59.5'",
        "'1969-12-31 23:59:59.999'",
        "'1969-12-31 23:59:59Z'",
        "'{}'",
        "'{NULL}'",
    ],
    &[
        "'0001-01-01'",
        "'23:59:59.999999'",
        "'00:00'",
        "'23:59:59-15:59'",
        "'2262-01-01 00:00:00'",
        "'2020-01-01'",
        "'2020-06-01 00:00:00.1Z'",
        "null",
        "null",
    ],
];

fn times() -> Vec<Case> {
    let modes = [
        "adaptive",
        "adaptive_time_microseconds",
        "connect",
        "isostring",
        "microseconds",
        "nanoseconds",
    ];
    let of = |mode: &str| {
        let name = format!("time.precision.mode {mode}");
        with(&name, &TIMES, &TIME_ROWS).set("time.precision.mode", mode)
    };
    let stamps = [("c_stamp", "timestamp"), ("c_stamptz", "timestamptz"), ("c_date", "date")];
    let endless: [&[&str]; 2] = [
        &["'infinity'", "'infinity'", "'infinity'"],
        &["'-infinity'", "'-infinity'", "'-infinity'"],
    ];
    let mut all: Vec<Case> = modes.into_iter().map(of).collect();
    all.push(with("time: no end and no beginning", &stamps, &endless));
    all.push(with(
        "time: before Christ",
        &stamps,
        &[&["'0044-03-15 12:00 BC'", "'0044-03-15 12:00Z BC'", "'0044-03-15 BC'"]],
    ));
    all.push(
        with("time: a mode that there is not", &stamps, &[])
            .set("time.precision.mode", "seconds")
            .refused("time.precision.mode"),
    );
    all
}

fn numbers() -> Vec<Case> {
    let columns = [
        ("c_fixed", "numeric(10,2)"),
        ("c_whole", "numeric(5,0)"),
        ("c_free", "numeric"),
        ("c_money", "money"),
        ("c_list", "numeric(6,3)[]"),
        ("c_default", "numeric(6,3) default 1.5"),
    ];
    let rows: [&[&str]; 3] = [
        &["12.30", "99999", "12.30", "12.34", "'{1.5,NULL}'", "2"],
        &["-0.01", "0", "1e20", "-0.01", "'{}'", "null"],
        &["99999999.99", "-1", "-1e-20", "1000000", "null", "-0.001"],
    ];
    let modes = ["precise", "double", "string"];
    let mut all: Vec<Case> = modes
        .into_iter()
        .map(|mode| {
            let name = format!("decimal.handling.mode {mode}");
            with(&name, &columns, &rows).set("decimal.handling.mode", mode)
        })
        .collect();
    let free = [("c", "numeric")];
    all.extend(modes.map(|mode| {
        let name = format!("decimal.handling.mode {mode}, no number");
        let rows: [&[&str]; 3] = [&["'NaN'"], &["'Infinity'"], &["'-Infinity'"]];
        let case = with(&name, &free, &rows).set("decimal.handling.mode", mode);
        if mode == "precise" { case.differs(Difference::Loses) } else { case }
    }));
    all.push(
        with("money.fraction.digits", &[("c", "money")], &[&["12.34"], &["-0.01"]])
            .set("money.fraction.digits", "4"),
    );
    all
}

fn bytes() -> Vec<Case> {
    let modes = ["bytes", "base64", "base64-url-safe", "hex"];
    let mut all = Vec::new();
    for mode in modes {
        let rows: [&[&str]; 3] =
            [&[r"'\xfbff00fe'", "null"], &[r"'\x'", r"array['\x01'::bytea]"], &["'text'", "null"]];
        let name = format!("binary.handling.mode {mode}");
        let columns = [("c", "bytea"), ("c_list", "bytea[]")];
        all.push(with(&name, &columns, &rows).set("binary.handling.mode", mode));
        for converter in [Text, Json] {
            all.push(
                Case::new(Handling, format!("binary.handling.mode {mode}, payload, {converter:?}"))
                    .column("payload", "bytea")
                    .column("aggregateid", "bytea")
                    .set("binary.handling.mode", mode)
                    .key(converter)
                    .value(converter)
                    .insert([("payload", r"'\xfbff00fe'"), ("aggregateid", r"'\xfbff'")])
                    .insert([("payload", r"'\x'"), ("aggregateid", "'a'")])
                    .insert([("payload", "null"), ("aggregateid", "'a'")]),
            );
        }
    }
    all
}

fn others() -> Vec<Case> {
    let mut all = Vec::new();
    for mode in ["numeric", "string"] {
        let rows: [&[&str]; 3] =
            [&["'1 year 2 mons 3 days 04:05:06.789'"], &["'0'"], &["'-1 mon +1 day -00:00:01'"]];
        all.push(
            with(&format!("interval.handling.mode {mode}"), &[("c", "interval")], &rows)
                .set("interval.handling.mode", mode),
        );
    }
    for mode in ["json", "map"] {
        let rows: [&[&str]; 2] = [&["'b=>1, a=>NULL, \"x y\"=>\"q\\\"\"'"], &["''"]];
        all.push(
            with(&format!("hstore.handling.mode {mode}"), &[("c", "hstore")], &rows)
                .setup("create extension hstore")
                .set("hstore.handling.mode", mode),
        );
    }
    for unknown in ["true", "false"] {
        let columns = [
            ("c_path", "path"),
            ("c_box", "box"),
            ("c_circle", "circle"),
            ("c_jsonpath", "jsonpath"),
        ];
        let rows: [&[&str]; 1] = [&["'((1,2),(3,4))'", "'(1,2),(3,4)'", "'<(1,2),3>'", "'$.a'"]];
        all.push(
            with(&format!("include.unknown.datatypes {unknown}"), &columns, &rows)
                .router("table.field.additional.missing", "ignore")
                .set("include.unknown.datatypes", unknown),
        );
    }
    let odd = [("\"a-b\"", "text"), ("\"1st\"", "int"), ("\"Größe\"", "text")];
    for mode in ["none", "avro", "avro_unicode"] {
        let case = odd.iter().fold(
            Case::new(Handling, format!("field.name.adjustment.mode {mode}")),
            |case, (name, kind)| case.column(name, kind),
        );
        all.push(
            case.value(JsonWithSchema)
                .place(
                    "a-b:header,a-b:envelope,1st:envelope,Größe:envelope,a_b:header,_1st:envelope",
                )
                .router("table.field.additional.missing", "ignore")
                .set("field.name.adjustment.mode", mode)
                .set("schema.name.adjustment.mode", mode)
                .insert([("\"a-b\"", "'x'"), ("\"1st\"", "1"), ("\"Größe\"", "'XL'")]),
        );
    }
    all
}

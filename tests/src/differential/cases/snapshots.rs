//! `snapshot.mode`: what is in the table before the connector starts.

use super::{
    super::{case::Converter::JsonWithSchema, difference::Difference},
    Case,
    Group::Snapshots,
};

pub(super) fn all() -> Vec<Case> {
    [modes(), parts()].concat()
}

fn with(mode: &str) -> Case {
    Case::new(Snapshots, format!("snapshot.mode {mode}")).set("snapshot.mode", mode)
}

fn stored(case: Case) -> Case {
    case.stored([("type", "'before'")])
        .stored([("aggregatetype", "'{n}User'"), ("payload", "null")])
}

fn modes() -> Vec<Case> {
    let published = |mode: &str| stored(with(mode)).and(2).insert([]);
    let mut all: Vec<Case> = ["initial", "always", "when_needed"].map(published).into();
    all.extend([
        stored(with("no_data")).insert([]),
        stored(with("initial_only")).and(2).never_streams(),
        stored(with("INITIAL")).and(2).insert([]),
        with("never").refused("snapshot.mode").differs(Difference::Accepted),
        with("exported").refused("snapshot.mode").differs(Difference::Accepted),
        stored(Case::new(Snapshots, "snapshot.mode by default"))
            .unset("snapshot.mode")
            .and(2)
            .insert([]),
    ]);
    all
}

fn parts() -> Vec<Case> {
    let initial = |name: &str| Case::new(Snapshots, name).set("snapshot.mode", "initial");
    let types = [
        ("c_numeric", "numeric(8,2)", "1.50"),
        ("c_time", "timestamp", "'2020-02-29 12:34:56.123456'"),
        ("c_timetz", "timestamptz", "'2020-02-29 12:34:56.5+02'"),
        ("c_bytes", "bytea", r"'\x0102'"),
        ("c_list", "text[]", "'{a,NULL}'"),
        ("c_date", "date", "'2020-02-29'"),
        ("c_double", "double precision", "0.1"),
        ("c_interval", "interval", "'1 day'"),
        ("c_default", "int default 5", "null"),
    ];
    let placement = types.map(|(name, ..)| format!("{name}:header,{name}:envelope")).join(",");
    let typed = types.iter().fold(
        initial("snapshot: columns are those of the stream")
            .place(&placement)
            .value(JsonWithSchema),
        |case, (name, kind, _)| case.column(name, kind),
    );
    let row = types.map(|(name, _, value)| (name, value));
    vec![
        typed.stored(row).and(1).insert(row),
        stored(initial("snapshot: of some rows"))
            .set("snapshot.select.statement.overrides", "public.outbox")
            .set(
                "snapshot.select.statement.overrides.public.outbox",
                "select * from public.outbox where type = 'before'",
            )
            .and(1)
            .insert([]),
        stored(initial("snapshot: of no table"))
            .set("snapshot.include.collection.list", "public.nothing")
            .insert([]),
        initial("snapshot: of an empty table").insert([]),
        initial("snapshot: of a row without a route")
            .column("aggregatetype", "text")
            .stored([])
            .stored([("aggregatetype", "null")])
            .and(1)
            .dies("NullPointerException"),
    ]
}

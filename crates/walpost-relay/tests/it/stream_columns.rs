//! Columns that the table has and the stream does not bring, and values that both print.

use walpost_event::Message;
use walpost_relay::{Initial, LostSlot, Outcome};
use walpost_router::MissingColumn;
use walpost_testkit::until;

use crate::{
    parking::{allow_no_type, parked},
    rig::{Rig, SOON, stop},
};

async fn run(rig: &Rig, sql: &str) {
    rig.client.batch_execute(sql).await.unwrap();
}

/// What `check` says of the publication, and what is to be done.
async fn publication(rig: &Rig) -> (Outcome, String, String) {
    let results = walpost_relay::check(&rig.database, &rig.config, &rig.router).await;
    let found = results.into_iter().find(|result| result.name == "publication").unwrap();
    (found.outcome, found.detail, found.next_step.unwrap_or_default())
}

/// Both refuse, and name the column with its key.
async fn refused(rig: &Rig, column: &str, key: &str) -> String {
    let (outcome, detail, next_step) = publication(rig).await;
    assert_eq!(outcome, Outcome::Fail, "{detail}");
    assert!(detail.contains(&format!("{column:?}, which {key} names")), "{detail}");
    assert_eq!(rig.refusal().await, format!("{detail}; {next_step}"));
    next_step
}

#[tokio::test]
async fn a_column_list_without_a_column_that_is_needed_is_refused_and_the_remedy_is_right() {
    let mut rig = Rig::new().await;
    let narrow =
        "alter publication walpost set table walpost.outbox (id, aggregatetype, aggregateid)";
    run(&rig, narrow).await;
    let next_step = refused(&rig, "payload", "router.event_payload").await;
    for statement in next_step.split('`').filter(|part| part.starts_with("alter")) {
        run(&rig, statement).await;
    }
    assert_eq!(publication(&rig).await.0, Outcome::Ok);
    let relay = rig.streaming().await;
    rig.insert("a", &["1"]).await;
    assert_eq!(rig.landed(1).await, ["1"]);
    stop(relay).await;

    // One that has all that is needed is as good as none.
    let listed = "create publication listed for table walpost.outbox \
                  (id, aggregatetype, aggregateid, payload) with (publish = 'insert')";
    run(&rig, listed).await;
    rig.config.publication = "listed".to_owned();
    assert_eq!(publication(&rig).await.0, Outcome::Ok);
    // A column that may be missing, and is there, would be missing in the stream alone.
    rig.router.additional_placement = Some("headers:header".to_owned());
    rig.router.additional_missing = MissingColumn::Ignore;
    let (outcome, detail, _) = publication(&rig).await;
    assert_eq!(outcome, Outcome::Fail, "{detail}");
    assert!(detail.contains("\"headers\", which router.additional_placement names"), "{detail}");
}

#[tokio::test]
async fn a_column_list_that_is_set_while_it_runs_ends_the_run_and_costs_no_event() {
    let mut rig = Rig::new().await;
    let mut relay = rig.streaming().await;
    run(
        &rig,
        "alter publication walpost set table walpost.outbox (id, aggregatetype, aggregateid)",
    )
    .await;
    rig.insert("a", &["1"]).await;
    let ended = tokio::time::timeout(SOON, relay.finished()).await.expect("it ends");
    let told = ended.unwrap_err().to_string();
    assert!(told.contains("\"payload\", which router.event_payload names"), "{told}");
    drop(relay);
    assert_eq!(rig.world.count(), 0);

    run(&rig, "alter publication walpost set table walpost.outbox").await;
    rig.config.on_lost_slot = LostSlot::Recover;
    let relay = rig.streaming().await;
    rig.insert("b", &["2"]).await;
    until(SOON, "the second", async || rig.world.values().contains(&"2".to_owned())).await;
    // The stream has brought the first without its payload, or not at all.
    let from_table = "update walpost.parked set requested = 'retry', requested_at = now(), \
                      retry_from_table = true where state = 'open'";
    run(&rig, from_table).await;
    let mut values = rig.landed(2).await;
    values.sort();
    assert_eq!(values, ["1", "2"]);
    let open = "select count(*) from walpost.parked where state <> 'done'";
    until(SOON, "nothing is parked", async || rig.count(open).await == 0).await;
    stop(relay).await;
}

#[tokio::test]
async fn the_column_list_of_each_partition_counts() {
    let mut rig = Rig::new().await;
    run(
        &rig,
        "create table parts (like walpost.outbox including defaults) \
         partition by range (created_at); \
         create table part_a partition of parts for values from (minvalue) to ('2020-01-01'); \
         create table part_b partition of parts for values from ('2020-01-01') to (maxvalue); \
         create publication parts for table part_a, part_b (id, aggregatetype, payload) \
         with (publish = 'insert')",
    )
    .await;
    rig.config.publication = "parts".to_owned();
    rig.config.tables = ["public.part_a", "public.part_b"].map(|name| name.parse().unwrap()).into();
    let next_step = refused(&rig, "aggregateid", "router.event_key").await;
    assert!(next_step.contains("\"part_b\""), "{next_step}");

    // Beside a schema there are no lists: the server refuses both together.
    let both = "alter publication parts add tables in schema walpost";
    let error = rig.client.batch_execute(both).await.unwrap_err();
    assert_eq!(error.code().map(|code| code.code()), Some("22023"), "{error:?}");
}

#[tokio::test]
async fn a_generated_column_that_is_needed_is_refused_unless_it_is_published() {
    let mut rig = Rig::new().await;
    run(
        &rig,
        "alter table walpost.outbox add loud text generated always as (upper(type)) stored, \
         add quiet text generated always as (lower(type)) virtual",
    )
    .await;
    rig.config.initial = Some(Initial::Publish);
    rig.router.additional_placement = Some("quiet:header".to_owned());
    let next_step = refused(&rig, "quiet", "router.additional_placement").await;
    assert!(!next_step.contains("publish_generated_columns"), "{next_step}");
    rig.router.additional_placement = Some("loud:header".to_owned());
    let next_step = refused(&rig, "loud", "router.additional_placement").await;
    let statement = next_step.split('`').nth(1).unwrap().to_owned();
    assert!(statement.contains("publish_generated_columns"), "{next_step}");
    run(&rig, &statement).await;
    assert_eq!(publication(&rig).await.0, Outcome::Ok);

    rig.insert("a", &["1"]).await;
    let relay = rig.streaming().await;
    rig.insert("a", &["2"]).await;
    rig.landed(2).await;
    let loud = |message: &Message| {
        let header = message.headers.iter().find(|header| &*header.name == "loud").unwrap();
        header.value.clone()
    };
    let landed = rig.world.landed();
    assert_eq!(loud(&landed[0]).as_deref(), Some(&b"PLACED"[..]));
    assert_eq!(loud(&landed[1]), loud(&landed[0]));
    stop(relay).await;
}

#[tokio::test]
async fn a_row_of_the_initial_load_has_the_columns_of_the_stream() {
    let mut rig = Rig::new().await;
    allow_no_type(&rig).await;
    run(
        &rig,
        "alter table walpost.outbox add gone text, add later text default 'x', \
         add loud text generated always as (upper(type)) stored, \
         add quiet text generated always as (lower(type)) virtual; \
         alter table walpost.outbox drop gone",
    )
    .await;
    rig.config.initial = Some(Initial::Publish);
    let insert = "insert into walpost.outbox (aggregatetype, aggregateid, type, payload) \
                  values (null, gen_random_uuid(), 'Placed', '1')";
    run(&rig, insert).await;
    let relay = rig.streaming().await;
    run(&rig, insert).await;
    parked(&rig, "unroutable unroutable").await;
    let columns = "select string_agg(c ->> 'name', ' ' order by n) from walpost.parked, \
                   jsonb_array_elements(row_columns) with ordinality e (c, n) \
                   group by id order by id";
    let rows = rig.client.query(columns, &[]).await.unwrap();
    let columns: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
    assert_eq!(columns[0], columns[1]);
    assert!(columns[0].contains("later") && !columns[0].contains("loud"), "{columns:?}");
    stop(relay).await;
}

/// Columns whose text depends on their type, on settings of the session, or on both.
const COLUMNS: [(&str, &str, &str); 20] = [
    ("c_char", "char(8)", "'ab'"),
    ("c_money", "money", "'1234.5'"),
    ("c_interval", "interval", "'-1 year 2 days 03:04:05.6'"),
    ("c_time", "timestamptz", "'2024-02-29 12:00:00.123456+03'"),
    ("c_stamp", "timestamp", "'0044-03-15 12:00 BC'"),
    ("c_ever", "timestamptz", "'infinity'"),
    ("c_date", "date", "'2024-02-01'"),
    ("c_float", "float8", "0.1::float8 + 0.2"),
    ("c_real", "real", "'NaN'"),
    ("c_numeric", "numeric", "'-Infinity'"),
    ("c_bytes", "bytea", "'\\x00ff41'"),
    ("c_mood", "mood", "'sad'"),
    ("c_domain", "short", "'ab  '"),
    ("c_class", "regclass", "'walpost.outbox'"),
    ("c_array", "text[]", "'{a,NULL,\"b c\"}'"),
    ("c_bits", "varbit", "B'1010'"),
    ("c_net", "inet", "'10.1.2.3'"),
    ("c_json", "json", r#"'{"a" : "\u0000"}'"#),
    ("c_bool", "bool", "true"),
    ("c_range", "tstzrange", "'[2024-01-01 00:00+00,infinity]'"),
];

/// The columns as headers of the records that have landed.
fn printed(rig: &Rig) -> Vec<Vec<(String, String)>> {
    let of_record = |message: &Message| {
        let ours = message.headers.iter().filter(|header| header.name.starts_with("c_"));
        let text = |value: Option<&[u8]>| format!("{:?}", value.map(String::from_utf8_lossy));
        ours.map(|header| (header.name.to_string(), text(header.value.as_deref()))).collect()
    };
    rig.world.landed().iter().map(of_record).collect()
}

#[tokio::test]
async fn a_value_of_the_initial_load_is_printed_as_in_the_stream_whatever_the_settings() {
    let mut rig = Rig::new().await;
    let dbname = rig.database.dbname().to_owned();
    let added = COLUMNS.map(|(name, kind, _)| format!("add {name} {kind}")).join(", ");
    let names = COLUMNS.map(|(name, ..)| name).join(", ");
    let values = COLUMNS.map(|(.., value)| value).join(", ");
    run(
        &rig,
        &format!(
            "create type mood as enum ('glad', 'sad'); create domain short as varchar(4); \
             alter table walpost.outbox {added}; \
             alter database {dbname} set datestyle = 'German, DMY'; \
             alter database {dbname} set intervalstyle = 'sql_standard'; \
             alter database {dbname} set bytea_output = 'escape'"
        ),
    )
    .await;
    let insert = |value: &str, columns: &str, values: &str| {
        format!(
            "insert into walpost.outbox (aggregatetype, aggregateid, type, payload{columns}) \
             values ('order', 'a', 'Placed', '{value}'{values})"
        )
    };
    let whole = insert("1", &format!(", {names}"), &format!(", {values}"));
    let empty = insert("2", "", "");
    run(&rig, &format!("{whole}; {empty}")).await;

    rig.router.additional_placement =
        Some(COLUMNS.map(|(name, ..)| format!("{name}:header")).join(","));
    rig.config.initial = Some(Initial::Publish);
    let (host, port) = rig.database.first_target();
    let options = "-c search_path=walpost -c TimeZone=Asia/Tokyo -c extra_float_digits=-15 \
                   -c quote_all_identifiers=on";
    let user = rig.database.user().to_owned();
    let url = format!("host={host} port={port} user={user} dbname={dbname} options='{options}'");
    let rig = rig.connecting_to(&url);
    let relay = rig.streaming().await;
    rig.landed(2).await;
    run(&rig, &format!("{whole}; {empty}")).await;
    rig.landed(4).await;
    let printed = printed(&rig);
    assert_eq!(printed[0].len(), COLUMNS.len());
    assert_eq!(printed[..2], printed[2..]);
    let of = |name: &str| &*printed[0].iter().find(|(column, _)| column == name).unwrap().1;
    assert_eq!(of("c_time"), "Some(\"2024-02-29 09:00:00.123456+00\")");
    assert_eq!(of("c_float"), "Some(\"0.30000000000000004\")");
    assert_eq!(of("c_char"), "Some(\"ab      \")");
    assert_eq!(of("c_class"), "Some(\"\\\"outbox\\\"\")");
    stop(relay).await;
}

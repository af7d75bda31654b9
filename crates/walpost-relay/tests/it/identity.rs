//! Equal ids of two tables are two events, whichever pipeline publishes them.

use walpost_event::{Header, Message};
use walpost_relay::{
    Initial, Outcome, POSITION_HEADER, ReplayFilter, ReplayFound, Replayer, SOURCE_HEADER,
};
use walpost_router::RouterConfig;
use walpost_testkit::until;

use crate::{
    rig::{Rig, SOON, interrupt, raw, stop},
    sink::value,
};

const NUMBERED: &str = "bigint generated always as identity primary key";
const UUIDS: &str = "uuid primary key default gen_random_uuid()";

/// A pipeline of these tables in schema public, which writes no checkpoint but
/// those that name a place.
async fn with_tables(tables: &[&str], ids: &str) -> Rig {
    let mut rig = Rig::new().await;
    for table in tables {
        create(&rig, table, ids).await;
    }
    rig.config.tables = tables.iter().map(|table| table.parse().unwrap()).collect();
    rig.config.publication = "numbered".to_owned();
    rig.config.checkpoint_interval_ms = 60_000;
    rig.config.settle_ms = 0;
    rig
}

async fn create(rig: &Rig, table: &str, ids: &str) {
    let create = format!(
        "create table public.{table} (id {ids}, aggregatetype text not null default 'order', \
         aggregateid text not null default 'a', type text not null default 'Placed', \
         payload text, created_at timestamptz default clock_timestamp(), \
         xid xid8 not null default pg_current_xact_id(), \
         seq bigint not null generated always as identity)"
    );
    rig.client.batch_execute(&create).await.unwrap();
}

async fn insert(rig: &Rig, table: &str, value: &str) {
    let insert =
        format!("insert into public.{table} (aggregateid, payload) values ('{table}', '{value}')");
    rig.client.batch_execute(&insert).await.unwrap();
}

fn header(message: &Message, name: &str) -> Option<String> {
    let header = message.headers.iter().find(|header| &*header.name == name)?;
    Some(String::from_utf8(header.value.clone()?.to_vec()).unwrap())
}

/// Id and source of the record with this value.
fn identity(rig: &Rig, of: &str) -> (String, String) {
    let landed = rig.world.landed();
    let message = landed.iter().find(|message| value(message) == of).expect("it landed");
    (header(message, "id").unwrap(), header(message, SOURCE_HEADER).unwrap())
}

async fn refused(rig: &Rig, parts: &[&str]) {
    let (outcome, detail) = rig.checked("id space").await;
    assert_eq!(outcome, Outcome::Fail, "{detail}");
    let text = rig.refusal().await;
    assert!(text.contains(&detail), "run and check say the same: {text}\n{detail}");
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in: {text}");
    }
    assert_eq!(rig.world.count(), 0, "nothing was published");
}

#[tokio::test]
async fn equal_ids_of_two_tables_have_two_sources_that_a_crash_and_a_rename_keep() {
    for position_header in [true, false] {
        let mut rig = with_tables(&["ord", "bill"], NUMBERED).await;
        rig.config.position_header = position_header;
        let relay = rig.streaming().await;
        for value in 1..=2 {
            insert(&rig, "ord", &format!("ord-{value}")).await;
            rig.landed(2 * value - 1).await;
            interrupt(&rig, &relay).await;
            insert(&rig, "bill", &format!("bill-{value}")).await;
            rig.landed(2 * value).await;
        }
        let mut values = rig.world.values();
        stop(relay).await;
        values.sort();
        assert_eq!(values, ["bill-1", "bill-2", "ord-1", "ord-2"], "once each");
        let (ord, bill) = (identity(&rig, "ord-1"), identity(&rig, "bill-1"));
        assert_eq!((&*ord.0, &*bill.0), ("1", "1"));
        assert_ne!(ord.1, bill.1);
        assert_eq!((&identity(&rig, "ord-2").1, &identity(&rig, "bill-2").1), (&ord.1, &bill.1));

        let renamed = "alter table public.ord rename to orders";
        rig.client.batch_execute(renamed).await.unwrap();
        rig.config.tables = ["orders", "bill"].map(|table| table.parse().unwrap()).into();
        let relay = rig.streaming().await;
        insert(&rig, "orders", "ord-3").await;
        rig.landed(5).await;
        stop(relay).await;
        assert_eq!(identity(&rig, "ord-3").1, ord.1, "position_header = {position_header}");
    }
}

#[tokio::test]
async fn an_interrupted_load_of_two_tables_with_equal_ids_loses_none() {
    for source_header in [true, false] {
        let mut rig = with_tables(&["ord", "bill"], NUMBERED).await;
        rig.config.source_header = source_header;
        rig.config.initial = Some(Initial::Publish);
        rig.config.drain_timeout_ms = 200;
        for table in ["ord", "bill"] {
            let rows = format!(
                "insert into public.{table} (aggregatetype, payload) \
                 select '{table}', '{table}-' || n from generate_series(1, 20) n"
            );
            rig.client.batch_execute(&rows).await.unwrap();
        }
        rig.world.hold_after(10);
        let relay = rig.start();
        until(SOON, "the first rows", async || rig.world.count() >= 10).await;
        drop(relay);
        rig.world.hold(false);
        // Shifts the ordinals of all others.
        rig.client.batch_execute("delete from public.ord where id = 20").await.unwrap();
        let relay = rig.streaming().await;
        let mut values = rig.world.values();
        stop(relay).await;
        values.retain(|value| value != "ord-20");
        values.sort();
        values.dedup();
        assert_eq!(values.len(), 39, "source_header = {source_header}");
    }
}

#[tokio::test]
async fn a_table_that_takes_the_name_of_another_while_it_runs_has_another_source() {
    let rig = with_tables(&["ord"], NUMBERED).await;
    rig.client.batch_execute("create publication numbered for all tables").await.unwrap();
    let relay = rig.streaming().await;
    insert(&rig, "ord", "old").await;
    rig.landed(1).await;
    rig.client.batch_execute("drop table public.ord").await.unwrap();
    create(&rig, "ord", NUMBERED).await;
    insert(&rig, "ord", "new").await;
    rig.landed(2).await;
    let (old, new) = (identity(&rig, "old"), identity(&rig, "new"));
    assert_eq!(old.0, new.0, "ids begin again");
    assert_ne!(old.1, new.1);
    stop(relay).await;
    let spaces = "select count(*) from walpost.id_space where outbox is not null";
    assert_eq!(rig.count(spaces).await, 2);
}

#[tokio::test]
async fn partitions_have_the_source_of_their_table() {
    let mut rig = with_tables(&[], NUMBERED).await;
    let create = "create table public.ord (id bigint generated always as identity, \
                  aggregatetype text default 'order', aggregateid text default 'a', \
                  type text default 'Placed', payload text) partition by range (id); \
                  create table public.ord_1 partition of public.ord for values from (1) to (2)";
    rig.client.batch_execute(create).await.unwrap();
    rig.config.tables = vec!["ord".parse().unwrap()];
    let relay = rig.streaming().await;
    insert(&rig, "ord", "1").await;
    let more = "create table public.ord_2 partition of public.ord for values from (2) to (3)";
    rig.client.batch_execute(more).await.unwrap();
    insert(&rig, "ord", "2").await;
    rig.landed(2).await;
    stop(relay).await;
    assert_eq!(identity(&rig, "1").1, identity(&rig, "2").1);
    let spaces = "select count(*) from walpost.id_space where outbox is not null";
    assert_eq!(rig.count(spaces).await, 1);
}

#[tokio::test]
async fn a_change_of_the_source_is_refused_where_ids_are_not_globally_unique() {
    let mut rig = with_tables(&["ord"], NUMBERED).await;
    stop(rig.streaming().await).await;
    rig.config.source_header = false;
    refused(&rig, &["source_header is false", "events of table public.ord", "set scope = 'topic'"])
        .await;
    let accepted = "update walpost.id_space set scope = 'topic', only_walpost = false \
                    where outbox = 'public.ord'::regclass";
    rig.client.batch_execute(accepted).await.unwrap();
    stop(rig.streaming().await).await;
    rig.config.source_header = true;
    refused(&rig, &["source_header is true", "set scope = 'table'"]).await;

    let mut uuids = with_tables(&["ord"], UUIDS).await;
    for source_header in [true, false, true] {
        uuids.config.source_header = source_header;
        stop(uuids.streaming().await).await;
    }
}

#[tokio::test]
async fn without_position_and_source_ids_have_to_be_uuids() {
    for (ids, is_refused) in [(NUMBERED, true), ("text primary key", true), (UUIDS, false)] {
        let mut rig = with_tables(&["ord"], ids).await;
        (rig.config.position_header, rig.config.source_header) = (false, false);
        if is_refused {
            refused(&rig, &["position_header and source_header are off", "table public.ord"]).await;
            continue;
        }
        let relay = rig.streaming().await;
        insert(&rig, "ord", "1").await;
        rig.landed(1).await;
        interrupt(&rig, &relay).await;
        insert(&rig, "ord", "2").await;
        assert_eq!(rig.landed(2).await, ["1", "2"], "known by its id");
        stop(relay).await;
    }
}

#[tokio::test]
async fn a_first_start_on_a_slot_that_others_have_read_is_refused_for_numbers_alone() {
    let slot = |rig: &Rig| {
        format!("select pg_create_logical_replication_slot('{}', 'pgoutput')", rig.config.slot)
    };
    let mut rig = with_tables(&["ord"], NUMBERED).await;
    rig.client.batch_execute("create publication numbered for table public.ord").await.unwrap();
    rig.client.batch_execute(&slot(&rig)).await.unwrap();
    insert(&rig, "ord", "1").await;
    rig.config.initial = Some(Initial::Skip);
    refused(&rig, &["a slot that another program may have read", "source_header = false"]).await;
    rig.config.source_header = false;
    let relay = rig.streaming().await;
    assert_eq!(rig.landed(1).await, ["1"]);
    stop(relay).await;

    for (ids, id) in [(UUIDS, "default"), ("text primary key", "'01ARZ3NDEKTSV4RRFFQ69G5FAV'")] {
        let mut rig = with_tables(&["ord"], ids).await;
        rig.client.batch_execute("create publication numbered for table public.ord").await.unwrap();
        rig.client.batch_execute(&slot(&rig)).await.unwrap();
        let row = format!("insert into public.ord (id, payload) values ({id}, '1')");
        rig.client.batch_execute(&row).await.unwrap();
        rig.config.initial = Some(Initial::Skip);
        let relay = rig.streaming().await;
        assert_eq!(rig.landed(1).await, ["1"], "{ids}");
        stop(relay).await;
    }
}

async fn found(rig: &Rig) -> ReplayFound {
    let replayer =
        Replayer::open(&rig.database, rig.config.clone(), RouterConfig::default(), raw());
    let all = ReplayFilter::default();
    replayer.await.unwrap().find(Some(&rig.config.tables[0]), all, None).await.unwrap()
}

#[tokio::test]
async fn a_replay_tells_of_rows_that_others_may_have_published() {
    for (ids, initial, expected) in [
        (NUMBERED, Initial::Skip, 2),
        (NUMBERED, Initial::Publish, 0),
        (UUIDS, Initial::Skip, 0),
        ("text primary key default '7' || random()", Initial::Skip, 2),
        ("text primary key default gen_random_uuid()::text", Initial::Skip, 0),
    ] {
        let mut rig = with_tables(&["ord"], ids).await;
        rig.config.initial = Some(initial);
        insert(&rig, "ord", "1").await;
        insert(&rig, "ord", "2").await;
        stop(rig.streaming().await).await;
        let survey = found(&rig).await.survey;
        assert_eq!((survey.events, survey.of_other_sources), (2, expected), "{ids} {initial:?}");
    }
}

#[tokio::test]
async fn a_replay_leaves_out_parked_events_of_its_own_table_alone() {
    let mut rig = with_tables(&["ord", "bill"], NUMBERED).await;
    rig.config.checkpoint_interval_ms = 50;
    rig.world.never("ord-1");
    let relay = rig.streaming().await;
    insert(&rig, "ord", "ord-1").await;
    insert(&rig, "bill", "bill-1").await;
    rig.landed(1).await;
    let parked = "select count(*) from walpost.parked where id_space = \
                  (select id from walpost.id_space where outbox = 'public.ord'::regclass)";
    until(SOON, "the parked row", async || rig.count(parked).await == 1).await;
    stop(relay).await;
    let survey = found(&rig).await.survey;
    assert_eq!((survey.events, survey.parked), (0, 1));
    rig.config.tables.swap(0, 1);
    let survey = found(&rig).await.survey;
    assert_eq!((survey.events, survey.parked), (1, 0), "bill 1 was published");
}

#[tokio::test]
async fn a_record_from_beyond_the_wal_ends_a_start_only_if_it_has_a_source_of_this_database() {
    let mut rig = with_tables(&["ord"], NUMBERED).await;
    let relay = rig.streaming().await;
    insert(&rig, "ord", "1").await;
    rig.landed(1).await;
    let mut strange = rig.world.landed().remove(0);
    strange.value = Some("strange".into());
    let generation = header(&strange, POSITION_HEADER).unwrap();
    let generation = generation.split(':').next().unwrap();
    let far = format!("{generation}:FFFFFFFF/FFFFFFF0:0");
    let set = |message: &mut Message, name: &str, value: &str| {
        message.headers.retain(|header| &*header.name != name);
        message.headers.push(Header { name: name.into(), value: Some(value.to_owned().into()) });
    };
    set(&mut strange, POSITION_HEADER, &far);
    let with_source = strange.clone();
    for source in [None, Some("main")] {
        strange.headers.retain(|header| &*header.name != SOURCE_HEADER);
        if let Some(source) = source {
            set(&mut strange, SOURCE_HEADER, source);
        }
        rig.world.land(strange.clone());
    }
    interrupt(&rig, &relay).await;
    insert(&rig, "ord", "2").await;
    rig.landed(4).await;
    assert_eq!(rig.world.values(), ["1", "strange", "strange", "2"], "neither lost nor twice");

    rig.world.land(with_source);
    drop(relay);
    rig.released().await;
    let text = rig.refusal().await;
    assert!(
        text.contains("record outbox.event.order/0@4") && text.contains("ignored_records"),
        "{text}"
    );
    rig.config.ignored_records = vec!["outbox.event.order/0@4".parse().unwrap()];
    let relay = rig.streaming().await;
    insert(&rig, "ord", "3").await;
    rig.landed(6).await;
    assert_eq!(rig.world.values()[3..], ["2", "strange", "3"], "it costs no copies");
    stop(relay).await;
}

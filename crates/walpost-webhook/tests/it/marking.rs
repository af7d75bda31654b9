//! Rows of an outbox that say what became of their deliveries.

use std::time::Duration;

use walpost_migrate::{Migrator, Set};
use walpost_testkit::until;
use walpost_webhook::{Message, NewDelivery, RetryPolicy, Schedule, Settlement};

use crate::{
    receiver::{Receiver, answer},
    world::{LIMIT, World, run, settings},
};

const OUTBOX: &str = "create type delivery_status as enum ('NEW', 'SENT', 'FAILED'); \
    create table public.finance_outbox (id uuid primary key default gen_random_uuid(), \
    delivery_status delivery_status not null default 'NEW', delivery_attempts int not null \
    default 0, delivered_at timestamptz, last_attempt_at timestamptz, why text); \
    select walpost.webhook_mark('finance_outbox', 'delivery_status', pending => 'NEW', \
    delivered => 'SENT', failed => 'FAILED', attempts_column => 'delivery_attempts', \
    delivered_at_column => 'delivered_at', last_attempt_at_column => 'last_attempt_at', \
    last_error_column => 'why')";

/// Rows, each with a delivery to each of these destinations.
async fn rows(world: &World, count: i64, destinations: &[&str]) -> Vec<String> {
    let insert = format!(
        "insert into finance_outbox select from generate_series(1, {count}) returning id::text"
    );
    let ids = world.texts(&insert).await;
    let new: Vec<NewDelivery> =
        ids.iter().flat_map(|id| destinations.iter().map(move |name| new(name, id))).collect();
    world.deliveries.insert(&world.client, &new).await.unwrap();
    ids
}

fn new(destination: &str, id: &str) -> NewDelivery {
    NewDelivery::new(destination, id, Message::new(id, "{}"))
}

const STATES: &str = "select concat_ws(' ', delivery_status, delivery_attempts, \
    delivered_at is not null, last_attempt_at is not null, why) from finance_outbox order by 1";

#[tokio::test(flavor = "multi_thread")]
async fn a_row_says_so_when_its_last_delivery_has_ended_and_when_one_is_retried() {
    let world = World::new().await;
    world.client.batch_execute(OUTBOX).await.unwrap();
    rows(&world, 1, &["logistics", "audit"]).await;
    let (good, bad) = (
        Receiver::answering(answer("200 OK", "", "")).await,
        Receiver::answering(answer("500 Oops", "", "")).await,
    );
    let audit = |url: &str| {
        let mut audit = settings(url);
        audit.name = "audit".to_owned();
        audit
    };
    let logistics = run(&world, settings(&good.url("127.0.0.1")));
    world.until("delivered", 1).await;
    assert_eq!(world.texts(STATES).await, ["NEW 0 f f"], "the other one is not sent yet");
    let failing = run(&world, audit(&bad.url("127.0.0.1")));
    world.until("failed", 1).await;
    failing.stop().await;
    assert_eq!(world.texts(STATES).await, ["FAILED 3 f t audit: http_5xx"]);
    let failed = "select id from walpost.webhook_delivery where state = 'failed'";
    let id = world.number(failed).await;
    assert_eq!(world.deliveries.retry(&world.client, &[id]).await.unwrap().done, [id]);
    assert_eq!(world.texts(STATES).await, ["NEW 1 f t"]);
    let healed = run(&world, audit(&good.url("127.0.0.1")));
    world.until("delivered", 2).await;
    assert_eq!(world.texts(STATES).await, ["SENT 1 t t"]);
    healed.stop().await;
    logistics.stop().await;
}

/// Each pair of processors ends deliveries of the same events at once.
#[tokio::test(flavor = "multi_thread")]
async fn of_those_who_end_the_last_deliveries_at_once_one_marks_the_row() {
    let world = World::new().await;
    world.client.batch_execute(OUTBOX).await.unwrap();
    let names = ["a", "b", "c"];
    rows(&world, 400, &names).await;
    let receiver = Receiver::answering(answer("200 OK", "", "")).await;
    let running = names.map(|name| {
        let mut of = settings(&receiver.url("127.0.0.1"));
        of.name = name.to_owned();
        of.policy = RetryPolicy::new(Schedule::fixed(Duration::from_millis(10), 9));
        run(&world, of)
    });
    world.until("delivered", 1_200).await;
    let sent = "select count(*) from finance_outbox where delivery_status = 'SENT'";
    assert_eq!(world.number(sent).await, 400);
    for one in running {
        one.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn events_of_other_tables_and_tables_that_are_gone_stop_no_delivery() {
    let world = World::new().await;
    world.client.batch_execute(OUTBOX).await.unwrap();
    let ids = rows(&world, 2, &["logistics"]).await;
    let of_others = ["7", "invoice.paid:7:1", "not-a-uuid"].map(|id| new("logistics", id));
    world.deliveries.insert(&world.client, &of_others).await.unwrap();
    let receiver = Receiver::answering(answer("200 OK", "", "")).await;
    let running = run(&world, settings(&receiver.url("127.0.0.1")));
    world.until("delivered", 5).await;
    assert_eq!(world.texts(STATES).await, ["SENT 1 t t"; 2], "{ids:?}");
    world.client.batch_execute("alter table finance_outbox drop column why").await.unwrap();
    world.deliveries.insert(&world.client, &[new("logistics", "8")]).await.unwrap();
    world.until("delivered", 6).await;
    world.client.batch_execute("drop table finance_outbox").await.unwrap();
    world.deliveries.insert(&world.client, &[new("logistics", "9")]).await.unwrap();
    world.until("delivered", 7).await;
    running.stop().await;
}

#[tokio::test]
async fn what_cannot_be_marked_is_refused_at_once() {
    let world = World::new().await;
    world.client.batch_execute(OUTBOX).await.unwrap();
    for (call, expected) in [
        (
            "'finance_outbox', 'status'",
            "table finance_outbox has no column status, which status_column names",
        ),
        (
            "'finance_outbox', 'delivery_status', id_column => 'key'",
            "table finance_outbox has no column key, which id_column names",
        ),
        (
            "'finance_outbox', 'status', id_column => 'key'",
            "no column key, which id_column names, and no column status, which status_column names",
        ),
        (
            "'finance_outbox', 'delivery_status', 'id', 'NEW', 'SENT', 'FAILED', 'tries'",
            "column \"tries\"",
        ),
        ("'finance_outbox', 'delivery_status', failed => 'BROKEN'", "invalid input value for enum"),
        ("'no_such_table', 'status'", "does not exist"),
    ] {
        let call = format!("select walpost.webhook_mark({call})");
        let refused = world.client.execute(&call, &[]).await.unwrap_err();
        let said = refused.as_db_error().unwrap().message().to_owned();
        assert!(said.contains(expected), "{call}: {said}");
    }
    let marks = "select count(*) from walpost.webhook_mark where failed_value = 'FAILED'";
    assert_eq!(world.number(marks).await, 1);
}

/// As where the WAL has a commit that waits for a standby before others see it.
#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_is_seen_only_behind_the_end_of_its_delivery_says_so_then() {
    let world = World::new().await;
    world.client.batch_execute(OUTBOX).await.unwrap();
    let committing = world.database.connect().await;
    let begin = "begin; insert into finance_outbox default values returning id::text";
    let messages = committing.simple_query(begin).await.unwrap();
    let id = messages.iter().find_map(|message| match message {
        tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
        _ => None,
    });
    let (id, none) = (id.unwrap(), "00000000-0000-0000-0000-000000000000");
    let news = [new("logistics", &id), new("logistics", none)];
    world.deliveries.insert(&world.client, &news).await.unwrap();
    let receiver = Receiver::answering(answer("200 OK", "", "")).await;
    let running = run(&world, settings(&receiver.url("127.0.0.1")));
    world.until("delivered", 2).await;
    let left = "select count(*) from walpost.webhook_mark_again";
    let looked = "select sum(n_tup_del)::bigint from pg_stat_user_tables \
                  where relname = 'webhook_mark_again'";
    until(LIMIT, "a look that finds no row", async || world.number(looked).await >= 2).await;
    committing.batch_execute("commit").await.unwrap();
    until(LIMIT, "its mark", async || world.texts(STATES).await == ["SENT 1 t t"]).await;
    until(LIMIT, "nothing to mark", async || world.number(left).await == 0).await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_says_so_whatever_snapshot_its_deliveries_are_ended_by() {
    let world = World::new().await;
    world.client.batch_execute(OUTBOX).await.unwrap();
    rows(&world, 1, &["other", "audit"]).await;
    let unknown = "update walpost.webhook_delivery set state = 'unknown', next_attempt_at = null";
    world.past_triggers(unknown).await;
    let id = async |name: &str| {
        let sql = format!("select id from walpost.webhook_delivery where destination = '{name}'");
        world.number(&sql).await
    };
    let (other, audit) = (id("other").await, id("audit").await);
    let operator = world.database.connect().await;
    let look = "begin isolation level repeatable read; select from walpost.webhook_delivery";
    operator.batch_execute(look).await.unwrap();
    let deliveries = &world.deliveries;
    deliveries.settle(&world.client, &[other], Settlement::Delivered).await.unwrap();
    deliveries.settle(&operator, &[audit], Settlement::Delivered).await.unwrap();
    operator.batch_execute("commit").await.unwrap();
    assert_eq!(world.texts(STATES).await, ["NEW 0 f f"], "neither saw the other's end");
    let receiver = Receiver::answering(answer("200 OK", "", "")).await;
    let running = run(&world, settings(&receiver.url("127.0.0.1")));
    until(LIMIT, "its mark", async || world.texts(STATES).await == ["SENT 0 t t"]).await;
    running.stop().await;
    let left = "select count(*) from walpost.webhook_mark_again";
    assert_eq!(world.number(left).await, 0);
}

/// Tables whose ids are equal, and their id spaces.
async fn ord_and_bill(world: &mut World) -> [String; 2] {
    Migrator::new().set(Set::Relay).migrate(&mut world.client).await.unwrap();
    let mut spaces = ["ord", "bill"].map(str::to_owned);
    for table in &mut spaces {
        let create = format!(
            "create table public.{table} (id bigint primary key, status text default 'pending'); \
             select walpost.webhook_mark('{table}', 'status')"
        );
        world.client.batch_execute(&create).await.unwrap();
        let space = format!(
            "insert into walpost.id_space (outbox, scope, only_walpost) \
             values ('{table}', 'table', true) returning id::text"
        );
        *table = world.texts(&space).await.remove(0);
    }
    spaces
}

const BOTH: &str = "select status from ord union all select status from bill";

#[tokio::test(flavor = "multi_thread")]
async fn a_row_hears_of_its_own_deliveries_and_not_of_equal_ids_of_another_table() {
    let mut world = World::new().await;
    let [ord, bill] = ord_and_bill(&mut world).await;
    let rows = "insert into ord values (7); insert into bill values (7)";
    world.client.batch_execute(rows).await.unwrap();
    let new = [("logistics", ord), ("audit", bill)]
        .map(|(destination, source)| NewDelivery { source, ..new(destination, "7") });
    assert_eq!(world.deliveries.insert(&world.client, &new).await.unwrap(), 2);
    let good = Receiver::answering(answer("200 OK", "", "")).await;
    let running = run(&world, settings(&good.url("127.0.0.1")));
    world.until("delivered", 1).await;
    running.stop().await;
    assert_eq!(world.texts(BOTH).await, ["delivered", "pending"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn equal_ids_to_one_destination_mark_each_row_also_one_that_is_seen_late() {
    let mut world = World::new().await;
    let spaces = ord_and_bill(&mut world).await;
    world.client.batch_execute("insert into ord values (7)").await.unwrap();
    let committing = world.database.connect().await;
    committing.batch_execute("begin; insert into bill values (7)").await.unwrap();
    let new = spaces.map(|source| NewDelivery { source, ..new("logistics", "7") });
    assert_eq!(world.deliveries.insert(&world.client, &new).await.unwrap(), 2);
    let good = Receiver::answering(answer("200 OK", "", "")).await;
    let running = run(&world, settings(&good.url("127.0.0.1")));
    world.until("delivered", 2).await;
    assert_eq!(world.texts(BOTH).await, ["delivered"]);
    committing.batch_execute("commit").await.unwrap();
    until(LIMIT, "both marks", async || world.texts(BOTH).await == ["delivered"; 2]).await;
    running.stop().await;
}

#[tokio::test]
async fn marks_are_told_apart_in_a_schema_whose_name_is_quoted() {
    let mut world = World::new().await;
    let sets = [Set::Relay, Set::Webhook];
    Migrator::new().schema("Our Walpost").sets(sets).migrate(&mut world.client).await.unwrap();
    let create = "create table ord (id bigint primary key, status text default 'pending'); \
                  select \"Our Walpost\".webhook_mark('ord', 'status')";
    world.client.batch_execute(create).await.unwrap();
    let space = "insert into \"Our Walpost\".id_space (outbox, scope, only_walpost) \
                 values ('ord', 'table', true) returning id::text";
    let space = world.texts(space).await.remove(0);
    let statement = "select \"Our Walpost\".webhook_mark_statement(m) \
                     from \"Our Walpost\".webhook_mark m";
    let statement = world.texts(statement).await.remove(0);
    assert!(statement.contains(&format!("source in ('', '{space}')")), "{statement}");
}

/// The topic may be another table's, whose events have no other source.
#[tokio::test(flavor = "multi_thread")]
async fn a_delivery_with_a_topic_as_source_marks_no_row_of_a_table_with_a_header() {
    let mut world = World::new().await;
    ord_and_bill(&mut world).await;
    let rows = "insert into ord values (7); insert into bill values (7); \
                update walpost.id_space set scope = 'topic' where outbox = 'bill'::regclass";
    world.client.batch_execute(rows).await.unwrap();
    let new = NewDelivery { source: "bills".to_owned(), ..new("logistics", "7") };
    world.deliveries.insert(&world.client, &[new]).await.unwrap();
    let good = Receiver::answering(answer("200 OK", "", "")).await;
    let running = run(&world, settings(&good.url("127.0.0.1")));
    world.until("delivered", 1).await;
    running.stop().await;
    assert_eq!(world.texts(BOTH).await, ["pending", "delivered"]);
}

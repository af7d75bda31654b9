//! Whose event an id is: unique by itself, or within the table it was written to.

use std::{collections::BTreeMap, process::Command};

use rdkafka::message::{Header, OwnedHeaders};
use walpost_consumer::Event;
use walpost_event::{GLOBALLY_UNIQUE_PATTERN, is_globally_unique};
use walpost_migrate::{Migrator, Set};
use walpost_testkit as testkit;

use crate::{
    contents::Log,
    guard::{self, LEAVES_OUT},
    support::{Effects, World, each, ids, run},
};

/// Ids, and whether each is unique by itself.
const IDS: [(&str, bool); 22] = [
    ("5f0c3b0e-9d1a-4c55-8a57-0f2f6f1f7b11", true),
    ("5F0C3B0E-9D1A-4C55-8A57-0F2F6F1F7B11", true),
    ("01932c07-7b1e-7cc2-8000-000000000001", true),
    ("01ARZ3NDEKTSV4RRFFQ69G5FAV", true),
    ("01arz3ndektsv4rrffq69g5fav", true),
    ("17", false),
    ("-17", false),
    ("order-17", false),
    (" ", false),
    ("00000000-0000-0000-0000-000000000000", false),
    ("00000000-0000-0000-0000-000000000017", false),
    ("00000000-0000-0000-8000-000000000017", false),
    ("ffffffff-ffff-ffff-ffff-ffffffffffff", false),
    ("5f0c3b0e9d1a4c558a570f2f6f1f7b11", false),
    ("{5f0c3b0e-9d1a-4c55-8a57-0f2f6f1f7b11}", false),
    ("5f0c3b0e-9d1a-4c55-8a57-0f2f6f1f7b11\n", false),
    ("x\n5f0c3b0e-9d1a-4c55-8a57-0f2f6f1f7b11", false),
    ("00000000000000000000000017", false),
    ("81ARZ3NDEKTSV4RRFFQ69G5FAV", false),
    ("01ARZ3NDEKTSV4RRFFQ69G5FAU", false),
    // Letters whose other case is ASCII.
    ("01ARZ3NDE\u{212a}TSV4RRFFQ69G5FAV", false),
    ("01ARZ3NDEKT\u{17f}V4RRFFQ69G5FAV", false),
];

fn uuids(count: u32) -> Vec<String> {
    (0..count).map(|n| format!("5f0c3b0e-9d1a-4c55-8a57-{n:012x}")).collect()
}

/// Publishes events of a table that its publisher names, or does not.
async fn publish(world: &World, partition: i32, source: Option<&str>, ids: &[String]) {
    for id in ids {
        let headers = OwnedHeaders::new().insert(Header { key: "id", value: Some(id) });
        let headers = match source {
            Some(_) => headers.insert(Header { key: "walpost-source", value: source }),
            None => headers,
        };
        world.publish_with_headers(partition, id, headers).await;
    }
}

#[tokio::test]
async fn sql_and_the_crate_name_one_source() {
    let world = World::new(1).await;
    let sql = "select walpost.event_source($1, $2, 't'), $1::text collate \"C\" ~ $3";
    for (id, unique) in IDS {
        assert_eq!(is_globally_unique(id), unique, "{id:?}");
        for source in [None, Some("shop")] {
            let event = Event::builder("t").header("id", Some(id.as_bytes()));
            let event = match source {
                Some(name) => event.header("walpost-source", Some(name.as_bytes())),
                None => event,
            };
            let pattern = GLOBALLY_UNIQUE_PATTERN;
            let row = world.client.query_one(sql, &[&id, &source, &pattern]).await.unwrap();
            assert_eq!(row.get::<_, &str>(0), event.build().source(), "{id:?} of {source:?}");
            assert_eq!(row.get::<_, bool>(1), unique, "{id:?}");
        }
    }
}

#[test]
#[ignore = "deep: needs Python"]
fn python_knows_the_ids_that_sql_and_the_crate_know() {
    let script = "import ast, re, sys\n\
        tree = ast.parse(open(sys.argv[1]).read())\n\
        [found] = [n.value for n in tree.body if isinstance(n, ast.Assign) \
        and n.targets[0].id == 'GLOBALLY_UNIQUE']\n\
        pattern = eval(compile(ast.Expression(found), '', 'eval'))\n\
        print([bool(pattern.fullmatch(id)) for id in sys.argv[2:]])";
    let consumer =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/python-consumer/consumer.py");
    let mut python = Command::new("/usr/bin/python3");
    let output = python.args(["-c", script, consumer]).args(IDS.map(|(id, _)| id)).output();
    let output = output.unwrap();
    let expected: Vec<&str> =
        IDS.iter().map(|(_, unique)| if *unique { "True" } else { "False" }).collect();
    let expected = format!("[{}]", expected.join(", "));
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), expected, "{output:?}");
}

#[tokio::test]
async fn numbers_of_two_tables_are_two_events_and_uuids_are_one() {
    let world = World::new(2).await;
    let (numbers, uuids) = ((1..=60).map(|n| n.to_string()).collect::<Vec<_>>(), uuids(30));
    for (partition, source) in [(0, Some("orders")), (0, Some("bills")), (1, None)] {
        publish(&world, partition, source, &numbers).await;
        publish(&world, partition, source, &uuids).await;
        // A copy of each stays one.
        publish(&world, partition, source, &numbers).await;
    }
    let mut running = run(world.consumer().max_batch_events(70).handler(Effects).unwrap());
    running
        .until("all records", |status| status.counts.applied + status.counts.duplicates == 450)
        .await;
    running.stop().await.unwrap();
    let mut expected: BTreeMap<String, i64> = each(&numbers, 3);
    expected.extend(each(&uuids, 1));
    assert_eq!(world.effects().await, expected);
    let sources = "select count(distinct source) from walpost.done where event_id = '7'";
    assert_eq!(world.number(sources).await, 3);
}

#[tokio::test]
async fn a_parked_event_keeps_the_header_and_its_source() {
    let world = World::new(1).await;
    let (number, uuid) = (["7".to_owned()], uuids(1));
    publish(&world, 0, Some("orders"), &number).await;
    publish(&world, 0, Some("orders"), &uuid).await;
    world.client.batch_execute("alter table effect add check (part > 0)").await.unwrap();
    let mut running = run(world.consumer().max_attempts(1).handler(Effects).unwrap());
    running.until("both", |status| status.counts.parked == 2).await;
    let rows = "select source, convert_from(header_values[array_position(header_names, \
                'walpost-source')], 'UTF8') from walpost.consumer_parked order by off";
    let rows = world.client.query(rows, &[]).await.unwrap();
    let rows: Vec<(&str, &str)> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    assert_eq!(rows, [("orders", "orders"), ("", "orders")]);
    let retry = "alter table effect drop constraint effect_part_check; \
                 select walpost.request_parked(array_agg(id), 'retry', 'me') \
                 from walpost.consumer_parked";
    world.client.batch_execute(retry).await.unwrap();
    running.until("both retries", |status| status.counts.unparked == 2).await;
    // What another publisher sends of them is a copy, or of another table.
    publish(&world, 0, Some("orders"), &number).await;
    publish(&world, 0, None, &uuid).await;
    publish(&world, 0, Some("bills"), &number).await;
    running.until("the copies", |status| status.counts.duplicates == 2).await;
    running.until("the other", |status| status.counts.applied == 3).await;
    running.stop().await.unwrap();
}

#[tokio::test]
async fn a_copy_by_an_id_without_a_table_is_warned_of_once() {
    let (log, _guard) = Log::listen();
    let world = World::new(1).await;
    let events = ids("a", 5);
    publish(&world, 0, Some("orders"), &events).await;
    publish(&world, 0, Some("orders"), &events).await;
    publish(&world, 0, None, &uuids(3)).await;
    publish(&world, 0, None, &uuids(3)).await;
    let consumer = || world.consumer().max_batch_events(4).handler(Effects).unwrap();
    let mut running = run(consumer());
    running.until("copies", |status| status.counts.duplicates == 8).await;
    let text = "skipped an event as a copy";
    assert_eq!(log.lines(text), [""; 0], "their table is named, or they need none");
    for _ in 0..3 {
        publish(&world, 0, None, &events).await;
    }
    running.until("more copies", |status| status.counts.duplicates == 18).await;
    running.stop().await.unwrap();
    let lines = log.lines(text);
    let [line] = &lines[..] else { panic!("{lines:#?}") };
    let place = format!("original={}[0]@16", world.topic);
    for part in ["WARN", "event_id=a0", &place, "walpost-source", "UUIDs"] {
        assert!(line.contains(part), "{part}: {line}");
    }
}

#[tokio::test]
async fn a_record_that_is_read_again_is_no_collision() {
    let (log, _guard) = Log::listen();
    let world = World::new(1).await;
    publish(&world, 0, None, &ids("a", 20)).await;
    let mut running = run(world.consumer().handler(Effects).unwrap());
    running.until_applied(20).await;
    world.operate("fill", 0).await.unwrap();
    running.until("the same records", |status| status.counts.duplicates == 20).await;
    running.stop().await.unwrap();
    assert_eq!(log.lines("skipped an event as a copy"), [""; 0]);
}

#[tokio::test]
async fn a_business_key_warns_of_ids_that_collide_in_one_batch() {
    let (log, _guard) = Log::listen();
    let world = guard::world().await;
    publish(&world, 0, None, &["1".to_owned(), "1".to_owned()]).await;
    let mut running = run(guard::guarded(&world).handler(LEAVES_OUT).unwrap());
    running.until("both records", |status| status.counts.duplicates == 1).await;
    running.stop().await.unwrap();
    assert_eq!(log.lines("skipped an event as a copy").len(), 1, "{}", log.text());
}

#[tokio::test]
async fn effects_of_before_the_rule_keep_their_events() {
    let database = testkit::fresh_database().await;
    let client = database.connect().await;
    let scripts = Migrator::new().scripts(Set::Consumer).unwrap();
    let rule = scripts.iter().position(|script| script.sql.contains("event_source")).unwrap();
    for script in &scripts[..rule] {
        client.batch_execute(&format!("begin; {} commit", script.sql)).await.unwrap();
    }
    let uuid = &uuids(1)[0];
    let rows = format!(
        "insert into walpost.done (consumer, source, event_id, pos_id, off, run) values \
         ('c', 'main', '{uuid}', 1, 5, 0), ('c', 'orders', '{uuid}', 2, 9, 0), \
         ('d', 'main', '{uuid}', 3, 1, 0), ('c', 'main', '17', 1, 6, 0), \
         ('c', 'orders', '17', 2, 7, 0)"
    );
    client.batch_execute(&rows).await.unwrap();
    for script in &scripts[rule..] {
        client.batch_execute(&format!("begin; {} commit", script.sql)).await.unwrap();
    }
    let left = "select consumer || ',' || source || ',' || event_id from walpost.done order by 1";
    let left = client.query(left, &[]).await.unwrap();
    let left: Vec<&str> = left.iter().map(|row| row.get(0)).collect();
    let expected = [
        format!("c,,{uuid}"),
        "c,main,17".to_owned(),
        "c,orders,17".to_owned(),
        format!("d,,{uuid}"),
    ];
    assert_eq!(left, expected);
}

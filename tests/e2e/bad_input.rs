//! What goes wrong around the programs, and what they say about it.

use walpost_testkit::{create_topic, kafka, local::free_port, postgres, until};
use walpost_tests::{LIMIT, Shop, walpost_binary};

use crate::CONSUMER;

async fn place(shop: &Shop, aggregate: &str, payload: &str) {
    let client = shop.connect().await;
    let insert = "insert into walpost.outbox (aggregatetype, aggregateid, type, payload) \
                  values ('order', $1, 'Placed', $2::text::jsonb)";
    client.execute(insert, &[&aggregate, &payload]).await.unwrap();
}

#[tokio::test]
async fn events_wait_for_a_missing_topic_and_the_log_names_it() {
    let shop = Shop::without_topic(postgres()).await;
    let relay = shop.relay();
    shop.slot_made().await;
    place(&shop, "a", "{}").await;
    relay.wait_for_log(&format!("topic \\\"{}\\\" does not exist", shop.topic), LIMIT);
    assert!(relay.is_running());
    create_topic(kafka().bootstrap(), &shop.topic, 1, &[]).await;
    until(LIMIT, "the event", async || shop.records().await.len() == 1).await;
}

#[tokio::test]
async fn a_broker_that_does_not_answer_is_named_and_given_up_on() {
    let shop = Shop::without_topic(postgres()).await;
    let port = free_port().unwrap();
    let servers = format!("127.0.0.1:{port}");
    let slot = format!("walpost_{}", shop.name);
    let relay = walpost_testkit::Process::start(
        walpost_binary(),
        ["run", "--kafka", &servers],
        [
            ("WALPOST_POSTGRES_URL", shop.database.url()),
            ("WALPOST_PIPELINE_NAME", &shop.name),
            ("WALPOST_PIPELINE_SLOT", &slot),
            ("WALPOST_PIPELINE_START_TIMEOUT_MS", "1000"),
            ("WALPOST_HTTP_LISTEN", ""),
        ],
    );
    let status = relay.wait(LIMIT);
    assert_eq!(status.code(), Some(4), "{}", relay.log());
    assert!(relay.log().contains(&servers), "{}", relay.log());
}

#[tokio::test]
async fn a_record_that_the_broker_refuses_is_parked_alone_and_those_of_its_batch_arrive() {
    let shop = Shop::without_topic(postgres()).await;
    // A compacted topic takes no record without a key.
    create_topic(kafka().bootstrap(), &shop.topic, 1, &[("cleanup.policy", "compact")]).await;
    let client = shop.connect().await;
    let keyless = "alter table walpost.outbox alter aggregateid drop not null";
    client.batch_execute(keyless).await.unwrap();
    let _relay = shop.relay();
    shop.slot_made().await;
    let insert = "insert into walpost.outbox (aggregatetype, aggregateid, type, payload) \
                  select 'order', nullif(n, 7)::text, 'Placed', to_jsonb(n) \
                  from generate_series(1, 20) n";
    client.batch_execute(insert).await.unwrap();
    let arrived = async || {
        let records = shop.records().await;
        let values = records.iter().map(|record| record.value_text().parse::<u32>().unwrap());
        values.collect::<std::collections::BTreeSet<_>>()
    };
    until(LIMIT, "the other nineteen", async || arrived().await.len() == 19).await;
    assert!(!arrived().await.contains(&7));
    let sql = "select reason, convert_from(record_value, 'UTF8'), record_key is null, topic \
               from walpost.parked";
    until(LIMIT, "its row", async || !client.query(sql, &[]).await.unwrap().is_empty()).await;
    let row = client.query_one(sql, &[]).await.unwrap();
    assert_eq!((row.get::<_, &str>(0), row.get::<_, &str>(1)), ("rejected", "7"));
    assert!(row.get::<_, bool>(2) && row.get::<_, &str>(3) == shop.topic);
}

#[tokio::test]
async fn parked_events_are_sent_on_by_the_command_once_their_route_is_mended() {
    let shop = Shop::open(3).await;
    let client = shop.connect().await;
    let no_type = "alter table walpost.outbox alter aggregatetype drop not null";
    client.batch_execute(no_type).await.unwrap();
    let insert = async |n: i32| {
        let sql = "insert into walpost.outbox (aggregateid, type, payload) \
                   values ('a', 'order', to_jsonb($1::int))";
        client.execute(sql, &[&n]).await.unwrap();
    };
    let relay = shop.relay();
    shop.slot_made().await;
    insert(1).await;
    insert(2).await;
    let rows = "select count(*) from walpost.parked";
    let count = async || client.query_one(rows, &[]).await.unwrap().get::<_, i64>(0);
    until(LIMIT, "both parked", async || count().await == 2).await;
    drop(relay);

    let _relay = shop.relay_with(&[("WALPOST_ROUTER_ROUTE_BY_FIELD", "type")]);
    let output = std::process::Command::new(walpost_binary())
        .args(["parked", "retry", "1", "2", "--wait-seconds", "60"])
        .env("WALPOST_POSTGRES_URL", shop.database.url())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8_lossy(&output.stdout).matches("published").count(), 2);
    let sent_on = |record: &walpost_testkit::ReadRecord| {
        (record.value_text().to_owned(), record.header_text("walpost-replay").is_some())
    };
    let records = shop.records().await;
    let expected = [("1", true), ("2", true)].map(|(n, on)| (n.to_owned(), on));
    assert_eq!(records.iter().map(sent_on).collect::<Vec<_>>(), expected);
    // The rows are done a moment before the relay knows that none is left.
    let mut last = 2;
    until(LIMIT, "an event in its place", async || {
        last += 1;
        insert(last).await;
        let arrived = async || shop.records().await.iter().map(sent_on).collect::<Vec<_>>();
        until(LIMIT, "the next", async || arrived().await.len() == last as usize).await;
        arrived().await.last() == Some(&(last.to_string(), false))
    })
    .await;
}

#[tokio::test]
async fn events_whose_handler_fails_or_panics_are_parked_and_the_others_applied() {
    let shop = Shop::open(1).await;
    let _relay = shop.relay();
    let _consumer = shop.consumer(CONSUMER, &[]);
    shop.slot_made().await;
    place(&shop, "a", r#"{"seq": 1}"#).await;
    place(&shop, "b", r#"{"poison": true}"#).await;
    place(&shop, "c", r#"{"panic": true}"#).await;
    place(&shop, "b", r#"{"seq": 4}"#).await;
    place(&shop, "e", r#"{"seq": 5}"#).await;
    shop.effects_reach(2).await;
    let effects: Vec<i64> = shop.effects().await.into_iter().map(|effect| effect.seq).collect();
    assert_eq!(effects, [1, 5]);
    let client = shop.connect().await;
    let parked = "select attempts from walpost.consumer_parked where state = 'parked' order by off";
    let parked = client.query(parked, &[]).await.unwrap();
    let attempts: Vec<i32> = parked.iter().map(|row| row.get(0)).collect();
    // An error of the database that lasts is not tried again; a panic is.
    assert_eq!(attempts, [1, 2]);

    let asked = async |what: &str, key: &str| {
        let find = "select id::text from walpost.consumer_parked \
                    where state = 'parked' and key = convert_to($1, 'UTF8')";
        let id: String = client.query_one(find, &[&key]).await.unwrap().get(0);
        let output = std::process::Command::new(walpost_binary())
            .args(["consumer", "parked", what, &id, "--wait-seconds", "60"])
            .env("WALPOST_POSTGRES_URL", shop.database.url())
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        (output.status.code(), text)
    };
    let (code, text) = asked("retry", "c").await;
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("stays parked") && text.contains("the handler panicked"), "{text}");
    let (code, text) = asked("discard", "b").await;
    assert_eq!(code, Some(0), "{text}");
    shop.effects_reach(3).await;
    let effects: Vec<i64> = shop.effects().await.into_iter().map(|effect| effect.seq).collect();
    assert_eq!(effects, [1, 5, 4], "the event behind the discarded one came last");
}

#[tokio::test]
async fn an_unknown_key_in_the_configuration_ends_with_code_2_and_the_nearest_key() {
    let shop = Shop::without_topic(postgres()).await;
    let relay = walpost_testkit::Process::start(
        walpost_binary(),
        ["run"],
        [("WALPOST_POSTGRES_URL", shop.database.url()), ("WALPOST_PIPELINE_NAEM", "x")],
    );
    let status = relay.wait(LIMIT);
    assert_eq!(status.code(), Some(2), "{}", relay.log());
    assert!(relay.log().to_lowercase().contains("name"), "{}", relay.log());
}

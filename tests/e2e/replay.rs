//! `walpost replay` on the whole chain: what is sent again is exactly what was
//! asked for, consumers notice no second effect, and the relay is not disturbed.

use std::process::{Command, Output, Stdio};

use serde_json::Value;
use walpost_testkit::{ReadRecord, kafka, until};
use walpost_tests::{LIMIT, Shop, Writer, walpost_binary};

use crate::CONSUMER;

fn replay(shop: &Shop, args: &[&str]) -> Output {
    replay_command(shop, args).output().unwrap()
}

fn replay_command(shop: &Shop, args: &[&str]) -> Command {
    let mut command = Command::new(walpost_binary());
    command
        .args(["replay", "--kafka", kafka().bootstrap()])
        .args(args)
        .env("WALPOST_POSTGRES_URL", shop.database.url())
        .env("WALPOST_PIPELINE_NAME", &shop.name)
        .env("WALPOST_PIPELINE_SLOT", format!("walpost_{}", shop.name))
        .env("WALPOST_ROUTER_TOPIC_REPLACEMENT", format!("{}.${{routedByValue}}", shop.name))
        .env("WALPOST_REPLAY_DEDUP_WINDOW_HOURS", "24");
    command
}

fn told(output: &Output) -> (Option<i32>, String) {
    let text = [&output.stdout[..], &output.stderr].concat();
    (output.status.code(), String::from_utf8(text).unwrap())
}

fn mark(record: &ReadRecord) -> Option<&str> {
    record.header_text("walpost-replay")
}

async fn again(shop: &Shop) -> Vec<ReadRecord> {
    shop.records().await.into_iter().filter(|record| mark(record).is_some()).collect()
}

async fn age(shop: &Shop, condition: &str) -> u64 {
    let client = shop.connect().await;
    let sql =
        format!("update walpost.outbox set created_at = now() - interval '2 days' {condition}");
    client.execute(&sql, &[]).await.unwrap()
}

#[tokio::test]
async fn a_replay_sends_what_was_asked_for_and_costs_no_effect_a_second_time() {
    let shop = Shop::open(1).await;
    let relay = shop.relay();
    let _consumer = shop.consumer(CONSUMER, &[]);
    shop.slot_made().await;
    let writer = Writer::start(&shop, 0).await;
    until(LIMIT, "600 orders", async || writer.written() >= 600).await;

    // Beside a writer: what it writes meanwhile is not disturbed either.
    let (code, text) = told(&replay(&shop, &["--aggregate", "order/0-7", "--yes", "--json"]));
    assert_eq!(code, Some(0), "{text}");
    let line = text.lines().find(|line| line.starts_with('{')).unwrap();
    let answer: Value = serde_json::from_str(line).unwrap();
    let sent = answer["sent"].as_u64().unwrap();
    assert!(sent >= 30 && answer["state"] == "done", "{answer}");
    assert!(answer["rate_per_s"].as_f64().unwrap() > 0.0, "{answer}");
    let records = again(&shop).await;
    assert_eq!(records.len() as u64, sent);
    assert!(
        records.iter().all(|record| record.key_text() == "0-7" && mark(record) == Some("replay:1"))
    );
    let seqs = |records: &[ReadRecord]| -> Vec<i64> {
        let seq = |record: &ReadRecord| {
            serde_json::from_str::<Value>(record.value_text()).unwrap()["seq"].as_i64().unwrap()
        };
        records.iter().map(seq).collect()
    };
    assert!(seqs(&records).is_sorted(), "{:?}", seqs(&records));

    let written = writer.stop().await;
    shop.effects_reach(written).await;
    let (code, text) = told(&replay(&shop, &["--all", "--yes", "--rate", "100000"]));
    assert_eq!(code, Some(0), "{text}");
    assert_eq!(again(&shop).await.len() as u64, sent + written as u64, "{text}");

    // Killed behind the replay, and with events that nothing has confirmed.
    relay.kill();
    let _relay = shop.relay();
    let writer = Writer::start(&shop, 1).await;
    until(LIMIT, "more orders", async || writer.written() >= 50).await;
    let written = written + writer.stop().await;
    // Behind all that was sent again, in the only partition.
    shop.effects_reach(written).await;
    let effects = shop.effects().await;
    assert_eq!(effects.len() as i64, written, "a copy takes no effect");
    shop.assert_effects_in_order().await;
    let records = shop.records().await;
    let mut first: Vec<&str> = records
        .iter()
        .filter(|one| mark(one).is_none())
        .map(|one| one.header_text("id").unwrap())
        .collect();
    let count = first.len();
    first.sort_unstable();
    first.dedup();
    assert_eq!((first.len(), count as i64), (count, written), "the relay repeats nothing");
}

#[tokio::test]
async fn a_replay_whose_rows_were_pruned_does_not_say_that_it_is_done() {
    let shop = Shop::open(1).await;
    let _relay = shop.relay();
    shop.slot_made().await;
    let client = shop.connect().await;
    let insert = "insert into walpost.outbox (aggregatetype, aggregateid, type, payload) \
                  select 'order', (n % 5)::text, 'Placed', to_jsonb(n) \
                  from generate_series(1, 300) n";
    client.batch_execute(insert).await.unwrap();
    until(LIMIT, "300 records", async || shop.records().await.len() == 300).await;
    let mut command = replay_command(&shop, &["--all", "--yes", "--rate", "5"]);
    let mut replaying = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let sent = async || {
        let sql = "select coalesce(max(sent), 0) from walpost.replay";
        client.query_one(sql, &[]).await.unwrap().get::<_, i64>(0)
    };
    until(LIMIT, "some are sent", async || sent().await >= 5).await;
    replaying.kill().unwrap();
    replaying.wait().unwrap();
    let locks = "select count(*) from pg_locks where locktype = 'advisory' \
                 and database = (select oid from pg_database where datname = current_database()) \
                 and classid::int8 = hashtext('walpost replay')::int8 & 4294967295";
    let nobody_has_it = async || {
        until(LIMIT, "nobody has it", async || {
            client.query_one(locks, &[]).await.unwrap().get::<_, i64>(0) == 0
        })
        .await;
    };
    nobody_has_it().await;
    let gone = 300 - sent().await;
    client.batch_execute("delete from walpost.outbox").await.unwrap();

    let (code, text) = told(&replay(&shop, &["--resume", "1"]));
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains(&format!("{gone} of the 300 events that were found")), "{text}");
    nobody_has_it().await;
    let (code, text) = told(&replay(&shop, &["--resume", "1"]));
    assert!(code != Some(0) && text.contains("no unfinished replay 1"), "{text}");
}

#[tokio::test]
async fn without_a_yes_nothing_is_sent_and_what_is_not_meant_is_refused() {
    let shop = Shop::open(1).await;
    let _relay = shop.relay();
    shop.slot_made().await;
    let client = shop.connect().await;
    let insert = "insert into walpost.outbox (aggregatetype, aggregateid, type, payload) \
                  select 'order', (n % 5)::text, case when n % 4 = 0 then 'Paid' else 'Placed' end, \
                  to_jsonb(n) from generate_series(1, 100) n";
    client.batch_execute(insert).await.unwrap();
    until(LIMIT, "100 records", async || shop.records().await.len() == 100).await;

    let (code, text) = told(&replay(&shop, &["--type", "Paid"]));
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("25 events match") && text.contains("send them with --yes"), "{text}");
    let (code, text) = told(&replay(&shop, &[]));
    assert!(code == Some(2) && text.contains("no filter says which events"), "{text}");
    let (code, text) = told(&replay(&shop, &["--type", "Sent", "--yes"]));
    assert!(code == Some(5) && text.contains("no event matches"), "{text}");
    let (code, text) = told(&replay(&shop, &["--all", "--max", "99", "--yes"]));
    assert!(code == Some(2) && text.contains("100 events match, which is more than 99"), "{text}");
    assert!(text.contains("--max 100"), "{text}");
    assert_eq!(age(&shop, "where type = 'Paid' and aggregateid = '0'").await, 5);
    let (code, text) = told(&replay(&shop, &["--type", "Paid", "--yes"]));
    assert!(
        code == Some(2) && text.contains("5 of 25 events are older than the 24 hours"),
        "{text}"
    );
    let (code, text) = told(&replay(&shop, &["--id", "x", "--yes"]));
    assert!(code == Some(2) && text.contains("SQLSTATE 22P02"), "{text}");
    assert_eq!(shop.records().await.len(), 100, "nothing was sent");
    let (code, text) = told(&replay(&shop, &["--list"]));
    assert!(code == Some(0) && text.contains("nothing was replayed"), "{text}");

    let other = walpost_testkit::fresh_topic("other", 3).await;
    let args =
        ["--type", "Paid", "--accept-duplicates", "--to-topic", &other, "--yes", "--rate", "1000"];
    let (code, text) = told(&replay(&shop, &args));
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("done, 25 events sent"), "{text}");
    let records = walpost_testkit::read_all(kafka().bootstrap(), &other).await;
    assert_eq!((records.len(), shop.records().await.len()), (25, 100));
    let (_, text) = told(&replay(&shop, &["--list", "--json"]));
    let row: Value = serde_json::from_str(text.trim()).unwrap();
    assert_eq!((&row["state"], &row["sent"]), (&"done".into(), &25.into()));
    assert_eq!(row["filter"]["event_types"][0], "Paid");
}

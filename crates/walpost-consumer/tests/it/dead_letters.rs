//! Dead letters: each is there with all that the event had, is noted, and is in
//! nobody's way.

use std::{collections::BTreeSet, sync::LazyLock};

use rdkafka::{
    ClientConfig,
    message::{Header, OwnedHeaders},
    producer::{BaseRecord, DefaultProducerContext, Producer, ThreadedProducer},
};
use walpost_consumer::{Builder, Event, HandlerError, Park};
use walpost_testkit::{self as testkit, ReadRecord, until};

use crate::{
    member::{self, Harm},
    parked::{Picky, ask, until_seen},
    support::{Ask, LIMIT, World, each, ids, now_ms, run, stop_committed},
};

pub(crate) const WRITTEN: &str = "select count(*) from walpost.consumer_parked \
                                  where dead_letter_at is not null and dead_letter_error is null";
const MARK: &str = "walpost-dead-letter";

/// A topic of dead letters.
pub(crate) async fn dead_topic(configs: &[(&str, &str)]) -> String {
    let topic = testkit::unique_name("dead");
    testkit::create_topic(testkit::kafka().bootstrap(), &topic, 2, configs).await;
    topic
}

/// The letters, the one of the older row first.
pub(crate) async fn letters(topic: &str) -> Vec<ReadRecord> {
    letters_of(testkit::kafka().bootstrap(), topic).await
}

pub(crate) async fn letters_of(broker: &str, topic: &str) -> Vec<ReadRecord> {
    let mut letters = testkit::read_all(broker, topic).await;
    letters.sort_by_key(row);
    letters
}

/// Number of its row, and which time that was parked.
fn row(letter: &ReadRecord) -> (i64, i64) {
    let mut parts = letter.header_text(MARK).unwrap().split(':').skip(1);
    let mut number = || parts.next().unwrap().parse().unwrap();
    (number(), number())
}

pub(crate) fn says<'a>(letter: &'a ReadRecord, name: &str) -> &'a str {
    letter.header_text(&format!("{MARK}-{name}")).unwrap()
}

fn reasons(letters: &[ReadRecord]) -> Vec<&str> {
    letters.iter().map(|letter| says(letter, "reason")).collect()
}

/// Its headers behind those of the event.
fn marks(letter: &ReadRecord, own: usize) -> Vec<(&str, &str)> {
    let marks = letter.headers[own..].iter();
    marks.map(|(name, _)| (&**name, letter.header_text(name).unwrap())).collect()
}

pub(crate) type RawHeader<'a> = (&'a str, Option<&'a [u8]>);

/// Publishes one record as it is, to partition 0.
pub(crate) fn publish_raw(
    world: &World,
    key: Option<&[u8]>,
    value: &[u8],
    headers: &[RawHeader<'_>],
) {
    let producer: ThreadedProducer<DefaultProducerContext> = ClientConfig::new()
        .set("bootstrap.servers", testkit::kafka().bootstrap())
        .create()
        .unwrap();
    let headers = headers.iter().fold(OwnedHeaders::new(), |headers, (key, value)| {
        headers.insert(Header { key, value: *value })
    });
    let mut record = BaseRecord::<[u8], [u8]>::to(&world.topic).partition(0).payload(value);
    record.key = key;
    let sent = producer.send(record.timestamp(*WRITTEN_AT).headers(headers));
    sent.map_err(|(error, _)| error).unwrap();
    producer.flush(LIMIT).unwrap();
}

/// Of no long time ago: Kafka deletes a segment whose records are beyond retention, and so
/// what the consumer is to read.
static WRITTEN_AT: LazyLock<i64> = LazyLock::new(|| now_ms() - 1_234);

pub(crate) const KEY: &[u8] = b"k\xff\0";

fn publish_id(world: &World, id: &str) {
    publish_raw(world, Some(KEY), b"later", &[("id", Some(id.as_bytes()))]);
}

fn keyed(world: &World, topic: &str, lanes: usize) -> Builder {
    world.consumer().park(Park::Key).lanes(lanes).dead_letter_topic(topic)
}

#[tokio::test(flavor = "multi_thread")]
async fn each_parked_event_has_a_letter_with_all_that_it_had_and_what_waits_has_none() {
    for lanes in [1, 3] {
        let (world, topic) = (World::new(1).await, dead_topic(&[]).await);
        let own: [RawHeader<'_>; 6] = [
            ("trace", Some(b"\x00\xfe")),
            ("id", Some(b"bad")),
            ("none", None),
            ("twice", Some(b"1")),
            ("twice", Some(b"2")),
            ("walpost-source", Some(b"shop")),
        ];
        publish_raw(&world, Some(KEY), b"{\"card\":\0\xff}", &own);
        publish_id(&world, "k1");
        world.publish_keyed(0, &[("l", "l0")]).await;
        let picky = Picky::about(["bad", "k1"]);
        let mut running = run(keyed(&world, &topic, lanes).handler(picky.clone()).unwrap());
        until_seen(&mut running, 3).await;
        world.until_number(WRITTEN, 1).await;

        let found = letters(&topic).await;
        let [letter] = &found[..] else { panic!("one letter, not {}", found.len()) };
        assert_eq!(letter.key.as_deref(), Some(KEY));
        assert_eq!(letter.value.as_deref(), Some(&b"{\"card\":\0\xff}"[..]));
        let kept = own.map(|(name, value)| (name.to_owned(), value.map(<[u8]>::to_vec)));
        assert_eq!(letter.headers[..6], kept);
        let sql = "select id, to_char(parked_at at time zone 'utc', \
                   'YYYY-MM-DD\"T\"HH24:MI:SS.MS\"Z\"'), dead_letter_topic \
                   from walpost.consumer_parked where state = 'parked'";
        let row = world.client.query_one(sql, &[]).await.unwrap();
        let (id, parked_at): (i64, &str) = (row.get(0), row.get(1));
        assert_eq!(row.get::<_, &str>(2), topic);
        let written_at = WRITTEN_AT.to_string();
        let place = format!("parked:{id}:1:{}[0]@0", world.topic);
        let expected = [
            (MARK, &*place),
            ("walpost-dead-letter-consumer", &world.name),
            ("walpost-dead-letter-reason", "the handler gave the event up: no such customer"),
            ("walpost-dead-letter-attempts", "1"),
            ("walpost-dead-letter-parked-at", parked_at),
            ("walpost-dead-letter-timestamp-ms", &*written_at),
            ("__connect.errors.topic", &world.topic),
            ("__connect.errors.partition", "0"),
            ("__connect.errors.offset", "0"),
            ("__connect.errors.connector.name", &world.name),
            ("__connect.errors.stage", "TASK_PUT"),
            (
                "__connect.errors.exception.message",
                "the handler gave the event up: no such customer",
            ),
        ];
        assert_eq!(marks(letter, own.len()), expected);

        // Another attempt is no other parking.
        assert_eq!(ask(&world, "retry", "bad").await, "requested");
        let again = "select count(*) from walpost.consumer_parked where attempts = 2 \
                     and request is null";
        world.until_number(again, 1).await;
        // What has waited is parked itself when its turn comes.
        picky.only(["k1"]);
        assert_eq!(ask(&world, "retry", "bad").await, "requested");
        let second = "select count(*) from walpost.consumer_parked where event_id = 'k1' \
                      and dead_letter_at is not null";
        world.until_number(second, 1).await;
        running.stop().await.unwrap();
        let found = letters(&topic).await;
        let told: Vec<&str> = found.iter().map(|one| one.header_text("id").unwrap()).collect();
        assert_eq!(told, ["bad", "k1"]);
        assert_eq!(found[1].value.as_deref(), Some(&b"later"[..]));
    }
}

#[tokio::test]
pub(crate) async fn where_nothing_waits_each_has_its_letter_and_without_the_option_none_has() {
    let (world, topic) = (World::new(1).await, dead_topic(&[]).await);
    world.publish_keyed(0, &[("k", "bad"), ("k", "k1"), ("k", "bad2")]).await;
    world.publish_without_id(0, "nobody").await;
    let picky = Picky::about(["bad", "bad2"]);
    let mut running = run(world.consumer().handler(picky.clone()).unwrap());
    until_seen(&mut running, 4).await;
    running.stop().await.unwrap();
    let touched = "select count(*) from walpost.consumer_parked where dead_letter_at is not null \
                   or dead_letter_topic is not null or parking <> 1";
    assert_eq!(world.number(touched).await, 0);
    assert_eq!(letters(&topic).await, []);

    // Whoever has it writes those of before, too.
    let builder = world.consumer().park(Park::Event).dead_letter_topic(&topic);
    let running = run(builder.handler(picky).unwrap());
    world.until_number(WRITTEN, 3).await;
    running.stop().await.unwrap();
    let found = letters(&topic).await;
    let given_up = "the handler gave the event up: no such customer";
    assert_eq!(reasons(&found), [given_up, given_up, "missing id header"]);
    let nobody = &found[2];
    assert_eq!((nobody.key.as_deref(), nobody.value_text()), (None, "nobody"));
    assert_eq!(nobody.header_text("id"), None);
    assert_eq!(nobody.header_text("__connect.errors.stage"), Some("HEADER_CONVERTER"));
}

#[tokio::test]
async fn a_replay_that_parks_an_event_again_writes_another_letter() {
    let (world, topic) = (World::new(1).await, dead_topic(&[]).await);
    world.publish_keyed(0, &[("k", "bad"), ("l", "l0")]).await;
    let consumer = || world.consumer().dead_letter_topic(&topic);
    let mut running = run(consumer().handler(Picky::about(["bad"])).unwrap());
    until_seen(&mut running, 2).await;
    world.until_number(WRITTEN, 1).await;
    stop_committed(running).await;
    world.reset(&["--to-earliest"]).await;
    let mut running = run(consumer().handler(Picky::about(["bad"])).unwrap());
    until_seen(&mut running, 2).await;
    let twice = "select count(*) from walpost.consumer_parked where parking = 2 \
                 and dead_letter_at is not null";
    world.until_number(twice, 1).await;
    running.stop().await.unwrap();
    let rows: Vec<(i64, i64)> = letters(&topic).await.iter().map(row).collect();
    assert_eq!(rows, [(rows[0].0, 1), (rows[0].0, 2)]);
}

#[tokio::test]
async fn of_more_than_a_piece_each_is_written_once_and_in_order() {
    let (world, topic) = (World::new(1).await, testkit::fresh_topic("dead", 1).await);
    let events = ids("bad", 250);
    world.publish(0, &events).await;
    let handler = || Ask(|_: &Event| Err(HandlerError::park("none of them")));
    let consumer = || world.consumer().max_batch_events(1).halt_after_parked(1_000);
    let mut running = run(consumer().handler(handler()).unwrap());
    until_seen(&mut running, 250).await;
    running.stop().await.unwrap();
    let running = run(consumer().dead_letter_topic(&topic).handler(handler()).unwrap());
    world.until_number(WRITTEN, 250).await;
    running.stop().await.unwrap();
    let found = testkit::read_all(testkit::kafka().bootstrap(), &topic).await;
    let values: Vec<&str> = found.iter().map(ReadRecord::value_text).collect();
    assert_eq!(values, events);
}

#[tokio::test]
async fn what_was_parked_before_a_halt_has_its_letters() {
    // The other partition goes on, and the consumer with it.
    let (world, topic) = (World::new(2).await, dead_topic(&[]).await);
    let events = ids("bad", 3);
    world.publish(0, &events).await;
    let handler = Ask(|_: &Event| Err(HandlerError::park("none of them")));
    let consumer = world.consumer().halt_after_parked(2).dead_letter_topic(&topic);
    let mut running = run(consumer.handler(handler).unwrap());
    let reason = running.until_halted().await;
    assert!(reason.contains("more than 2 events in a row were parked"), "{reason}");
    assert_eq!(world.number("select count(*) from walpost.consumer_parked").await, 3);
    world.until_number(WRITTEN, 3).await;
    running.stop().await.unwrap();
    let found = letters(&topic).await;
    let values: Vec<&str> = found.iter().map(ReadRecord::value_text).collect();
    assert_eq!(values, events);
}

#[tokio::test]
async fn a_letter_whose_row_is_locked_is_noted_later_and_for_the_parking_that_it_is_of() {
    for (meanwhile, expected) in [
        ("", [("bad", 1), ("bad2", 1)].as_slice()),
        // As a replay does.
        (
            "update walpost.consumer_parked set run = 1 where event_id = 'bad';",
            &[("bad", 1), ("bad", 2), ("bad2", 1)],
        ),
    ] {
        let (world, topic) = (World::new(1).await, dead_topic(&[]).await);
        world.publish_keyed(0, &[("k", "bad"), ("k", "k1")]).await;
        let picky = Picky::about(["bad", "bad2"]);
        let mut running = run(world.consumer().handler(picky.clone()).unwrap());
        until_seen(&mut running, 2).await;
        running.stop().await.unwrap();
        let lock = world.database.connect().await;
        lock.batch_execute("begin; select from walpost.consumer_parked for update").await.unwrap();
        let running = run(world.consumer().dead_letter_topic(&topic).handler(picky).unwrap());
        until(LIMIT, "the letter", async || letters(&topic).await.len() == 1).await;
        // Others are written and noted meanwhile.
        world.publish_keyed(0, &[("k", "bad2")]).await;
        world.until_number(WRITTEN, 1).await;
        lock.batch_execute(&format!("{meanwhile} commit")).await.unwrap();
        world.until_number(WRITTEN, 2).await;
        running.stop().await.unwrap();
        let found = letters(&topic).await;
        let told: Vec<(&str, i64)> =
            found.iter().map(|letter| (letter.value_text(), row(letter).1)).collect();
        assert_eq!(told, expected, "{meanwhile}");
    }
}

/// Rows and letters of two events that a killed or paused member has parked.
async fn two_parked(harm: &'static str) -> (World, String, testkit::Process) {
    let (world, topic) = (World::new(1).await, dead_topic(&[]).await);
    world.publish_without_id(0, "first").await;
    world.publish_without_id(0, "second").await;
    world.publish(0, ids("a", 20)).await;
    let member = member::start_with_letters(&world, &topic, Harm::Failpoint(harm));
    (world, topic, member)
}

fn distinct(letters: &[ReadRecord]) -> BTreeSet<&str> {
    letters.iter().map(|letter| letter.header_text(MARK).unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_dies_before_the_note_leaves_its_successor_a_copy_and_no_letter_is_lost() {
    let (world, topic, killed) = two_parked("after_dead_letter:kill").await;
    member::until_dead(&killed).await;
    assert_eq!(world.number(WRITTEN).await, 0);
    let before = letters(&topic).await.len();
    assert!((1..=2).contains(&before), "{before} letters");
    let successor = member::start_with_letters(&world, &topic, Harm::Nothing);
    world.until_number(WRITTEN, 2).await;
    world.until_number("select count(*) from effect", 20).await;
    assert!(successor.terminate(LIMIT).success(), "{}", successor.log());
    let found = letters(&topic).await;
    assert_eq!((found.len(), distinct(&found).len()), (before + 2, 2));
    assert_eq!(world.effects().await, each(&ids("a", 20), 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_is_paused_before_the_note_wakes_to_rows_that_are_not_its_own() {
    let (world, topic, zombie) = two_parked("after_dead_letter:stop").await;
    member::until_paused(&zombie).await;
    let before = letters(&topic).await.len();
    let successor = member::start_with_letters(&world, &topic, Harm::Nothing);
    world.until_number(WRITTEN, 2).await;
    let noted_at = "select string_agg(dead_letter_at::text, ' ' order by id) \
                    from walpost.consumer_parked";
    let first: String = world.client.query_one(noted_at, &[]).await.unwrap().get(0);
    zombie.resume();
    assert!(zombie.terminate(LIMIT).success(), "{}", zombie.log());
    assert!(successor.terminate(LIMIT).success(), "{}", successor.log());
    let second: String = world.client.query_one(noted_at, &[]).await.unwrap().get(0);
    assert_eq!(first, second, "its note is refused by the fence");
    let found = letters(&topic).await;
    assert_eq!((found.len(), distinct(&found).len()), (before + 2, 2));
}

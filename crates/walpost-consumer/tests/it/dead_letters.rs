//! Dead letters: each is there with all that the event had, is noted, and is in
//! nobody's way.

use std::{collections::BTreeSet, time::Duration};

use rdkafka::{
    ClientConfig,
    admin::{AdminClient, AdminOptions},
    client::DefaultClientContext,
    message::{Header, OwnedHeaders},
    producer::{BaseRecord, DefaultProducerContext, Producer, ThreadedProducer},
};
use walpost_consumer::{Builder, Error, Event, HandlerError, Park};
use walpost_testkit::{self as testkit, ReadRecord, local::Kafka, until};

use crate::{
    member::{self, Harm},
    parked::{Picky, ask, until_seen},
    support::{Ask, Effects, LIMIT, World, each, ids, run},
};

const WRITTEN: &str = "select count(*) from walpost.consumer_parked \
                       where dead_letter_at is not null and dead_letter_error is null";
const REFUSED: &str = "select count(*) from walpost.consumer_parked \
                       where dead_letter_error is not null";
const MARK: &str = "walpost-dead-letter";

/// A topic of dead letters.
async fn dead_topic(configs: &[(&str, &str)]) -> String {
    let topic = testkit::unique_name("dead");
    testkit::create_topic(testkit::kafka().bootstrap(), &topic, 2, configs).await;
    topic
}

fn admin(broker: &str) -> AdminClient<DefaultClientContext> {
    ClientConfig::new().set("bootstrap.servers", broker).create().unwrap()
}

async fn delete_topic(topic: &str) {
    let admin = admin(testkit::kafka().bootstrap());
    let deleted = admin.delete_topics(&[topic], &AdminOptions::new()).await.unwrap();
    deleted.into_iter().for_each(|result| drop(result.unwrap()));
    until(LIMIT, "the end of the topic", async || {
        let metadata = admin.inner().fetch_metadata(None, Duration::from_secs(10)).unwrap();
        metadata.topics().iter().all(|found| found.name() != topic)
    })
    .await;
}

fn tool(kafka: &Kafka, class: &str, args: &[&str]) {
    let bootstrap = kafka.bootstrap();
    kafka.run_tool(class, [&["--bootstrap-server", &*bootstrap], args].concat()).unwrap();
}

/// The letters, the one of the older row first.
async fn letters(topic: &str) -> Vec<ReadRecord> {
    letters_of(testkit::kafka().bootstrap(), topic).await
}

async fn letters_of(broker: &str, topic: &str) -> Vec<ReadRecord> {
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

fn says<'a>(letter: &'a ReadRecord, name: &str) -> &'a str {
    letter.header_text(&format!("{MARK}-{name}")).unwrap()
}

fn reasons(letters: &[ReadRecord]) -> Vec<&str> {
    letters.iter().map(|letter| says(letter, "reason")).collect()
}

type RawHeader<'a> = (&'a str, Option<&'a [u8]>);

/// Publishes one record as it is, to partition 0.
fn publish_raw(world: &World, key: Option<&[u8]>, value: &[u8], headers: &[RawHeader<'_>]) {
    let producer: ThreadedProducer<DefaultProducerContext> = ClientConfig::new()
        .set("bootstrap.servers", testkit::kafka().bootstrap())
        .create()
        .unwrap();
    let headers = headers.iter().fold(OwnedHeaders::new(), |headers, (key, value)| {
        headers.insert(Header { key, value: *value })
    });
    let mut record = BaseRecord::<[u8], [u8]>::to(&world.topic).partition(0).payload(value);
    record.key = key;
    let sent = producer.send(record.timestamp(1_700_000_000_123).headers(headers));
    sent.map_err(|(error, _)| error).unwrap();
    producer.flush(LIMIT).unwrap();
}

const KEY: &[u8] = b"k\xff\0";

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
        let place = format!("parked:{id}:1:{}[0]@0", world.topic);
        let expected = [
            (MARK, &*place),
            ("walpost-dead-letter-consumer", &world.name),
            ("walpost-dead-letter-reason", "the handler gave the event up: no such customer"),
            ("walpost-dead-letter-attempts", "1"),
            ("walpost-dead-letter-parked-at", parked_at),
            ("walpost-dead-letter-timestamp-ms", "1700000000123"),
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
        let told: Vec<(&str, &str)> = letter.headers[6..]
            .iter()
            .map(|(name, value)| (&**name, std::str::from_utf8(value.as_ref().unwrap()).unwrap()))
            .collect();
        assert_eq!(told, expected);

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
    running.stop().await.unwrap();
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
async fn what_was_parked_before_a_halt_has_its_letters() {
    let (world, topic) = (World::new(1).await, dead_topic(&[]).await);
    let events = ids("bad", 3);
    world.publish(0, &events).await;
    let handler = Ask(|_: &Event| Err(HandlerError::park("none of them")));
    let consumer = world.consumer().halt_after_parked(2).dead_letter_topic(&topic);
    let running = run(consumer.handler(handler).unwrap());
    world.until_number("select count(*) from walpost.consumer_parked", 3).await;
    let error = running.end().await.unwrap_err();
    assert!(matches!(error, Error::Halted { .. }), "{error}");
    assert_eq!(world.number(WRITTEN).await, 3);
    let found = letters(&topic).await;
    let values: Vec<&str> = found.iter().map(ReadRecord::value_text).collect();
    assert_eq!(values, events);
}

#[tokio::test]
async fn a_letter_whose_row_is_locked_is_noted_later_and_written_once() {
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
    lock.batch_execute("commit").await.unwrap();
    world.until_number(WRITTEN, 2).await;
    running.stop().await.unwrap();
    assert_eq!(letters(&topic).await.len(), 2);
}

#[tokio::test]
async fn brokers_that_are_away_at_the_start_are_waited_for_and_it_can_be_stopped() {
    let world = World::new(1).await;
    let nobody = testkit::local::free_port().unwrap();
    let consumer = world.consumer().kafka("bootstrap.servers", format!("127.0.0.1:{nobody}"));
    let consumer = consumer.dead_letter_topic("dead").handler(Effects).unwrap();
    run(consumer).stop().await.unwrap();
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

#[tokio::test]
async fn a_topic_that_is_not_there_or_is_read_itself_is_refused() {
    let world = World::new(1).await;
    world.publish(0, ["a0"]).await;
    let missing = testkit::unique_name("missing");
    let consumer = world.consumer().dead_letter_topic(&missing).handler(Effects).unwrap();
    let error = run(consumer).end().await.unwrap_err();
    assert!(matches!(error, Error::Setting { .. }), "{error}");
    let expected = format!(
        "setting dead_letter_topic: topic {missing} does not exist in the cluster; create it, or \
         correct the name"
    );
    assert_eq!(error.to_string(), expected);
    assert_eq!(world.number("select count(*) from walpost.position").await, 0);

    let consumer = world.consumer().dead_letter_topic(&world.topic).handler(Effects);
    let error = consumer.map(drop).unwrap_err().to_string();
    assert!(error.contains("is one of the topics that are read"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_goes_away_stops_nothing_is_told_once_and_loses_no_letter() {
    let (world, topic) = (World::new(1).await, dead_topic(&[]).await);
    world.publish_without_id(0, "first").await;
    let member = member::start_with_letters(&world, &topic, Harm::Nothing);
    world.until_number(WRITTEN, 1).await;
    delete_topic(&topic).await;
    world.publish_without_id(0, "given up").await;
    world.publish_without_id(0, "second").await;
    world.publish(0, ids("a", 20)).await;
    world.until_number("select count(*) from effect", 20).await;
    member.wait_for_log("dead letters cannot be written for the moment", LIMIT);
    let discard = "select count(*) from walpost.request_parked((select array_agg(id) from \
                   walpost.consumer_parked where value = 'given up'), 'discard', 'tester')";
    assert_eq!(world.number(discard).await, 1);
    let discarded = "select count(*) from walpost.consumer_parked where state = 'discarded'";
    world.until_number(discarded, 1).await;
    assert_eq!(world.number(WRITTEN).await, 1);

    testkit::create_topic(testkit::kafka().bootstrap(), &topic, 1, &[]).await;
    world.until_number(WRITTEN, 2).await;
    member.wait_for_log("dead letters are written again", LIMIT);
    assert!(member.terminate(LIMIT).success(), "{}", member.log());
    let found = letters(&topic).await;
    let values: Vec<&str> = found.iter().map(ReadRecord::value_text).collect();
    assert_eq!(values, ["second"]);
    let log = member.log();
    let told: Vec<&str> = log.lines().filter(|line| line.contains("cannot be written")).collect();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("the topic does not exist"), "{told:?}");
}

/// Bytes that no compression makes fewer.
fn noise(count: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_u32;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state.to_le_bytes()[0]
    };
    (0..count).map(|_| next()).collect()
}

#[tokio::test]
async fn an_event_beyond_the_topics_limit_has_a_letter_without_its_contents() {
    let (world, topic) = (World::new(1).await, dead_topic(&[("max.message.bytes", "4000")]).await);
    let headers: [RawHeader<'_>; 2] = [("id", Some(b"bad")), ("big", Some(b"x"))];
    publish_raw(&world, Some(KEY), &noise(20_000), &headers);
    world.publish_keyed(0, &[("k", "bad2"), ("k", "k1")]).await;
    let consumer = world.consumer().dead_letter_topic(&topic);
    let mut running = run(consumer.handler(Picky::about(["bad", "bad2"])).unwrap());
    until_seen(&mut running, 3).await;
    world.until_number(WRITTEN, 2).await;
    running.stop().await.unwrap();
    let found = letters(&topic).await;
    let [large, small] = &found[..] else { panic!("two letters, not {}", found.len()) };
    assert_eq!((large.key.as_deref(), large.value.as_deref()), (Some(KEY), None));
    assert_eq!((large.header_text("id"), large.header_text("big")), (Some("bad"), None));
    let why = says(large, "left-out");
    assert!(why.starts_with("the topic refuses the whole event: "), "{why}");
    assert_eq!(
        (small.value_text(), small.header_text("walpost-dead-letter-left-out")),
        ("bad2", None)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_topic_takes_in_no_form_is_noted_and_tried_by_the_next_start() {
    let (world, topic) = (World::new(1).await, dead_topic(&[("max.message.bytes", "100")]).await);
    world.publish_keyed(0, &[("k", "bad"), ("k", "k1")]).await;
    let picky = Picky::about(["bad", "bad2"]);
    let consumer = || world.consumer().dead_letter_topic(&topic);
    let mut running = run(consumer().handler(picky.clone()).unwrap());
    until_seen(&mut running, 2).await;
    world.until_number(REFUSED, 1).await;
    let at = "select (extract(epoch from min(dead_letter_at)) * 1000000)::bigint \
              from walpost.consumer_parked";
    let first = world.number(at).await;
    world.publish_keyed(0, &[("k", "bad2"), ("k", "k2")]).await;
    world.until_number(REFUSED, 2).await;
    running.until_applied(2).await;
    running.stop().await.unwrap();
    assert_eq!(world.number(at).await, first, "it was not tried again");
    assert_eq!(letters(&topic).await, []);

    let kafka = testkit::kafka().local().expect("the tools come with a broker of our own");
    let change = ["--alter", "--topic", &topic, "--add-config", "max.message.bytes=100000"];
    tokio::task::block_in_place(|| tool(kafka, "kafka.admin.ConfigCommand", &change));
    let running = run(consumer().handler(picky).unwrap());
    world.until_number(WRITTEN, 2).await;
    running.stop().await.unwrap();
    assert_eq!(letters(&topic).await.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_denies_us_is_refused_at_the_start_and_stops_nothing_later() {
    let kafka = Kafka::builder()
        .property(
            "authorizer.class.name",
            "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        )
        .property("allow.everyone.if.no.acl.found", "true")
        .start()
        .unwrap();
    let broker = kafka.bootstrap();
    let world = World::on(&broker, 1).await;
    testkit::create_topic(&broker, "dead", 1, &[]).await;
    let acls = |change: &str, rights: &[&str]| {
        let args = [&[change, "--force", "--topic", "dead"], rights].concat();
        tokio::task::block_in_place(|| tool(&kafka, "org.apache.kafka.tools.AclCommand", &args));
    };
    acls("--add", &["--allow-principal", "User:somebody", "--operation", "All"]);
    let consumer = || world.consumer().dead_letter_topic("dead");
    let error = run(consumer().handler(Effects).unwrap()).end().await.unwrap_err().to_string();
    assert!(error.contains("grant Describe and Write on it"), "{error}");

    acls("--add", &["--allow-principal", "User:*", "--operation", "Describe"]);
    acls("--add", &["--allow-principal", "User:*", "--operation", "Read"]);
    let handler = Ask(|event: &Event| match event.id() {
        "a3" => Err(HandlerError::park("not this one")),
        _ => Ok(()),
    });
    let mut running = run(consumer().handler(handler).unwrap());
    world.publish(0, ids("a", 20)).await;
    running.until_applied(19).await;
    assert_eq!(letters_of(&broker, "dead").await, []);
    assert_eq!(world.number(WRITTEN).await, 0);
    acls("--add", &["--allow-principal", "User:*", "--operation", "Write"]);
    world.until_number(WRITTEN, 1).await;
    running.stop().await.unwrap();
    let found = letters_of(&broker, "dead").await;
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].value_text(), "a3");
}

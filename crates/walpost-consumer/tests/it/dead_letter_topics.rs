//! Topics of dead letters that are missing, denied or too narrow.

use std::time::Duration;

use rdkafka::{
    ClientConfig,
    admin::{AdminClient, AdminOptions},
    client::DefaultClientContext,
    types::RDKafkaRespErr,
};
use walpost_consumer::{Error, Event, HandlerError};
use walpost_testkit::{
    self as testkit, ReadRecord,
    local::{Kafka, KafkaTools},
    until,
};

use crate::{
    dead_letters::{KEY, RawHeader, WRITTEN, dead_topic, letters, letters_of, publish_raw, says},
    member::{self, Harm},
    parked::{Picky, until_seen},
    support::{Ask, Effects, LIMIT, World, ids, run},
};

const REFUSED: &str = "select count(*) from walpost.consumer_parked \
                       where dead_letter_error is not null";

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

const DENIED: RDKafkaRespErr = RDKafkaRespErr::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED;

/// Waits until the broker shows us the topic, or hides it: rights that were granted
/// come into force later.
async fn until_shown(broker: &str, topic: &str, is_shown: bool) {
    let admin = admin(broker);
    until(LIMIT, "the rights", async || {
        let metadata = admin.inner().fetch_metadata(Some(topic), Duration::from_secs(10));
        let Ok(metadata) = metadata else { return false };
        match metadata.topics()[0].error() {
            None => is_shown,
            Some(error) => !is_shown && error == DENIED,
        }
    })
    .await;
}

fn tool(bootstrap: &str, class: &str, args: &[&str]) {
    let tools = KafkaTools::find().unwrap();
    tools.run(class, [&["--bootstrap-server", bootstrap], args].concat()).unwrap();
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

#[tokio::test]
async fn brokers_that_are_away_at_the_start_are_waited_for_and_it_can_be_stopped() {
    let world = World::new(1).await;
    let nobody = testkit::local::free_port().unwrap();
    let consumer = world.consumer().kafka("bootstrap.servers", format!("127.0.0.1:{nobody}"));
    let consumer = consumer.dead_letter_topic("dead").handler(Effects).unwrap();
    run(consumer).stop().await.unwrap();
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

    let kafka = testkit::kafka().bootstrap();
    let change = ["--alter", "--topic", &topic, "--add-config", "max.message.bytes=100000"];
    tokio::task::block_in_place(|| tool(kafka, "kafka.admin.ConfigCommand", &change));
    let running = run(consumer().handler(picky).unwrap());
    world.until_number(WRITTEN, 2).await;
    running.stop().await.unwrap();
    assert_eq!(letters(&topic).await.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "deep: a broker of its own"]
async fn a_topic_that_denies_us_is_refused_at_the_start_and_stops_nothing_later() {
    let kafka = Kafka::builder()
        .property(
            "authorizer.class.name",
            "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        )
        .property("allow.everyone.if.no.acl.found", "true")
        .property("broker.session.timeout.ms", "30000")
        .start()
        .unwrap();
    let broker = kafka.bootstrap();
    let world = World::on(&broker, 1).await;
    testkit::create_topic(&broker, "dead", 1, &[]).await;
    let acls = |change: &str, rights: &[&str]| {
        let args = [&[change, "--force", "--topic", "dead"], rights].concat();
        tokio::task::block_in_place(|| {
            tool(&kafka.bootstrap(), "org.apache.kafka.tools.AclCommand", &args);
        });
    };
    acls("--add", &["--allow-principal", "User:somebody", "--operation", "All"]);
    until_shown(&broker, "dead", false).await;
    let consumer = || world.consumer().dead_letter_topic("dead");
    let error = run(consumer().handler(Effects).unwrap()).end().await.unwrap_err().to_string();
    assert!(error.contains("grant Describe and Write on it"), "{error}");

    let rights = ["--allow-principal", "User:*", "--operation", "Describe", "--operation", "Read"];
    acls("--add", &rights);
    until_shown(&broker, "dead", true).await;
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

//! What a successor reads back.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use rdkafka::{
    ClientConfig,
    admin::{AdminClient, AdminOptions},
    client::DefaultClientContext,
    producer::{BaseProducer, BaseRecord, Producer},
};
use walpost_event::{Header, Message};
use walpost_kafka::KafkaSink;
use walpost_relay::{
    DEAD_LETTER_HEADER, POSITION_HEADER, REPLAY_HEADER, RelayError, Sink, TopicFloors,
};
use walpost_testkit::{
    create_topic, fresh_topic, kafka, local::Kafka, unique_name, until, until_some,
};

use crate::rig::{Driver, LIMIT, connector, message};

/// What was told of each record: position, id, replayed.
pub(crate) type Told = (Option<String>, Option<String>, bool);

/// A sink that has read back, and what it found.
async fn read_back(topics: Vec<TopicFloors>, settle: Option<Duration>) -> (KafkaSink, Vec<Told>) {
    try_read_back(kafka().bootstrap(), topics, settle).await.unwrap()
}

pub(crate) async fn try_read_back(
    bootstrap: &str,
    topics: Vec<TopicFloors>,
    settle: Option<Duration>,
) -> Result<(KafkaSink, Vec<Told>), RelayError> {
    let mut sink = connector(bootstrap, &[]).connect().await.unwrap();
    let told = Arc::new(Mutex::new(Vec::new()));
    let telling = told.clone();
    let text = |bytes: Option<&[u8]>| bytes.map(|bytes| String::from_utf8_lossy(bytes).into());
    let note = Box::new(move |marks: walpost_relay::Marks<'_>| {
        telling.lock().unwrap().push((text(marks.position), text(marks.id), marks.is_replayed()));
    });
    let reading = sink.read_back(topics, settle, note);
    tokio::time::timeout(LIMIT, reading).await.expect("it comes to the ends")?;
    let told = std::mem::take(&mut *told.lock().unwrap());
    Ok((sink, told))
}

pub(crate) fn floors(topic: &str, id: Option<&Arc<str>>, floors: &[i64]) -> TopicFloors {
    TopicFloors { name: topic.into(), id: id.cloned(), floors: floors.to_vec() }
}

pub(crate) fn with(mut message: Message, headers: &[(&str, &str)]) -> Message {
    for (name, value) in headers {
        let value = Some(bytes::Bytes::copy_from_slice(value.as_bytes()));
        message.headers.push(Header { name: (*name).into(), value });
    }
    message
}

/// Positions `p0` to before `p<count>`, all in partition 0.
async fn publish(topic: &str, count: usize) -> Arc<str> {
    publish_at(kafka().bootstrap(), topic, count).await
}

async fn publish_at(bootstrap: &str, topic: &str, count: usize) -> Arc<str> {
    let mut driver = Driver::connect(&connector(bootstrap, &[])).await;
    for n in 0..count {
        let position = format!("p{n}");
        let mut sent = with(message(topic, "a", "v"), &[(POSITION_HEADER, &position)]);
        sent.partition = Some(0);
        driver.send(sent).await.unwrap();
    }
    driver.settle().await;
    let id = driver.sink.places()[0].topic_id.clone().expect("the brokers know topic ids");
    driver.sink.close().await;
    id
}

pub(crate) fn positions(told: &[Told]) -> Vec<&str> {
    told.iter().map(|(position, ..)| position.as_deref().unwrap_or("none")).collect()
}

/// What is told of the replay header of each record.
async fn replays(topics: Vec<TopicFloors>) -> Vec<Option<String>> {
    let mut sink = connector(kafka().bootstrap(), &[]).connect().await.unwrap();
    let told = Arc::new(Mutex::new(Vec::new()));
    let telling = told.clone();
    let note = Box::new(move |marks: walpost_relay::Marks<'_>| {
        let replay = marks.replay.map(|says| String::from_utf8_lossy(says).into_owned());
        assert_eq!(marks.is_replayed(), replay.is_some());
        telling.lock().unwrap().push(replay);
    });
    let reading = sink.read_back(topics, None, note);
    tokio::time::timeout(LIMIT, reading).await.expect("it comes to the ends").unwrap();
    sink.close().await;
    std::mem::take(&mut *told.lock().unwrap())
}

#[tokio::test]
async fn a_retry_goes_where_it_was_said_and_is_found_there_by_what_it_says() {
    let topic = fresh_topic("retry", 4).await;
    let id = publish(&topic, 3).await;
    let mut driver = Driver::connect(&connector(kafka().bootstrap(), &[])).await;
    let mut retry = with(message(&topic, "a", "v"), &[(REPLAY_HEADER, "parked:7:0000001f:0/10:2")]);
    let lane = loop {
        match driver.sink.lane_of(&retry).unwrap() {
            Some(lane) => break lane,
            None => driver.wait().await,
        }
        driver.sink.allow(driver.sink.places().len());
    };
    let place = driver.sink.places()[lane as usize].clone();
    // Without a key the next one would go elsewhere.
    retry.key = None;
    retry.partition = Some(place.partition);
    for message in [message(&topic, "a", "before"), retry, message(&topic, "a", "behind")] {
        let mut message = message;
        message.partition = Some(place.partition);
        driver.send(message).await.unwrap();
    }
    driver.settle().await;
    let landed = driver.deliveries.iter().map(|one| one.result.clone().unwrap());
    let landed: Vec<_> = landed.collect();
    assert!(landed.iter().all(|one| one.lane == lane), "{landed:?}");
    driver.sink.close().await;

    let offset = landed[1].offset.unwrap();
    let from = |offset: i64| {
        let mut starts = vec![i64::MAX; 4];
        starts[place.partition as usize] = offset;
        vec![floors(&topic, Some(&id), &starts)]
    };
    let says = Some("parked:7:0000001f:0/10:2".to_owned());
    assert_eq!(replays(from(offset)).await, [says, None]);
    assert_eq!(replays(from(offset + 1)).await, [None]);

    let mut sink = connector(kafka().bootstrap(), &[]).connect().await.unwrap();
    assert!(sink.lane_of(&message("no/topic", "a", "v")).unwrap_err().contains("no topic name"));
    sink.close().await;
}

#[tokio::test]
async fn a_dead_letter_proves_no_event_and_is_no_retry() {
    let topic = fresh_topic("dead", 1).await;
    let mut driver = Driver::connect(&connector(kafka().bootstrap(), &[])).await;
    let row = (DEAD_LETTER_HEADER, "parked:7:0000001f:0/10:2");
    let marked = [("id", "7"), row, (POSITION_HEADER, "0000001f:0/10:2")];
    driver.send(with(message(&topic, "a", "v"), &marked)).await.unwrap();
    driver.settle().await;
    let id = driver.sink.places()[0].topic_id.clone();
    driver.sink.close().await;
    assert_eq!(replays(vec![floors(&topic, id.as_ref(), &[0])]).await, [Some(String::new())]);
}

#[tokio::test]
async fn from_the_floors_to_the_ends_with_what_the_headers_tell() {
    let topic = fresh_topic("back", 2).await;
    let id = publish(&topic, 5).await;
    let mut driver = Driver::connect(&connector(kafka().bootstrap(), &[])).await;
    let mut replayed = with(
        message(&topic, "a", "v"),
        &[("id", "7"), ("other", "x"), (REPLAY_HEADER, "1"), (POSITION_HEADER, "again")],
    );
    replayed.partition = Some(1);
    let mut bare = message(&topic, "a", "v");
    bare.partition = Some(1);
    for message in [replayed, bare] {
        driver.send(message).await.unwrap();
        driver.settle().await;
    }
    driver.sink.close().await;

    let (sink, mut told) = read_back(vec![floors(&topic, Some(&id), &[3, 0])], None).await;
    told.sort();
    let expected = [
        (None, None, false),
        (Some("again".to_owned()), Some("7".to_owned()), true),
        (Some("p3".to_owned()), None, false),
        (Some("p4".to_owned()), None, false),
    ];
    assert_eq!(told, expected);
    let places: Vec<_> =
        sink.places().iter().map(|place| (place.partition, place.start, place.end)).collect();
    assert_eq!(places, [(0, 3, 5), (1, 0, 2)]);
    sink.close().await;
}

#[tokio::test]
async fn a_topic_that_was_made_anew_is_read_from_its_beginning_and_one_that_is_gone_not_at_all() {
    let topic = unique_name("anew");
    create_topic(kafka().bootstrap(), &topic, 1, &[]).await;
    let before = publish(&topic, 3).await;
    delete(&topic).await;
    let gone = floors(&topic, Some(&before), &[2]);
    let (sink, told) = read_back(vec![gone.clone()], None).await;
    assert!(told.is_empty() && sink.places().is_empty());
    sink.close().await;

    create_topic(kafka().bootstrap(), &topic, 1, &[]).await;
    let after = publish(&topic, 4).await;
    assert_ne!(before, after);
    let (sink, told) = read_back(vec![gone], None).await;
    assert_eq!(positions(&told), ["p0", "p1", "p2", "p3"]);
    assert_eq!(sink.places()[0].topic_id, Some(after));
    sink.close().await;
}

async fn delete(topic: &str) {
    let admin: AdminClient<DefaultClientContext> =
        ClientConfig::new().set("bootstrap.servers", kafka().bootstrap()).create().unwrap();
    let deleted = admin.delete_topics(&[topic], &AdminOptions::new()).await.unwrap();
    deleted.into_iter().for_each(|result| drop(result.unwrap()));
    until(LIMIT, "the end of the topic", async || {
        let metadata = admin.inner().fetch_metadata(None, Duration::from_secs(10)).unwrap();
        metadata.topics().iter().all(|found| found.name() != topic)
    })
    .await;
}

#[tokio::test]
async fn an_open_transaction_of_another_is_waited_for_and_what_it_aborts_does_not_count() {
    let topic = fresh_topic("foreign", 1).await;
    let id = publish(&topic, 1).await;
    let foreign: BaseProducer = ClientConfig::new()
        .set("bootstrap.servers", kafka().bootstrap())
        .set("transactional.id", unique_name("foreign"))
        .create()
        .unwrap();
    foreign.init_transactions(LIMIT).unwrap();
    foreign.begin_transaction().unwrap();
    let record = BaseRecord::<str, str>::to(&topic).partition(0).payload("foreign").key("a");
    foreign.send(record).unwrap();
    foreign.flush(LIMIT).unwrap();
    // Behind the open transaction, where no committed read gets yet.
    publish(&topic, 2).await;
    let mut reading = tokio::spawn(read_back(vec![floors(&topic, Some(&id), &[0])], None));
    let waited = tokio::time::timeout(Duration::from_secs(2), &mut reading).await;
    assert!(waited.is_err(), "the end is behind the transaction");
    foreign.abort_transaction(LIMIT).unwrap();
    let (sink, told) = reading.await.unwrap();
    assert_eq!(positions(&told), ["p0", "p0", "p1"]);
    sink.close().await;
}

#[tokio::test]
#[ignore = "deep: a broker of its own"]
async fn after_a_stop_that_was_not_orderly_what_arrives_late_is_read_too() {
    let topic = fresh_topic("late", 1).await;
    let id = publish(&topic, 1).await;
    let settle = Some(Duration::from_secs(30));
    let reading = tokio::spawn(read_back(vec![floors(&topic, Some(&id), &[0])], settle));
    publish(&topic, 2).await;
    let (sink, told) = reading.await.unwrap();
    assert_eq!(positions(&told), ["p0", "p0", "p1"]);
    sink.close().await;
}

#[tokio::test]
async fn nothing_is_sent_to_a_place_that_is_not_allowed() {
    let topic = fresh_topic("named", 1).await;
    let mut driver = Driver::connect(&connector(kafka().bootstrap(), &[])).await;
    assert!(driver.sink.try_send(0, message(&topic, "a", "1")).is_err());
    until(LIMIT, "the place", async || {
        driver.wait().await;
        !driver.sink.places().is_empty()
    })
    .await;
    assert!(driver.sink.try_send(0, message(&topic, "a", "1")).is_err(), "known and not named");
    driver.sink.allow(1);
    driver.sink.try_send(0, message(&topic, "a", "1")).unwrap();
    driver.settle().await;
    assert_eq!(driver.delivered().len(), 1);
    driver.sink.close().await;
}

#[tokio::test]
#[ignore = "deep: a broker of its own"]
async fn the_right_to_read_is_needed_for_the_topic_and_not_for_a_group() {
    let authorizer = "org.apache.kafka.metadata.authorizer.StandardAuthorizer";
    let broker = Kafka::builder()
        .property("authorizer.class.name", authorizer)
        .property("allow.everyone.if.no.acl.found", "true")
        .start()
        .unwrap();
    let bootstrap = broker.bootstrap();
    create_topic(&bootstrap, "rights", 1, &[]).await;
    let id = publish_at(&bootstrap, "rights", 2).await;
    let grant = |principal: &str, operation: &str, resource: [&str; 2]| {
        let who = ["--add", "--allow-principal", principal, "--operation", operation];
        let args = ["--bootstrap-server", &bootstrap].into_iter().chain(who).chain(resource);
        broker.run_tool("org.apache.kafka.tools.AclCommand", args).unwrap();
    };
    grant("User:somebody", "Read", ["--group", "*"]);
    grant("User:*", "Write", ["--topic", "rights"]);
    let rights = vec![floors("rights", Some(&id), &[0])];
    let read = || try_read_back(&bootstrap, rights.clone(), None);
    let is_refusal = |error: &RelayError| error.to_string().contains("grant Read on the topics");
    // The broker goes by what is granted a moment later.
    let refused =
        until_some(LIMIT, "a refusal", async || read().await.err().filter(is_refusal)).await;
    assert!(refused.is_transient());

    grant("User:*", "Read", ["--topic", "rights"]);
    let reading = until_some(LIMIT, "the right to read", async || match read().await {
        Err(error) if is_refusal(&error) => None,
        read => Some(read.unwrap()),
    });
    let (sink, told) = reading.await;
    assert_eq!(positions(&told), ["p0", "p1"]);
    sink.close().await;
}

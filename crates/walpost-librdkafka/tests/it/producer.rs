//! What a producer asks and learns, against Kafka.

use std::{
    sync::Mutex,
    time::{Duration, Instant},
};

use rdkafka::{
    ClientConfig, ClientContext,
    admin::{AdminClient, AdminOptions, NewPartitions},
    client::DefaultClientContext,
    config::FromClientConfigAndContext,
    message::DeliveryResult,
    mocking::MockCluster,
    producer::{BaseProducer, BaseRecord, Producer, ProducerContext, PurgeConfig},
    types::RDKafkaErrorCode,
};
use walpost_librdkafka::{may_have_landed, topic_settings, topics_in_use};
use walpost_testkit::{
    Direction, Proxy, Target, create_topic, end_offsets, fresh_topic, kafka, local::Kafka,
    unique_name, until,
};

use crate::support::LIMIT;

const SETTING: &str = "max.message.bytes";

/// Remembers of each report its number, and whether the message may be there.
#[derive(Default)]
struct Fates(Mutex<Vec<(usize, bool)>>);

impl ClientContext for Fates {}

impl ProducerContext for Fates {
    type DeliveryOpaque = usize;

    fn delivery(&self, result: &DeliveryResult<'_>, number: usize) {
        let message = match result {
            Ok(message) => message,
            Err((_, message)) => message,
        };
        self.0.lock().unwrap().push((number, may_have_landed(message)));
    }
}

fn producer(bootstrap: &str) -> BaseProducer<Fates> {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", bootstrap).set("linger.ms", "0");
    config.set("message.timeout.ms", "0").set("retry.backoff.ms", "100");
    BaseProducer::from_config_and_context(&config, Fates::default()).unwrap()
}

fn send(producer: &BaseProducer<Fates>, topic: &str, number: usize) {
    let record = BaseRecord::<[u8], [u8], usize>::with_opaque_to(topic, number).payload(b"x");
    producer.send(record).map_err(|(error, _)| error).unwrap();
}

#[tokio::test]
async fn the_topics_in_use_are_told_with_their_partitions_in_one_answer() {
    let (one, other) = (fresh_topic("one", 1).await, fresh_topic("other", 2).await);
    let unused = fresh_topic("unused", 1).await;
    let producer = producer(kafka().bootstrap());
    for topic in [&one, &other] {
        send(&producer, topic, 0);
    }
    producer.flush(LIMIT).unwrap();
    let count = |topic: &str| {
        let found = topics_in_use(producer.client(), LIMIT).unwrap().partitions;
        found.iter().find(|(name, _)| name == topic).map(|(_, partitions)| *partitions)
    };
    assert_eq!((count(&one), count(&other), count(&unused)), (Some(1), Some(2), None));

    let admin: AdminClient<DefaultClientContext> =
        ClientConfig::new().set("bootstrap.servers", kafka().bootstrap()).create().unwrap();
    let more = NewPartitions::new(&other, 4);
    admin.create_partitions([&more], &AdminOptions::new()).await.unwrap()[0].clone().unwrap();
    until(LIMIT, "the new partitions", async || count(&other) == Some(4)).await;
    // librdkafka has learnt of them as well: it refuses partitions that it does
    // not know.
    let last = BaseRecord::<[u8], [u8], usize>::with_opaque_to(&other, 1).partition(3);
    producer.send(last.payload(b"x")).map_err(|(error, _)| error).unwrap();
    producer.flush(LIMIT).unwrap();
}

#[tokio::test]
async fn a_setting_is_told_topic_by_topic_and_so_is_an_error() {
    let (plain, narrow) = (fresh_topic("plain", 1).await, unique_name("narrow"));
    create_topic(kafka().bootstrap(), &narrow, 1, &[(SETTING, "5000")]).await;
    let missing = unique_name("missing");
    let producer = producer(kafka().bootstrap());
    send(&producer, &plain, 0);
    let broker = topics_in_use(producer.client(), LIMIT).unwrap().broker;
    let asked = [plain.as_str(), &missing, &narrow];
    let ask = |setting| topic_settings(producer.client(), &asked, setting, broker, LIMIT).unwrap();
    let (default, gone) = (Some("1048588".to_owned()), RDKafkaErrorCode::UnknownTopicOrPartition);
    assert_eq!(ask(SETTING), [Ok(default), Err(gone), Ok(Some("5000".to_owned()))]);
    assert_eq!(ask("no.such.setting")[0], Ok(None));
    let nothing = topic_settings(producer.client(), &[], SETTING, broker, LIMIT);
    assert_eq!(nothing, Ok(vec![]));
    let nul = topic_settings(producer.client(), &["a\0b"], SETTING, broker, LIMIT);
    assert_eq!(nul, Err(RDKafkaErrorCode::InvalidArgument));
}

#[test]
fn a_broker_that_does_not_know_the_question_and_one_that_is_away_are_told_apart() {
    let cluster = MockCluster::new(1).unwrap();
    cluster.create_topic("orders", 1, 1).unwrap();
    let client = producer(&cluster.bootstrap_servers());
    send(&client, "orders", 0);
    let broker = topics_in_use(client.client(), LIMIT).unwrap().broker;
    let asked = topic_settings(client.client(), &["orders"], SETTING, broker, LIMIT);
    assert_eq!(asked, Err(RDKafkaErrorCode::UnsupportedFeature));

    let away = producer("127.0.0.1:1");
    let limit = Duration::from_millis(300);
    let since = Instant::now();
    let asked = topic_settings(away.client(), &["orders"], SETTING, 1, limit);
    assert_eq!(asked, Err(RDKafkaErrorCode::OperationTimedOut));
    assert!(topics_in_use(away.client(), limit).is_err());
    assert!(since.elapsed() < LIMIT, "in bounded time");
}

#[tokio::test]
#[ignore = "deep: a broker of its own"]
async fn what_was_sent_without_an_answer_may_have_landed_and_what_was_not_sent_may_not() {
    let listener = Proxy::listener();
    let port = listener.local_addr().unwrap().port();
    let broker = Kafka::builder().proxied_by(port).start().unwrap();
    let target = Target::Tcp(broker.proxied_address().unwrap());
    let proxy = Proxy::start_with(listener, target).await;
    let direct = broker.bootstrap();
    create_topic(&direct, "fates", 1, &[]).await;
    let producer = producer(&proxy.address().to_string());
    let reported = async |count: usize| {
        until(LIMIT, "the reports", async || {
            producer.poll(Duration::ZERO);
            producer.context().0.lock().unwrap().len() == count
        })
        .await;
    };
    send(&producer, "fates", 0);
    reported(1).await;

    proxy.hold(Direction::ToClient);
    send(&producer, "fates", 1);
    until(LIMIT, "the message in the log", async || end_offsets(&direct, "fates").await == [2])
        .await;
    // Of this topic it never learns a leader.
    send(&producer, "elsewhere", 2);
    proxy.cut();
    until(LIMIT, "both reports", async || {
        // What was in flight comes back to the queue when the client has
        // noticed.
        producer.purge(PurgeConfig::default().queue());
        producer.poll(Duration::ZERO);
        producer.context().0.lock().unwrap().len() == 3
    })
    .await;
    let mut fates = producer.context().0.lock().unwrap().clone();
    fates.sort_unstable();
    assert_eq!(fates, [(0, true), (1, true), (2, false)]);
}

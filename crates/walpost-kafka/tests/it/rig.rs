use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use walpost_event::{Bytes, Headers, Message};
use walpost_kafka::{KafkaConnector, KafkaSink};
use walpost_relay::{Delivery, Sink, Unsent};
use walpost_testkit::{Proxy, ReadRecord, Target, kafka, local::Kafka};

pub(crate) const LIMIT: Duration = Duration::from_secs(60);

pub(crate) fn connector(bootstrap: &str, more: &[(&str, &str)]) -> KafkaConnector {
    let mut settings = BTreeMap::from([("bootstrap.servers".to_owned(), bootstrap.to_owned())]);
    settings.extend(more.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())));
    KafkaConnector::new(settings).unwrap()
}

pub(crate) fn message(topic: &str, key: &str, value: impl Into<Bytes>) -> Message {
    Message {
        topic: topic.into(),
        partition: None,
        key: Some(Bytes::copy_from_slice(key.as_bytes())),
        value: Some(value.into()),
        headers: Headers::new(),
        timestamp_ms: None,
    }
}

/// A sink with the deliveries that came so far.
pub(crate) struct Driver {
    pub(crate) sink: KafkaSink,
    pub(crate) deliveries: Vec<Delivery>,
    next_ticket: u64,
}

impl Driver {
    pub(crate) async fn connect(connector: &KafkaConnector) -> Self {
        let sink = connector.connect().await.unwrap();
        Self { sink, deliveries: Vec::new(), next_ticket: 0 }
    }

    /// Sends, waiting for room as the pipeline does. What will never be sent
    /// comes back as its reason, and so does what comes after a failure.
    pub(crate) async fn send(&mut self, message: Message) -> Result<u64, String> {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        let mut message = message;
        loop {
            match self.sink.try_send(ticket, message) {
                Ok(_) => return Ok(ticket),
                Err(Unsent::Never { detail, .. }) => return Err(detail),
                Err(Unsent::Full(_)) if self.failures() > 0 => return Err("it failed".into()),
                Err(Unsent::Full(back) | Unsent::Away { message: back, .. }) => message = *back,
            }
            self.wait().await;
            self.sink.allow(self.sink.places().len());
        }
    }

    pub(crate) async fn wait(&mut self) {
        let deliveries = self.sink.deliveries(&mut self.deliveries);
        let waited = tokio::time::timeout(LIMIT, deliveries).await;
        let (outstanding, trouble) = (self.sink.outstanding(), self.sink.trouble());
        assert!(
            waited.is_ok(),
            "no news from the sink within {LIMIT:?}: {outstanding} outstanding, trouble {trouble:?}"
        );
    }

    /// Waits for the fate of everything.
    pub(crate) async fn settle(&mut self) {
        while self.sink.outstanding() > 0 {
            self.wait().await;
        }
    }

    /// Tickets that are durable, as the sink has it.
    pub(crate) fn delivered(&self) -> BTreeSet<u64> {
        let delivered = self.deliveries.iter().filter(|delivery| delivery.result.is_ok());
        delivered.map(|delivery| delivery.ticket).collect()
    }

    pub(crate) fn failures(&self) -> usize {
        self.deliveries.iter().filter(|delivery| delivery.result.is_err()).count()
    }
}

/// A Kafka of its own, behind a proxy.
pub(crate) struct Proxied {
    pub(crate) broker: Kafka,
    pub(crate) proxy: Proxy,
}

impl Proxied {
    pub(crate) async fn start() -> Self {
        let listener = Proxy::listener();
        let port = listener.local_addr().unwrap().port();
        let broker = Kafka::builder().proxied_by(port).start().unwrap();
        let target = Target::Tcp(broker.proxied_address().unwrap());
        Self { broker, proxy: Proxy::start_with(listener, target).await }
    }

    /// The way through the proxy.
    pub(crate) fn bootstrap(&self) -> String {
        self.proxy.address().to_string()
    }
}

/// A number, and blanks up to about so many bytes.
pub(crate) fn padded(number: u32, bytes: usize) -> String {
    format!("{number}{}", " ".repeat(bytes))
}

/// The numbers that records of a key carry, in the order of the log.
pub(crate) fn numbers(records: &[ReadRecord], key: &str) -> Vec<u32> {
    let of_key = records.iter().filter(|record| record.key_text() == key);
    of_key.map(|record| record.value_text().trim().parse().unwrap()).collect()
}

/// Sets `max.message.bytes` of a topic on the shared brokers; clients that know
/// it believe in the limit of before.
pub(crate) fn lower_limit(topic: &str, bytes: usize) {
    let setting = format!("max.message.bytes={bytes}");
    let args = ["--bootstrap-server", kafka().bootstrap(), "--alter", "--topic", topic];
    let tools = kafka().local().expect("Kafka's own tools, so a Kafka started by the tests");
    let args = args.into_iter().chain(["--add-config", &setting]);
    tools.run_tool("kafka.admin.ConfigCommand", args).unwrap();
}

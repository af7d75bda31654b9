use std::{
    collections::{BTreeMap, BTreeSet},
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use rdkafka::{
    ClientConfig, ClientContext,
    message::DeliveryResult,
    producer::{BaseProducer, BaseRecord, Producer, ProducerContext},
    types::RDKafkaErrorCode,
};
use walpost_event::{Bytes, Headers, Message, error_chain};
use walpost_kafka::{KafkaConnector, KafkaSink};
use walpost_relay::{Delivery, DeliveryErrorKind, RelayError, Sink, Unsent};
use walpost_testkit::{Proxy, ReadRecord, Target, kafka, local::Kafka, until, until_some};

/// More than librdkafka waits for one answer, which is 60 s.
pub(crate) const LIMIT: Duration = Duration::from_secs(150);

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

/// A session; what passes by itself is tried again.
pub(crate) async fn session(connector: &KafkaConnector) -> Result<KafkaSink, RelayError> {
    let opened = until_some(LIMIT, "a session", async || match connector.connect().await {
        Err(error) if error.is_transient() => None,
        opened => Some(opened),
    });
    opened.await
}

/// A sink with the deliveries that came so far.
pub(crate) struct Driver {
    pub(crate) sink: KafkaSink,
    pub(crate) deliveries: Vec<Delivery>,
    next_ticket: u64,
}

impl Driver {
    pub(crate) async fn connect(connector: &KafkaConnector) -> Self {
        let sink = session(connector).await;
        let sink = sink.unwrap_or_else(|error| panic!("no session: {}", error_chain(&error)));
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
                Err(Unsent::Full(_)) if self.is_spent() => return Err("it failed".into()),
                Err(
                    Unsent::Full(back) | Unsent::Apart(back) | Unsent::Away { message: back, .. },
                ) => message = *back,
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

    /// Whether the sink takes nothing more.
    fn is_spent(&self) -> bool {
        let mut errors =
            self.deliveries.iter().filter_map(|delivery| delivery.result.as_ref().err());
        errors.any(|error| error.kind != DeliveryErrorKind::RefusedAlone)
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

/// Whether the brokers found a record too large.
#[derive(Default)]
struct TooLarge(AtomicBool);

impl ClientContext for TooLarge {}

impl ProducerContext for TooLarge {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        if let Err((error, _)) = result
            && error.rdkafka_error_code() == Some(RDKafkaErrorCode::MessageSizeTooLarge)
        {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}

/// Sets `max.message.bytes` of a topic of one partition on the shared brokers;
/// clients that know it believe in the limit of before. The brokers go by it a
/// moment later, and until then take records with the key `probe`.
pub(crate) async fn lower_limit(topic: &str, bytes: usize) {
    let setting = format!("max.message.bytes={bytes}");
    let args = ["--bootstrap-server", kafka().bootstrap(), "--alter", "--topic", topic];
    let args = args.into_iter().chain(["--add-config", &setting]);
    kafka().run_tool("kafka.admin.ConfigCommand", args);
    let probe = ClientConfig::new()
        .set("bootstrap.servers", kafka().bootstrap())
        .create_with_context::<_, BaseProducer<TooLarge>>(TooLarge::default())
        .unwrap();
    let beyond = vec![b' '; bytes];
    until(LIMIT, "the limit", async || {
        let record = BaseRecord::<str, [u8]>::to(topic).partition(0).key("probe").payload(&beyond);
        probe.send(record).map_err(|(error, _)| error).unwrap();
        probe.flush(LIMIT).unwrap();
        probe.context().0.load(Ordering::Relaxed)
    })
    .await;
}

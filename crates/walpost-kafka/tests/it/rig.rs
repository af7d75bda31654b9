use std::{collections::BTreeMap, time::Duration};

use walpost_event::{Bytes, Headers, Message};
use walpost_kafka::{KafkaConnector, KafkaSink};
use walpost_relay::{Delivery, Sink, Unsent};

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
    /// comes back as its reason.
    pub(crate) async fn send(&mut self, message: Message) -> Result<u64, String> {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        let mut message = message;
        loop {
            match self.sink.try_send(ticket, message) {
                Ok(()) => return Ok(ticket),
                Err(Unsent::Never { detail, .. }) => return Err(detail),
                Err(Unsent::Full(back)) => message = *back,
            }
            self.wait().await;
        }
    }

    pub(crate) async fn wait(&mut self) {
        let deliveries = self.sink.deliveries(&mut self.deliveries);
        tokio::time::timeout(LIMIT, deliveries).await.expect("news from the sink");
    }

    /// Waits for the fate of everything.
    pub(crate) async fn settle(&mut self) {
        while self.sink.outstanding() > 0 {
            self.wait().await;
        }
    }

    pub(crate) fn failures(&self) -> usize {
        self.deliveries.iter().filter(|delivery| delivery.result.is_err()).count()
    }
}

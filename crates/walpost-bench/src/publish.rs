//! Events put into a topic without a database.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rdkafka::{
    ClientConfig,
    error::{KafkaError, RDKafkaErrorCode},
    message::{Header, OwnedHeaders},
    producer::{BaseProducer, BaseRecord, Producer},
};
use walpost_event::SOURCE_HEADER;

use crate::topic::Ends;

const AGGREGATES: u64 = 1_000;
const FLUSH_LIMIT: Duration = Duration::from_secs(60);
const FULL_WAIT: Duration = Duration::from_millis(20);

/// What the values of records are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Values {
    /// JSON, as the relay has it.
    Plain,
    /// The same with the event's id, beside its schema as Kafka Connect has it.
    WithSchema,
}

/// The fields of [`Values::WithSchema`].
const SCHEMA: &str = r#"{"type": "struct", "optional": false, "fields": [
{"field": "event_id", "type": "string", "optional": false},
{"field": "note", "type": "string", "optional": false},
{"field": "order", "type": "int64", "optional": false},
{"field": "currency", "type": "string", "optional": false},
{"field": "customer", "type": "string", "optional": false},
{"field": "total_cents", "type": "int64", "optional": false}]}"#;

/// Publishes `events` events as the relay does: id and source in headers.
pub(crate) fn publish(bootstrap: &str, topic: &str, events: u64) -> Result<()> {
    publish_as(bootstrap, topic, events, Values::Plain)
}

/// The same with other values.
pub(crate) fn publish_as(bootstrap: &str, topic: &str, events: u64, values: Values) -> Result<()> {
    let producer: BaseProducer = ClientConfig::new()
        .set("bootstrap.servers", bootstrap)
        .set("enable.idempotence", "true")
        .set("linger.ms", "20")
        .set("compression.type", "lz4")
        .create()
        .context("creating a producer")?;
    for n in 0..events {
        send(&producer, topic, n, values)?;
    }
    producer.flush(FLUSH_LIMIT)?;
    let records = Ends::open(bootstrap, topic)?.records()?;
    ensure!(records == events, "the topic has {records} instead of {events} records");
    Ok(())
}

/// The id of an event: as wide and as scattered as a random UUID, and never
/// the same twice.
pub(crate) fn event_id(n: u64) -> String {
    let high = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let low = (n ^ 0x5bf0_3635).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let (a, b, c) = (high >> 32, (high >> 16) & 0xffff, high & 0xffff);
    format!("{a:08x}-{b:04x}-{c:04x}-{:04x}-{:012x}", low >> 48, low & 0xffff_ffff_ffff)
}

fn send(producer: &BaseProducer, topic: &str, n: u64, values: Values) -> Result<()> {
    let id = event_id(n);
    let key = format!("customer-{}", n * 7919 % AGGREGATES);
    let total_cents = 1_000 + n % 90_000;
    let note = event_id(n ^ 0xffff_ffff).repeat(3);
    let fields = format!(
        "\"note\": \"{note}\", \"order\": {n}, \"currency\": \"EUR\", \
         \"customer\": \"{key}\", \"total_cents\": {total_cents}"
    );
    let value = match values {
        Values::Plain => format!("{{{fields}}}"),
        Values::WithSchema => {
            format!("{{\"schema\": {SCHEMA}, \"payload\": {{\"event_id\": \"{id}\", {fields}}}}}")
        }
    };
    let headers = OwnedHeaders::new()
        .insert(Header { key: "id", value: Some(&id) })
        .insert(Header { key: SOURCE_HEADER, value: Some("bench") });
    let mut record = BaseRecord::to(topic).key(&key).payload(&value).headers(headers);
    loop {
        record = match producer.send(record) {
            Ok(()) => break,
            Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), record)) => {
                producer.poll(FULL_WAIT);
                record
            }
            Err((error, _)) => return Err(error).context("publishing"),
        };
    }
    if n.is_multiple_of(1_000) {
        producer.poll(Duration::ZERO);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn ids_look_like_uuids_and_differ() {
        let ids: HashSet<_> = (0..10_000).map(event_id).collect();
        assert_eq!(ids.len(), 10_000);
        assert!(ids.iter().all(|id| id.len() == 36));
    }
}

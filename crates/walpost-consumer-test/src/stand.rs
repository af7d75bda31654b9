//! What the consumer's tables say of a delivery.

use std::collections::BTreeMap;

use walpost_consumer::{
    TopicPartition,
    tokio_postgres::{Error as PgError, Row},
};

use crate::{
    Error, Parked, Report,
    world::{SCHEMA, World},
};

/// How far everything was.
#[derive(Clone, Debug)]
pub(crate) struct Stand {
    /// Of partitions that were never claimed 0.
    pub(crate) offsets: BTreeMap<TopicPartition, i64>,
    /// Id of the last event that was set aside.
    parked: i64,
}

impl World {
    pub(crate) async fn stand(&self, consumer: &str) -> Result<Stand, Error> {
        let sql = format!(
            "select topic, part, next_offset from {SCHEMA}.position \
             where consumer = $1 and next_offset is not null"
        );
        let rows = self.client.query(&sql, &[&consumer]).await.map_err(failed)?;
        let mut offsets: BTreeMap<TopicPartition, i64> =
            self.cluster.ends().into_keys().map(|of| (of, 0)).collect();
        offsets.extend(rows.iter().map(|row| {
            let topic = row.get::<_, &str>(0).into();
            (TopicPartition { topic, partition: row.get(1) }, row.get(2))
        }));
        let sql = format!("select coalesce(max(id), 0) from {SCHEMA}.consumer_parked");
        let parked = self.client.query_one(&sql, &[]).await.map_err(failed)?.get(0);
        Ok(Stand { offsets, parked })
    }

    /// The events that were parked since, in their order.
    pub(crate) async fn parked_since(
        &self,
        before: &Stand,
        consumer: &str,
    ) -> Result<Vec<Parked>, Error> {
        let sql = format!(
            "select event_id, topic || '[' || part || ']@' || off, attempts, reason \
             from {SCHEMA}.consumer_parked \
             where id > $1 and consumer = $2 and state = 'parked' order by id"
        );
        let rows = self.client.query(&sql, &[&before.parked, &consumer]).await.map_err(failed)?;
        let parked = |row: &Row| Parked {
            event_id: row.get(0),
            place: row.get(1),
            attempts: row.get(2),
            reason: row.get(3),
        };
        Ok(rows.iter().map(parked).collect())
    }

    /// A consumer that was cut off has not counted what it committed last: the
    /// tables have.
    pub(crate) async fn count_again(
        &self,
        before: &Stand,
        consumer: &str,
        report: &mut Report,
    ) -> Result<(), Error> {
        let since = |of: &TopicPartition| before.offsets.get(of).copied().unwrap_or_default();
        let ends = self.cluster.ends();
        let total: i64 = ends.iter().map(|(of, end)| end - since(of)).sum();
        let topics: Vec<&str> = ends.keys().map(|of| &*of.topic).collect();
        let parts: Vec<i32> = ends.keys().map(|of| of.partition).collect();
        let offsets: Vec<i64> = ends.keys().map(since).collect();
        let sql = format!(
            "select (select count(*) from {SCHEMA}.done d join {SCHEMA}.position p \
             on p.id = d.pos_id join unnest($2::text[], $3::int[], $4::bigint[]) b(topic, part, off) \
             on b.topic = p.topic and b.part = p.part \
             where d.consumer = $1 and p.consumer = $1 and d.off >= b.off), \
             count(event_id), count(*) filter (where state = 'waiting') \
             from {SCHEMA}.consumer_parked where consumer = $1 and id > $5"
        );
        let row = self
            .client
            .query_one(&sql, &[&consumer, &topics, &parts, &offsets, &before.parked])
            .await
            .map_err(failed)?;
        let number = |index| u64::try_from(row.get::<_, i64>(index)).unwrap_or_default();
        let (made, aside) = (number(0), number(1));
        report.waiting = number(2);
        let parked = report.parked.len() as u64;
        let done = u64::try_from(total).unwrap_or_default().saturating_sub(report.waiting + parked);
        let uncounted = done.saturating_sub(report.applied + report.duplicates);
        let any = report.calls.iter().any(|call| call.failure.is_none());
        report.applied = match made.saturating_sub(aside) {
            // Under a guard without rows nothing else tells.
            0 if any => report.applied + uncounted,
            rows => rows,
        };
        report.duplicates = done.saturating_sub(report.applied);
        Ok(())
    }
}

fn failed(error: PgError) -> Error {
    Error::database("reading the consumer's tables failed", error)
}

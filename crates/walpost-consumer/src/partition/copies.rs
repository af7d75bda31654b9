//! Events that are skipped as copies although nothing names their table.

use tokio_postgres::types::{ToSql, Type};

use super::{Partition, lane::Lane};
use crate::{Event, Handler, event::Scope, tell::tell};

impl<H: Handler> Partition<H> {
    /// Warns once per topic when an id that is unique only within its topic was skipped as a copy:
    /// two tables that number their rows alike lose events so. `events` were committed, not all of
    /// them as new.
    pub(super) async fn warn_of_copy(&self, lane: &mut Lane, position: i32, events: &[Event]) {
        let topic = &self.of.topic;
        if self.shared.warned_of_copies().contains(topic) {
            return;
        }
        let by_topic = |event: &&Event| matches!(event.scope(), Scope::Topic(_));
        let scoped: Vec<&Event> = events.iter().filter(by_topic).collect();
        if scoped.is_empty() {
            return;
        }
        let Some((event, offset, original)) = self.find_copy(lane, position, &scoped).await else {
            return;
        };
        if self.shared.warned_of_copies().insert(topic.clone()) {
            let (partition, event_id) = (&self.of, event);
            tell!(
                warn,
                {
                    partition = partition,
                    offset = offset,
                    event_id = event_id,
                    original = original
                },
                "skipped an event as a copy of another record of its topic, by an id that is unique \
                 only within a table; if several tables write to the topic, let the publisher send \
                 the header walpost-source, or use UUIDs as ids"
            );
        }
    }

    /// Id and offset of an event whose effect another record made, and where that is. What fails
    /// here is found with the next copy.
    async fn find_copy(
        &self,
        lane: &mut Lane,
        position: i32,
        scoped: &[&Event],
    ) -> Option<(String, i64, String)> {
        if !self.shared.settings.guard.has_rows() {
            let repeated = |(at, event): (usize, &&Event)| {
                let first = scoped[..at].iter().find(|first| first.id() == event.id())?;
                let original = format!("{}@{}", self.of, first.offset());
                Some((event.id().to_owned(), event.offset(), original))
            };
            let found = scoped.iter().enumerate().find_map(repeated);
            return found.or_else(|| self.copy_by_redis(scoped));
        }
        let ids: Vec<&str> = scoped.iter().map(|event| event.id()).collect();
        let offsets: Vec<i64> = scoped.iter().map(|event| event.offset()).collect();
        let (consumer, topic) = (self.shared.settings.consumer.as_str(), &*self.of.topic);
        let parameters: [(&(dyn ToSql + Sync), Type); 5] = [
            (&consumer, Type::TEXT),
            (&position, Type::INT4),
            (&topic, Type::TEXT),
            (&ids, Type::TEXT_ARRAY),
            (&offsets, Type::INT8_ARRAY),
        ];
        let client = lane.slot.client().await.ok()?;
        let found = client.query_typed_opt(&self.shared.sql.copy, &parameters).await;
        let row = found.ok().flatten()?;
        Some((row.get(0), row.get(1), row.get(2)))
    }

    /// A key of Redis says that the effect is there, and not of which record.
    #[cfg(feature = "redis")]
    fn copy_by_redis(&self, scoped: &[&Event]) -> Option<(String, i64, String)> {
        self.shared.settings.guard.redis()?;
        let offset = scoped.first()?.offset();
        Some((format!("one of {}", scoped.len()), offset, "a key in Redis".to_owned()))
    }

    #[cfg(not(feature = "redis"))]
    #[expect(clippy::unused_self, reason = "the feature redis asks the guard")]
    fn copy_by_redis(&self, _: &[&Event]) -> Option<(String, i64, String)> {
        None
    }
}

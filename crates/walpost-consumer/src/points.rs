//! Who looks on while a batch runs: nobody, but for the feature `test-kit`.

#[cfg(feature = "test-kit")]
use std::sync::Arc;

use crate::{Event, TopicPartition, failpoint::Failpoint, store::HandlerFailed};

/// Where tests look in, or hold a batch up.
#[derive(Clone, Default)]
pub(crate) struct Points {
    #[cfg(feature = "test-kit")]
    probe: Option<Arc<dyn crate::testing::Probe>>,
}

/// Topic, partition and offset.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(feature = "test-kit"), expect(dead_code, reason = "read by the probe alone"))]
pub(crate) struct Spot<'a> {
    pub(crate) topic: &'a str,
    pub(crate) partition: i32,
    pub(crate) offset: i64,
}

impl Points {
    #[cfg(feature = "test-kit")]
    pub(crate) fn of(probe: Arc<dyn crate::testing::Probe>) -> Self {
        Self { probe: Some(probe) }
    }

    /// `point` was reached, by the transaction that begins at `spot`.
    pub(crate) async fn reached(&self, point: Failpoint, spot: Option<Spot<'_>>) {
        point.reached();
        #[cfg(feature = "test-kit")]
        if let Some(point) = crate::testing::Point::of(point) {
            self.look(point, spot).await;
        }
        #[cfg(not(feature = "test-kit"))]
        let _ = (self, spot);
    }

    /// A transaction for the events from `spot` on is about to begin.
    pub(crate) async fn begins(&self, spot: Option<Spot<'_>>) {
        #[cfg(feature = "test-kit")]
        self.look(crate::testing::Point::BeforeTransaction, spot).await;
        #[cfg(not(feature = "test-kit"))]
        let _ = (self, spot);
    }

    #[cfg(feature = "test-kit")]
    async fn look(&self, point: crate::testing::Point, spot: Option<Spot<'_>>) {
        let (Some(probe), Some(spot)) = (&self.probe, spot) else { return };
        let Spot { topic, partition, offset } = spot;
        probe.reached(point, TopicPartition { topic: topic.into(), partition }, offset).await;
    }

    /// The handler has returned, or was given up.
    pub(crate) fn handled(
        &self,
        events: &[Event],
        outcome: Result<(), HandlerFailed>,
    ) -> Result<(), HandlerFailed> {
        #[cfg(feature = "test-kit")]
        if let Some(probe) = &self.probe {
            probe.handled(events, crate::testing::Outcome::of(&outcome));
        }
        #[cfg(not(feature = "test-kit"))]
        let _ = (self, events);
        outcome
    }
}

impl<'a> From<&'a Event> for Spot<'a> {
    fn from(event: &'a Event) -> Self {
        let (topic, partition, offset) = (event.topic(), event.partition(), event.offset());
        Self { topic, partition, offset }
    }
}

impl<'a> From<(&'a TopicPartition, i64)> for Spot<'a> {
    fn from((of, offset): (&'a TopicPartition, i64)) -> Self {
        Self { topic: &of.topic, partition: of.partition, offset }
    }
}

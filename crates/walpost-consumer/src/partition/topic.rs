//! Whether the topic is still the one that was claimed. Records are fetched by
//! its name, and under the name of a topic that was deleted there may be another
//! one, whose log has the stored offset too.

use std::time::{Duration, Instant};

use tokio::time::timeout;

use super::{Interrupt, Partition, session::Session};
use crate::{
    Handler,
    kafka::{KafkaFailure, TopicIdentity},
    marker::Owner,
};

/// How old the last word on it may be while events keep coming, in milliseconds.
const WORD_MS: u64 = 1_000;
/// Events keep coming while no more than this lies between two looks, in
/// milliseconds: too little for another topic to come in between.
const GAP_MS: u64 = 50;
/// How old it may be after a longer gap, in milliseconds for each partition of the
/// topic: the answer names them all, so this bounds what is asked.
const WORD_PARTITION_MS: u64 = 1;
/// How old it may be while nothing comes, in milliseconds.
const IDLE_WORD_MS: u64 = 10_000;
/// Longest wait for a word, in milliseconds.
const ANSWER_LIMIT_MS: u64 = 2_000;
/// Until events that wait for a word are looked at again, in milliseconds.
const AGAIN_MS: u64 = 500;

impl<H: Handler> Partition<H> {
    /// The oldest offset and the one behind the newest, of the topic that was
    /// claimed.
    pub(super) async fn ends(&self, owner: &Owner) -> Result<(i64, i64), Interrupt> {
        let ends = self.shared.kafka.watermarks(&self.of).await?;
        let since = Instant::now();
        let now = self.shared.kafka.identity(&self.of.topic, since, Duration::ZERO).await?;
        self.check_topic(owner, &now)?;
        Ok(ends)
    }

    /// Before events are applied: `None` if they are of the topic that was
    /// claimed, as far as was told a moment ago; else, while no broker answers,
    /// until when to wait.
    pub(super) async fn unsure_until(
        &self,
        session: &mut Session,
    ) -> Result<Option<Instant>, Interrupt> {
        let now = Instant::now();
        let gap = session.sure_at.map(|at| now.saturating_duration_since(at));
        let age_ms = match gap {
            Some(gap) if gap <= Duration::from_millis(GAP_MS) => WORD_MS,
            _ => 0,
        };
        let is_sure = self.look_at_topic(session, Duration::from_millis(age_ms)).await?;
        // Not the time of the answer: there may be a pause before it.
        session.sure_at = is_sure.then_some(now);
        Ok((!is_sure).then(|| Instant::now() + Duration::from_millis(AGAIN_MS)))
    }

    /// The same of a partition that waits for events.
    pub(super) async fn look_at_idle_topic(&self, session: &Session) -> Result<(), Interrupt> {
        self.look_at_topic(session, Duration::from_millis(IDLE_WORD_MS)).await.map(|_| ())
    }

    /// Whether a word that is no older than `age` says so.
    async fn look_at_topic(&self, session: &Session, age: Duration) -> Result<bool, Interrupt> {
        let now = Instant::now();
        let since = now.checked_sub(age).unwrap_or(now);
        let more = Duration::from_millis(WORD_PARTITION_MS);
        let asking = self.shared.kafka.identity(&self.of.topic, since, more);
        let mut stop = self.stop.clone();
        let answer = tokio::select! {
            answer = timeout(Duration::from_millis(ANSWER_LIMIT_MS), asking) => answer,
            () = stop.requested() => return Err(Interrupt::Stopped),
        };
        match answer {
            Ok(Ok(now)) => self.check_topic(&session.owner, &now).map(|()| true),
            Ok(Err(failure @ (KafkaFailure::NotAssigned | KafkaFailure::Closed))) => {
                Err(failure.into())
            }
            Ok(Err(failure)) => {
                tracing::debug!(partition = %self.of, %failure, "the topic could not be asked for");
                Ok(false)
            }
            Err(_) => Ok(false),
        }
    }

    fn check_topic(&self, owner: &Owner, now: &TopicIdentity) -> Result<(), Interrupt> {
        if (&owner.cluster, &owner.topic) == (&now.cluster_id, &now.topic_id) {
            return Ok(());
        }
        let group = self.shared.settings.group_id();
        Err(self.placed_otherwise([group, &owner.cluster, &owner.topic], now))
    }
}

//! From a claim to the first effect: steps 4 and 5 of an assignment, and the
//! steps of a reset.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::time::timeout;
use tokio_postgres::types::Type;
use uuid::Uuid;
use walpost_librdkafka::Committed;

use super::{
    Interrupt, Partition,
    claim::Claimed,
    halts::behind_open_transactions,
    held::Held,
    lane::Lane,
    looks::Looks,
    replay::{Range, Replay},
    session::Session,
    trials::Trials,
};
use crate::{
    database_error::Verdict,
    decide::{Decision, Group, Mode, Stored, decide},
    failpoint::Failpoint,
    handler::Handler,
    inbox::Inbox,
    kafka::Place,
    ledger::Ledger,
    marker::{Marker, Pending},
    pool::Slot,
    sql::ClaimKey,
};

/// Longest wait for a commit that has to be there before the next step.
const COMMIT_LIMIT_MS: u64 = 15_000;

impl<H: Handler> Partition<H> {
    /// Asks the group, carries out what it wants, and starts to fetch.
    pub(super) async fn begin(&self, mut claimed: Claimed) -> Result<Session, Interrupt> {
        let committed = self.shared.kafka.committed(&self.of).await?;
        let group = self.group(&claimed, &committed).await?;
        let stored = Stored { next_offset: claimed.next_offset, known: claimed.known.clone() };
        let decision = decide(&stored, group, self.shared.settings.on_reset);
        let log = self.shared.kafka.watermarks(&self.of).await?;
        self.meter.asked(Some(log.1), Instant::now());
        tracing::debug!(partition = %self.of, ?group, ?decision, ?log, "decided how to start");
        let next_offset = match decision {
            Decision::Begin { at } => self.store_start(&claimed, at.unwrap_or(log.0)).await?,
            Decision::Resume { mark } => {
                let next = claimed.next_offset.unwrap_or(log.0);
                if mark {
                    self.commit_now(&claimed, next).await?;
                }
                next
            }
            Decision::Older { group } => self.resume_older(&claimed, log, group).await?,
            Decision::NoRow { group } => {
                self.claim_holds(&claimed).await?;
                return Err(self.no_row(group, log.0));
            }
            Decision::Reset { to, mode, confirmed } => {
                self.reset(&mut claimed, to, mode, confirmed).await?
            }
            Decision::Ambiguous { group } => return Err(self.ambiguous(&claimed, group)),
            Decision::Refused { to } => {
                let is_confirmed = matches!(group, Group::Pending { .. });
                return Err(self.refused(&claimed, to, is_confirmed));
            }
        };
        self.check_log(next_offset, log).await?;
        let ledger = Ledger::claimed(claimed.known.clone(), next_offset, committed.offset);
        // The record before is looked at, unless retention has removed it.
        let leader_epoch_before = claimed.leader_epoch.filter(|_| log.0 < next_offset);
        self.start(claimed, Place { offset: next_offset, leader_epoch_before }, ledger).await
    }

    async fn start(
        &self,
        claimed: Claimed,
        place: Place,
        ledger: Ledger,
    ) -> Result<Session, Interrupt> {
        let settings = &self.shared.settings;
        let replay = self.replay(&claimed, place.offset).await?;
        let (held, looks) = self.held(&claimed).await?;
        let inbox = Inbox::new(
            settings.max_batch_events * 2,
            settings.max_batch_bytes * 2,
            self.shared.kafka.signal(),
        );
        let inbox = Arc::new(inbox.measured_by(Arc::clone(&self.meter)));
        self.meter.claimed(place.offset);
        let (of, assignment) = (&self.of, self.assignment);
        self.shared.kafka.fetch(of, assignment, place, Arc::clone(&inbox)).await?;
        let Claimed { position, epoch, reset_id, leader_epoch, owner, .. } = claimed;
        let key = ClaimKey { position, epoch, next_offset: place.offset, leader_epoch };
        let trials = Trials::new(settings.max_batch_events);
        let slot = Slot::new(self.shared.pool.clone());
        let lane = Lane { slot, replay, held, trials, committed: 0 };
        let (batch, answer, commit_after, look_after) = (Vec::new(), None, None, None);
        let count_after = None;
        Ok(Session {
            lane,
            key,
            reset_id,
            owner,
            ledger,
            looks,
            inbox,
            batch,
            answer,
            commit_after,
            count_after,
            look_after,
        })
    }

    /// What is parked of the partition, as of the claim: nobody else parks.
    async fn held(&self, claimed: &Claimed) -> Result<(Held, Looks), Interrupt> {
        let sql = &self.shared.sql;
        let failed = |error| self.failed("reading the parked events of a partition", error);
        let client = self.shared.pool.lease().await?;
        let of: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 1] =
            [(&claimed.position, Type::INT4)];
        let any = client.query_typed_one(&sql.parked.any, &of);
        let any = any.await.map_err(failed)?.get(0);
        let keys = client.query_typed(&sql.parked.held_keys, &of);
        let keys = keys.await.map_err(failed)?;
        client.give_back();
        let keys = keys.iter().map(|row| row.get::<_, &[u8]>(0).into());
        Ok((Held::new(keys), Looks::claimed(any, Instant::now())))
    }

    /// What resets have left to do from `next_offset` on.
    async fn replay(&self, claimed: &Claimed, next_offset: i64) -> Result<Replay, Interrupt> {
        let lease = self.shared.pool.lease().await?;
        let rows = lease
            .query_typed(
                &self.shared.sql.ranges,
                &[
                    (&claimed.position, Type::INT4),
                    (&claimed.run, Type::INT4),
                    (&next_offset, Type::INT8),
                ],
            )
            .await
            .map_err(|error| self.failed("reading the resets of a partition", error))?;
        lease.give_back();
        let ranges = rows.iter().map(|row| Range::parse(row.get(0), row.get(1), row.get(2)));
        Ok(Replay::claimed(claimed.run, ranges.collect()))
    }

    async fn group(&self, claimed: &Claimed, committed: &Committed) -> Result<Group, Interrupt> {
        let Some(offset) = committed.offset else {
            return Ok(Group::Nothing);
        };
        let marker = Marker::parse(&committed.metadata);
        if marker.as_ref().is_some_and(|one| one.is_of_deleted_topic(&claimed.owner, offset)) {
            return Ok(Group::Nothing);
        }
        let Some(marker) = marker.filter(|marker| marker.is_of(&claimed.owner)) else {
            return Ok(Group::Foreign { offset });
        };
        let has_reset = match marker.reset {
            Some(id) => claimed.reset_id == Some(id) || self.has_reset(claimed, id).await?,
            None => true,
        };
        Ok(claimed.group(&marker, offset, has_reset))
    }

    async fn has_reset(&self, claimed: &Claimed, id: Uuid) -> Result<bool, Interrupt> {
        let parameters: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 2] =
            [(&claimed.position, Type::INT4), (&id, Type::UUID)];
        let lease = self.shared.pool.lease().await?;
        let row = lease.query_typed_one(&self.shared.sql.has_reset, &parameters).await;
        let row = row.map_err(|error| self.failed("reading the resets of a partition", error))?;
        lease.give_back();
        Ok(row.get(0))
    }

    /// Stores where a partition starts that was never read.
    async fn store_start(&self, claimed: &Claimed, offset: i64) -> Result<i64, Interrupt> {
        let lease = self.shared.pool.lease().await?;
        lease
            .execute_typed(
                &self.shared.sql.start_at,
                &[
                    (&claimed.position, Type::INT4),
                    (&claimed.epoch, Type::INT8),
                    (&offset, Type::INT8),
                    (&claimed.known, Type::INT8_ARRAY),
                ],
            )
            .await
            .map_err(|error| self.failed("storing the start of a partition", error))?;
        lease.give_back();
        self.commit_now(claimed, offset).await?;
        tracing::info!(partition = %self.of, offset, "first start");
        Ok(offset)
    }

    /// What the group holds may be a later claim's, which the row did not have yet.
    async fn claim_holds(&self, claimed: &Claimed) -> Result<(), Interrupt> {
        let position: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 1] =
            [(&claimed.position, Type::INT4)];
        let lease = self.shared.pool.lease().await?;
        let row = lease.query_typed_opt(&self.shared.sql.epoch, &position).await;
        self.is_as_left(claimed.epoch, claimed.next_offset, row)?;
        lease.give_back();
        Ok(())
    }

    /// Continues where the effects of this database end. Nothing is committed to
    /// Kafka before the topic is known to have the records from there on.
    async fn resume_older(
        &self,
        claimed: &Claimed,
        log: (i64, i64),
        group: i64,
    ) -> Result<i64, Interrupt> {
        self.claim_holds(claimed).await?;
        let next = claimed.next_offset.unwrap_or(log.0);
        if next < log.0 {
            return Err(self.older_than_the_topic(next, log.0, group));
        }
        self.check_log(next, log).await?;
        self.commit_now(claimed, next).await?;
        tracing::warn!(
            partition = %self.of, next_offset = next, group_offset = group,
            "the database is older than the group; continuing at the stored offset"
        );
        Ok(next)
    }

    /// Kafka first, under an id; then the database, which counts. In between
    /// a successor finds the id in Kafka and does the rest.
    async fn reset(
        &self,
        claimed: &mut Claimed,
        to: i64,
        mode: Mode,
        confirmed: Option<Uuid>,
    ) -> Result<i64, Interrupt> {
        let from = claimed.next_offset;
        let id = match confirmed {
            Some(id) => id,
            None => {
                let id = Uuid::new_v4();
                let pending = from.map(|from| Pending { from, after: claimed.reset_id });
                let marker = claimed.owner.marker(to, claimed.epoch, Some(id));
                self.commit_marked(&marker.pending(pending)).await?;
                Failpoint::ResetAfterKafkaCommit.reached();
                id
            }
        };
        let lease = self.shared.pool.lease().await?;
        let run = lease
            .query_typed_one(
                &self.shared.sql.reset_to,
                &[
                    (&claimed.position, Type::INT4),
                    (&claimed.epoch, Type::INT8),
                    (&from, Type::INT8),
                    (&to, Type::INT8),
                    (&id, Type::UUID),
                    (&mode.as_str(), Type::TEXT),
                ],
            )
            .await
            .map_err(|error| self.failed("carrying out an offset reset", error))?;
        lease.give_back();
        Failpoint::ResetAfterRewind.reached();
        claimed.run = run.get(0);
        claimed.reset_id = Some(id);
        claimed.known = vec![to];
        claimed.next_offset = Some(to);
        claimed.leader_epoch = None;
        self.shared.board.count(|counts| counts.resets += 1);
        self.metrics.resets.increment(1);
        let mode = mode.as_str();
        tracing::warn!(partition = %self.of, ?from, to, mode, "the group's offset was reset");
        Ok(to)
    }

    /// Commits an offset with our marker and waits for Kafka's answer.
    async fn commit_now(&self, claimed: &Claimed, offset: i64) -> Result<(), Interrupt> {
        let marker = claimed.owner.marker(offset, claimed.epoch, claimed.reset_id);
        self.commit_marked(&marker).await
    }

    async fn commit_marked(&self, marker: &Marker) -> Result<(), Interrupt> {
        let (offset, text) = (marker.offset, marker.to_string());
        let commit = self.shared.kafka.commit(&self.of, self.assignment, offset, text, true);
        let answer = commit.await;
        match timeout(Duration::from_millis(COMMIT_LIMIT_MS), answer).await {
            Ok(Ok(answer)) => Ok(answer?),
            Ok(Err(_)) => Err(Interrupt::NotAssigned),
            Err(_) => Err(Interrupt::Fault(format!(
                "committing an offset to the group got no answer within {COMMIT_LIMIT_MS} ms"
            ))),
        }
    }

    /// Kafka's own policy for offsets that are not in the log never decides.
    /// Behind what may be read, an offset is in the log all the same where
    /// transactions are open.
    pub(super) async fn check_log(
        &self,
        next: i64,
        (low, high): (i64, i64),
    ) -> Result<(), Interrupt> {
        if (low..=high).contains(&next) {
            return Ok(());
        }
        if next < low {
            return Err(self.outside_of_log(next, low, high));
        }
        let end = self.shared.kafka.end_of_log(&self.of).await?;
        if next <= end {
            return Err(behind_open_transactions(next, high));
        }
        Err(self.outside_of_log(next, low, end))
    }

    pub(super) fn failed(&self, attempted: &str, error: tokio_postgres::Error) -> Interrupt {
        self.count_conflict(Verdict::of(&error));
        Interrupt::owning(attempted, &self.shared.settings.schema, error)
    }
}

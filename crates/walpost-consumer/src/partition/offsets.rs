//! The claimed partition's commits to Kafka, which follow those of the
//! database.

use std::{
    future::Future,
    time::{Duration, Instant},
};

use tokio::{sync::oneshot::error::TryRecvError, time::timeout};

use super::{Interrupt, Partition, apply, session::Session};
use crate::{Handler, failpoint::Failpoint, kafka::KafkaFailure, points::Spot, sql::ClaimKey};

/// Longest wait for the last commit of a partition that stops.
const FINAL_COMMIT_LIMIT_MS: u64 = 5_000;
/// Pause after a commit that failed.
const FAILED_COMMIT_PAUSE_MS: u64 = 1_000;

impl<H: Handler> Partition<H> {
    /// Nothing has arrived: catches up, then waits.
    pub(super) async fn idle(&self, session: &mut Session) -> Result<(), Interrupt> {
        self.catch_up(session).await?;
        let look_after = session.look_after;
        self.wait(session, true, look_after, std::future::pending::<()>()).await?;
        Ok(())
    }

    /// Brings the list of known offsets and Kafka up to date, and looks whether
    /// the partition is still ours.
    pub(super) async fn catch_up(&self, session: &mut Session) -> Result<(), Interrupt> {
        self.take_answer(session)?;
        if session.ledger.is_stale() {
            self.move_offset(session, session.key, 0).await?;
        }
        self.send_commit(session).await;
        self.look_at_claim(session).await
    }

    /// Until something has to be done: events have come and are wanted, Kafka
    /// has answered, it is time for something, at `at` at the latest, or
    /// `other` is there, which is returned.
    pub(super) async fn wait<T>(
        &self,
        session: &mut Session,
        events: bool,
        at: Option<Instant>,
        other: impl Future<Output = T>,
    ) -> Result<Option<T>, Interrupt> {
        session.lane.slot.give_back();
        let next = [session.commit_after, session.looks.at(), at].into_iter().flatten().min();
        let pause = next.map_or(Duration::from_secs(3600), |at| {
            at.saturating_duration_since(Instant::now()).max(Duration::from_millis(1))
        });
        let Session { inbox, answer, .. } = session;
        let (mut answered, mut there) = (None, None);
        let mut stop = self.stop.clone();
        let answer_or_never = async {
            match answer.as_mut() {
                Some(receiver) => receiver.await.unwrap_or(Err(KafkaFailure::Closed)),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = stop.requested() => return Err(Interrupt::Stopped),
            () = inbox.filled(), if events => {}
            outcome = answer_or_never => answered = Some(outcome),
            () = tokio::time::sleep(pause) => {}
            other = other => there = Some(other),
        }
        if let Some(outcome) = answered {
            session.answer = None;
            self.answered(session, outcome);
        }
        Ok(there)
    }

    /// Sends the stored offset to Kafka, unless a commit is on its way.
    pub(super) async fn send_commit(&self, session: &mut Session) {
        if session.answer.is_some() || session.commit_after.is_some_and(|at| at > Instant::now()) {
            return;
        }
        session.commit_after = None;
        let Some(offset) = session.ledger.to_commit(session.key.next_offset) else {
            return;
        };
        self.send(session, offset, false).await;
    }

    /// Looks whether Kafka has answered.
    pub(super) fn take_answer(&self, session: &mut Session) -> Result<(), Interrupt> {
        let Some(answer) = &mut session.answer else {
            return Ok(());
        };
        let outcome = match answer.try_recv() {
            Err(TryRecvError::Empty) => return Ok(()),
            Err(TryRecvError::Closed) => return Err(Interrupt::NotAssigned),
            Ok(outcome) => outcome,
        };
        session.answer = None;
        self.answered(session, outcome);
        Ok(())
    }

    /// The partition stops in order: Kafka gets the last offset, and the list
    /// of known ones shrinks to it. What fails here is mended by the next
    /// claim.
    pub(super) async fn finish(&self, mut session: Session) {
        let limit = Duration::from_millis(FINAL_COMMIT_LIMIT_MS);
        if session.answer.is_some() {
            // It may wait for the interval, which may be longer than the limit.
            self.shared.kafka.hurry(&self.of).await;
        }
        for _ in 0..2 {
            if session.answer.is_none()
                && let Some(offset) = session.ledger.to_commit(session.key.next_offset)
            {
                self.send(&mut session, offset, true).await;
            }
            let Some(answer) = session.answer.take() else { break };
            match timeout(limit, answer).await {
                Ok(Ok(outcome)) => self.answered(&mut session, outcome),
                Ok(Err(_)) | Err(_) => break,
            }
        }
        if session.ledger.is_stale()
            && let to = session.key
            && let Err(interrupt) = self.move_offset(&mut session, to, 0).await
        {
            tracing::debug!(partition = %self.of, reason = interrupt.reason(), "the last offset stays listed");
            return;
        }
        session.lane.slot.give_back();
    }

    async fn send(&self, session: &mut Session, offset: i64, urgent: bool) {
        let spot = Spot::from((&self.of, offset));
        self.shared.points.reached(Failpoint::BeforeKafkaCommit, Some(spot)).await;
        let marker = session.owner.marker(offset, session.key.epoch, session.reset_id).to_string();
        let (of, assignment) = (&self.of, self.assignment);
        let answer = self.shared.kafka.commit(of, assignment, offset, marker, urgent).await;
        session.answer = Some(answer);
        session.ledger.sent(offset);
    }

    fn answered(&self, session: &mut Session, outcome: Result<(), KafkaFailure>) {
        match outcome {
            Ok(()) => {
                session.ledger.acknowledged();
                let confirmed = session.ledger.confirmed();
                self.shared.board.update(&self.of, |status| status.committed_offset = confirmed);
            }
            Err(failure) => {
                tracing::warn!(partition = %self.of, %failure, "Kafka did not take an offset");
                session.ledger.failed();
                let pause = Duration::from_millis(FAILED_COMMIT_PAUSE_MS);
                session.commit_after = Some(Instant::now() + pause);
            }
        }
    }

    /// A transaction that moves the offset, or nothing but the list of known
    /// ones. The database has to have as many transactions of lanes as they have
    /// committed: one that has taken over from it may lack some.
    pub(super) async fn move_offset(
        &self,
        session: &mut Session,
        to: ClaimKey,
        lanes_committed: i64,
    ) -> Result<(), Interrupt> {
        let sql = &self.shared.sql;
        let begin = sql.batch_begin(&session.key, &to, session.ledger.known());
        let begin = match lanes_committed {
            0 => begin,
            count => format!("{begin}; {}", sql.lanes_hold(&session.key, count)),
        };
        let end = sql.batch_end(&to);
        let client = session.lane.slot.client().await?;
        let stored = async {
            let tx = apply::start(client).await?;
            tx.batch_execute(&begin).await?;
            walpost_prepared::commit(tx, &end).await.map(drop)
        };
        stored.await.map_err(|error| self.failed("storing the offset of a partition", error))?;
        session.key = to;
        session.ledger.stored();
        Ok(())
    }
}

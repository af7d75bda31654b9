//! The keys of one batch: claimed behind the fence, settled after its end.

use std::{borrow::Cow, collections::HashSet, fmt::Write};

use super::{Answer, Claim, Owner, Place, RedisFailure, RedisGuard, Step, decide};
use crate::{
    Event, HandlerError,
    store::{
        FailureKind, HandlerFailed, StoreError, StoreFailure, StoreTransaction, distinct,
        select_new,
    },
};

/// Each round decides every key that was undecided; others may come between.
const MAX_ROUNDS: u32 = 4;

/// What a batch needs to claim its keys.
#[derive(Clone, Debug)]
pub(crate) struct Claiming<'a> {
    pub(crate) guard: &'a RedisGuard,
    pub(crate) consumer: &'a str,
    pub(crate) owner: Owner,
    /// Stored offset before the batch.
    pub(crate) next_offset: i64,
    /// Quoted.
    pub(crate) schema: &'a str,
}

impl Claiming<'_> {
    /// The events whose effect is to be made, claimed. The transaction holds
    /// the fence.
    pub(crate) async fn new_events<'e>(
        &self,
        tx: &mut impl StoreTransaction,
        events: &'e [Event],
    ) -> Result<Cow<'e, [Event]>, StoreFailure> {
        let first = distinct(events);
        let keys = self.guard.keys(self.consumer, &first);
        let mut claims: Vec<Claim> = first.iter().map(|event| Claim::new(event.offset())).collect();
        for _ in 0..MAX_ROUNDS {
            let answers = self.guard.claim(&keys, &self.owner, &claims).await;
            let answers = answers.map_err(|error| unclaimed(error, None))?;
            let passed = self.passed(tx, &answers).await?;
            match decide(&mut claims, &answers, self.owner.position, &passed) {
                Step::Apply(new) => return Ok(select_new(events, &new)),
                Step::Again => {}
                Step::Wait(at) => {
                    let reason = "another record of the event is being applied elsewhere";
                    return Err(failed(HandlerError::transient(reason), Some(at)));
                }
                Step::Odd(at) => return Err(unclaimed(RedisFailure::Odd, Some(at))),
            }
        }
        Err(failed(HandlerError::transient("others claim the events of the batch as well"), None))
    }

    /// Which places a committed offset has passed: the effects are there. Of a
    /// partition that was reset since, the offset that the reset found counts:
    /// nothing that was claimed before it was committed after it.
    async fn passed(
        &self,
        tx: &mut impl StoreTransaction,
        answers: &[Answer],
    ) -> Result<HashSet<Place>, StoreError> {
        let places: Vec<Place> = answers.iter().filter_map(Answer::place).collect();
        if places.is_empty() {
            return Ok(HashSet::new());
        }
        let mut values = String::new();
        for (index, Place { position, offset, epoch }) in places.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            let _ = write!(values, "{comma}({index}, {position}, {offset}, {epoch})");
        }
        // This transaction has moved its own offset already.
        let (schema, own, before) = (self.schema, self.owner.position, self.next_offset);
        let sql = format!(
            "select u.n::bigint from (values {values}) u(n, pos, off, epoch) \
             join {schema}.position p on p.id = u.pos where coalesce((select r.from_offset \
             from {schema}.consumer_reset r where r.pos_id = u.pos and r.epoch > u.epoch \
             order by r.epoch limit 1), case p.id when {own} then {before} else p.next_offset end) \
             > u.off"
        );
        let found = tx.numbers(&sql).await?;
        let place = |index: i64| places.get(usize::try_from(index).ok()?).copied();
        Ok(found.into_iter().filter_map(place).collect())
    }

    /// After the end of the transaction. What fails here, the offset decides.
    pub(crate) async fn settle<T>(&self, events: &[Event], ended: &Result<T, StoreFailure>) {
        let keys = self.guard.keys(self.consumer, events);
        let settled = match ended {
            Ok(_) => self.guard.done(&keys).await,
            Err(StoreFailure { kind: FailureKind::Handler(_) | FailureKind::Connection }) => {
                let offsets: Vec<i64> = events.iter().map(Event::offset).collect();
                self.guard.release(&keys, &self.owner, &offsets).await
            }
            // It may have been committed.
            Err(StoreFailure { kind: FailureKind::Store(_) }) => Ok(()),
        };
        if let Err(error) = settled {
            tracing::debug!(%error, "the keys of a batch were left as they are");
        }
    }
}

fn unclaimed(error: RedisFailure, at: Option<i64>) -> StoreFailure {
    let error = match error {
        RedisFailure::Away { .. } => HandlerError::transient(error),
        RedisFailure::Odd => HandlerError::halt(error),
    };
    failed(error, at)
}

fn failed(error: HandlerError, at: Option<i64>) -> StoreFailure {
    HandlerFailed { error, at, discard: false }.into()
}

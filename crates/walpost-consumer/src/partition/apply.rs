//! One batch, one transaction: fence and offset, deduplication, handler, end.

use std::{borrow::Cow, panic::AssertUnwindSafe, time::Duration};

use futures_util::{
    FutureExt, TryStreamExt,
    future::{join, try_join_all},
};
use tokio::time::timeout;
use tokio_postgres::{Client, IsolationLevel, SimpleQueryStream, Transaction, types::Type};

use super::{
    Partition,
    failure::Failure,
    held::{Held, holds_key},
    lane::{Fence, Lane},
    parked_row::{Aside, Place, set_aside},
};
use crate::{Event, Handler, HandlerError, failpoint::Failpoint, handler::SliceError};

/// What a batch does with its new events.
#[derive(Clone, Copy, Debug)]
pub(super) enum Work<'a> {
    /// The handler.
    Handle,
    /// The one event is set aside.
    Park { reason: &'a str, attempts: u32 },
}

/// What was committed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Applied {
    /// Given to the handler, or parked.
    pub(super) new: u64,
    /// Set aside behind a parked event of their key.
    pub(super) waiting: u64,
}

impl<H: Handler> Partition<H> {
    /// Carries `work` out for `events`, all or nothing. `events` is not empty.
    pub(super) async fn apply(
        &self,
        lane: &mut Lane,
        fence: Fence<'_>,
        events: &[Event],
        work: Work<'_>,
    ) -> Result<Applied, Failure> {
        let (begin, end) = fence.statements(&self.shared.sql, events);
        let dedup = lane.replay.dedup(&self.shared.sql, events);
        let keys = Keys::of(events);
        let (position, run) = (fence.position(), lane.replay.run);
        let tx = start(&mut lane.client).await.map_err(Failure::Database)?;
        let consumer = self.shared.settings.consumer.as_str();
        let parameters: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 6] = [
            (&consumer, Type::TEXT),
            (&position, Type::INT4),
            (&keys.sources, Type::TEXT_ARRAY),
            (&keys.ids, Type::TEXT_ARRAY),
            (&keys.offsets, Type::INT8_ARRAY),
            (&run, Type::INT4),
        ];
        let (fenced, found) =
            join(tx.batch_execute(&begin), tx.query_typed(dedup, &parameters)).await;
        fenced.map_err(Failure::Database)?;
        let mut new: Vec<i64> =
            found.map_err(Failure::Database)?.iter().map(|row| row.get(0)).collect();
        new.sort_unstable();
        Failpoint::AfterBegin.reached();
        let place = Place { consumer, position, run };
        let applied = match (work, events) {
            (Work::Handle, _) => {
                let new = select_new(events, &new);
                let repeats = lane.replay.repeats(events);
                match self.handle_free(&tx, &lane.held, place, &new, repeats).await {
                    Ok(waiting) => Applied { new: new.len() as u64 - waiting, waiting },
                    Err(failure) => return Err(roll_back(tx, failure).await),
                }
            }
            (Work::Park { reason, attempts }, [event])
                if new.len() == 1 || event.identity().is_err() =>
            {
                let holds_key = holds_key(self.shared.settings.park, event);
                let aside = Aside::Parked { reason, attempts, holds_key };
                let parked = set_aside(&tx, &self.shared.sql, place, event, aside).await;
                Applied { new: parked.map_err(Failure::Database)?, waiting: 0 }
            }
            (Work::Park { .. }, _) => Applied::default(),
        };
        let [before_commit, after_commit] = fence.failpoints();
        before_commit.reached();
        finish(tx, &end).await?;
        after_commit.reached();
        Ok(applied)
    }

    /// Gives `new` events to the handler, but for those whose key is held back:
    /// they are set aside. Returns how many.
    async fn handle_free(
        &self,
        tx: &Transaction<'_>,
        held: &Held,
        place: Place<'_>,
        new: &[Event],
        repeats: bool,
    ) -> Result<u64, Failure> {
        let waits = |event: &&Event| held.holds(event);
        let waiting: Vec<&Event> = new.iter().filter(waits).collect();
        let free = if waiting.is_empty() {
            Cow::Borrowed(new)
        } else {
            Cow::Owned(new.iter().filter(|event| !waits(event)).cloned().collect())
        };
        self.handle(tx, &free).await?;
        let sql = &self.shared.sql;
        let aside = waiting.iter().map(|event| set_aside(tx, sql, place, event, Aside::Waiting));
        try_join_all(aside).await.map_err(Failure::Database)?;
        if repeats {
            let offsets: Vec<i64> = free.iter().map(Event::offset).collect();
            let made = [
                (&place.position as &(dyn tokio_postgres::types::ToSql + Sync), Type::INT4),
                (&offsets, Type::INT8_ARRAY),
            ];
            tx.execute_typed(&sql.parked.unpark_replayed, &made)
                .await
                .map_err(Failure::Database)?;
        }
        Ok(waiting.len() as u64)
    }

    pub(super) async fn handle(
        &self,
        tx: &Transaction<'_>,
        events: &[Event],
    ) -> Result<(), Failure> {
        if events.is_empty() {
            return Ok(());
        }
        let limit_ms = self.shared.settings.handler_timeout_ms;
        let handling = AssertUnwindSafe(self.shared.handler.handle_slice(tx, events));
        let outcome = timeout(Duration::from_millis(limit_ms), handling.catch_unwind()).await;
        let alone = match events {
            [event] => Some(event.offset()),
            _ => None,
        };
        let dropped = |reason: String| {
            let error = HandlerError::retry(reason);
            Err(Failure::Handler { error, at: alone, discard: true })
        };
        match outcome {
            Ok(Ok(Ok(()))) => Ok(()),
            Ok(Ok(Err(error))) => Err(failed(error, events, alone)),
            Ok(Err(_)) => dropped("the handler panicked".to_owned()),
            Err(_) => dropped(format!("the handler took longer than {limit_ms} ms")),
        }
    }
}

/// What the events are deduplicated by.
struct Keys<'a> {
    sources: Vec<&'a str>,
    ids: Vec<&'a str>,
    offsets: Vec<i64>,
}

impl<'a> Keys<'a> {
    fn of(events: &'a [Event]) -> Self {
        let known = || events.iter().filter(|event| event.identity().is_ok());
        Self {
            sources: known().map(Event::source).collect(),
            ids: known().map(Event::id).collect(),
            offsets: known().map(Event::offset).collect(),
        }
    }
}

/// READ COMMITTED by name: the fence has to see what it waited for.
pub(super) async fn start(client: &mut Client) -> Result<Transaction<'_>, tokio_postgres::Error> {
    client.build_transaction().isolation_level(IsolationLevel::ReadCommitted).start().await
}

/// The end of the batch and COMMIT, sent together.
pub(super) async fn finish(tx: Transaction<'_>, end: &str) -> Result<(), tokio_postgres::Error> {
    let ended = tx.client().simple_query_raw(end).await?;
    let (ended, committed) = join(drain(ended), tx.commit()).await;
    ended.and(committed)
}

async fn drain(stream: SimpleQueryStream) -> Result<(), tokio_postgres::Error> {
    let mut stream = std::pin::pin!(stream);
    while stream.try_next().await?.is_some() {}
    Ok(())
}

/// The events at the offsets `new`, ascending. Copies none if all are new.
fn select_new<'a>(events: &'a [Event], new: &[i64]) -> Cow<'a, [Event]> {
    if new.len() == events.len() {
        return Cow::Borrowed(events);
    }
    let is_new = |event: &&Event| new.binary_search(&event.offset()).is_ok();
    Cow::Owned(events.iter().filter(is_new).cloned().collect())
}

fn failed(error: SliceError, events: &[Event], alone: Option<i64>) -> Failure {
    let at = error.index().and_then(|index| events.get(index)).map(Event::offset).or(alone);
    Failure::Handler { error: error.into_inner(), at, discard: false }
}

/// A connection that may still be busy is not waited for.
pub(super) async fn roll_back(tx: Transaction<'_>, failure: Failure) -> Failure {
    if let Failure::Handler { discard: true, .. } = failure {
        return failure;
    }
    match tx.rollback().await {
        Ok(()) => failure,
        Err(error) => Failure::Database(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_new_events_are_handled_and_in_order() {
        let events: Vec<Event> =
            (5..10).map(|offset| Event::builder("t").position(0, offset).build()).collect();
        let offsets = |new: &[i64]| -> Vec<i64> {
            select_new(&events, new).iter().map(Event::offset).collect()
        };
        assert_eq!(offsets(&[5, 6, 7, 8, 9]), [5, 6, 7, 8, 9]);
        assert_eq!(offsets(&[6, 9]), [6, 9]);
        assert_eq!(offsets(&[]), [0i64; 0]);
    }
}

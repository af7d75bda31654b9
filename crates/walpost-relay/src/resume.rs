//! The sink of a session: nobody else writes to it any more, and what a
//! predecessor has published above the checkpoint is read back before anything
//! is sent.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;
use walpost_event::Lsn;

#[cfg(test)]
use crate::simulation;
use crate::{
    checkpoint::{Checkpoint, CheckpointStore},
    config::RelayConfig,
    error::RelayError,
    history,
    parked::{Retried, Sending, lowered},
    pipeline::attend,
    published::{Ours, Phantoms, Published, Wanted},
    sink::Sink,
    source::Source,
};

/// Bound on the reading, which ends by itself when the sink is silent.
const READ_BACK_MAX: Duration = Duration::from_secs(3_600);

/// Bound on the connection of a sink, and on fencing off its predecessor; both
/// bound their own steps.
const SINK_MAX: Duration = Duration::from_secs(60);

/// Connects the sink of a session that holds the slot, and fences off the one
/// before, whose name `before` has. Its own name is in the checkpoint before it
/// is given anything. The source is kept alive meanwhile.
pub(crate) async fn connect<S: Source, K: Sink>(
    source: &mut S,
    connect_sink: &mut impl AsyncFnMut() -> Result<K, RelayError>,
    before: &Checkpoint,
    checkpoints: &CheckpointStore,
) -> Result<K, RelayError> {
    let deadline = Instant::now() + SINK_MAX;
    let connected = attend(source, deadline, connect_sink()).await;
    let mut sink = connected.ok_or_else(|| late(UNCONNECTED))??;
    let predecessor = before.fence.as_ref();
    #[cfg(test)]
    let predecessor = predecessor.filter(|_| !simulation::has(simulation::Bug::NoFence));
    if let Some(predecessor) = predecessor {
        let fenced = attend(source, deadline, sink.fence(predecessor)).await;
        fenced.ok_or_else(|| late("a predecessor was not fenced off"))??;
    }
    if sink.fence_id() != before.fence.as_deref() {
        checkpoints.set_fence(sink.fence_id()).await?;
    }
    Ok(sink)
}

/// The same before there is a source, or a predecessor.
pub(crate) async fn connect_first<K: Sink>(
    connect_sink: &mut impl AsyncFnMut() -> Result<K, RelayError>,
) -> Result<K, RelayError> {
    tokio::time::timeout(SINK_MAX, connect_sink()).await.map_err(|_| late(UNCONNECTED))?
}

const UNCONNECTED: &str = "it was not connected";

fn late(what: &str) -> RelayError {
    let detail = format!("{what} within {} s", SINK_MAX.as_secs());
    RelayError::Sink { detail, transient: true }
}

/// Statements of a session that has the slot and does not read yet: each has its
/// bound, but together they may take longer than the server waits for a sign of
/// life. The source is kept alive meanwhile.
pub(crate) async fn prepare<S: Source, T>(
    source: &mut S,
    config: &RelayConfig,
    attempt: &'static str,
    statements: impl Future<Output = Result<T, RelayError>>,
) -> Result<T, RelayError> {
    let limit = Duration::from_millis(config.slot_timeout_ms);
    let done = attend(source, Instant::now() + limit, statements).await;
    done.unwrap_or(Err(RelayError::SqlTimeout { attempt, limit }))
}

/// Where a session begins.
pub(crate) struct Resuming<'a> {
    pub(crate) checkpoint: &'a Checkpoint,
    pub(crate) checkpoints: &'a CheckpointStore,
    pub(crate) wanted: Wanted,
    pub(crate) ours: Ours,
    /// Parked events that may have been sent on.
    pub(crate) sending: &'a [Sending],
}

/// What was read back.
struct Found {
    published: Published,
    retried: Retried,
}

/// Reads back, and says up to where the stream may bring what was found, and
/// which parked events were sent on. The source is kept alive meanwhile.
pub(crate) async fn read_back<S: Source, K: Sink>(
    source: &mut S,
    sink: &mut K,
    from: Resuming<'_>,
    config: &RelayConfig,
) -> Result<(Published, Lsn, Retried), RelayError> {
    let began = Instant::now();
    let settle = (!from.checkpoint.clean).then(|| Duration::from_millis(config.settle_ms));
    let empty = |sending: &[Sending]| Found {
        published: Published::new(from.wanted, from.ours.clone(), config.resume_max_ids)
            .and_up_to(from.checkpoint.taken_over_at)
            .ignoring(&config.ignored_records),
        retried: Retried::new(sending),
    };
    let found = Arc::new(Mutex::new(empty(from.sending)));
    let noting = found.clone();
    let note = Box::new(move |marks: crate::Marks<'_>| {
        let mut found = noting.lock().unwrap_or_else(PoisonError::into_inner);
        found.retried.note(&marks);
        found.published.note(marks);
    });
    let floors = lowered(from.checkpoint.floors.clone(), from.sending);
    #[cfg(test)]
    let floors = if simulation::resends_unknown() { Vec::new() } else { floors };
    let reading = sink.read_back(floors, settle, note);
    attend(source, began + READ_BACK_MAX, reading).await.ok_or_else(|| {
        let detail = format!("it was not read back within {} s", READ_BACK_MAX.as_secs());
        RelayError::Sink { detail, transient: true }
    })??;
    let Found { published, retried } =
        std::mem::replace(&mut *found.lock().unwrap_or_else(PoisonError::into_inner), empty(&[]));
    let flushed = from.checkpoints.flushed().await?;
    history::not_set_back(config, published.last(), published.last_at(), flushed)?;
    let until = published.until(flushed);
    tell_phantoms(from.checkpoint, published.phantoms());
    if !published.is_empty() {
        tracing::info!(
            events = published.events(),
            took_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
            "read back what is published above the checkpoint; it is not sent again"
        );
    }
    if published.is_recovery_with_gaps() {
        let (known, more) = (config.resume_max_ids, published.ids_left_out());
        return Err(RelayError::prerequisite(
            format!(
                "the topics hold {} events from above the proven snapshot, {more} more than \
                 resume_max_ids, and these would be published a second time",
                known as u64 + more
            ),
            format!(
                "set resume_max_ids to {} or more, at about 100 bytes of memory each, and start \
                 again: the recovery goes on",
                known as u64 + more
            ),
        ));
    }
    if published.ids_left_out() > 0 {
        tracing::warn!(
            events = published.ids_left_out(),
            resume_max_ids = config.resume_max_ids,
            "more events are published above the checkpoint than ids are kept: these come a \
             second time; position_header = true needs no ids"
        );
    }
    Ok((published, until, retried))
}

/// They stay published, and whoever reads the topics has seen them.
fn tell_phantoms(checkpoint: &Checkpoint, phantoms: Phantoms) {
    let Phantoms { range, records, unplaced } = phantoms;
    if let Some((first, last)) = range {
        let generation = checkpoint.generation;
        tracing::warn!(
            records,
            first = format!("{generation}:{first}"),
            last = format!("{generation}:{last}"),
            "phantom events: the topics hold records from behind the point at which the server \
             left a timeline, so their transactions are not in this database; they stay \
             published and hide no other event; find them by the header walpost-position"
        );
    }
    if unplaced > 0 {
        tracing::warn!(
            records = unplaced,
            "the server has left a timeline, and the topics hold records above the checkpoint \
             that tell no position: nothing tells which of them are phantoms, so none of them \
             counts, and those of this database come a second time; position_header = true \
             prevents that"
        );
    }
}

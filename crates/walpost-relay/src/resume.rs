//! The sink of a session: nobody else writes to it any more, and what a
//! predecessor has published above the checkpoint is read back before anything
//! is sent.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;
use walpost_event::Lsn;

use crate::{
    checkpoint::{Checkpoint, CheckpointStore},
    config::RelayConfig,
    error::RelayError,
    pipeline::attend,
    published::{Published, Wanted},
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
    let late = |what: &str| {
        let detail = format!("{what} within {} s", SINK_MAX.as_secs());
        RelayError::Sink { detail, transient: true }
    };
    let deadline = Instant::now() + SINK_MAX;
    let connected = attend(source, deadline, connect_sink()).await;
    let mut sink = connected.ok_or_else(|| late("it was not connected"))??;
    if let Some(predecessor) = &before.fence {
        let fenced = attend(source, deadline, sink.fence(predecessor)).await;
        fenced.ok_or_else(|| late("a predecessor was not fenced off"))??;
    }
    if sink.fence_id() != before.fence.as_deref() {
        checkpoints.set_fence(sink.fence_id()).await?;
    }
    Ok(sink)
}

/// Where a session begins.
pub(crate) struct Resuming<'a> {
    pub(crate) checkpoint: &'a Checkpoint,
    pub(crate) checkpoints: &'a CheckpointStore,
    pub(crate) wanted: Wanted,
}

/// Reads back, and says up to where the stream may bring what was found. The
/// source is kept alive meanwhile.
pub(crate) async fn read_back<S: Source, K: Sink>(
    source: &mut S,
    sink: &mut K,
    from: Resuming<'_>,
    config: &RelayConfig,
) -> Result<(Published, Lsn), RelayError> {
    let began = Instant::now();
    let settle = (!from.checkpoint.clean).then(|| Duration::from_millis(config.settle_ms));
    let published =
        Arc::new(Mutex::new(Published::new(from.wanted, &config.pipeline, config.resume_max_ids)));
    let noting = published.clone();
    let note = Box::new(move |marks: crate::Marks<'_>| {
        noting.lock().unwrap_or_else(PoisonError::into_inner).note(marks);
    });
    let reading = sink.read_back(from.checkpoint.floors.clone(), settle, note);
    attend(source, began + READ_BACK_MAX, reading).await.ok_or_else(|| {
        let detail = format!("it was not read back within {} s", READ_BACK_MAX.as_secs());
        RelayError::Sink { detail, transient: true }
    })??;
    let empty = Published::new(from.wanted, &config.pipeline, config.resume_max_ids);
    let published =
        std::mem::replace(&mut *published.lock().unwrap_or_else(PoisonError::into_inner), empty);
    let until = published.until(from.checkpoints.flushed().await?);
    if !published.is_empty() {
        tracing::info!(
            events = published.events(),
            took_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
            "read back what is published above the checkpoint; it is not sent again"
        );
    }
    if published.ids_left_out() > 0 {
        tracing::warn!(
            events = published.ids_left_out(),
            resume_max_ids = config.resume_max_ids,
            "more events are published above the checkpoint than ids are kept: these come a \
             second time; position_header = true needs no ids"
        );
    }
    Ok((published, until))
}

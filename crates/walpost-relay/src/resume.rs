//! What a predecessor has published above the checkpoint, read back from the
//! sink before anything is sent.

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

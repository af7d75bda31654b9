//! The last session on the WAL: what the cut sees is published, and nothing else.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::{sync::watch, time::Instant};

use super::{
    SwitchStep,
    possible::{has_streamed, no_messages, none_parked},
    proof,
    until::Until,
};
use crate::{
    checkpoint::Cut,
    error::RelayError,
    filters::Prefixes,
    pipeline::{Ended, attend},
    session::{Found, Session},
    sink::Sink,
    source::Source,
    status::Phase,
    wal::{ReplicationClient, WalSource, preflight, slot},
};

impl Session<'_> {
    /// Publishes up to a new cut, parked events apart, which refuse the switch,
    /// and notes that the WAL is left. `None` when the sink refused events: the
    /// next session knows which.
    pub(crate) async fn leave_wal<K: Sink>(
        mut self,
        connect_sink: &mut impl AsyncFnMut() -> Result<K, RelayError>,
        tell: &mut impl AsyncFnMut(SwitchStep),
    ) -> Result<Option<Cut>, RelayError> {
        self.status.starting();
        let (mut found, replication) = self.find().await?;
        has_streamed(&found.checkpoint, self.config)?;
        let mut source = WalSource::start(replication, &self.stream_start(&found)).await?;
        self.hold(&mut found, source.backend_pid(), &mut source).await?;
        none_parked(&found.sql, self.config).await?;
        // Made while we hold the slot: whatever others have published from it is
        // below.
        let cut = self.cut(&found, &mut source).await?;
        tell(SwitchStep::CutMade).await;
        tracing::info!(position = %cut.position, "publishing up to the end of this source");
        let confirmed = found.checkpoint.confirmed;
        let messages = Arc::new(AtomicBool::new(found.checkpoint.has_messages));
        let prefixes = Prefixes::new(self.config);
        let source = Until::new(source, cut.position, prefixes, messages.clone());
        let pipeline = self.pipeline(&found, source, confirmed, connect_sink).await?;
        self.working(Phase::Streaming, confirmed);
        let (_keep, stop) = watch::channel(false);
        let end = cut.position;
        let (ended, carried) = pipeline.run(stop, |done| (done >= end).then_some(())).await;
        *self.carried = carried;
        let Ended::Reached((), floors) = ended? else { return Ok(None) };
        none_parked(&found.sql, self.config).await?;
        no_messages(messages.load(Ordering::Relaxed), self.config)?;
        found.checkpoints.look_again().await?;
        found.checkpoints.leave_wal(&cut, &floors, &proof(&cut, floors.clone())).await?;
        Ok(Some(cut))
    }

    /// The cut of a slot that goes at once. The source is kept alive while the
    /// slot waits for the transactions that are running.
    async fn cut<S: Source>(&self, found: &Found, source: &mut S) -> Result<Cut, RelayError> {
        let deadline = Instant::now() + Duration::from_millis(self.config.slot_timeout_ms);
        let cutting = async {
            let timeout_ms = self.config.wal_sender_timeout_ms;
            let max_event_bytes = self.config.max_event_bytes;
            let mut replication =
                ReplicationClient::connect(&found.database, timeout_ms, max_event_bytes).await?;
            found.server.expect(&replication.identify().await?)?;
            let new = slot::create_temporary(&mut replication, &found.sql, self.config).await?;
            let (reader, _) = self.connect_to(&found.database).await?;
            let snapshot = preflight::boundary(&reader, &new.snapshot).await?;
            Ok(Cut { snapshot, position: new.consistent })
        };
        let cut = attend(source, deadline, cutting).await;
        let limit = Duration::from_millis(self.config.slot_timeout_ms);
        cut.unwrap_or(Err(RelayError::SqlTimeout { attempt: "making a temporary slot", limit }))
    }
}

//! From the WAL to polling.

use std::time::Duration;

use tokio::time::Instant;

use super::{Desk, HOLDER_WAIT, LOOK_AGAIN, SourceSwitch, SwitchStep, Switched};
use crate::{
    checkpoint::{Checkpoint, Cut, Feed, Watched},
    error::{RelayError, SourceError},
    history,
    metrics::PipelineMetrics,
    policy::Carried,
    polling::publish_seen,
    session::Session,
    sink::Sink,
    status::StatusReporter,
    wal::{ReplicationClient, membership, relations, slot},
};

impl SourceSwitch {
    pub(super) async fn to_polling<K: Sink>(
        &self,
        connect_sink: &mut impl AsyncFnMut() -> Result<K, RelayError>,
        tell: &mut impl AsyncFnMut(SwitchStep),
    ) -> Result<Switched, RelayError> {
        let mut desk = self.open().await?;
        let Some(row) = desk.row.take() else { return Ok(Switched::ALREADY) };
        let cut = match row.feed.clone() {
            Feed::Polling => return Ok(Switched::ALREADY),
            Feed::ToWal(_) => return self.stay_with_polling(desk, &row, tell).await,
            Feed::ToPolling(cut) => {
                history::same_cluster(&row, &self.config, &desk.server)?;
                cut
            }
            Feed::Wal => {
                self.can_leave_wal(&desk, &row).await?;
                let cut = self.leave_wal(connect_sink, tell).await?;
                tell(SwitchStep::WalLeft).await;
                cut
            }
        };
        self.begin_polling(&desk, &row, &cut, tell).await?;
        Ok(Switched::at(cut.position))
    }

    async fn leave_wal<K: Sink>(
        &self,
        connect_sink: &mut impl AsyncFnMut() -> Result<K, RelayError>,
        tell: &mut impl AsyncFnMut(SwitchStep),
    ) -> Result<Cut, RelayError> {
        let (status, _receiver) = StatusReporter::new();
        let metrics = PipelineMetrics::new(&self.config.pipeline, K::NAME);
        let mut carried = Carried::default();
        let deadline = Instant::now() + HOLDER_WAIT;
        loop {
            let session = Session {
                database: &self.database,
                config: &self.config,
                router: &self.router,
                encoding: &self.encoding,
                status: &status,
                metrics: &metrics,
                carried: &mut carried,
            };
            match session.leave_wal(connect_sink, tell).await {
                Ok(Some(cut)) => return Ok(cut),
                Ok(None) => {}
                Err(RelayError::Source(SourceError::SlotInUse { .. }))
                    if Instant::now() < deadline =>
                {
                    tokio::time::sleep(LOOK_AGAIN).await;
                }
                Err(RelayError::Source(SourceError::SlotInUse { slot, detail })) => {
                    return Err(in_use(&slot, &detail));
                }
                Err(error) => return Err(error),
            }
        }
    }

    async fn begin_polling(
        &self,
        desk: &Desk,
        row: &Checkpoint,
        cut: &Cut,
        tell: &mut impl AsyncFnMut(SwitchStep),
    ) -> Result<(), RelayError> {
        let taken = desk.checkpoints.take(row.timeline).await?;
        if taken.is_none_or(|taken| taken.feed != Feed::ToPolling(cut.clone())) {
            return Err(RelayError::TakenOver { pipeline: self.config.pipeline.clone() });
        }
        let rows = publish_seen(&desk.database, &self.config, &self.polling, cut).await?;
        tell(SwitchStep::RowsMarked(rows)).await;
        drop_slot(desk, &row.slot, HOLDER_WAIT).await?;
        tell(SwitchStep::SlotDropped).await;
        desk.checkpoints.begin_polling().await?;
        tell(SwitchStep::Done).await;
        Ok(())
    }

    /// Gives up a switch to the WAL, whose slot nobody has read from.
    async fn stay_with_polling(
        &self,
        mut desk: Desk,
        row: &Checkpoint,
        tell: &mut impl AsyncFnMut(SwitchStep),
    ) -> Result<Switched, RelayError> {
        self.same_slot(row)?;
        let (timeout_ms, bytes) = (self.config.wal_sender_timeout_ms, self.config.max_event_bytes);
        let mut replication = ReplicationClient::connect(&desk.database, timeout_ms, bytes).await?;
        let identity = replication.identify().await?;
        desk.server.expect(&identity)?;
        let publication = membership::read(&desk.sql, &self.config).await?;
        desk.checkpoints.expect_publication(publication, None);
        self.expect_relations(&mut desk).await?;
        // What polls for the switch ends too.
        desk.checkpoints.leave_polling(&self.config, &identity, &Feed::ToWal(None)).await?;
        drop_slot(&desk, &row.slot, HOLDER_WAIT).await?;
        tell(SwitchStep::SlotDropped).await;
        desk.checkpoints.begin_polling().await?;
        tell(SwitchStep::Done).await;
        Ok(Switched { is_already: false, position: None })
    }

    /// The tables are from now on those that are there: what is read is decided about.
    pub(super) async fn expect_relations(&self, desk: &mut Desk) -> Result<(), RelayError> {
        let (config, version) = (&self.config, desk.server.version);
        let facts = relations::read(&desk.sql, config, &[]).await?;
        let watched = Watched::new(&desk.database, config, version, None, &facts);
        desk.checkpoints.expect_relations(watched);
        Ok(())
    }

    /// The slot that a switch was begun with.
    pub(super) fn same_slot(&self, row: &Checkpoint) -> Result<(), RelayError> {
        if row.slot == self.config.slot {
            return Ok(());
        }
        Err(RelayError::prerequisite(
            format!(
                "the switch was begun with slot {:?}, the configuration names {:?}",
                row.slot, self.config.slot
            ),
            "set pipeline.slot as it was until the switch is at its end",
        ))
    }
}

/// Drops the slot if it is there, once nobody holds it any more.
pub(super) async fn drop_slot(desk: &Desk, name: &str, limit: Duration) -> Result<(), RelayError> {
    let deadline = Instant::now() + limit;
    while let Some(found) = slot::inspect(&desk.sql, name).await? {
        match found.active_pid {
            None => slot::drop(&desk.sql, name).await?,
            Some(pid) if Instant::now() >= deadline => {
                return Err(in_use(name, &format!("process {pid} of the server")));
            }
            Some(_) => tokio::time::sleep(LOOK_AGAIN).await,
        }
    }
    Ok(())
}

fn in_use(slot: &str, detail: &str) -> RelayError {
    RelayError::prerequisite(
        format!("slot {slot:?} is in use ({detail}): a relay of the pipeline runs"),
        "stop it, and those that stand by, and switch then",
    )
}

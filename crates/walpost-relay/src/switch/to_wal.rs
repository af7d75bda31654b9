//! From polling to the WAL.

use std::time::Duration;

use serde_json::{Value, json};

use super::{Desk, SourceSwitch, SwitchStep, Switched, proof, to_polling::drop_slot};
use crate::{
    checkpoint::{Cut, Feed},
    error::RelayError,
    polling::drain,
    sink::Sink,
    wal::{ReplicationClient, ServerIdentity, membership, preflight, slot, snapshot::begin_behind},
};

impl SourceSwitch {
    pub(super) async fn to_wal<K: Sink>(
        &self,
        connect_sink: &mut impl AsyncFnMut() -> Result<K, RelayError>,
        tell: &mut impl AsyncFnMut(SwitchStep),
    ) -> Result<Switched, RelayError> {
        let mut desk = self.open().await?;
        match desk.feed() {
            Some(Feed::Wal) => return Ok(Switched::ALREADY),
            Some(feed @ Feed::ToPolling(_)) => feed.expect_wal(&self.config)?,
            None | Some(Feed::Polling | Feed::ToWal(_)) => {}
        }
        self.can_leave_polling(&desk).await?;
        let (timeout_ms, bytes) = (self.config.wal_sender_timeout_ms, self.config.max_event_bytes);
        let mut replication = ReplicationClient::connect(&desk.database, timeout_ms, bytes).await?;
        let identity = replication.identify().await?;
        desk.server.expect(&identity)?;
        slot::owned_by_no_other(&desk.sql, &self.config, &desk.server.system_id).await?;
        let publication = membership::read(&desk.sql, &self.config).await?;
        let cut = self.cut_so_far(&desk, &identity, publication.as_ref()).await?;
        desk.checkpoints.expect_publication(publication, None);
        self.expect_relations(&mut desk).await?;
        let feed = Feed::ToWal(cut.clone());
        desk.checkpoints.leave_polling(&self.config, &identity, &feed).await?;
        tell(SwitchStep::PollingLeft).await;
        let cut = match cut {
            Some(cut) => cut,
            None => self.make_slot(&desk, &mut replication, tell).await?,
        };
        let rows = self.poll_rest(&desk, &cut, connect_sink).await?;
        tell(SwitchStep::RowsPolled(rows)).await;
        desk.checkpoints.begin_wal(&proof(&cut, json!({}))).await?;
        tell(SwitchStep::Done).await;
        Ok(Switched::at(cut.position))
    }

    /// Of a switch that was begun: where its slot begins, if that still stands
    /// there and brings everything from there on. Before one is begun there is no
    /// slot.
    async fn cut_so_far(
        &self,
        desk: &Desk,
        identity: &ServerIdentity,
        publication: Option<&Value>,
    ) -> Result<Option<Cut>, RelayError> {
        let name = &self.config.slot;
        let found = slot::inspect(&desk.sql, name).await?;
        let begun = desk.row.as_ref().filter(|row| matches!(row.feed, Feed::ToWal(_)));
        let Some(row) = begun else {
            return match found {
                None => Ok(None),
                Some(_) => Err(not_ours(name)),
            };
        };
        self.same_slot(row)?;
        let Feed::ToWal(Some(cut)) = &row.feed else { return Ok(None) };
        let stands =
            found.is_some_and(|slot| slot.lost.is_none() && slot.confirmed == Some(cut.position));
        let is_here = row.system_id == identity.system_id && row.timeline == identity.timeline;
        let is_whole = membership::is_unbroken(row.publication.as_ref(), publication);
        Ok((stands && is_here && is_whole).then(|| cut.clone()))
    }

    /// Makes the slot. One that is there is of a switch that died before it was
    /// noted where it begins, or brings not everything any more.
    async fn make_slot(
        &self,
        desk: &Desk,
        replication: &mut ReplicationClient,
        tell: &mut impl AsyncFnMut(SwitchStep),
    ) -> Result<Cut, RelayError> {
        // One that was killed may still wait for what this one would wait for.
        let limit = Duration::from_millis(self.config.slot_timeout_ms);
        drop_slot(desk, &self.config.slot, limit).await?;
        let version = desk.server.version;
        let new = slot::create(replication, &desk.sql, &self.config, version).await?;
        tell(SwitchStep::SlotMade).await;
        let snapshot = preflight::boundary(&desk.sql, &new.snapshot).await?;
        let cut = Cut { snapshot, position: new.consistent };
        desk.checkpoints.note_cut(&cut).await?;
        tell(SwitchStep::CutNoted).await;
        Ok(cut)
    }

    /// Publishes what the slot does not bring.
    async fn poll_rest<K: Sink>(
        &self,
        desk: &Desk,
        cut: &Cut,
        connect_sink: &mut impl AsyncFnMut() -> Result<K, RelayError>,
    ) -> Result<u64, RelayError> {
        // All of it is visible from here on.
        let limit = Duration::from_millis(self.config.slot_timeout_ms);
        begin_behind(&desk.sql, &cut.snapshot, limit).await?;
        desk.sql.batch("ending the look at the snapshot", "rollback").await?;
        let settings = (&self.config, &self.polling);
        let making = (&self.router, &self.encoding);
        drain(&desk.database, settings, making, cut, connect_sink).await
    }
}

fn not_ours(slot: &str) -> RelayError {
    RelayError::prerequisite(
        format!(
            "slot {slot:?} is there already, and the switch needs one that it has made itself, for \
             its snapshot"
        ),
        format!(
            "drop it (`select pg_drop_replication_slot('{slot}')`), or name another by \
             pipeline.slot"
        ),
    )
}

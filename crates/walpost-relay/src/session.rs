use std::{collections::HashMap, sync::Arc, time::Duration};

use tokio::sync::watch;
use tokio_postgres::{Client, types::Type};
use walpost_encode::Encoding;
use walpost_event::{Generation, Lsn, Position};
use walpost_postgres::Database;
use walpost_router::{Router, RouterConfig};

use crate::{
    checkpoint::{Checkpoint, CheckpointStore, InitialState},
    config::{Initial, RelayConfig, SourceKind},
    convert::Converter,
    error::{RelayError, SourceError},
    headers::OwnHeaders,
    metrics::PipelineMetrics,
    parked::{Parked, Parking},
    pipeline::{Ended, Pipeline, Progress},
    sink::Sink,
    source::Source,
    sql::Sql,
    status::{Phase, StatusReporter},
    wal::{
        PgwireSource, StreamStart, WalSource,
        preflight::{self, Server},
        slot::{self, NewSlot},
        snapshot::{Boundary, SnapshotSource},
    },
};

/// One life of the relay between two errors: checks, the slot, the checkpoint,
/// then the pipeline.
pub(crate) struct Session<'a> {
    pub(crate) database: &'a Database,
    pub(crate) config: &'a RelayConfig,
    pub(crate) router: &'a RouterConfig,
    pub(crate) encoding: &'a Encoding,
    pub(crate) status: &'a StatusReporter,
    pub(crate) metrics: &'a PipelineMetrics,
    /// What the last session's sink refused for good.
    pub(crate) rejected: HashMap<Position, Parking>,
}

/// What a session found at its start.
struct Found {
    client: Arc<Client>,
    checkpoints: CheckpointStore,
    checkpoint: Checkpoint,
    new_slot: Option<NewSlot>,
}

impl Session<'_> {
    /// Runs until told to stop, or until an error.
    pub(crate) async fn run<K: Sink>(
        self,
        stop: watch::Receiver<bool>,
        mut connect_sink: impl AsyncFnMut() -> Result<K, RelayError>,
    ) -> Result<Ended, RelayError> {
        self.status.phase(Phase::Starting);
        let mut found = self.find().await?;
        if let InitialState::Publish { boundary } = found.checkpoint.initial.clone() {
            let ended = self.load(&mut found, &boundary, stop.clone(), &mut connect_sink).await?;
            if ended != Ended::Reached {
                return Ok(ended);
            }
        }
        drop(found.new_slot.take());
        let start = self.stream_start(found.checkpoint.confirmed);
        match self.config.source {
            SourceKind::Native => {
                let source = WalSource::start(self.database, &start).await?;
                self.stream(found, source, stop, connect_sink).await
            }
            SourceKind::Pgwire => {
                let source = PgwireSource::start(self.database, &start).await?;
                self.stream(found, source, stop, connect_sink).await
            }
        }
    }

    /// Checks, then finds or makes slot and checkpoint.
    async fn find(&self) -> Result<Found, RelayError> {
        let client = Arc::new(self.database.connect().await?);
        // A checkpoint is worth nothing before it is on disk; waiting for a
        // synchronous standby could mean waiting for ourselves.
        client
            .batch_execute("set synchronous_commit = local; set statement_timeout = 0")
            .await
            .map_err(RelayError::sql("setting up the session"))?;
        let server = preflight::run(&client, self.config, self.router).await?;
        let checkpoints = CheckpointStore::new(self.sql(&client), self.config);
        // The slot first: it follows the checkpoint, so read in this order it
        // can only be ahead if somebody else moved it.
        let slot = slot::inspect(&client, &self.config.slot).await?;
        let checkpoint = checkpoints.read().await?;
        if let Some(slot) = &slot {
            slot::check(slot, self.config, self.database.dbname())?;
        }
        let mut found = Found {
            client,
            checkpoints,
            checkpoint: self.first_checkpoint(&server, Lsn::ZERO, InitialState::Creating),
            new_slot: None,
        };
        match (checkpoint, slot) {
            (Some(checkpoint), slot) if checkpoint.initial == InitialState::Creating => {
                // Our own slot, whose first moments nobody noted.
                self.same_history(&checkpoint, &server)?;
                self.alone(&found.client).await?;
                found.checkpoints.take().await?;
                if slot.is_some() {
                    slot::drop(&found.client, &self.config.slot).await?;
                }
                found.checkpoint = checkpoint;
                self.create_slot(&mut found, &server).await?;
            }
            (Some(checkpoint), Some(slot)) => {
                self.same_history(&checkpoint, &server)?;
                self.not_ahead(&checkpoint, slot.confirmed)?;
                if matches!(checkpoint.initial, InitialState::Publish { .. }) {
                    self.alone(&found.client).await?;
                    found.checkpoints.take().await?;
                }
                found.checkpoint = checkpoint;
            }
            (Some(checkpoint), None) => return Err(self.slot_gone(&checkpoint)),
            (None, Some(slot)) => {
                let confirmed = slot.confirmed.unwrap_or_default();
                found.checkpoint = self.first_checkpoint(&server, confirmed, InitialState::Done);
                found.checkpoints.create(&found.checkpoint).await?;
                tracing::info!(slot = self.config.slot, %confirmed, "taking over an existing slot");
            }
            (None, None) => {
                self.may_create(&found.client).await?;
                self.alone(&found.client).await?;
                found.checkpoints.create(&found.checkpoint).await?;
                self.create_slot(&mut found, &server).await?;
            }
        }
        Ok(found)
    }

    /// Before there is a slot to hold, a lock keeps a second relay from the
    /// first start. It goes with the session.
    async fn alone(&self, client: &Client) -> Result<(), RelayError> {
        let lock = "select pg_try_advisory_lock(hashtext('walpost first start'), hashtext($1))";
        let row = client
            .query_typed_one(lock, &[(&self.config.pipeline, Type::TEXT)])
            .await
            .map_err(RelayError::sql("locking the first start"))?;
        if row.get(0) {
            return Ok(());
        }
        Err(RelayError::Source(SourceError::SlotInUse {
            slot: self.config.slot.clone(),
            detail: "another relay makes the first start".to_owned(),
        }))
    }

    fn first_checkpoint(
        &self,
        server: &Server,
        confirmed: Lsn,
        initial: InitialState,
    ) -> Checkpoint {
        let random = uuid::Uuid::new_v4().as_u64_pair().0;
        Checkpoint {
            generation: Generation::from(random as u32),
            system_id: server.system_id.clone(),
            slot: self.config.slot.clone(),
            confirmed,
            initial,
        }
    }

    async fn may_create(&self, client: &Client) -> Result<(), RelayError> {
        let name = &self.config.slot;
        if !self.config.create_slot {
            return Err(RelayError::prerequisite(
                format!("slot {name:?} does not exist"),
                "set create_slot = true, or create it with \
                 select pg_create_logical_replication_slot('…', 'pgoutput')",
            ));
        }
        if self.config.initial.is_some() {
            return Ok(());
        }
        match preflight::first_table_with_rows(client, self.config).await? {
            None => Ok(()),
            Some(table) => Err(RelayError::prerequisite(
                format!("table {table} holds rows that no slot has seen"),
                "say what to do with them: initial = \"publish\" publishes them first, \
                 initial = \"skip\" leaves them",
            )),
        }
    }

    async fn create_slot(&self, found: &mut Found, server: &Server) -> Result<(), RelayError> {
        let new = slot::create(self.database, &found.client, self.config, server.version).await?;
        let reader = self.database.connect().await?;
        let before = preflight::snapshot(&reader, self.config, &new.snapshot).await?;
        // Without a choice the table was empty when we looked: what it holds
        // now was committed before the slot could see it.
        let initial = match self.config.initial {
            Some(Initial::Skip) => InitialState::Done,
            None if !before.has_rows => InitialState::Done,
            Some(Initial::Publish) | None => InitialState::Publish { boundary: before.boundary },
        };
        found.checkpoints.set_initial(&initial, new.consistent).await?;
        tracing::info!(slot = self.config.slot, position = %new.consistent, "slot created");
        found.checkpoint.confirmed = new.consistent;
        found.checkpoint.initial = initial;
        found.new_slot = Some(new);
        Ok(())
    }

    /// Positions of another cluster or slot mean nothing here.
    fn same_history(&self, checkpoint: &Checkpoint, server: &Server) -> Result<(), RelayError> {
        let remedy = format!(
            "make sure which server this is; to start afresh, delete the pipeline's row in \
             {}.checkpoint",
            self.config.schema
        );
        if checkpoint.system_id != server.system_id {
            return Err(RelayError::prerequisite(
                format!(
                    "pipeline {:?} was started on cluster {}, this is cluster {}",
                    self.config.pipeline, checkpoint.system_id, server.system_id
                ),
                remedy,
            ));
        }
        if checkpoint.slot != self.config.slot {
            return Err(RelayError::prerequisite(
                format!(
                    "pipeline {:?} was started on slot {:?}, the configuration names {:?}",
                    self.config.pipeline, checkpoint.slot, self.config.slot
                ),
                remedy,
            ));
        }
        Ok(())
    }

    /// The slot follows committed checkpoints, so one that is ahead was moved
    /// or created anew by somebody else.
    fn not_ahead(&self, checkpoint: &Checkpoint, slot: Option<Lsn>) -> Result<(), RelayError> {
        let slot = slot.unwrap_or_default();
        if slot <= checkpoint.confirmed {
            return Ok(());
        }
        Err(RelayError::prerequisite(
            format!(
                "slot {:?} stands at {slot}, ahead of {} up to which pipeline {:?} has published: \
                 somebody advanced it or created it anew, and events in between may be missing",
                self.config.slot, checkpoint.confirmed, self.config.pipeline
            ),
            format!(
                "publish what is missing from the outbox table, then delete the pipeline's row in \
                 {}.checkpoint to accept the slot as it is",
                self.config.schema
            ),
        ))
    }

    fn slot_gone(&self, checkpoint: &Checkpoint) -> RelayError {
        RelayError::prerequisite(
            format!(
                "slot {:?} is gone; pipeline {:?} had published up to {}",
                self.config.slot, self.config.pipeline, checkpoint.confirmed
            ),
            format!(
                "publish what was committed since from the outbox table, then delete the \
                 pipeline's row in {}.checkpoint and start with initial = \"skip\"; with \
                 initial = \"publish\" the whole table is published again",
                self.config.schema
            ),
        )
    }

    /// Publishes the rows that were there before the slot.
    async fn load<K: Sink>(
        &self,
        found: &mut Found,
        boundary: &str,
        stop: watch::Receiver<bool>,
        connect_sink: &mut impl AsyncFnMut() -> Result<K, RelayError>,
    ) -> Result<Ended, RelayError> {
        self.status.phase(Phase::Loading);
        let position = found.checkpoint.confirmed;
        tracing::info!(%position, "publishing the rows that were there before the slot");
        let boundary = match &found.new_slot {
            Some(new) => Boundary::Exported(&new.snapshot),
            None => Boundary::Stored(boundary),
        };
        let source = SnapshotSource::open(self.database, self.config, boundary, position).await?;
        let pipeline = self.pipeline(found, source, connect_sink().await?, Lsn::ZERO).await?;
        let ended = pipeline.run(stop, Some(position)).await?;
        if ended == Ended::Reached {
            found.checkpoints.set_initial(&InitialState::Done, position).await?;
            found.checkpoint.initial = InitialState::Done;
        }
        Ok(ended)
    }

    async fn stream<S: Source, K: Sink>(
        &self,
        mut found: Found,
        source: S,
        stop: watch::Receiver<bool>,
        mut connect_sink: impl AsyncFnMut() -> Result<K, RelayError>,
    ) -> Result<Ended, RelayError> {
        // The slot is ours: only now the checkpoint is, and what it says counts.
        let taken = found.checkpoints.take().await?;
        let before = found.checkpoint.confirmed;
        if taken.as_ref().is_none_or(|taken| taken.confirmed != before) {
            return Err(RelayError::TakenOver { pipeline: self.config.pipeline.clone() });
        }
        found.checkpoint = taken.expect("just compared");
        let confirmed = found.checkpoint.confirmed;
        let pipeline = self.pipeline(&found, source, connect_sink().await?, confirmed).await?;
        tracing::info!(slot = self.config.slot, position = %confirmed, "streaming");
        self.status.phase(Phase::Streaming);
        pipeline.run(stop, None).await
    }

    async fn pipeline<S: Source, K: Sink>(
        &self,
        found: &Found,
        source: S,
        sink: K,
        confirmed: Lsn,
    ) -> Result<Pipeline<S, K>, RelayError> {
        let generation = found.checkpoint.generation;
        let router = Router::new(self.router.clone())
            .map_err(|error| RelayError::Config(crate::convert::describe(&error)))?;
        let parked = Parked::load(
            self.sql(&found.client),
            self.config,
            generation,
            found.checkpoint.confirmed,
            self.rejected.clone(),
        )
        .await?;
        Ok(Pipeline {
            source,
            sink,
            converter: Converter::new(router, *self.encoding, self.config),
            headers: OwnHeaders::new(self.config, generation),
            parked,
            checkpoints: found.checkpoints.clone(),
            config: self.config.clone(),
            status: self.status.clone(),
            metrics: self.metrics.clone(),
            progress: Progress::new(self.config, confirmed),
        })
    }

    fn sql(&self, client: &Arc<Client>) -> Sql {
        Sql::new(client.clone(), Duration::from_millis(self.config.statement_timeout_ms))
    }

    fn stream_start(&self, position: Lsn) -> StreamStart {
        StreamStart {
            slot: self.config.slot.clone(),
            publications: vec![self.config.publication.clone()],
            position,
            messages: !self.config.message_prefixes.is_empty(),
            max_event_bytes: self.config.max_event_bytes,
            wal_sender_timeout_ms: self.config.wal_sender_timeout_ms,
        }
    }
}

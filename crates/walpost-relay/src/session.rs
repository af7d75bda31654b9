mod ending;
mod first_start;
mod loading;
mod look;

use std::{collections::HashSet, convert::Infallible};

use tokio::sync::watch;
use walpost_event::Lsn;
use walpost_postgres::Database;
use walpost_router::Router;

pub(crate) use self::look::refusals;
#[cfg(not(feature = "pgwire"))]
use crate::config::NO_PGWIRE;
#[cfg(feature = "pgwire")]
use crate::wal::PgwireSource;
use crate::{
    asking::Asker,
    check::advice,
    checkpoint::{Checkpoint, CheckpointStore, InitialState},
    config::{RelayConfig, SourceKind, TableName},
    convert::{Converter, Moves},
    encoding::EventEncoding,
    error::{RelayError, SourceError},
    headers::OwnHeaders,
    history,
    id_space::IdSpaces,
    metrics::PipelineMetrics,
    parked::{OutboxRows, Parked, Sending},
    pipeline::{Ended, Pipeline, Progress},
    policy::Carried,
    proven::Proofs,
    published::{Ours, Wanted},
    recovery::replace,
    resume::{self, Resuming},
    sink::Sink,
    source::Source,
    sql::Sql,
    start::SlotFate,
    status::{Phase, StartStep, StatusReporter},
    wal::{
        ReplicationClient, ServerIdentity, StreamStart, WalSource,
        preflight::Server,
        slot::{self, NewSlot, Slot},
        snapshot::load_position,
    },
};

/// One life of the relay between two errors: checks, the slot, the checkpoint,
/// then the pipeline.
pub(crate) struct Session<'a> {
    pub(crate) database: &'a Database,
    pub(crate) config: &'a RelayConfig,
    pub(crate) router: &'a Router,
    pub(crate) encoding: &'a EventEncoding,
    pub(crate) status: &'a StatusReporter,
    pub(crate) metrics: &'a PipelineMetrics,
    /// From the last session, and to the next.
    pub(crate) carried: &'a mut Carried,
}

/// What a session found at its start.
pub(crate) struct Found {
    /// The one host that was found.
    pub(crate) database: Database,
    pub(crate) sql: Sql,
    pub(crate) server: Server,
    /// The outbox tables by their object ids.
    pub(crate) tables: Vec<(u32, TableName)>,
    /// Those of them that are partitioned, or partitions, by their object ids.
    pub(crate) partitioned: HashSet<u32>,
    /// The stream brings deletes.
    pub(crate) has_deletes: bool,
    /// The server on both connections.
    pub(crate) identity: ServerIdentity,
    pub(crate) checkpoints: CheckpointStore,
    pub(crate) checkpoint: Checkpoint,
    pub(crate) spaces: IdSpaces,
    /// From here on what is read back does not count.
    pub(crate) left_at: Option<Lsn>,
    /// Whether the checkpoint has its row.
    pub(crate) stored: bool,
    pub(crate) new_slot: Option<NewSlot>,
    /// The sink of this session is connected already.
    pub(crate) has_sink: bool,
}

/// The slot that a session found, and what becomes of it.
struct There {
    slot: Option<Slot>,
    fate: SlotFate,
}

impl Found {
    /// While the rows are published that a lost slot has not brought: the
    /// snapshot that sees all others.
    fn recovering(&self) -> Option<&str> {
        match self.checkpoint.initial {
            InitialState::Recover { .. } => {
                self.checkpoint.proven.as_ref().map(|pair| pair.snapshot.as_str())
            }
            _ => None,
        }
    }

    /// What to read back before anything above `confirmed` is sent; a load is
    /// below every position.
    fn resuming<'a>(
        &'a self,
        confirmed: Lsn,
        sending: &'a [Sending],
        config: &RelayConfig,
    ) -> Resuming<'a> {
        let generation = self.checkpoint.generation;
        let wanted = match confirmed {
            Lsn::ZERO => match self.checkpoint.initial {
                InitialState::Recover { loss, .. } => {
                    replace::wanted(&self.checkpoint, loss, self.left_at)
                }
                _ => {
                    let commit_lsn = load_position(self.checkpoint.confirmed);
                    Wanted::Load { generation, commit_lsn }
                }
            },
            confirmed => Wanted::Stream { generation, confirmed, left_at: self.left_at },
        };
        let (checkpoint, checkpoints) = (&self.checkpoint, &self.checkpoints);
        let ours = Ours::of(self.spaces.clone(), config);
        Resuming { checkpoint, checkpoints, wanted, ours, sending }
    }
}

impl Session<'_> {
    /// Runs until told to stop, or until an error.
    pub(crate) async fn run<K: Sink>(
        mut self,
        stop: watch::Receiver<bool>,
        mut connect_sink: impl AsyncFnMut() -> Result<K, RelayError>,
    ) -> Result<Ended<Infallible>, RelayError> {
        self.status.starting();
        if self.is_over().await? {
            return Ok(Ended::Stopped);
        }
        let (mut found, there, mut replication) = self.look().await?;
        let mut early = self.sink_before_slot(&mut found, &there, &mut connect_sink).await?;
        let mut connect_sink = async || match early.take() {
            Some(sink) => Ok(sink),
            None => connect_sink().await,
        };
        self.make(&mut found, there, &mut replication).await?;
        let is_first = found.checkpoint.initial != InitialState::Done || found.new_slot.is_some();
        if let InitialState::Publish { boundary } | InitialState::Recover { boundary, .. } =
            found.checkpoint.initial.clone()
        {
            match self.load(&mut found, &boundary, stop.clone(), &mut connect_sink).await? {
                Ended::Reached((), _) => {}
                Ended::Stopped => return Ok(Ended::Stopped),
                Ended::Rejected => return Ok(Ended::Rejected),
            }
        }
        if !self.config.snapshot.stream {
            drop(replication);
            return self.end_without_stream(&found, is_first).await;
        }
        let start = self.stream_start(&found);
        match self.config.source {
            SourceKind::Native => {
                // Whoever looks at the slot knows it before it is taken.
                let own = replication.backend_pid().await?;
                self.status.update(|status| status.own_walsender = Some(own));
                let mut source = WalSource::start(replication, &start).await?;
                self.hold(&mut found, source.backend_pid(), &mut source).await?;
                self.stream(&found, source, stop, connect_sink).await
            }
            #[cfg(not(feature = "pgwire"))]
            SourceKind::Pgwire => Err(RelayError::Config(NO_PGWIRE.to_owned())),
            #[cfg(feature = "pgwire")]
            SourceKind::Pgwire => {
                drop(replication);
                let mut source = PgwireSource::start(&found.database, &start).await?;
                self.hold(&mut found, source.backend_pid(), &mut source).await?;
                self.stream(&found, source, stop, connect_sink).await
            }
        }
    }

    /// Checks, then finds or makes slot and checkpoint.
    pub(crate) async fn find(&self) -> Result<(Found, ReplicationClient), RelayError> {
        let (mut found, there, mut replication) = self.look().await?;
        self.make(&mut found, there, &mut replication).await?;
        Ok((found, replication))
    }

    /// Checks, and finds what there is.
    async fn look(&self) -> Result<(Found, There, ReplicationClient), RelayError> {
        look::look(self.database, self.config, self.router.config(), Some(self.status)).await
    }

    /// A session on the first host that takes it, and that host alone.
    pub(crate) async fn connect_to(
        &self,
        database: &Database,
    ) -> Result<(Sql, Database), RelayError> {
        look::connect_to(database, self.config).await
    }

    /// The slot is held by the process `holder`, and nobody moves it any more:
    /// only now what it says counts, and the checkpoint is ours. Nothing was
    /// confirmed or sent yet.
    pub(crate) async fn hold(
        &self,
        found: &mut Found,
        holder: i32,
        source: &mut impl Source,
    ) -> Result<(), RelayError> {
        let held = self.held_by(holder, found);
        resume::prepare(source, self.config, "taking the checkpoint over", held).await
    }

    async fn held_by(&self, holder: i32, found: &mut Found) -> Result<(), RelayError> {
        let slot = match slot::inspect(&found.sql, &self.config.slot).await? {
            Some(slot) if slot.active_pid == Some(holder) => slot,
            _ => {
                let name = &self.config.slot;
                return Err(RelayError::Source(SourceError::OtherServer {
                    expected: "one where it does not".to_owned(),
                    found: format!("a server whose process {holder} holds slot {name:?}"),
                }));
            }
        };
        slot::check(&slot, self.config, self.database.dbname())?;
        self.status.update(|status| {
            (status.walsender, status.own_walsender) = (Some(holder), Some(holder));
        });
        self.own(found, slot.confirmed.unwrap_or_default()).await?;
        // Beside the stream, which no diagnosis keeps from starting.
        let (database, config) = (found.database.clone(), self.config.clone());
        let (id_column, took_messages) =
            (self.router.config().event_id.clone(), found.checkpoint.has_messages);
        tokio::spawn(async move {
            advice::warn_of(&database, &config, &id_column, took_messages).await;
        });
        Ok(())
    }

    /// The slot is held, and stands at `confirmed`: makes the checkpoint ours.
    pub(crate) async fn own(&self, found: &mut Found, confirmed: Lsn) -> Result<(), RelayError> {
        if !found.stored {
            // What was decided about rows was decided for where it stood.
            if confirmed != found.checkpoint.confirmed {
                return Err(RelayError::TakenOver { pipeline: self.config.pipeline.clone() });
            }
            let system_id = &found.server.system_id;
            slot::owned_by_no_other(&found.sql, self.config, system_id).await?;
            found.checkpoints.create(&found.checkpoint).await?;
            tracing::warn!(
                slot = self.config.slot,
                %confirmed,
                "the first start begins where an existing slot stands; what somebody else, such \
                 as Debezium, has published behind that comes again"
            );
            return Ok(());
        }
        // The holder before us may have moved both.
        let now = found.checkpoints.read().await?;
        self.as_before(&found.checkpoint, now.as_ref())?;
        let relations = found.checkpoint.relations.as_ref();
        if relations.is_some() && now.as_ref().and_then(|now| now.relations.as_ref()) != relations {
            return Err(RelayError::TakenOver { pipeline: self.config.pipeline.clone() });
        }
        history::not_ahead(&found.checkpoint, self.config, confirmed)?;
        found.checkpoint.clean = now.is_some_and(|now| now.clean);
        self.take(found).await
    }

    /// Makes the row ours. Whoever had it until now may have moved it; whether
    /// it was left in order is what we know from before.
    pub(crate) async fn take(&self, found: &mut Found) -> Result<(), RelayError> {
        let taken = found.checkpoints.take(found.identity.timeline).await?;
        self.as_before(&found.checkpoint, taken.as_ref())?;
        let clean = found.checkpoint.clean;
        found.checkpoint = Checkpoint { clean, ..taken.expect("just compared") };
        Ok(())
    }

    fn as_before(&self, before: &Checkpoint, now: Option<&Checkpoint>) -> Result<(), RelayError> {
        let same = |now: &Checkpoint| {
            now.generation == before.generation
                && now.confirmed == before.confirmed
                && now.initial == before.initial
                && now.feed == before.feed
        };
        if now.is_some_and(same) {
            return Ok(());
        }
        Err(RelayError::TakenOver { pipeline: self.config.pipeline.clone() })
    }

    pub(crate) fn working(&self, phase: Phase, confirmed: Lsn) {
        if self.status.working(phase, confirmed) {
            tracing::info!("the other relay is gone; this one has taken over");
        }
    }

    pub(crate) async fn stream<S: Source, K: Sink>(
        &mut self,
        found: &Found,
        source: S,
        stop: watch::Receiver<bool>,
        mut connect_sink: impl AsyncFnMut() -> Result<K, RelayError>,
    ) -> Result<Ended<Infallible>, RelayError> {
        let confirmed = found.checkpoint.confirmed;
        let pipeline = self.pipeline(found, source, confirmed, &mut connect_sink).await?;
        tracing::info!(slot = self.config.slot, position = %confirmed, "streaming");
        self.working(Phase::Streaming, confirmed);
        let (ended, carried) = pipeline.run(stop, |_| None).await;
        *self.carried = carried;
        if self.config.drop_slot_on_stop && matches!(ended, Ok(Ended::Stopped)) {
            self.drop_slot(found).await?;
        }
        ended
    }

    pub(crate) async fn pipeline<S: Source, K: Sink>(
        &mut self,
        found: &Found,
        mut source: S,
        confirmed: Lsn,
        connect_sink: &mut impl AsyncFnMut() -> Result<K, RelayError>,
    ) -> Result<Pipeline<S, K>, RelayError> {
        let generation = found.checkpoint.generation;
        let (sql, position) = (found.sql.clone(), found.checkpoint.confirmed);
        let outbox = &self.router.config().event_id;
        let outbox = OutboxRows::new(&found.database, self.config, outbox);
        let store = &found.checkpoints;
        let parked = Parked::load(sql, self.config, generation, position, store, outbox);
        let mut parked =
            resume::prepare(&mut source, self.config, "reading what is parked", parked).await?;
        let (before, store) = (&found.checkpoint, &found.checkpoints);
        self.status.step(StartStep::Sink);
        let mut sink = resume::connect(&mut source, connect_sink, before, store).await?;
        self.status.step(StartStep::Work);
        let from = found.resuming(confirmed, parked.sending(), self.config);
        let (published, until, retried) =
            resume::read_back(&mut source, &mut sink, from, self.config).await?;
        parked.settle_sending(&retried).await?;
        if let Some(proven) = found.recovering().filter(|_| confirmed == Lsn::ZERO) {
            let id = &self.router.config().event_id;
            parked.recover(self.config, proven, id).await?;
        }
        let Checkpoint { proven, pending, taken_by, .. } = found.checkpoint.clone();
        let proofs = match confirmed {
            Lsn::ZERO => Proofs::loading(proven),
            _ => Proofs::streaming(proven, pending, taken_by),
        };
        let moves = match confirmed {
            // Rows that are read move nowhere, and each was inserted by some transaction.
            Lsn::ZERO => Moves::default(),
            _ => Moves::new(found.partitioned.clone(), found.has_deletes),
        };
        Ok(Pipeline {
            source,
            sink,
            converter: Converter::new(self.router.clone(), self.encoding, self.config)
                .with_spaces(found.spaces.clone())
                .with_moves(moves),
            asker: Asker::new(found.sql.clone(), self.encoding)?,
            headers: OwnHeaders::new(self.config, generation),
            parked,
            checkpoints: found.checkpoints.clone(),
            config: self.config.clone(),
            status: self.status.clone(),
            metrics: self.metrics.clone(),
            progress: Progress::new(confirmed, until, proofs),
            carried: std::mem::take(self.carried),
            published,
        })
    }

    pub(crate) fn stream_start(&self, found: &Found) -> StreamStart {
        StreamStart {
            server: found.identity.clone(),
            slot: self.config.slot.clone(),
            publications: vec![self.config.publication.clone()],
            position: found.checkpoint.confirmed,
            // The boundary of a move is one.
            messages: true,
            max_event_bytes: self.config.max_event_bytes,
            wal_sender_timeout_ms: self.config.wal_sender_timeout_ms,
            origin: self.config.stream_origin,
            confirms: self.config.confirm_slot,
            base_types: self.config.base_types,
            tables: found.tables.clone(),
        }
    }
}

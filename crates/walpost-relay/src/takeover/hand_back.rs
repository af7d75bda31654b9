//! A pipeline gives its slot to another program.

use std::sync::{Arc, atomic::AtomicBool};

use tokio::{sync::watch, time::Instant};
use tokio_postgres::types::{PgLsn, Type};
use walpost_event::{Lsn, error_chain};
use walpost_postgres::Database;
use walpost_router::{Router, RouterConfig};

use super::{Desk, HOLDER_WAIT, LOOK_AGAIN, in_use, open};
use crate::{
    checkpoint::InitialState,
    config::{LostSlot, RelayConfig, SourceKind},
    encoding::EventEncoding,
    error::{RelayError, SourceError},
    filters::Prefixes,
    metrics::PipelineMetrics,
    pipeline::Ended,
    policy::Carried,
    session::Session,
    sink::Sink,
    sql::Sql,
    status::{Phase, StatusReporter},
    switch::Until,
    wal::{WalSource, quote_identifier, slot},
};

/// What the pipeline gives away.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HandedBack {
    /// Where the slot stands.
    pub slot_confirmed: Lsn,
    /// Everything below is published, or parked.
    pub published: Lsn,
    /// Events that are parked, and stay so: nobody else publishes them.
    pub parked_events: u64,
    /// What stands in the way, each with what to do.
    pub obstacles: Vec<(String, String)>,
}

/// Says what the pipeline would give away; changes nothing.
///
/// # Errors
/// As [`HandBack::publish_rest`].
pub async fn plan_hand_back(
    database: &Database,
    config: &RelayConfig,
    leave_parked: bool,
) -> Result<HandedBack, RelayError> {
    let desk = open(database, config).await?;
    if let Some(pid) = desk.slot.active_pid {
        return Err(in_use(&config.slot, &format!("process {pid} reads it")));
    }
    told(&desk, config, leave_parked).await
}

async fn told(
    desk: &Desk,
    config: &RelayConfig,
    leave_parked: bool,
) -> Result<HandedBack, RelayError> {
    let Some(row) = &desk.row else {
        return Err(RelayError::prerequisite(
            format!("pipeline {:?} has never run: it has no checkpoint", config.pipeline),
            "check pipeline.name and pipeline.schema",
        ));
    };
    let mut obstacles = Vec::new();
    if row.initial != InitialState::Done {
        obstacles.push((
            format!("pipeline {:?} has a first start or a recovery to finish", config.pipeline),
            "let `walpost run` finish it".to_owned(),
        ));
    }
    let parked_events = parked(&desk.sql, config).await?;
    if parked_events > 0 && !leave_parked {
        obstacles.push((
            format!("{parked_events} events of pipeline {:?} are parked", config.pipeline),
            "see them with `walpost parked list`, have them sent on with `walpost parked retry` \
             while `walpost run` runs, or discard them; --leave-parked leaves them where they are"
                .to_owned(),
        ));
    }
    let (slot_confirmed, published) = (desk.slot.confirmed.unwrap_or_default(), row.confirmed);
    if slot_confirmed > published {
        obstacles.push((
            format!(
                "slot {:?} stands at {slot_confirmed}, and the pipeline has published up to \
                 {published}: another program has read on",
                config.slot
            ),
            "there is nothing to hand over: start the connector with the offset that it has"
                .to_owned(),
        ));
    }
    Ok(HandedBack { slot_confirmed, published, parked_events, obstacles })
}

async fn parked(sql: &Sql, config: &RelayConfig) -> Result<u64, RelayError> {
    let query = format!(
        "select count(*) from {}.parked where pipeline = $1 and state in ('open', 'sending')",
        quote_identifier(&config.schema)
    );
    let pipeline = [(&config.pipeline as _, Type::TEXT)];
    let count: i64 = sql.one("counting parked events", &query, &pipeline).await?.get(0);
    Ok(count.unsigned_abs())
}

/// A pipeline that gives its slot away, while no relay of it runs.
pub struct HandBack {
    config: RelayConfig,
    router: Router,
    encoding: EventEncoding,
    leave_parked: bool,
    desk: Desk,
}

impl std::fmt::Debug for HandBack {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "HandBack({})", self.config.pipeline)
    }
}

impl HandBack {
    /// Opens a session that keeps relays from their first start, and others from
    /// handing over.
    ///
    /// # Errors
    /// [`RelayError::Config`] naming the setting, [`RelayError::Prerequisite`] where
    /// slot, publication or tables are not as they have to be; else what failed.
    pub async fn open(
        database: &Database,
        mut config: RelayConfig,
        router: RouterConfig,
        encoding: impl Into<EventEncoding>,
        leave_parked: bool,
    ) -> Result<Self, RelayError> {
        let desk = open(database, &config).await?;
        config.source = SourceKind::Native;
        config.on_lost_slot = LostSlot::Refuse;
        let encoding = encoding.into();
        encoding.check()?;
        encoding.fit(&mut config);
        let router =
            Router::new(router).map_err(|error| RelayError::Config(error_chain(&error)))?;
        Ok(Self { config, router, encoding, leave_parked, desk })
    }

    /// Publishes what was committed until now, and nothing above. What the pipeline
    /// has published before is not sent again, however it has ended.
    ///
    /// # Errors
    /// [`RelayError::Prerequisite`] while anybody streams from the slot; else what
    /// failed. The pipeline can go on from where this came to.
    pub async fn publish_rest<K: Sink>(
        &mut self,
        mut connect_sink: impl AsyncFnMut() -> Result<K, RelayError>,
    ) -> Result<HandedBack, RelayError> {
        let before = told(&self.desk, &self.config, self.leave_parked).await?;
        if !before.obstacles.is_empty() {
            return Ok(before);
        }
        let (status, _receiver) = StatusReporter::new();
        let metrics = PipelineMetrics::new(&self.config.pipeline, K::NAME);
        let mut carried = Carried::default();
        let deadline = Instant::now() + HOLDER_WAIT;
        let end = loop {
            let session = Session {
                database: &self.desk.database,
                config: &self.config,
                router: &self.router,
                encoding: &self.encoding,
                status: &status,
                metrics: &metrics,
                carried: &mut carried,
            };
            match session.publish_up_to_now(&mut connect_sink).await {
                Ok(Some(end)) => break end,
                // The sink refused events: the next session knows which.
                Ok(None) => {}
                Err(RelayError::Source(SourceError::SlotInUse { slot, detail })) => {
                    if Instant::now() >= deadline {
                        return Err(in_use(&slot, &detail));
                    }
                    tokio::time::sleep(LOOK_AGAIN).await;
                }
                Err(error) => return Err(error),
            }
        };
        self.desk.row = self.desk.checkpoints.read().await?;
        let told = told(&self.desk, &self.config, self.leave_parked).await?;
        Ok(HandedBack { published: end.max(told.published), ..told })
    }

    /// Moves the slot to where everything is published, so that who reads it
    /// without an offset of its own goes on there.
    ///
    /// # Errors
    /// What failed; it can be repeated.
    pub async fn move_slot(&self, to: Lsn) -> Result<(), RelayError> {
        let deadline = Instant::now() + HOLDER_WAIT;
        let advance = "select pg_replication_slot_advance($1, $2)";
        let slow = self.desk.sql.within_ms(self.config.slot_timeout_ms);
        loop {
            let slot = slot::inspect(&self.desk.sql, &self.config.slot).await?;
            let slot = slot.ok_or_else(|| super::no_slot(&self.config))?;
            if slot.confirmed.unwrap_or_default() >= to {
                return Ok(());
            }
            match slot.active_pid {
                Some(_) if Instant::now() < deadline => tokio::time::sleep(LOOK_AGAIN).await,
                Some(pid) => {
                    return Err(in_use(&self.config.slot, &format!("process {pid} reads it")));
                }
                None => break,
            }
        }
        let lsn = PgLsn::from(u64::from(to));
        let parameters = [(&self.config.slot as _, Type::NAME), (&lsn as _, Type::PG_LSN)];
        slow.query("moving the slot", advance, &parameters).await.map(drop)
    }
}

impl Session<'_> {
    /// Publishes what was committed before the slot was taken. `None` when the sink
    /// refused events.
    async fn publish_up_to_now<K: Sink>(
        mut self,
        connect_sink: &mut impl AsyncFnMut() -> Result<K, RelayError>,
    ) -> Result<Option<Lsn>, RelayError> {
        self.status.starting();
        let (mut found, replication) = self.find().await?;
        let mut source = WalSource::start(replication, &self.stream_start(&found)).await?;
        self.hold(&mut found, source.backend_pid(), &mut source).await?;
        let end = found.checkpoints.flushed().await?;
        let confirmed = found.checkpoint.confirmed;
        let source = Until::new(source, end, Prefixes::default(), Arc::new(AtomicBool::new(false)));
        let pipeline = self.pipeline(&found, source, confirmed, connect_sink).await?;
        self.working(Phase::Streaming, confirmed);
        let (_keep, stop) = watch::channel(false);
        let (ended, carried) = pipeline.run(stop, |done| (done >= end).then_some(())).await;
        *self.carried = carried;
        let Ended::Reached((), floors) = ended? else { return Ok(None) };
        found.checkpoints.set_initial(&InitialState::Done, end, Some(&floors), None).await?;
        found.checkpoints.set_clean().await?;
        Ok(Some(end))
    }
}

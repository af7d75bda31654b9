//! Rows of an outbox table, published once more on purpose.
//!
//! Only rows that were published a first time: a snapshot is taken, then the
//! WAL position, and once the relay has confirmed that position every row that
//! the snapshot sees is published or parked; what is parked is left out. Records
//! carry the header [`REPLAY_HEADER`](crate::REPLAY_HEADER), and so hide no event
//! from a relay that reads its topics back.

mod audit;
mod filter;
mod pace;
mod selection;
mod sending;

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
    time::Instant,
};
use tokio_postgres::{Client, types::PgLsn};
use walpost_event::{Lsn, Relation, error_chain};
use walpost_postgres::Database;
use walpost_router::{Router, RouterConfig};

use self::{
    audit::{Audit, Dealt, Kept},
    filter::TIME_COLUMN,
    pace::Pace,
    selection::{Selection, has_what_it_takes, of_the_filter},
    sending::{Sending, State},
};
pub use self::{
    audit::{ReplayRow, ReplayState},
    filter::ReplayFilter,
    selection::{ReplaySurvey, ReplayType},
    sending::{ReplayProgress, Replayed, Unsendable},
};
use crate::{
    asking::Asker,
    checkpoint::{CheckpointStore, InitialState},
    config::{RelayConfig, TableName},
    convert::Converter,
    encoding::EventEncoding,
    error::RelayError,
    headers::ReplayHeader,
    id_space::IdSpaceTable,
    sink::Sink,
    sql::Sql,
    status::StatusReporter,
    wal::{
        Load, Loader,
        charset::Charset,
        quote_literal, row_filter,
        snapshot::{SESSION_SETTINGS, describe},
    },
};

/// Between two looks at the checkpoint.
const LOOK_EVERY: Duration = Duration::from_millis(100);
const CURSOR: &str = "walpost_replay";

/// Publishes rows of a pipeline's outbox tables once more.
pub struct Replayer {
    reader: Arc<Client>,
    charset: Charset,
    /// Statements that may have to read a whole table.
    bulk: Sql,
    audit: Audit,
    checkpoints: CheckpointStore,
    config: RelayConfig,
    router: Router,
    encoding: EventEncoding,
}

impl std::fmt::Debug for Replayer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Replayer({})", self.config.pipeline)
    }
}

/// What a filter has found.
#[derive(Debug)]
pub struct ReplayFound {
    /// The counts.
    pub survey: ReplaySurvey,
    table: TableName,
    relation: Relation,
    filter: ReplayFilter,
    boundary: String,
}

/// How what was found is published.
#[derive(Clone, Debug)]
pub struct ReplayOrder {
    /// Another topic than each event's own.
    pub to_topic: Option<String>,
    /// Most events a second, at least 1.
    pub rate_per_s: u32,
    /// Bound on the wait for the relay to have published what was found.
    pub wait: Duration,
    /// User and host, for the audit row.
    pub asked_from: Option<String>,
}

/// A replay that is ready to be sent.
pub struct Replay<K> {
    sending: Sending<K>,
    _loader: JoinSet<()>,
}

impl<K> std::fmt::Debug for Replay<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Replay({})", self.sending.id)
    }
}

impl<K: Sink> Replay<K> {
    /// Its number: that of its row, and what its records say.
    pub fn id(&self) -> i64 {
        self.sending.id
    }

    /// Sends until all is acknowledged, until `stop` is true, or until it fails.
    /// `told` hears about ten times a second how far it is. Dropping it leaves
    /// a replay that can be gone on with.
    pub async fn run(
        self,
        stop: watch::Receiver<bool>,
        mut told: impl FnMut(ReplayProgress) + Send,
    ) -> Replayed {
        self.sending.run(stop, &mut told).await
    }
}

impl Replayer {
    /// Opens two sessions.
    ///
    /// # Errors
    /// [`RelayError`]; among others when the pipeline has never run.
    pub async fn open(
        database: &Database,
        mut config: RelayConfig,
        router: RouterConfig,
        encoding: impl Into<EventEncoding>,
    ) -> Result<Self, RelayError> {
        config.validate().map_err(RelayError::Config)?;
        let encoding = encoding.into();
        encoding.check()?;
        encoding.fit(&mut config);
        let router =
            Router::new(router).map_err(|error| RelayError::Config(error_chain(&error)))?;
        let (client, database) = database.connect_to_one().await?;
        let limit = Duration::from_millis(config.statement_timeout_ms);
        let sql = Sql::new(Arc::new(client), limit);
        let settings = "set statement_timeout = 0; set idle_session_timeout = 0";
        sql.batch("setting up the session", settings).await?;
        let reader = Arc::new(database.connect().await?);
        let bulk = Sql::new(reader.clone(), Duration::from_millis(config.slot_timeout_ms));
        bulk.batch("setting up the session", SESSION_SETTINGS).await?;
        let charset = Charset::find(&bulk, &database).await?;
        let checkpoints = CheckpointStore::new(sql.clone(), &config);
        let audit = Audit::new(sql, &config);
        Ok(Self { reader, charset, bulk, audit, checkpoints, config, router, encoding })
    }

    /// The replays of the pipeline, the newest first.
    ///
    /// # Errors
    /// When the table cannot be read.
    pub async fn list(&self) -> Result<Vec<ReplayRow>, RelayError> {
        self.audit.list().await
    }

    /// Counts what the filter finds in an outbox table, which has to be named
    /// where the pipeline has several. With `window_hours` it also counts what
    /// is older than that. Changes nothing.
    ///
    /// # Errors
    /// [`RelayError::Config`] for a table or a value that cannot be meant,
    /// [`RelayError::Prerequisite`] for a table that lacks a column.
    pub async fn find(
        &self,
        table: Option<&TableName>,
        filter: ReplayFilter,
        window_hours: Option<u64>,
    ) -> Result<ReplayFound, RelayError> {
        let table = self.table(table)?;
        let relation = self.describe(&table).await?;
        let filter = self.resolved(filter, &relation).await?;
        let row = self.bulk.one("taking a snapshot", "select pg_current_snapshot()::text", &[]);
        let boundary: String = row.await?.get(0);
        let mut found =
            ReplayFound { survey: ReplaySurvey::default(), table, relation, filter, boundary };
        let own = self.own(&found.table).await?;
        found.survey = self
            .selection(
                &found.relation,
                &found.table,
                &found.filter,
                &found.boundary,
                own.as_deref(),
            )
            .survey(&self.bulk, window_hours)
            .await?;
        Ok(found)
    }

    /// Notes a replay in its table and waits until all that was found is known
    /// to be published. Nothing is sent yet.
    ///
    /// # Errors
    /// Among others when another replay of the pipeline runs, or when the relay
    /// does not confirm in time.
    pub async fn begin<K: Sink>(
        self,
        found: ReplayFound,
        order: ReplayOrder,
        sink: K,
    ) -> Result<Replay<K>, RelayError> {
        self.audit.lock().await?;
        // Behind the snapshot, and before the row: its commit brings the relay's
        // position past this also where nothing else is written.
        let position = self.position().await?;
        let ReplayFound { survey, table, relation, filter, boundary } = found;
        let mut kept = Kept {
            id: 0,
            table,
            filter,
            to_topic: order.to_topic,
            rate_per_s: order.rate_per_s.max(1),
            boundary,
            selected: survey.events,
            dealt: Dealt::default(),
        };
        kept.id = self.audit.create(&kept, order.asked_from.as_deref()).await?;
        self.prepare(kept, relation, position, order.wait, sink).await
    }

    /// Goes on with a replay that did not come to its end, behind the last row
    /// that is known to be dealt with: up to a second's events come once more.
    ///
    /// # Errors
    /// As of [`begin`](Self::begin), and when there is no such replay.
    pub async fn resume<K: Sink>(
        self,
        id: i64,
        rate_per_s: Option<u32>,
        wait: Duration,
        sink: K,
    ) -> Result<Replay<K>, RelayError> {
        self.audit.lock().await?;
        let position = self.position().await?;
        let mut kept = self.audit.take(id).await?;
        kept.rate_per_s = rate_per_s.unwrap_or(kept.rate_per_s).max(1);
        let relation = self.describe(&kept.table).await?;
        self.prepare(kept, relation, position, wait, sink).await
    }

    async fn prepare<K: Sink>(
        self,
        kept: Kept,
        relation: Relation,
        position: Lsn,
        wait: Duration,
        sink: K,
    ) -> Result<Replay<K>, RelayError> {
        let (id, dealt) = (kept.id, kept.dealt);
        let ready = match self.published_up_to(position, wait).await {
            Ok(()) => self.open_cursor(&kept, &relation).await,
            Err(error) => Err(error),
        };
        if let Err(error) = ready {
            let detail = error_chain(&error);
            self.audit.note(id, dealt, Some((ReplayState::Failed, Some(&detail)))).await?;
            sink.close().await;
            return Err(error);
        }
        let (sender, rows) = mpsc::channel(1);
        let (status, _) = StatusReporter::new();
        let loader = Loader {
            client: self.reader.clone(),
            loaded: sender,
            charset: self.charset,
            status,
            max_event_bytes: self.config.max_event_bytes,
            first_limit: Duration::from_millis(self.config.slot_timeout_ms),
            limit: Duration::from_millis(self.config.statement_timeout_ms),
            rows: 0,
            reported: Instant::now(),
        };
        let spaces = IdSpaceTable::new(&self.config).read(self.checkpoints.sql()).await?;
        let mut task = JoinSet::new();
        let load = Load { relation: Arc::new(relation), cursor: CURSOR.to_owned() };
        task.spawn(async move { loader.run(vec![load]).await });
        let sending = Sending {
            id,
            audit: self.audit.clone(),
            sink,
            converter: Converter::new(self.router.clone(), &self.encoding, &self.config)
                .with_spaces(spaces),
            asker: Asker::new(self.bulk.clone(), &self.encoding)?,
            header: ReplayHeader::new(id),
            to_topic: kept.to_topic.map(Arc::from),
            pace: Pace::new(kept.rate_per_s),
            rows,
            selected: kept.selected,
            dealt,
            ahead: Vec::new(),
            state: State::new(dealt.last_seq),
        };
        Ok(Replay { sending, _loader: task })
    }

    async fn open_cursor(&self, kept: &Kept, relation: &Relation) -> Result<(), RelayError> {
        let own = self.own(&kept.table).await?;
        let selection =
            self.selection(relation, &kept.table, &kept.filter, &kept.boundary, own.as_deref());
        let declare = selection.cursor(CURSOR, kept.dealt.last_seq)?;
        self.bulk.batch("collecting the rows", &declare).await.map_err(of_the_filter)
    }

    fn selection<'a>(
        &'a self,
        relation: &'a Relation,
        table: &'a TableName,
        filter: &'a ReplayFilter,
        boundary: &'a str,
        own: Option<&'a str>,
    ) -> Selection<'a> {
        let (config, router, charset) = (&self.config, self.router.config(), &self.charset);
        Selection { relation, table, config, router, filter, boundary, own, charset }
    }

    /// Rows that another pipeline publishes are replayed by that one.
    async fn own(&self, table: &TableName) -> Result<Option<String>, RelayError> {
        row_filter::condition(&self.bulk, &self.config, table).await
    }

    fn table(&self, named: Option<&TableName>) -> Result<TableName, RelayError> {
        let tables = &self.config.tables;
        let names = || {
            let names: Vec<String> = tables.iter().map(TableName::to_string).collect();
            names.join(", ")
        };
        match (named, tables.as_slice()) {
            (_, []) => Err(RelayError::Config(
                "the pipeline has no outbox table: its events are logical messages, which only \
                 Kafka can replay"
                    .to_owned(),
            )),
            (Some(named), tables) if tables.contains(named) => Ok(named.clone()),
            (Some(named), _) => Err(RelayError::Config(format!(
                "table {named} is no outbox table of the pipeline, which has {}",
                names()
            ))),
            (None, [table]) => Ok(table.clone()),
            (None, _) => Err(RelayError::Config(format!(
                "the pipeline has several outbox tables, {}: name one",
                names()
            ))),
        }
    }

    async fn describe(&self, table: &TableName) -> Result<Relation, RelayError> {
        let relation = describe(&self.bulk, &self.config, table).await?;
        if relation.columns.is_empty() {
            return Err(RelayError::prerequisite(
                format!("there is no table {table}"),
                "run `walpost check`",
            ));
        }
        has_what_it_takes(&relation, self.router.config(), table)?;
        Ok(relation)
    }

    /// The filter with times that mean the same later: `yesterday` does not.
    async fn resolved(
        &self,
        mut filter: ReplayFilter,
        relation: &Relation,
    ) -> Result<ReplayFilter, RelayError> {
        let Some(index) = relation.column_index(TIME_COLUMN) else { return Ok(filter) };
        let oid = relation.columns[index].type_oid;
        for time in [&mut filter.from, &mut filter.until].into_iter().flatten() {
            let name = format!("select format_type({oid}, null)");
            let row = self.bulk.one("reading a type", &name, &[]).await?;
            let text = format!("select ({}::{})::text", quote_literal(time), row.get::<_, &str>(0));
            let row = self.bulk.one("reading a time", &text, &[]).await.map_err(|error| {
                match of_the_filter(error) {
                    RelayError::Config(_) => {
                        RelayError::Config(format!("{time:?} is no time that PostgreSQL reads"))
                    }
                    error => error,
                }
            })?;
            *time = row.get(0);
        }
        Ok(filter)
    }

    async fn position(&self) -> Result<Lsn, RelayError> {
        let text = "select pg_current_wal_insert_lsn()";
        let row = self.bulk.one("reading the WAL position", text, &[]).await?;
        Ok(Lsn::from(u64::from(row.get::<_, PgLsn>(0))))
    }

    /// Waits until everything that was committed below `position` is published
    /// or parked.
    async fn published_up_to(&self, position: Lsn, wait: Duration) -> Result<(), RelayError> {
        let (pipeline, deadline) = (&self.config.pipeline, Instant::now() + wait);
        loop {
            let Some(checkpoint) = self.checkpoints.read().await? else {
                return Err(RelayError::prerequisite(
                    format!("pipeline {pipeline:?} has never run, so nothing was published"),
                    "start it with `walpost run`, or name another by pipeline.name",
                ));
            };
            // While the first rows are loaded, the position is ahead of them.
            if checkpoint.initial == InitialState::Done && checkpoint.confirmed >= position {
                return Ok(());
            }
            if Instant::now() >= deadline {
                return Err(RelayError::prerequisite(
                    format!(
                        "whether the rows were published is not known yet: the relay of pipeline \
                         {pipeline:?} stands at {}, and they are below {position}",
                        checkpoint.confirmed
                    ),
                    "see with `walpost status` whether it runs and follows, or wait longer with \
                     --wait-seconds",
                ));
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}

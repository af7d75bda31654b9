//! All rows of the outbox tables, published once more at each start, as
//! `snapshot.mode = always` asks for.
//!
//! Beside the pipeline: a snapshot is taken once everything that was written
//! before is published, so that no row comes here before its first appearance
//! but those that are committed meanwhile, which the stream brings as well. What
//! is parked is left out. Records carry [`REPLAY_HEADER`](crate::REPLAY_HEADER),
//! and so hide no event from a start that reads its topics back.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
    time::{Instant, sleep, timeout},
};
use tokio_postgres::types::PgLsn;
use walpost_event::{Lsn, Message, RetrySchedule, RowChange, error_chain, jitter};
use walpost_postgres::Database;
use walpost_router::{Router, RouterConfig};

use crate::{
    asking::Asker,
    beside::{self, Complaint},
    config::RelayConfig,
    convert::{Converter, Unmade},
    encoding::EventEncoding,
    error::{RelayError, SourceError},
    headers::ReplayHeader,
    id_space::IdSpaceTable,
    parked::ParkedId,
    sink::Sink,
    snapshot_modes,
    source::SourceItem,
    sql::Sql,
    status::{Phase, PipelineStatus, StatusReporter},
    wal::{
        Loaded, Loader,
        charset::Charset,
        snapshot::{SESSION_SETTINGS, declare_loads},
    },
};

/// Without any news for so long the sink is of no use.
const PATIENCE: Duration = Duration::from_secs(30);
/// After something went wrong: all rows come again, so that this is not often.
const RETRY_FIRST: Duration = Duration::from_secs(5);
const RETRY_LONGEST: Duration = Duration::from_secs(300);
/// Between two looks whether a topic can be used again.
const LOOK_AGAIN: Duration = Duration::from_millis(500);
const ATTEMPT: &str = "publishing the rows of this start";

/// Publishes all rows once more at a start of a pipeline that has
/// [`Snapshot::each_start`](crate::Snapshot::each_start).
///
/// A start that has published the rows for the first time does not do so again.
/// After an error all rows come again, later and later. Rows that the sink takes
/// by no means are left out, and those of a topic that cannot be used for
/// [`missing_topic_timeout_ms`](RelayConfig::missing_topic_timeout_ms).
#[derive(Debug)]
pub struct SnapshotAgain {
    database: Database,
    config: RelayConfig,
    router: Router,
    encoding: EventEncoding,
}

impl SnapshotAgain {
    /// That of a pipeline that asks for it, else `None`. Nothing is connected
    /// yet.
    ///
    /// # Errors
    /// [`RelayError::Config`] for a router that cannot be.
    pub fn new(
        database: &Database,
        config: &RelayConfig,
        router: &RouterConfig,
        encoding: impl Into<EventEncoding>,
    ) -> Result<Option<Self>, RelayError> {
        if !config.snapshot.each_start {
            return Ok(None);
        }
        let router =
            Router::new(router.clone()).map_err(|error| RelayError::Config(error_chain(&error)))?;
        let encoding = encoding.into();
        encoding.check()?;
        let mut config = config.clone();
        encoding.fit(&mut config);
        Ok(Some(Self { database: database.clone(), config, router, encoding }))
    }

    /// Waits until the pipeline of `status` streams, publishes the rows, and
    /// ends; or ends with the pipeline. What goes wrong is logged and tried
    /// again. `connect` gives a sink that is not the pipeline's, and not
    /// transactional under its name.
    pub async fn run<K, F>(
        self,
        mut status: watch::Receiver<PipelineStatus>,
        mut connect: impl FnMut() -> F + Send,
    ) where
        K: Sink,
        F: Future<Output = Result<K, RelayError>> + Send,
    {
        let schedule = RetrySchedule::backoff(RETRY_FIRST, RETRY_LONGEST);
        let mut failures = 0;
        loop {
            let due =
                |status: &PipelineStatus| matches!(status.phase, Phase::Streaming | Phase::Stopped);
            let is_gone = status.wait_for(due).await.is_err();
            let has_loaded = status.borrow().has_loaded;
            if is_gone || has_loaded || is_over(&status.borrow()) {
                return;
            }
            let mut sink = None;
            let over = status.clone();
            let done = tokio::select! {
                done = self.publish(&status, &mut sink, &mut connect) => done,
                () = stopped(over) => Ok(()),
            };
            close(&mut sink).await;
            let Err(reason) = done else { return };
            tracing::warn!(
                reason,
                "the rows of this start were not all published again; all of them are tried again"
            );
            failures += 1;
            let wait = schedule.delay(failures, jitter()).unwrap_or(RETRY_LONGEST);
            let _ = timeout(wait, status.wait_for(is_over)).await;
        }
    }

    async fn publish<K, F>(
        &self,
        status: &watch::Receiver<PipelineStatus>,
        sink: &mut Option<K>,
        connect: &mut (impl FnMut() -> F + Send),
    ) -> Result<(), String>
    where
        K: Sink,
        F: Future<Output = Result<K, RelayError>> + Send,
    {
        let told = |error: RelayError| error_chain(&error);
        let limit = Duration::from_millis(self.config.statement_timeout_ms);
        let (client, database) =
            self.database.connect_to_one().await.map_err(|error| error_chain(&error))?;
        let sql = Sql::new(Arc::new(client), limit);
        let row =
            sql.one(ATTEMPT, "select pg_current_wal_insert_lsn()", &[]).await.map_err(told)?;
        let position = Lsn::from(u64::from(row.get::<_, PgLsn>(0)));
        tracing::info!(%position, "publishing the rows once more, as each start does");
        let mut published = status.clone();
        // Whoever reports no more is over.
        let _ = published.wait_for(|status| status.done >= position).await;
        let (mut rows, _loader) = self.open(&database).await.map_err(told)?;
        let mut again = Again {
            converter: Converter::new(self.router.clone(), &self.encoding, &self.config)
                .with_spaces(IdSpaceTable::new(&self.config).read(&sql).await.map_err(told)?),
            asker: Asker::new(sql.clone(), &self.encoding).map_err(told)?,
            header: ReplayHeader::of_start(position),
            config: &self.config,
            sql,
            away: HashMap::new(),
            left_out: Complaint::default(),
        };
        let mut dealt = Dealt::default();
        loop {
            match rows.recv().await {
                Some(Loaded::Rows(items)) => again.send(sink, connect, items, &mut dealt).await?,
                Some(Loaded::End) => break,
                Some(Loaded::Failed(error)) => return Err(error_chain(&error)),
                None => return Err(error_chain(&SourceError::Ended)),
            }
        }
        let Dealt { published, left_out } = dealt;
        tracing::info!(published, left_out, "the rows of this start are published once more");
        Ok(())
    }

    /// Reads the rows on a session of its own, through one snapshot.
    async fn open(
        &self,
        database: &Database,
    ) -> Result<(mpsc::Receiver<Loaded>, JoinSet<()>), RelayError> {
        let client = Arc::new(database.connect().await?);
        let first_limit = Duration::from_millis(self.config.slot_timeout_ms);
        let sql = Sql::new(client.clone(), first_limit);
        sql.batch(ATTEMPT, SESSION_SETTINGS).await?;
        sql.batch(ATTEMPT, "begin isolation level repeatable read read only").await?;
        let charset = Charset::find(&sql, database).await?;
        let loads = declare_loads(&sql, &self.config, None, None, &charset).await?;
        let (sender, rows) = mpsc::channel(1);
        let (status, _) = StatusReporter::new();
        let loader = Loader {
            client,
            loaded: sender,
            charset,
            status,
            max_event_bytes: self.config.max_event_bytes,
            first_limit,
            limit: Duration::from_millis(self.config.statement_timeout_ms),
            rows: 0,
            reported: Instant::now(),
        };
        let mut task = JoinSet::new();
        task.spawn(loader.run(loads));
        Ok((rows, task))
    }
}

/// What became of the rows so far.
#[derive(Debug, Default)]
struct Dealt {
    published: u64,
    /// Parked, or not to be sent at all.
    left_out: u64,
}

struct Again<'a> {
    converter: Converter,
    asker: Asker,
    header: ReplayHeader,
    config: &'a RelayConfig,
    sql: Sql,
    /// Topics that cannot be used, and since when.
    away: HashMap<Arc<str>, Instant>,
    left_out: Complaint,
}

impl Again<'_> {
    async fn send<K, F>(
        &mut self,
        sink: &mut Option<K>,
        connect: &mut (impl FnMut() -> F + Send),
        items: Vec<SourceItem>,
        dealt: &mut Dealt,
    ) -> Result<(), String>
    where
        K: Sink,
        F: Future<Output = Result<K, RelayError>> + Send,
    {
        let rows = items.len() as u64;
        let messages = self.messages(items).await.map_err(|error| error_chain(&error))?;
        let count = messages.len() as u64;
        let open = opened(sink, connect).await?;
        let refused = match beside::send(open, messages.clone(), PATIENCE).await {
            Ok(refused) => {
                refused.iter().for_each(|(_, reason)| self.leave_out(reason));
                refused.len() as u64
            }
            // One of them may be at fault, and what came before it has landed: were all
            // rows tried again, these would come without end.
            Err(_) => {
                close(sink).await;
                self.send_each(sink, connect, messages).await?
            }
        };
        dealt.published += count - refused;
        dealt.left_out += rows - count + refused;
        Ok(())
    }

    /// Sends each for itself; how many are left out.
    async fn send_each<K, F>(
        &mut self,
        sink: &mut Option<K>,
        connect: &mut (impl FnMut() -> F + Send),
        messages: Vec<Message>,
    ) -> Result<u64, String>
    where
        K: Sink,
        F: Future<Output = Result<K, RelayError>> + Send,
    {
        let mut refused = 0;
        for message in messages {
            loop {
                let open = opened(sink, connect).await?;
                match beside::send(open, vec![message.clone()], PATIENCE).await {
                    Ok(none) if none.is_empty() => {
                        self.away.remove(&message.topic);
                        break;
                    }
                    Ok(one) => {
                        one.iter().for_each(|(_, reason)| self.leave_out(reason));
                        refused += 1;
                        close(sink).await;
                        break;
                    }
                    Err(unfinished) if !unfinished.is_away => return Err(unfinished.reason),
                    Err(unfinished) if self.is_given_up(&message.topic) => {
                        self.leave_out(&unfinished.reason);
                        refused += 1;
                        break;
                    }
                    Err(_) => sleep(LOOK_AGAIN).await,
                }
            }
        }
        Ok(refused)
    }

    /// Whether a topic that cannot be used now could not for too long.
    fn is_given_up(&mut self, topic: &Arc<str>) -> bool {
        let since = *self.away.entry(Arc::clone(topic)).or_insert_with(Instant::now);
        since.elapsed() >= Duration::from_millis(self.config.missing_topic_timeout_ms)
    }

    fn leave_out(&mut self, reason: &str) {
        if self.left_out.is_news(reason, Instant::now()) {
            tracing::warn!(reason, "a row is not published once more");
        }
    }

    /// Of the rows that were published a first time, and can be.
    async fn messages(&mut self, items: Vec<SourceItem>) -> Result<Vec<Message>, RelayError> {
        // What is too large is parked as well.
        let changes = items.into_iter().filter_map(|item| match item {
            SourceItem::Change(change) => Some(change),
            _ => None,
        });
        let changes: Vec<_> = changes
            .map(|change| {
                let id = self.converter.identity(&change.row).event_id;
                (change, id.map(|id| String::from_utf8_lossy(&id).into_owned()))
            })
            .collect();
        let ids: Vec<&str> = changes.iter().filter_map(|(_, id)| id.as_deref()).collect();
        let parked = snapshot_modes::parked(&self.sql, self.config, &ids).await?;
        let parked: HashSet<ParkedId> = parked.into_iter().collect();
        let is_parked = |converter: &Converter, change: &RowChange, id: &Option<String>| {
            let space = converter.id_space(change.row.relation(), false).map(|space| space.id);
            let known = [space, None].map(|space| ParkedId { space, id: id.clone() });
            known.iter().any(|known| parked.contains(known))
        };
        let mut messages = Vec::new();
        for (change, id) in changes {
            if is_parked(&self.converter, &change, &id) {
                continue;
            }
            if let Some(mut message) = self.message(&change).await? {
                self.header.add(&mut message.headers);
                messages.push(message);
            }
        }
        Ok(messages)
    }

    /// Of one row, once whatever it needs has been asked for.
    async fn message(&mut self, change: &RowChange) -> Result<Option<Message>, RelayError> {
        loop {
            match self.converter.message(change, None) {
                Ok(message) => return Ok(Some(message)),
                Err(Unmade::Ask(question)) => self.asker.ask(question),
                Err(Unmade::Park(_) | Unmade::Dropped) => return Ok(None),
            }
            self.converter.learn(self.asker.answered().await?);
        }
    }
}

/// The sink, which is connected where there is none.
async fn opened<'a, K, F>(
    sink: &'a mut Option<K>,
    connect: &mut (impl FnMut() -> F + Send),
) -> Result<&'a mut K, String>
where
    F: Future<Output = Result<K, RelayError>> + Send,
{
    match sink {
        Some(open) => Ok(open),
        None => Ok(sink.insert(connect().await.map_err(|error| error_chain(&error))?)),
    }
}

async fn close<K: Sink>(sink: &mut Option<K>) {
    if let Some(sink) = sink.take() {
        sink.close().await;
    }
}

fn is_over(status: &PipelineStatus) -> bool {
    status.phase == Phase::Stopped
}

/// Ends with the pipeline, also when it is gone without a word.
async fn stopped(mut status: watch::Receiver<PipelineStatus>) {
    let _ = status.wait_for(is_over).await;
}

use std::{collections::HashSet, sync::Arc, time::Duration};

use tokio::{
    sync::watch,
    time::{Instant, sleep_until, timeout_at},
};
use walpost_event::{Message, RowChange, error_chain, jitter};
use walpost_postgres::Database;
use walpost_router::Router;

use super::{
    batch::{Candidate, Content, lanes},
    check,
    config::PollingConfig,
    gate::Gate,
    listen::Listener,
    metrics::PollingMetrics,
    send::{Outgoing, SendEnd, Sending},
    table::{Noted, Place, PolledTable},
    verdict::{Fate, Judge},
};
use crate::{
    asking::Asker,
    checkpoint::note_polling,
    config::RelayConfig,
    convert::{Converter, Unmade},
    encoding::EventEncoding,
    error::RelayError,
    id_space::{Begins, IdSpaceTable},
    sink::Sink,
    sql::Sql,
    status::{Phase, StartStep, StatusReporter},
    wal::snapshot::SESSION_SETTINGS,
};

/// Between two counts of what is pending.
const SIGHT_INTERVAL: Duration = Duration::from_secs(2);
/// Before a session that listened is replaced.
const LISTEN_PAUSE: Duration = Duration::from_secs(1);
/// Bound on the start of a session that listens.
const LISTEN_LIMIT: Duration = Duration::from_secs(5);
/// Claims that find rows in one window, before the next is looked at.
const STAY_MAX_CLAIMS: u32 = 50;
/// Ids of rows that were refused in company, which are sent alone.
const SUSPECTS_MAX: usize = 10_000;
/// Rows that have failed together and are told one by one.
const FAILED_TOLD_MAX: usize = 10;
/// Aggregates of one claim whose rows are sent one at a time.
const ALONE_MAX_LANES: usize = 10;
/// Details name topics and ids, which come from the event.
const DETAIL_MAX_CHARS: usize = 1_000;

/// One life of a poller between two errors.
pub(super) struct PollingSession<'a> {
    pub(super) database: &'a Database,
    pub(super) config: &'a RelayConfig,
    pub(super) polling: &'a PollingConfig,
    pub(super) router: &'a Router,
    pub(super) encoding: &'a EventEncoding,
    pub(super) status: &'a StatusReporter,
    pub(super) metrics: &'a PollingMetrics,
    pub(super) stop: watch::Receiver<bool>,
    pub(super) gate: Gate,
}

/// What a session works with.
pub(super) struct Work<K> {
    pub(super) table: PolledTable,
    converter: Converter,
    asker: Asker,
    judge: Judge,
    /// Connected when there is something to send.
    pub(super) sink: Option<K>,
    suspects: HashSet<String>,
    sighted: Option<Instant>,
    /// Where notifications are asked for.
    listener: Option<Listener>,
    /// Claims look at pending rows behind this one.
    after: Option<Place>,
    /// Claims made there.
    stayed: u32,
}

/// Waits for new rows to be told of, or for the end of who tells it; for ever
/// where nobody does.
async fn notified(listener: &mut Option<Listener>) {
    let Some(told) = listener else { return std::future::pending().await };
    if !told.notified().await {
        *listener = None;
        tokio::time::sleep(LISTEN_PAUSE).await;
    }
}

impl PollingSession<'_> {
    /// Runs until told to stop, or until an error. At its end the sink is
    /// closed, and what it still had is nobody's: it comes again.
    pub(super) async fn run<K: Sink>(
        mut self,
        mut connect_sink: impl AsyncFnMut() -> Result<K, RelayError>,
    ) -> Result<(), RelayError> {
        self.status.starting();
        let mut work = self.open().await?;
        self.status.step(StartStep::Work);
        self.status.phase(Phase::Streaming);
        let result = self.poll(&mut work, &mut connect_sink).await;
        if let Some(sink) = work.sink.take() {
            sink.close().await;
        }
        result
    }

    pub(super) async fn open<K>(&self) -> Result<Work<K>, RelayError> {
        let limit = Duration::from_millis(self.config.statement_timeout_ms);
        let client = Arc::new(self.database.connect().await?);
        let sql = Sql::new(client.clone(), limit);
        let settings = format!(
            "{SESSION_SETTINGS}; set idle_in_transaction_session_timeout = {}",
            self.polling.claim_timeout_ms
        );
        sql.batch("setting up the session", &settings).await?;
        check::run(&sql, self.database, self.config, self.polling, self.router.config()).await?;
        if let Gate::Relays = self.gate {
            check::source(&sql, self.config).await?;
            note_polling(&sql, self.config).await?;
        }
        let id_column = &self.router.config().event_id;
        let spaces = IdSpaceTable::new(self.config)
            .ensure(&sql, self.config, id_column, Begins::Polling)
            .await?;
        Ok(Work {
            table: PolledTable::open(self.database, client, self.config, self.polling, &self.gate)
                .await?,
            converter: Converter::new(self.router.clone(), self.encoding, self.config)
                .with_spaces(spaces),
            asker: Asker::new(sql, self.encoding)?,
            judge: Judge::new(self.polling),
            sink: None,
            suspects: HashSet::new(),
            sighted: None,
            listener: None,
            after: None,
            stayed: 0,
        })
    }

    async fn poll<K: Sink>(
        &mut self,
        work: &mut Work<K>,
        connect_sink: &mut impl AsyncFnMut() -> Result<K, RelayError>,
    ) -> Result<(), RelayError> {
        let interval = Duration::from_millis(self.polling.poll_interval_ms);
        while !*self.stop.borrow() {
            if work.listener.is_none() && !self.polling.notify_channel.is_empty() {
                let channel = &self.polling.notify_channel;
                // Before the claim: what comes behind it is heard of.
                work.listener = Listener::start(self.database, channel, LISTEN_LIMIT).await;
            }
            if work.sighted.is_none_or(|at| at.elapsed() >= SIGHT_INTERVAL) {
                let sight = work.table.sight().await?;
                work.sighted = Some(Instant::now());
                self.metrics.sighted(&sight);
                self.status.update(|status| {
                    status.polling = Some(sight);
                    if sight.pending == 0 {
                        status.trouble = None;
                    }
                });
            }
            if !self.claim_next(work, connect_sink).await? {
                tokio::select! {
                    _ = self.stop.wait_for(|stop| *stop) => {}
                    () = notified(&mut work.listener) => {}
                    () = tokio::time::sleep(interval) => {}
                }
            }
        }
        Ok(())
    }

    /// One claim, and where the next one looks; whether that is worth it at
    /// once. A claim begins at the oldest rows, and stays where it finds some for
    /// a while; where none of a window's rows can be claimed, it goes on behind
    /// them, and comes round.
    pub(super) async fn claim_next<K: Sink>(
        &self,
        work: &mut Work<K>,
        connect_sink: &mut impl AsyncFnMut() -> Result<K, RelayError>,
    ) -> Result<bool, RelayError> {
        let claimed = self.claim(work, connect_sink).await?;
        work.stayed += 1;
        if claimed.is_some() && work.stayed < STAY_MAX_CLAIMS {
            return Ok(claimed > Some(0));
        }
        work.stayed = 0;
        work.after = work.table.window_end(work.after.as_ref()).await?;
        Ok(claimed > Some(0) || work.after.is_some())
    }

    /// One claim, from its locks to its commit; how many rows were published,
    /// `None` where there was nothing to claim.
    async fn claim<K: Sink>(
        &self,
        work: &mut Work<K>,
        connect_sink: &mut impl AsyncFnMut() -> Result<K, RelayError>,
    ) -> Result<Option<usize>, RelayError> {
        let deadline = Instant::now() + Duration::from_millis(self.polling.send_timeout_ms);
        let heads = work.table.claim(work.after.as_ref()).await?;
        if heads.is_empty() {
            work.table.commit().await?;
            return Ok(None);
        }
        let mut candidates = work.table.rows(&heads).await?;
        let mut lanes = lanes(&candidates);
        let is_suspect = |row: &usize| work.suspects.contains(&candidates[*row].id);
        let alone = lanes.iter().flatten().any(is_suspect);
        if alone {
            // The others are for the next claim.
            lanes.retain(|lane| lane.iter().any(is_suspect));
            lanes.truncate(ALONE_MAX_LANES);
        }
        let mut outgoing = self.convert(work, &candidates, &lanes.concat(), deadline).await?;
        self.status.update(|status| status.outstanding = lanes.concat().len() as u64);
        let end = match self.sink(work, connect_sink, deadline).await {
            Ok(()) => {
                let sink = work.sink.as_mut().expect("it is connected");
                let sending = Sending::new(sink, &lanes, &mut outgoing, alone);
                sending.run(deadline, self.stop_limit()).await
            }
            Err(detail) => {
                for row in outgoing.iter_mut().flatten().filter(|row| row.message.is_some()) {
                    row.fate = Fate::Unanswered(detail.clone());
                }
                SendEnd::Settled
            }
        };
        for (candidate, outgoing) in candidates.iter_mut().zip(outgoing) {
            if let Some(outgoing) = outgoing {
                candidate.fate = outgoing.fate;
            }
        }
        let published = self.settle(work, &candidates).await?;
        if end == SendEnd::SinkSpent
            && let Some(sink) = work.sink.take()
        {
            sink.close().await;
        }
        Ok(Some(published))
    }

    /// Messages of the rows that are sent; of others, and of those that become
    /// none, their place is empty.
    async fn convert<K>(
        &self,
        work: &mut Work<K>,
        candidates: &[Candidate],
        sent: &[usize],
        deadline: Instant,
    ) -> Result<Vec<Option<Outgoing>>, RelayError> {
        let mut outgoing: Vec<Option<Outgoing>> = candidates.iter().map(|_| None).collect();
        for index in sent.iter().copied() {
            let message = match &candidates[index].content {
                Content::Row(change) => self.message(work, change, deadline).await?,
                Content::Oversize { size_bytes } => Err(Fate::Refused(format!(
                    "the row has {size_bytes} bytes, and max_event_bytes is {}",
                    self.config.max_event_bytes
                ))),
            };
            outgoing[index] = Some(match message {
                Ok(message) => Outgoing { message: Some(message), fate: Fate::Untouched },
                Err(fate) => Outgoing { message: None, fate },
            });
        }
        Ok(outgoing)
    }

    /// The message of a row, once what it needs is known; what becomes of the row
    /// where that is not in time, and of one that becomes no message.
    async fn message<K>(
        &self,
        work: &mut Work<K>,
        change: &RowChange,
        deadline: Instant,
    ) -> Result<Result<Message, Fate>, RelayError> {
        loop {
            let question = match work.converter.message(change, None) {
                Ok(message) => return Ok(Ok(message)),
                Err(Unmade::Park(parking)) => return Ok(Err(Fate::Refused(parking.detail))),
                Err(Unmade::Dropped) => {
                    work.converter.log_dropped(&change.row);
                    return Ok(Err(Fate::Dropped));
                }
                Err(Unmade::Ask(question)) => question,
            };
            // One that an earlier claim has not waited for may be under way.
            work.asker.ask(question);
            let mut stop = self.stop.clone();
            tokio::select! {
                answer = work.asker.answered() => work.converter.learn(answer?),
                _ = stop.wait_for(|stop| *stop) => {
                    return Ok(Err(Fate::Unanswered("the pipeline stops".to_owned())));
                }
                () = sleep_until(deadline) => {
                    let waits = work.asker.waits();
                    let detail = waits.unwrap_or_else(|| "nobody has answered".to_owned());
                    return Ok(Err(Fate::Unanswered(detail)));
                }
            }
        }
    }

    /// Connects the sink if there is none. Why there is none, else.
    async fn sink<K: Sink>(
        &self,
        work: &mut Work<K>,
        connect_sink: &mut impl AsyncFnMut() -> Result<K, RelayError>,
        deadline: Instant,
    ) -> Result<(), String> {
        if work.sink.is_some() {
            return Ok(());
        }
        let connecting = async {
            let mut sink = connect_sink().await?;
            sink.read_back(Vec::new(), None, Box::new(|_| ())).await?;
            Ok::<K, RelayError>(sink)
        };
        match timeout_at(deadline, connecting).await {
            Ok(Ok(sink)) => {
                work.sink = Some(sink);
                Ok(())
            }
            Ok(Err(error)) => Err(error_chain(&error)),
            Err(_) => Err("the sink could not be connected in time".to_owned()),
        }
    }

    /// When told to stop, until when what is on its way may be settled.
    async fn stop_limit(&self) -> Instant {
        let _ = self.stop.clone().wait_for(|stop| *stop).await;
        Instant::now() + Duration::from_millis(self.config.drain_timeout_ms / 2)
    }

    /// Commits what became of the claimed rows.
    async fn settle<K>(
        &self,
        work: &mut Work<K>,
        candidates: &[Candidate],
    ) -> Result<usize, RelayError> {
        let (mut published, mut tried_before, mut noted) = (Vec::new(), Vec::new(), Vec::new());
        let (mut trouble, mut dropped) = (None, 0);
        for candidate in candidates {
            let (detail, own) = match &candidate.fate {
                Fate::Untouched => continue,
                Fate::Suspect => {
                    if work.suspects.len() >= SUSPECTS_MAX {
                        work.suspects.clear();
                    }
                    work.suspects.insert(candidate.id.clone());
                    continue;
                }
                Fate::Published | Fate::Dropped => {
                    dropped += usize::from(candidate.fate == Fate::Dropped);
                    published.push(candidate.id.as_str());
                    if candidate.tried.attempts > 0 || candidate.tried.refused > 0 {
                        tried_before.push(candidate.id.as_str());
                    }
                    work.suspects.remove(&candidate.id);
                    continue;
                }
                Fate::Refused(detail) => (detail, true),
                Fate::Unanswered(detail) => {
                    trouble = Some(detail.clone());
                    (detail, false)
                }
            };
            let verdict = work.judge.judge(&candidate.tried, own, jitter());
            let error = detail.replace('\0', "").chars().take(DETAIL_MAX_CHARS).collect();
            noted.push(Noted { id: candidate.id.clone(), verdict, error });
        }
        if !published.is_empty() {
            work.table.publish(&published).await?;
        }
        if !tried_before.is_empty() {
            work.table.forget(&tried_before).await?;
        }
        if !noted.is_empty() {
            work.table.fail(&noted).await?;
        }
        work.table.commit().await?;
        self.tell(published.len() - dropped, &noted, trouble);
        Ok(published.len())
    }

    fn tell(&self, published: usize, noted: &[Noted], trouble: Option<String>) {
        let failed = noted.iter().filter(|row| row.verdict.failed).count();
        self.metrics.settled(published, noted.len(), failed);
        for row in noted.iter().filter(|row| row.verdict.failed).take(FAILED_TOLD_MAX) {
            tracing::error!(
                row = row.id,
                attempts = row.verdict.attempts,
                reason = row.error,
                "a row has failed; mend the cause and requeue it with `walpost requeue`"
            );
        }
        if failed > FAILED_TOLD_MAX {
            tracing::error!(rows = failed - FAILED_TOLD_MAX, "further rows have failed with them");
        }
        let before = self.status.current().trouble;
        match &trouble {
            Some(reason) if before.as_ref() != Some(reason) => {
                tracing::warn!(reason, rows = noted.len(), "rows were not acknowledged, and wait");
            }
            None if before.is_some() && published > 0 => {
                tracing::info!("resumed: rows are acknowledged again");
            }
            _ => {}
        }
        self.status.update(|status| {
            status.outstanding = 0;
            status.published += published as u64;
            // Nothing sent says nothing.
            if published > 0 || trouble.is_some() {
                status.trouble = trouble;
            }
        });
    }
}

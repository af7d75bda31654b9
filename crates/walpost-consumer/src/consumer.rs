use std::{
    collections::HashMap,
    future::Future,
    pin::pin,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::{
    sync::{mpsc, watch},
    task::JoinHandle,
    time::{MissedTickBehavior, interval, timeout},
};
use walpost_event::RetrySchedule;

use crate::{
    Builder, Database, Error, Handler, Status, TopicPartition,
    database_error::Verdict,
    kafka::{self, AssignmentId, GroupEvent},
    metrics,
    partition::{Fatal, Partition, Shared, Stop},
    report::report,
    settings::Settings,
    sql::Sql,
    status::Board,
};

/// How long every partition must be halted before the consumer ends.
const HALTED_FOR_MS: u64 = 2_000;
/// How often that is looked at.
const LOOK_INTERVAL_MS: u64 = 250;

/// A member of a Kafka consumer group that applies events to a database.
///
/// See the [crate's documentation](crate) for one that runs.
pub struct Consumer<H> {
    settings: Settings,
    database: Database,
    handler: Arc<H>,
    board: Board,
}

impl Consumer<()> {
    /// Starts the description of a consumer. `name` stands in its tables and
    /// names its progress: keep it, and give each purpose its own.
    pub fn builder(name: impl Into<String>) -> Builder {
        Builder::new(name.into())
    }
}

impl<H> Consumer<H> {
    /// The name it was built with.
    pub fn name(&self) -> &str {
        &self.settings.consumer
    }

    /// What it is doing, from now on and while it runs.
    ///
    /// ```
    /// use walpost_consumer::{Consumer, PartitionState};
    ///
    /// /// For a readiness probe.
    /// fn is_ready<H>(consumer: &Consumer<H>) -> impl Fn() -> bool + use<H> {
    ///     let status = consumer.status();
    ///     move || {
    ///         let partitions = &status.borrow().partitions;
    ///         partitions.values().all(|partition| partition.state == PartitionState::Running)
    ///     }
    /// }
    /// ```
    pub fn status(&self) -> watch::Receiver<Status> {
        self.board.subscribe()
    }
}

impl<H: Handler> Consumer<H> {
    pub(crate) fn new(settings: Settings, database: Database, handler: Arc<H>) -> Self {
        Self { settings, database, handler, board: Board::new() }
    }

    /// Runs until `shutdown` completes, then finishes the batches at hand,
    /// commits the offsets, and leaves the group. Needs a tokio runtime with
    /// time and I/O.
    ///
    /// Databases and brokers that are away are waited for. A partition that
    /// needs a decision halts, stays visible in [`status`](Self::status), and
    /// the others go on.
    ///
    /// # Errors
    /// If the tables are missing, the database refuses what is needed, the
    /// Kafka client cannot be used, or every assigned partition has halted.
    ///
    /// ```no_run
    /// # async fn run(consumer: walpost_consumer::Consumer<impl walpost_consumer::Handler>) {
    /// use walpost_consumer::Error;
    ///
    /// match consumer.run(std::future::pending()).await {
    ///     Ok(()) => {}
    ///     Err(error @ Error::Halted { .. }) => eprintln!("somebody has to decide: {error}"),
    ///     Err(error) => eprintln!("{error}"),
    /// }
    /// # }
    /// ```
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> Result<(), Error> {
        metrics::describe();
        let sql = Sql::new(&self.settings);
        let mut shutdown = pin!(shutdown);
        tokio::select! {
            ready = check_database(&self.database, &sql, &self.settings) => ready?,
            () = &mut shutdown => return Ok(()),
        }
        let (kafka, thread, mut events) = kafka::start(&self.settings)?;
        let (fatal, mut failures) = Fatal::new();
        let Self { settings, database, handler, board } = self;
        let shared = Arc::new(Shared {
            settings,
            sql,
            database,
            kafka: kafka.clone(),
            handler,
            board,
            fatal,
        });
        let mut members = Members { shared, running: HashMap::new() };
        let ended = members.serve(&mut events, &mut failures, shutdown).await;
        members.stop_all().await;
        drop(events);
        let _ = kafka.close().await;
        thread.join().await?;
        ended
    }
}

/// The partitions at work.
struct Members<H> {
    shared: Arc<Shared<H>>,
    running: HashMap<TopicPartition, Running>,
}

struct Running {
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl<H: Handler> Members<H> {
    async fn serve(
        &mut self,
        events: &mut mpsc::Receiver<GroupEvent>,
        failures: &mut mpsc::Receiver<Error>,
        mut shutdown: impl Future<Output = ()> + Unpin,
    ) -> Result<(), Error> {
        let mut look = interval(Duration::from_millis(LOOK_INTERVAL_MS));
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut halted_since = None;
        loop {
            tokio::select! {
                () = &mut shutdown => return Ok(()),
                Some(error) = failures.recv() => return Err(error),
                event = events.recv() => match event {
                    Some(GroupEvent::Assigned(partitions)) => self.start(partitions),
                    Some(GroupEvent::Revoked { partitions, lost }) => {
                        self.give_back(partitions, lost).await;
                    }
                    Some(GroupEvent::Fatal(error)) => return Err(error),
                    None => return Err(Error::Panicked("Kafka thread")),
                },
                _ = look.tick() => self.look(&mut halted_since)?,
            }
        }
    }

    fn start(&mut self, partitions: Vec<(TopicPartition, AssignmentId)>) {
        for (of, assignment) in partitions {
            let (sender, stop) = Stop::new();
            self.shared.board.update(&of, |_| ());
            let partition = Partition::new(Arc::clone(&self.shared), of.clone(), assignment, stop);
            let task = tokio::spawn(partition.run());
            if let Some(old) = self.running.insert(of, Running { stop: sender, task }) {
                old.task.abort();
            }
        }
    }

    /// Ends the partitions' tasks, then lets the group have them.
    async fn give_back(&mut self, partitions: Vec<TopicPartition>, lost: bool) {
        let ending = partitions.iter().filter_map(|of| self.running.remove_entry(of)).collect();
        self.end(ending, lost).await;
        if let Err(failure) = self.shared.kafka.release(partitions).await {
            tracing::warn!(%failure, "giving partitions back failed");
        }
    }

    async fn stop_all(&mut self) {
        let ending = self.running.drain().collect();
        self.end(ending, false).await;
    }

    /// Lets each finish what it is at, in bounded time; lost ones are rolled
    /// back at once.
    async fn end(&self, ending: Vec<(TopicPartition, Running)>, lost: bool) {
        for (_, running) in &ending {
            running.stop.send_replace(true);
            if lost {
                running.task.abort();
            }
        }
        let limit = Duration::from_millis(self.shared.settings.stop_timeout_ms);
        let deadline = Instant::now() + limit;
        for (of, mut running) in ending {
            let left = deadline.saturating_duration_since(Instant::now());
            match timeout(left, &mut running.task).await {
                Ok(Err(error)) if error.is_panic() => {
                    tracing::error!(partition = %of, "the task of a partition panicked: a bug");
                }
                Ok(_) => {}
                Err(_) => {
                    tracing::warn!(partition = %of, ?limit, "a batch did not end in time, rolled back");
                    running.task.abort();
                    let _ = running.task.await;
                }
            }
            self.shared.board.remove(&of);
        }
    }

    /// Ends the consumer when all partitions have been halted for a while, or
    /// one of its own parts is gone.
    fn look(&self, halted_since: &mut Option<Instant>) -> Result<(), Error> {
        if self.running.values().any(|running| running.task.is_finished()) {
            return Err(Error::Panicked("task of a partition"));
        }
        let Some((count, of, reason)) = self.shared.board.all_halted() else {
            *halted_since = None;
            return Ok(());
        };
        let since = *halted_since.get_or_insert_with(Instant::now);
        if since.elapsed() < Duration::from_millis(HALTED_FOR_MS) {
            return Ok(());
        }
        let (topic, partition) = (of.topic.to_string(), of.partition);
        Err(Error::Halted { count, topic, partition, reason })
    }
}

/// Waits for the database, and looks whether it has the tables.
async fn check_database(database: &Database, sql: &Sql, settings: &Settings) -> Result<(), Error> {
    let backoff = RetrySchedule::backoff(Duration::from_millis(200), Duration::from_secs(10));
    let mut failures = 0;
    loop {
        let probed = async {
            let client = database.connect().await?;
            Ok::<bool, crate::BoxError>(client.query_typed_one(&sql.probe, &[]).await?.get(0))
        };
        let source = match probed.await {
            Ok(true) => return Ok(()),
            Ok(false) => {
                let (schema, source) =
                    (settings.schema.clone(), "the function batch_begin is missing".into());
                return Err(Error::NotMigrated { schema, source });
            }
            Err(source) => source,
        };
        let verdict = source.downcast_ref().map_or(Verdict::Transient, Verdict::of);
        if verdict != Verdict::Transient {
            let attempted = "connecting to the database was refused; check user, password, \
                             database name and pg_hba.conf";
            return Err(Error::Database { attempted: attempted.to_owned(), source });
        }
        failures += 1;
        tracing::warn!(failures, reason = report(&*source), "the database is away, trying again");
        tokio::time::sleep(backoff.delay(failures, 0.0).unwrap_or_default()).await;
    }
}

impl<H> Drop for Members<H> {
    /// For a run that is dropped half-way.
    fn drop(&mut self) {
        for running in self.running.values() {
            running.task.abort();
        }
    }
}

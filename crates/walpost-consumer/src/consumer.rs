use std::{
    collections::HashMap,
    future::Future,
    pin::pin,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use ::metrics::Gauge;
use tokio::{
    sync::{mpsc, watch},
    task::JoinHandle,
    time::{MissedTickBehavior, interval, timeout},
};

#[cfg(feature = "redis")]
use crate::redis_guard::keys_outlive_topics;
use crate::{
    Builder, Database, Error, Handler, Status, TopicPartition,
    blocked::{BlockedLog, Polls},
    dead_letters::DeadLetters,
    failpoint::Failpoint,
    kafka::{self, AssignmentId, GroupEvent, Started},
    meter::Meters,
    metrics,
    partition::{Fatal, Partition, Shared, Stop, StopRequest},
    points::Points,
    pool::Pool,
    preflight::database_is_ready,
    pruner::{Pruner, Pruning},
    reporter::Reporter,
    same_database::is_the_same_database,
    settings::Settings,
    sql::Sql,
    standstill::{Standstill, Step},
    status::{Board, Halted},
    tell::tell,
    threads,
};

/// Longest wait for a task that was aborted: one whose handler blocks its thread does not end.
const ABORT_LIMIT_MS: u64 = 500;
/// How often is looked at what is halted.
const LOOK_INTERVAL_MS: u64 = 250;

/// A member of a Kafka consumer group that applies events to a database.
///
/// See the [crate's documentation](crate) for one that runs.
pub struct Consumer<H> {
    settings: Settings,
    pool: Pool,
    handler: Arc<H>,
    board: Board,
    points: Points,
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
        let (board, points) = (Board::new(), Points::default());
        let pool = Pool::new(database, settings.max_connections);
        Self { settings, pool, handler, board, points }
    }

    /// Runs until `shutdown` completes, then finishes the batches at hand,
    /// commits the offsets, and leaves the group. Needs a tokio runtime with
    /// time and I/O.
    ///
    /// Handlers run on threads of this crate's own, so the end is bounded by
    /// [`Builder::stop_timeout_ms`] and about a second, even if a handler blocks its
    /// thread. After a second of that the log names partition and offset, and again
    /// every 30 seconds.
    ///
    /// A database that cannot be reached is waited for, and so are brokers. Of
    /// the one the log says so at once (after ten seconds where a connection
    /// gets no answer at all), of the others after three seconds without an
    /// answer; both again every 30 seconds, and once when it is over.
    ///
    /// A partition that needs a decision halts, and the others go on, also
    /// those without events: the log has the reason, and has it again every 30
    /// seconds; [`status`](Self::status) has it as long as it holds. When every
    /// assigned partition is halted, that is an error.
    ///
    /// # Errors
    /// If the tables or grants are missing, the database refuses the connection
    /// or what is needed, the topic of dead letters is missing, the Kafka client
    /// cannot be used, or every assigned partition has halted.
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
        let mut shutdown = pin!(shutdown);
        let letters = tokio::select! {
            ready = async {
                self.is_ready().await?;
                #[cfg(feature = "redis")]
                if let Some(guard) = self.settings.guard.redis() {
                    keys_outlive_topics(guard, &self.settings).await?;
                }
                DeadLetters::open(&self.settings, &Sql::new(&self.settings), &self.pool).await
            } => ready?,
            () = &mut shutdown => return Ok(()),
        };
        let started = kafka::start(&self.settings)?;
        self.serve(started, letters, shutdown).await
    }

    /// Waits until the database can be used.
    async fn is_ready(&self) -> Result<(), Error> {
        metrics::describe();
        let (consumer, group) = (self.settings.consumer.as_str(), self.settings.group_id());
        let (topics, brokers) = (&self.settings.topics, self.settings.brokers());
        let database = self.pool.database().place();
        tracing::info!(consumer, group, ?topics, brokers, database, "the consumer starts");
        let sql = Sql::new(&self.settings);
        database_is_ready(self.pool.database(), &sql, &self.settings).await?;
        is_the_same_database(self.pool.database(), self.handler.store()).await
    }

    /// As a member of the group that `started` has joined.
    async fn serve(
        self,
        (kafka, thread, mut events): Started,
        letters: Option<DeadLetters>,
        shutdown: impl Future<Output = ()> + Unpin,
    ) -> Result<(), Error> {
        let (fatal, mut failures) = Fatal::new();
        let Self { settings, pool, handler, board, points } = self;
        let sql = Sql::new(&settings);
        let shared = Arc::new(Shared {
            settings,
            sql,
            pool,
            kafka: kafka.clone(),
            handler,
            board,
            points,
            fatal,
            dead_letters: letters.as_ref().map(DeadLetters::desk),
            meters: Meters::default(),
            warned_of_copies: Mutex::default(),
        });
        let (board, meters) = (shared.board.clone(), shared.meters.clone());
        let _reporter = Reporter::start(&shared.settings, kafka.clone(), board, meters);
        let _pruner = Pruner::start(Pruning {
            settings: shared.settings.clone(),
            sql: shared.sql.clone(),
            pool: shared.pool.clone(),
            fatal: shared.fatal.clone(),
        });
        let mut members =
            Members { shared, running: HashMap::new(), blocked: BlockedLog::default() };
        let ended = members.serve(&mut events, &mut failures, shutdown).await;
        members.stop_all().await;
        if let Some(letters) = letters {
            letters.finish().await;
        }
        drop(events);
        let _ = kafka.close().await;
        thread.join().await?;
        tracing::info!("the consumer has left the group");
        ended
    }
}

#[cfg(feature = "test-kit")]
impl<H: Handler> Consumer<H> {
    /// The same on a cluster in memory, while somebody looks on; without dead
    /// letters.
    pub(crate) async fn run_in_memory(
        mut self,
        cluster: &kafka::Cluster,
        points: Points,
        shutdown: impl Future<Output = ()>,
    ) -> Result<(), Error> {
        self.points = points;
        // A cluster in memory has no members to wait for, and no retention.
        self.settings.session_timeout_ms = 250;
        self.settings.retention = None;
        let mut shutdown = pin!(shutdown);
        tokio::select! {
            ready = self.is_ready() => ready?,
            () = &mut shutdown => return Ok(()),
        }
        let started = kafka::start_in_memory(&self.settings, cluster)?;
        self.serve(started, None, shutdown).await
    }
}

/// The partitions at work.
struct Members<H> {
    shared: Arc<Shared<H>>,
    running: HashMap<TopicPartition, Running>,
    blocked: BlockedLog,
}

struct Running {
    stop: StopRequest,
    task: JoinHandle<()>,
    /// It was seen to have ended.
    has_ended: bool,
    polls: Polls,
    blocked_seconds: Gauge,
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
        let mut standstill = Standstill::default();
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
                _ = look.tick() => self.look(&mut standstill)?,
            }
        }
    }

    fn start(&mut self, partitions: Vec<(TopicPartition, AssignmentId)>) {
        for (of, assignment) in partitions {
            let (request, stop) = Stop::new();
            self.shared.board.update(&of, |_| ());
            let partition = Partition::new(Arc::clone(&self.shared), of.clone(), assignment, stop);
            let (polls, blocked_seconds) = partition.watched();
            let task = threads::spawn(partition.run());
            let running = Running { stop: request, task, has_ended: false, polls, blocked_seconds };
            if let Some(old) = self.running.insert(of, running) {
                old.task.abort();
            }
        }
    }

    /// Ends the partitions' tasks, then lets the group have them.
    async fn give_back(&mut self, partitions: Vec<(TopicPartition, AssignmentId)>, lost: bool) {
        let ended = partitions.iter().filter_map(|(of, _)| self.running.remove_entry(of));
        let ending = ended.collect();
        self.end(ending, lost).await;
        self.shared.points.reached(Failpoint::BeforeRelease, None).await;
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
    async fn end(&mut self, mut ending: Vec<(TopicPartition, Running)>, lost: bool) {
        for (_, running) in &ending {
            running.stop.send();
            if lost {
                running.task.abort();
            }
        }
        let limit = Duration::from_millis(self.shared.settings.stop_timeout_ms);
        let late = ended_by(&mut ending, Instant::now() + limit).await;
        late.iter().for_each(|&at| ending[at].1.task.abort());
        let abort_limit = Duration::from_millis(ABORT_LIMIT_MS);
        let _ = ended_by(&mut ending, Instant::now() + abort_limit).await;
        for (at, (of, running)) in ending.into_iter().enumerate() {
            if late.contains(&at) {
                say_cut_off(&of, limit, running.stop.is_settling(), running.has_ended);
            }
            self.shared.board.remove(&of);
            self.blocked.forget(&of);
            match lost {
                true => self.shared.meters.lose(&of, Instant::now()),
                false => self.shared.meters.remove(&of),
            }
        }
    }

    /// Ends the consumer when no partition is left that goes on, or one of its
    /// own parts is gone.
    fn look(&mut self, standstill: &mut Standstill) -> Result<(), Error> {
        for (of, Running { polls, blocked_seconds, .. }) in &self.running {
            self.blocked.look(of, polls, blocked_seconds, Instant::now());
        }
        if self.running.values().any(|running| running.task.is_finished()) {
            return Err(Error::Panicked("task of a partition"));
        }
        match standstill.look(self.shared.board.halted(), Instant::now()) {
            Step::Nothing => Ok(()),
            Step::Remind(Halted { first, reason, count, of }) => {
                tell!(
                    error,
                    { halted = count, assigned = of, first = first, reason = reason },
                    "partitions are still halted"
                );
                Ok(())
            }
            Step::End(Halted { first, reason, count, .. }) => {
                let (topic, partition) = (first.topic.to_string(), first.partition);
                Err(Error::Halted { count, topic, partition, reason })
            }
        }
    }
}

/// Waits until the tasks have ended, or until `deadline`: then which have not.
async fn ended_by(ending: &mut [(TopicPartition, Running)], deadline: Instant) -> Vec<usize> {
    let mut late = Vec::new();
    for (at, (of, running)) in ending.iter_mut().enumerate() {
        if running.has_ended {
            continue;
        }
        let left = deadline.saturating_duration_since(Instant::now());
        match timeout(left, &mut running.task).await {
            Ok(ended) => {
                running.has_ended = true;
                if ended.is_err_and(|error| error.is_panic()) {
                    tell!(error, { partition = of }, "the task of a partition panicked: a bug");
                }
            }
            Err(_) => late.push(at),
        }
    }
    late
}

/// A partition that stops was not done in time.
fn say_cut_off(of: &TopicPartition, limit: Duration, is_settling: bool, has_ended: bool) {
    if !has_ended {
        tell!(
            error,
            { partition = of },
            "the handler blocks its thread, leaving without it; its transaction ends with the \
             process, or when another member claims the partition"
        );
    } else if is_settling {
        tracing::warn!(
            partition = %of,
            ?limit,
            "what was made is committed, but Kafka did not take the last offset in time; the next \
             claim makes up for it"
        );
    } else {
        tracing::warn!(partition = %of, ?limit, "a batch did not end in time, rolled back");
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

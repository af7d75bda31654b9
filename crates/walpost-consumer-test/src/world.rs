//! A database and a log, and consumers on them.

use std::{
    collections::BTreeMap,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::{
    sync::{Notify, mpsc, oneshot, watch},
    time::{Instant, sleep_until, timeout_at},
};
use walpost_consumer::{
    Builder, Consumer, Counts, Database, Event, FirstStart, Guard, Handler, PartitionState,
    RetrySchedule, Status, TopicPartition,
    testing::{self, Cluster},
    tokio_postgres::Client,
};

use crate::{
    Ending, Error, Report, TestDatabase,
    probe::{Held, Seen, Watch, lock},
    step::Fault,
};

/// Schema of the consumer's tables.
pub(crate) const SCHEMA: &str = "walpost";

/// How often a transaction that is to be ended is looked for, and how long
/// between.
const MAX_CUTS: u32 = 50;
const CUT_PAUSE: Duration = Duration::from_millis(5);

type Make<H> = dyn Fn(&str) -> H + Send + Sync;
type Configure = dyn Fn(Builder) -> Builder + Send + Sync;

/// What all runs of a test share.
pub(crate) struct Setup<H> {
    pub(crate) make: Box<Make<H>>,
    pub(crate) configure: Box<Configure>,
    pub(crate) limit_ms: u64,
}

/// How one delivery goes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Plan {
    /// By a consumer that knows nothing of what the other one has done, and has
    /// rows for a guard.
    pub(crate) again: bool,
    pub(crate) fault: Option<Fault>,
    /// Most events in one transaction, `None` for as configured.
    pub(crate) max_batch_events: Option<usize>,
}

/// One database with the log of what was delivered to it.
pub(crate) struct World {
    pub(crate) database: TestDatabase,
    pub(crate) client: Client,
    pub(crate) cluster: Cluster,
}

/// Why one consumer was left.
enum Left {
    Done(Ending),
    Killed,
}

/// A consumer that runs until it is dropped.
struct Running<'a> {
    consumer: Pin<Box<dyn Future<Output = Result<(), walpost_consumer::Error>> + Send + 'a>>,
    status: watch::Receiver<Status>,
    stop: oneshot::Sender<()>,
    held: mpsc::Receiver<Held>,
    hopeless: Arc<Notify>,
    watch: Arc<Watch>,
}

impl World {
    pub(crate) async fn copy_of(base: &TestDatabase) -> Result<Self, Error> {
        let database = base.copy().await?;
        let client = database.client().await?;
        Ok(Self { database, client, cluster: Cluster::default() })
    }

    /// Appends `events`, each to its own partition or to one that is so many
    /// higher.
    pub(crate) fn append<'a>(&self, events: impl IntoIterator<Item = &'a Event>, higher: i32) {
        for event in events {
            self.cluster.append(event, event.partition().saturating_add(higher));
        }
    }

    /// Runs consumers until everything that was appended is done.
    pub(crate) async fn run<H: Handler>(
        &self,
        setup: &Setup<H>,
        plan: Plan,
    ) -> Result<Report, Error> {
        let name = self.consumer_name(plan);
        let before = self.stand(&name).await?;
        let seen = Arc::new(Mutex::new(Seen::since(before.offsets.clone())));
        let deadline = Instant::now() + Duration::from_millis(setup.limit_ms);
        let mut report = Report::default();
        report.ending = loop {
            let mut running = self.start(setup, plan, &seen)?;
            let left = timeout_at(deadline, self.attend(&mut running, plan, &mut report)).await;
            let Counts { applied, duplicates, waiting, .. } = running.status.borrow().counts;
            report.applied += applied;
            report.duplicates += duplicates;
            report.waiting += waiting;
            match left {
                Ok(Ok(Left::Killed)) => {}
                Ok(Ok(Left::Done(Ending::Done))) => {
                    running.end(deadline).await?;
                    break Ending::Done;
                }
                Ok(Ok(Left::Done(ending))) => break ending,
                Ok(Err(error)) => return Err(error),
                Err(_) => return Err(too_long(setup, &running.status)),
            }
        };
        report.calls = std::mem::take(&mut lock(&seen).calls);
        if let Ending::Transient { reason } = &mut report.ending {
            let last = report.calls.last().and_then(|call| call.failure.as_ref());
            *reason = last.map_or_else(String::new, |failure| failure.reason.clone());
        }
        report.parked = self.parked_since(&before, &name).await?;
        if report.interrupted > 0 && report.ending == Ending::Done {
            self.count_again(&before, &name, &mut report).await?;
        }
        match plan.fault {
            Some(fault) if report.interrupted == 0 && report.ending == Ending::Done => {
                Err(Error::NotReached { step: fault.step() })
            }
            _ => Ok(report),
        }
    }

    /// Has one consumer paused with its transactions open, another one take over
    /// and do everything, and wakes the first. Whether that one committed
    /// nothing from then on.
    pub(crate) async fn take_over<H: Handler>(
        &self,
        setup: &Setup<H>,
        plan: Plan,
    ) -> Result<(Report, bool), Error> {
        let seen = Arc::new(Mutex::new(Seen::default()));
        let deadline = Instant::now() + Duration::from_millis(setup.limit_ms);
        let mut zombie = self.start(setup, plan, &seen)?;
        let held = tokio::select! {
            held = zombie.held.recv() => held,
            ended = &mut zombie.consumer => return Err(gone(ended)),
            () = sleep_until(deadline) => return Err(too_long(setup, &zombie.status)),
        };
        let mut held: Vec<Held> = held.into_iter().collect();
        let successor = Plan { fault: None, ..plan };
        let mut report = tokio::select! {
            report = self.run(setup, successor) => report?,
            ended = &mut zombie.consumer => return Err(gone(ended)),
        };
        // Partitions that were not held have gone on until they were taken over.
        let committed = zombie.status.borrow().counts.applied;
        report.applied += committed;
        zombie.watch.open();
        held.extend(std::iter::from_fn(|| zombie.held.try_recv().ok()));
        report.interrupted = held.len() as u64;
        held.into_iter().for_each(Held::release);
        let mut status = zombie.status.clone();
        let gave_up = status.wait_for(|status| {
            let owns = |state: &PartitionState| {
                matches!(state, PartitionState::Running | PartitionState::Retrying)
            };
            status.counts.applied > committed
                || !status.partitions.values().any(|partition| owns(&partition.state))
        });
        tokio::select! {
            _ = gave_up => {}
            _ = &mut zombie.consumer => {}
            () = sleep_until(deadline) => return Err(too_long(setup, &zombie.status)),
        }
        let refused = zombie.status.borrow().counts.applied == committed;
        Ok((report, refused))
    }

    fn start<'a, H: Handler>(
        &'a self,
        setup: &Setup<H>,
        plan: Plan,
        seen: &Arc<Mutex<Seen>>,
    ) -> Result<Running<'a>, Error> {
        let handler = (setup.make)(self.database.url());
        let consumer = self.builder(setup, plan)?.handler(handler)?;
        let status = consumer.status();
        let (stop, stopped) = oneshot::channel::<()>();
        let (watch, held, hopeless) = Watch::new(plan.fault, seen);
        let shutdown = async {
            let _ = stopped.await;
        };
        let probe = Arc::clone(&watch);
        let consumer = Box::pin(testing::run(consumer, &self.cluster, probe, shutdown));
        Ok(Running { consumer, status, stop, held, hopeless, watch })
    }

    /// Another one in each world: a guard outside of the database is shared.
    fn consumer_name(&self, plan: Plan) -> String {
        let again = if plan.again { "-again" } else { "" };
        format!("{}{again}", self.database.name())
    }

    /// What the test wants comes first, what has to be so last.
    fn builder<H>(&self, setup: &Setup<H>, plan: Plan) -> Result<Builder, Error> {
        let name = self.consumer_name(plan);
        let builder = Consumer::builder(&name)
            .retry_schedule(RetrySchedule::new([Duration::from_millis(1)]).repeating_last())
            .claim_timeout_ms(200)
            .commit_interval_ms(10);
        let mut builder = (setup.configure)(builder)
            .kafka("bootstrap.servers", "in memory")
            .group_id(name)
            .topics(self.cluster.topics())
            .schema(SCHEMA)
            .first_start(FirstStart::Earliest)
            .database(Database::config(self.database.config()?));
        if let Some(events) = plan.max_batch_events {
            builder = builder.max_batch_events(events);
        }
        Ok(if plan.again { builder.guard(Guard::Rows) } else { builder })
    }

    /// Waits until there is nothing left to do, or the consumer is killed.
    async fn attend(
        &self,
        running: &mut Running<'_>,
        plan: Plan,
        report: &mut Report,
    ) -> Result<Left, Error> {
        let ends = self.cluster.ends();
        loop {
            let mut status = running.status.clone();
            let held = tokio::select! {
                biased;
                Some(held) = running.held.recv() => held,
                () = running.hopeless.notified() => {
                    return Ok(Left::Done(Ending::Transient { reason: String::new() }));
                }
                Ok(status) = status.wait_for(|status| is_done(status, &ends)) => {
                    return Ok(Left::Done(ending(&status)));
                }
                ended = &mut running.consumer => match ended {
                    Err(walpost_consumer::Error::Halted { reason, .. }) => {
                        return Ok(Left::Done(Ending::Halted { reason }));
                    }
                    ended => return Err(gone(ended)),
                },
            };
            // Other lanes may be there too, and one cut is for all.
            let mut held = vec![held];
            held.extend(std::iter::from_fn(|| running.held.try_recv().ok()));
            report.interrupted += held.len() as u64;
            if plan.fault.is_some_and(|fault| fault.step().is_within()) {
                self.end_transactions().await?;
            }
            match plan.fault {
                Some(Fault::Crash(_)) => return Ok(Left::Killed),
                _ => held.into_iter().for_each(Held::release),
            }
        }
    }

    /// The server ends the transactions that wait behind the fence, by whatever
    /// client they came. One that was held is there; but another lane's cut may
    /// have ended it too.
    async fn end_transactions(&self) -> Result<(), Error> {
        let sql = format!(
            "select count(*) filter (where pg_terminate_backend(pid, 10000)) from pg_stat_activity \
             where state = 'idle in transaction' and pid in (select pid from pg_locks \
             where relation = '{SCHEMA}.position'::regclass and database = \
             (select oid from pg_database where datname = current_database()))"
        );
        for _ in 0..MAX_CUTS {
            let ended = self.client.query_one(&sql, &[]).await;
            let ended = ended
                .map_err(|error| Error::database("ending a transaction was refused", error))?;
            if ended.get::<_, i64>(0) > 0 {
                break;
            }
            tokio::time::sleep(CUT_PAUSE).await;
        }
        Ok(())
    }
}

impl Running<'_> {
    /// Stops it in order, if it has not ended.
    async fn end(self, deadline: Instant) -> Result<(), Error> {
        let Self { consumer, stop, held, .. } = self;
        drop(held);
        let _ = stop.send(());
        match timeout_at(deadline, consumer).await {
            // It is dropped.
            Ok(Ok(()) | Err(walpost_consumer::Error::Halted { .. })) | Err(_) => Ok(()),
            Ok(Err(error)) => Err(error.into()),
        }
    }
}

/// Whether each partition is where its log ends, and Kafka knows, or goes on no
/// more.
fn is_done(status: &Status, ends: &BTreeMap<TopicPartition, i64>) -> bool {
    ends.iter().all(|(of, end)| {
        status.partitions.get(of).is_some_and(|partition| match partition.state {
            PartitionState::Running => {
                partition.next_offset == Some(*end) && partition.committed_offset == Some(*end)
            }
            PartitionState::Halted { .. } => true,
            _ => false,
        })
    })
}

fn ending(status: &Status) -> Ending {
    let halted = status.partitions.values().find_map(|partition| match &partition.state {
        PartitionState::Halted { reason } => Some(reason.clone()),
        _ => None,
    });
    halted.map_or(Ending::Done, |reason| Ending::Halted { reason })
}

fn gone(ended: Result<(), walpost_consumer::Error>) -> Error {
    ended.err().unwrap_or(walpost_consumer::Error::Panicked("task")).into()
}

fn too_long<H>(setup: &Setup<H>, status: &watch::Receiver<Status>) -> Error {
    let partitions = &status.borrow().partitions;
    let of = |(of, partition): (&TopicPartition, &walpost_consumer::PartitionStatus)| {
        let next = partition.next_offset.map_or("nowhere yet".to_owned(), |next| next.to_string());
        format!("{of} is {:?}, next offset {next}", partition.state)
    };
    let doing: Vec<String> = partitions.iter().map(of).collect();
    let doing = if doing.is_empty() { "no partition was claimed".into() } else { doing.join("; ") };
    Error::TooLong { limit_ms: setup.limit_ms, doing }
}

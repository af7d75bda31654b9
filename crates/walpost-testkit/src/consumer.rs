use std::{collections::BTreeMap, future::Future, time::Duration};

use tokio::{
    sync::{oneshot, watch},
    task::JoinHandle,
    time::timeout,
};
use walpost_consumer::{Consumer, Error, Handler, PartitionState, Status};

/// Longest wait for anything: of a request that a broker never answers librdkafka waits
/// a minute, and begins anew then.
const LIMIT: Duration = Duration::from_secs(150);

/// A consumer that runs as a task.
#[derive(Debug)]
pub struct Running {
    /// What it is doing.
    pub status: watch::Receiver<Status>,
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<(), Error>>,
}

/// Starts a consumer.
pub fn run<H: Handler>(consumer: Consumer<H>) -> Running {
    let status = consumer.status();
    let (stop, stopped) = oneshot::channel();
    let task = tokio::spawn(consumer.run(async {
        let _ = stopped.await;
    }));
    Running { status, stop, task }
}

impl Running {
    /// Waits until the status is as wanted.
    ///
    /// # Panics
    /// With the status, if it is not in time.
    pub async fn until(&mut self, what: &str, wanted: impl FnMut(&Status) -> bool) -> Status {
        let waiting = async { self.status.wait_for(wanted).await.map(|status| status.clone()) };
        match timeout(LIMIT, waiting).await {
            Ok(Ok(status)) => status,
            Ok(Err(_)) => panic!("the consumer ended before {what}: {:?}", self.status.borrow()),
            Err(_) => panic!("waited in vain for {what}: {:?}", self.status.borrow()),
        }
    }

    /// Waits until as many events were applied.
    ///
    /// # Panics
    /// If they are not in time.
    pub async fn until_applied(&mut self, count: u64) -> Status {
        self.until("effects", |status| status.counts.applied >= count).await
    }

    /// Waits until so many partitions run, and no other is assigned.
    ///
    /// # Panics
    /// If they do not in time.
    pub async fn until_running(&mut self, count: usize) -> Status {
        let runs = |state: &PartitionState| matches!(state, PartitionState::Running);
        self.until("running partitions", |status| {
            status.partitions.len() == count
                && status.partitions.values().all(|partition| runs(&partition.state))
        })
        .await
    }

    /// Waits until one partition is halted, and says why.
    ///
    /// # Panics
    /// If none is in time.
    pub async fn until_halted(&mut self) -> String {
        let reason = |status: &Status| {
            status.partitions.values().find_map(|partition| match &partition.state {
                PartitionState::Halted { reason } => Some(reason.clone()),
                _ => None,
            })
        };
        let status = self.until("a halted partition", |status| reason(status).is_some()).await;
        reason(&status).expect("it was waited for")
    }

    /// Asks it to stop and waits for its end.
    ///
    /// # Errors
    /// That of the consumer.
    ///
    /// # Panics
    /// If it panicked, or does not end in time.
    pub async fn stop(self) -> Result<(), Error> {
        let _ = self.stop.send(());
        within(self.task).await.expect("the consumer does not panic")
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// That of the consumer.
    ///
    /// # Panics
    /// If it panicked, or does not end in time.
    pub async fn end(self) -> Result<(), Error> {
        within(self.task).await.expect("the consumer does not panic")
    }

    /// Drops it half-way, as a panic of the application would.
    ///
    /// # Panics
    /// If that takes more than a minute.
    pub async fn abort(self) {
        self.task.abort();
        let _ = within(self.task).await;
    }
}

/// Waits for `future`.
///
/// # Panics
/// If it takes more than a minute.
pub async fn within<T>(future: impl Future<Output = T>) -> T {
    timeout(LIMIT, future).await.expect("it ends in time")
}

/// Ids `prefix0` to `prefix<count - 1>`.
#[must_use]
pub fn ids(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|number| format!("{prefix}{number}")).collect()
}

/// How often each of `ids` took effect: each `times`.
#[must_use]
pub fn each(ids: &[String], times: i64) -> BTreeMap<String, i64> {
    ids.iter().map(|id| (id.clone(), times)).collect()
}

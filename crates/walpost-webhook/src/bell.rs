use std::{
    collections::BTreeMap,
    future::poll_fn,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    select,
    sync::{Notify, oneshot},
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_postgres::{AsyncMessage, Client, NoTls, config::SslMode};
use walpost_event::{RetrySchedule, error_chain, jitter};
use walpost_postgres::Database;

/// What is notified, with the name of a destination.
pub(crate) const CHANNEL: &str = "walpost_webhook";
/// Bound on opening a session, and on each answer of it.
const LIMIT: Duration = Duration::from_secs(10);
/// Between two looks whether the session still answers.
const EVERY: Duration = Duration::from_secs(60);

/// Hears of new deliveries and wakes the [processors](crate::Processor) that send them:
/// one session for all of a process.
///
/// Without it, and while its session is lost, deliveries are found at the next look. It
/// needs a session of its own: behind a pooler that shares sessions it hears nothing.
///
/// ```no_run
/// use walpost_postgres::Database;
/// use walpost_webhook::{Bell, Processor};
///
/// # async fn example(processor: Processor, terminated: impl Future<Output = ()>) -> Result<(), Box<dyn std::error::Error>> {
/// let bell = Bell::new(Database::parse("postgres://walpost@localhost/shop")?);
/// processor.woken_by(&bell);
/// bell.run(terminated).await;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Bell {
    database: Database,
    woken: Arc<Woken>,
}

/// Who is woken, by the destination.
#[derive(Debug, Default)]
struct Woken(Mutex<BTreeMap<String, Vec<Arc<Notify>>>>);

/// A session that listens.
struct Session {
    client: Client,
    /// Ready when the connection has ended.
    ended: oneshot::Receiver<()>,
    /// Ends with this value.
    _connection: JoinSet<()>,
}

impl Bell {
    /// Of deliveries in this database.
    pub fn new(database: Database) -> Self {
        Self { database, woken: Arc::default() }
    }

    /// Wakes whoever waits, from now on.
    pub(crate) fn add(&self, destination: &str, wake: Arc<Notify>) {
        self.woken.lock().entry(destination.to_owned()).or_default().push(wake);
    }

    /// Listens until `shutdown` is ready. Where that is not possible, or the session is
    /// lost, it tries again.
    pub async fn run(&self, shutdown: impl Future<Output = ()>) {
        select! {
            biased;
            () = shutdown => {}
            () = self.listen() => {}
        }
    }

    async fn listen(&self) {
        let mut failures = 0_u32;
        loop {
            match timeout(LIMIT, open(&self.database, &self.woken)).await {
                Ok(Ok(session)) => {
                    failures = 0;
                    // Of what came before nobody has told.
                    self.woken.wake_all();
                    last(session).await;
                    tracing::info!("the session that hears of deliveries has ended");
                }
                Ok(Err(problem)) => told(&mut failures, &problem),
                Err(_) => told(&mut failures, "no answer"),
            }
            sleep(again(failures.max(1))).await;
        }
    }
}

/// Until the session ends.
async fn last(mut session: Session) {
    loop {
        select! {
            _ = &mut session.ended => return,
            () = sleep(EVERY) => {
                // A session that was cut off says nothing about it.
                let answer = timeout(LIMIT, session.client.simple_query("")).await;
                if !matches!(answer, Ok(Ok(_))) {
                    return;
                }
            }
        }
    }
}

impl Woken {
    fn wake(&self, destination: &str) {
        for each in self.lock().get(destination).into_iter().flatten() {
            each.notify_one();
        }
    }

    fn wake_all(&self) {
        for each in self.lock().values().flatten() {
            each.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Vec<Arc<Notify>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn open(database: &Database, woken: &Arc<Woken>) -> Result<Session, String> {
    let stream = database.open().await.map_err(|error| error_chain(&error))?;
    let mut config = database.config().clone();
    // The stream is encrypted already where it has to be.
    config.ssl_mode(SslMode::Disable);
    let started = config.connect_raw(stream, NoTls).await;
    let (client, mut connection) = started.map_err(|error| error_chain(&error))?;
    let (end, ended) = oneshot::channel();
    let (mut task, woken) = (JoinSet::new(), Arc::clone(woken));
    task.spawn(async move {
        let _end: oneshot::Sender<()> = end;
        while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
            if let AsyncMessage::Notification(notification) = message {
                woken.wake(notification.payload());
            }
        }
    });
    let listen = format!("set idle_session_timeout = 0; listen {CHANNEL}");
    client.batch_execute(&listen).await.map_err(|error| error_chain(&error))?;
    Ok(Session { client, ended, _connection: task })
}

fn told(failures: &mut u32, problem: &str) {
    *failures = failures.saturating_add(1);
    // At a minute each: every hour.
    if *failures == 1 || failures.is_multiple_of(60) {
        tracing::warn!(problem, "not listening; deliveries are found at the next look");
    }
}

fn again(failures: u32) -> Duration {
    let pauses = RetrySchedule::backoff(Duration::from_millis(100), Duration::from_secs(60));
    pauses.delay(failures, jitter()).unwrap_or_default()
}

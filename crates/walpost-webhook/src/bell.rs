use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    select,
    sync::Notify,
    time::{sleep, timeout},
};
use walpost_event::{RetrySchedule, error_chain, jitter};
use walpost_postgres::{Database, Listener};

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
/// use walpost_postgres::{Database, Listener};
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
            let woken = Arc::clone(&self.woken);
            let listening = self.database.listen(CHANNEL, move |name| woken.wake(name));
            match timeout(LIMIT, listening).await {
                Ok(Ok(session)) => {
                    failures = 0;
                    // Of what came before nobody has told.
                    self.woken.wake_all();
                    last(session).await;
                    tracing::info!("the session that hears of deliveries has ended");
                }
                Ok(Err(error)) => told(&mut failures, &error_chain(&error)),
                Err(_) => told(&mut failures, "no answer"),
            }
            sleep(again(failures.max(1))).await;
        }
    }
}

/// Until the session ends.
async fn last(mut session: Listener) {
    loop {
        select! {
            () = session.ended() => return,
            () = sleep(EVERY) => {
                // A session that was cut off says nothing about it.
                if timeout(LIMIT, session.is_alive()).await != Ok(true) {
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

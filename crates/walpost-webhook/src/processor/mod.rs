//! Claims of one destination's deliveries, an attempt for each, and their ends:
//! no transaction is open during a call.

mod alerting;
mod attempt;
mod finisher;
mod gate;
mod running;
mod secrets;
mod standing;
mod turn;
mod upkeep;

use std::{
    fmt,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize},
    },
    time::Duration,
};

use tokio::{
    select,
    sync::{Notify, Semaphore, mpsc},
};
use walpost_postgres::Database;

use self::{
    finisher::Finisher, gate::Gate, running::Running, secrets::Secrets, standing::Standing,
};
use crate::{
    Alerts, Bell, Breaker, Client, ClientSettings, Deliveries, Destination, OnHeadFailure, Order,
    Pace, Rate, RetryPolicy, Schedule, StoreError,
    metrics::{self, Metrics, Snapshot},
};

/// What a lease has beyond the time of an attempt: for its claim and its end.
const LEASE_MARGIN: Duration = Duration::from_secs(5);
const CONCURRENCY_MAX: u32 = 10_000;
const BATCH_MAX: u32 = 10_000;
/// Ends of attempts that wait to be written down.
const ENDS_MAX: usize = 1_024;

/// What a [`Processor`] is to do.
#[derive(Clone, Debug)]
pub struct ProcessorSettings {
    /// The destination's name, as deliveries have it.
    pub name: String,
    /// Where it is, and what is sent there.
    pub destination: Destination,
    /// How it is sent.
    pub client: ClientSettings,
    /// What is done about attempts that fail.
    pub policy: RetryPolicy,
    /// How deliveries are taken.
    pub pace: Pace,
    /// Which of them go one after the other; none unless set. The same in each
    /// processor of the destination, and order holds for what is created once the first
    /// of them has run.
    pub order: Order,
    /// What becomes of those behind one that has failed; they wait unless set.
    pub on_head_failure: OnHeadFailure,
    /// Of those that are on their way at once, at most so many per cent are retries, and
    /// not all of them where there are several; 50. So retries that wait for a slow
    /// receiver leave hands to first attempts.
    pub retry_share_percent: u32,
    /// How much is sent at most; without a bound unless set. Each processor keeps to
    /// it for itself: several of one destination send as much each. With a rate
    /// nothing is claimed ahead.
    pub rate: Option<Rate>,
    /// When nothing more is sent for a while to a destination that is away:
    /// [`Breaker::default`] unless set, never with none. What is not sent meanwhile
    /// is not claimed, and no attempt is counted.
    pub breaker: Option<Breaker>,
    /// Who is told of deliveries that failed or whose outcome is unknown, of a
    /// destination that is gone and of a breaker that opens; nobody unless set. The
    /// role has to be a `writer` as well.
    pub alerts: Option<Alerts>,
    /// How long a claim holds; longer than an attempt takes by 5 s at least. Where
    /// it is longer than two of them, as many deliveries are claimed ahead as are
    /// on their way. Nothing is sent in its last 2.5 s, by the clock that began
    /// before the claim was asked for: what has not gone out by then is given back.
    pub lease: Duration,
    /// Bytes of bodies that are claimed and not yet sent, or in their calls; 8 MiB.
    /// A single body that is larger goes alone. The memory of a processor is about
    /// twice that while a claim is read, and the answers that wait to be written
    /// down: up to `body_max_bytes` of the client each, 1,300 of them at most.
    pub in_flight_max_bytes: usize,
    /// Name of this processor, in the column `claimed_by`.
    pub claimed_by: String,
    /// The tables.
    pub deliveries: Deliveries,
}

impl ProcessorSettings {
    /// By the schedule of [`Schedule::erp`], 20 at once, under leases of a minute.
    pub fn new(name: impl Into<String>, destination: Destination) -> Self {
        Self {
            name: name.into(),
            destination,
            client: ClientSettings::default(),
            policy: RetryPolicy::new(Schedule::erp()),
            pace: Pace::default(),
            order: Order::None,
            on_head_failure: OnHeadFailure::Block,
            retry_share_percent: 50,
            rate: None,
            breaker: Some(Breaker::default()),
            alerts: None,
            lease: Duration::from_secs(60),
            in_flight_max_bytes: 8 * 1_024 * 1_024,
            claimed_by: "walpost".to_owned(),
            deliveries: Deliveries::new(),
        }
    }

    /// How many deliveries are claimed at a time.
    fn claimed_max(&self) -> usize {
        let hands = self.order.at_once(self.pace.concurrency) as usize;
        if self.order == Order::All {
            return hands;
        }
        let has_time = self.lease >= self.client.timeout * 2 + LEASE_MARGIN;
        // What has a token goes at once.
        if has_time && self.rate.is_none() { hands * 2 } else { hands }
    }

    /// How many retries are on their way at once at most.
    fn retry_hands(&self) -> usize {
        let hands = self.order.at_once(self.pace.concurrency);
        let share = u64::from(hands) * u64::from(self.retry_share_percent) / 100;
        let most = hands.saturating_sub(1).max(1) as usize;
        usize::try_from(share).unwrap_or(most).clamp(1, most)
    }

    /// How many retries are claimed at a time.
    fn retries_max(&self) -> usize {
        let ahead = self.claimed_max() / self.order.at_once(self.pace.concurrency) as usize;
        self.retry_hands() * ahead
    }

    /// # Errors
    /// When a setting is out of its bounds.
    pub fn check(&self) -> Result<(), StoreError> {
        let bad = |setting, problem: String| Err(StoreError::Setting { setting, problem });
        let Pace { poll, batch, concurrency } = self.pace;
        if !(1..=CONCURRENCY_MAX).contains(&concurrency) {
            return bad(
                "concurrency",
                format!("{concurrency} is not within 1 to {CONCURRENCY_MAX}"),
            );
        }
        if !(1..=BATCH_MAX).contains(&batch) {
            return bad("batch", format!("{batch} is not within 1 to {BATCH_MAX}"));
        }
        if !(1..=100).contains(&self.retry_share_percent) {
            let problem = format!("{} is not within 1 to 100", self.retry_share_percent);
            return bad("retry_share_percent", problem);
        }
        if self.in_flight_max_bytes == 0 {
            let problem = "0 would send one delivery at a time; give it some MiB".to_owned();
            return bad("in_flight_max_bytes", problem);
        }
        if let Some(problem) = self.rate.and_then(|rate| rate.problem()) {
            return bad("rate", problem);
        }
        if let Some(problem) = self.breaker.and_then(|breaker| breaker.problem()) {
            return bad("breaker", problem.to_owned());
        }
        if poll.is_zero() {
            return bad("poll", "0 would ask the database without end".to_owned());
        }
        let least = self.client.timeout + LEASE_MARGIN;
        if self.lease < least {
            let lease = self.lease;
            return bad(
                "lease",
                format!(
                    "{lease:?} may end before an attempt is written down: the attempt takes \
                     {:?} at most (timeout), its claim and its end {LEASE_MARGIN:?}; give it \
                     {least:?}",
                    self.client.timeout
                ),
            );
        }
        Ok(())
    }
}

/// Sends the deliveries of one destination.
///
/// Any number of processors, in any number of processes, share a destination: a
/// delivery is claimed by one at a time, under a lease. Whoever dies with a claim
/// leaves it to the others once the lease has ended: then nobody knows whether it
/// arrived, and it is sent again with the same key, or held as
/// [`OnUnknownOutcome`](crate::OnUnknownOutcome) says.
///
/// One destination that is slow or away delays no other: each has its own
/// processor.
///
/// ```no_run
/// use walpost_postgres::Database;
/// use walpost_webhook::{AddressPolicy, Destination, Endpoint, Processor, ProcessorSettings};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let endpoint = Endpoint::parse("https://logistics.example/webhooks", AddressPolicy::public())?;
/// let settings = ProcessorSettings::new("logistics", Destination::new(endpoint));
/// let database = Database::parse("postgres://walpost@localhost/shop")?;
/// let processor = Processor::new(database, settings)?;
/// processor.run(async { /* wait for SIGTERM */ }).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Processor {
    shared: Arc<Shared>,
}

struct Shared {
    database: Database,
    settings: ProcessorSettings,
    client: Client,
    metrics: Metrics,
    /// One for each attempt that is made at a time.
    hands: Semaphore,
    /// One for each of them that is a retry, which waits for it first.
    retry_hands: Semaphore,
    /// That are claimed.
    retries: AtomicUsize,
    /// Whether more of them may be due.
    has_retries: AtomicBool,
    /// Of bodies that are claimed.
    bytes: AtomicUsize,
    /// Nothing is sent while the destination is known to be disabled.
    standing: Standing,
    /// Nor while its secrets cannot be read.
    secrets: Secrets,
    gate: Arc<Gate>,
    /// There may be something to claim.
    wake: Arc<Notify>,
}

impl Processor {
    /// # Errors
    /// When a setting is out of its bounds.
    pub fn new(database: Database, settings: ProcessorSettings) -> Result<Self, StoreError> {
        settings.check()?;
        let client = Client::new(settings.client.clone());
        let metrics = Metrics::new(&settings.name);
        let hands = Semaphore::new(settings.pace.concurrency as usize);
        let retry_hands = Semaphore::new(settings.retry_hands());
        let (retries, has_retries) = (AtomicUsize::new(0), AtomicBool::new(false));
        let bytes = AtomicUsize::new(0);
        let (standing, secrets) = (Standing::default(), Secrets::new(&settings.name));
        let gate = Arc::new(Gate::new(settings.breaker, &settings.name));
        let wake = Arc::default();
        let shared = Shared {
            database,
            settings,
            client,
            metrics,
            hands,
            retry_hands,
            retries,
            has_retries,
            bytes,
            standing,
            secrets,
            gate,
            wake,
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Has it look at once when a bell hears of its deliveries.
    pub fn woken_by(&self, bell: &Bell) {
        bell.add(&self.shared.settings.name, Arc::clone(&self.shared.wake));
    }

    /// What it has done so far.
    pub fn snapshot(&self) -> Snapshot {
        self.shared.metrics.snapshot()
    }

    /// Sends deliveries until `shutdown` is ready. Then it claims nothing more,
    /// ends what it has begun, and returns.
    ///
    /// A server that cannot be reached is waited for. If this future is dropped,
    /// attempts end where they are, and their deliveries wait for their leases.
    ///
    /// # Errors
    /// When the tables are missing or refused, once what was begun is done.
    pub async fn run(&self, shutdown: impl Future<Output = ()>) -> Result<(), StoreError> {
        metrics::describe();
        let (ends, received) = mpsc::channel(ENDS_MAX);
        // Ends with this future, wherever that is dropped.
        let mut finishing = tokio::task::JoinSet::new();
        finishing.spawn(Finisher::new(Arc::clone(&self.shared), received).run());
        let mut running = Running::new(Arc::clone(&self.shared), ends);
        let mut shutdown = pin!(shutdown);
        let ended = loop {
            // Never dropped half-way: a claim whose answer is lost keeps its
            // deliveries until their leases end.
            if let Err(error) = running.turn().await {
                break Err(error);
            }
            select! {
                biased;
                () = &mut shutdown => break Ok(()),
                () = running.wait() => {}
            }
        };
        running.drain().await;
        let _ = finishing.join_next().await;
        ended
    }
}

impl fmt::Debug for Processor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Processor")
            .field("settings", &self.shared.settings)
            .field("database", &self.shared.database.to_string())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AddressPolicy, Endpoint};

    #[test]
    fn retries_have_their_share_and_never_all_of_several() {
        let endpoint = Endpoint::parse("https://example.com/", AddressPolicy::public()).unwrap();
        let good = ProcessorSettings::new("a", Destination::new(endpoint));
        let shares = |concurrency: u32, retry_share_percent: u32, order: Order| {
            let pace = Pace { concurrency, ..Pace::default() };
            let settings = ProcessorSettings { pace, order, retry_share_percent, ..good.clone() };
            settings.check().unwrap();
            (settings.retry_hands(), settings.retries_max())
        };
        assert_eq!(shares(20, 50, Order::None), (10, 20));
        assert_eq!(shares(20, 100, Order::Key), (19, 38));
        assert_eq!(shares(20, 1, Order::None), (1, 2));
        assert_eq!(shares(2, 100, Order::None), (1, 2));
        assert_eq!(shares(1, 50, Order::None), (1, 2));
        assert_eq!(shares(20, 50, Order::All), (1, 1));
    }

    #[test]
    fn settings_that_cannot_work_are_refused_by_name() {
        let endpoint = Endpoint::parse("https://example.com/", AddressPolicy::public()).unwrap();
        let good = ProcessorSettings::new("a", Destination::new(endpoint));
        good.check().unwrap();
        let named = |settings: ProcessorSettings| match settings.check().unwrap_err() {
            StoreError::Setting { setting, .. } => setting,
            other => panic!("{other}"),
        };
        let pace = |pace: Pace| named(ProcessorSettings { pace, ..good.clone() });
        assert_eq!(pace(Pace { concurrency: 0, ..Pace::default() }), "concurrency");
        assert_eq!(pace(Pace { batch: 0, ..Pace::default() }), "batch");
        assert_eq!(pace(Pace { poll: Duration::ZERO, ..Pace::default() }), "poll");
        let rate = Some(Rate { burst: 0, ..Rate::per_second(1.0) });
        assert_eq!(named(ProcessorSettings { rate, ..good.clone() }), "rate");
        let breaker = Some(Breaker { failures: 0, ..Breaker::default() });
        assert_eq!(named(ProcessorSettings { breaker, ..good.clone() }), "breaker");
        let retry_share_percent = 0;
        let none = ProcessorSettings { retry_share_percent, ..good.clone() };
        assert_eq!(named(none), "retry_share_percent");
        let in_flight_max_bytes = 0;
        let none = ProcessorSettings { in_flight_max_bytes, ..good.clone() };
        assert_eq!(named(none), "in_flight_max_bytes");
        let lease = Duration::from_secs(19);
        assert_eq!(named(ProcessorSettings { lease, ..good.clone() }), "lease");
        let lease = Duration::from_secs(20);
        let short = ProcessorSettings { lease, ..good.clone() };
        short.check().unwrap();
        // Whoever waits for a hand has its lease still.
        assert_eq!((short.claimed_max(), good.claimed_max()), (20, 40));
        let rate = Some(Rate::per_second(1.0));
        assert_eq!(ProcessorSettings { rate, ..good }.claimed_max(), 20);
    }
}

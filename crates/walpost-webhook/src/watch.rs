use std::{
    collections::{BTreeMap, BTreeSet},
    pin::pin,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use metrics::{Gauge, describe_gauge, gauge};
use tokio::{
    select,
    time::{sleep, timeout},
};
use tokio_postgres::Client;
use walpost_event::{RetrySchedule, jitter};
use walpost_postgres::Database;

use crate::{Deliveries, DestinationBacklog, DestinationState, StoreError};

/// Between two looks, unless set.
const EVERY: Duration = Duration::from_secs(10);
/// Longest time for a look; the server gives it up a little earlier.
const LOOK_TIMEOUT: Duration = Duration::from_secs(30);
const STATEMENT_TIMEOUT: &str = "set statement_timeout = 25000";

/// Counts what is not done of every destination, and sets gauges.
///
/// One of them for a database is enough; where each of several processes has one,
/// they set the same values.
///
/// ```no_run
/// use walpost_postgres::Database;
/// use walpost_webhook::Watch;
///
/// # async fn example(terminated: impl Future<Output = ()>) -> Result<(), Box<dyn std::error::Error>> {
/// let watch = Watch::new(Database::parse("postgres://app@db.internal/shop")?);
/// watch.run(terminated).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use]
pub struct Watch {
    database: Database,
    deliveries: Deliveries,
    every: Duration,
    /// Those that are configured, where that is known.
    destinations: Option<BTreeSet<String>>,
    seen: Mutex<Vec<DestinationBacklog>>,
}

/// Of one destination.
#[derive(Debug)]
struct Gauges {
    states: [Gauge; 5],
    oldest_pending_seconds: Gauge,
    disabled: Gauge,
    blocked: Gauge,
    /// Where it is known who is configured.
    unconfigured: Option<Gauge>,
}

impl Watch {
    /// Of the tables in the schema `walpost`, every 10 s. The role has to be a
    /// `reader` at least.
    pub fn new(database: Database) -> Self {
        let (deliveries, every, destinations) = (Deliveries::new(), EVERY, None);
        Self { database, deliveries, every, destinations, seen: Mutex::default() }
    }

    /// Of other tables.
    pub fn deliveries(mut self, deliveries: Deliveries) -> Self {
        self.deliveries = deliveries;
        self
    }

    /// How long between two looks: 100 ms to an hour.
    pub fn every(mut self, every: Duration) -> Self {
        self.every = every.clamp(Duration::from_millis(100), Duration::from_secs(3_600));
        self
    }

    /// Which destinations are configured: a warning names each other one that something
    /// waits for, once, and a gauge says so. Of several processes that share the tables
    /// each says so of the others' destinations.
    pub fn destinations<N: Into<String>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.destinations = Some(names.into_iter().map(Into::into).collect());
        self
    }

    /// What the last look has found.
    pub fn backlog(&self) -> Vec<DestinationBacklog> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Looks until `shutdown` is ready.
    ///
    /// A server that cannot be reached is waited for, and the gauges keep their
    /// values meanwhile.
    ///
    /// # Errors
    /// When the tables are missing or refused.
    pub async fn run(&self, shutdown: impl Future<Output = ()>) -> Result<(), StoreError> {
        describe();
        let mut shutdown = pin!(shutdown);
        let mut session = None;
        let (mut gauges, mut told) = (BTreeMap::new(), BTreeSet::new());
        let mut failures = 0_u32;
        loop {
            let looked = select! {
                biased;
                () = &mut shutdown => return Ok(()),
                looked = timeout(LOOK_TIMEOUT, self.look(&mut session)) => looked,
            };
            let looked = looked.unwrap_or_else(|_| {
                let detail = format!("no answer in {LOOK_TIMEOUT:?}");
                Err(StoreError::Unavailable { attempted: "reading destinations", detail })
            });
            let pause = match looked {
                Ok(seen) => {
                    failures = 0;
                    set(&mut gauges, &seen, self.destinations.as_ref());
                    told = self.tell(&seen, &told);
                    *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = seen;
                    self.every
                }
                Err(error) if error.is_transient() => {
                    session = None;
                    failures += 1;
                    // At 5 s each: every minute.
                    if failures == 1 || failures.is_multiple_of(12) {
                        tracing::warn!(%error, failures, "looking at destinations failed");
                    }
                    again(failures)
                }
                Err(error) => return Err(error),
            };
            select! {
                biased;
                () = &mut shutdown => return Ok(()),
                () = sleep(pause) => {}
            }
        }
    }

    /// Warns of those that are not configured, and were not told; returns their names.
    fn tell(&self, seen: &[DestinationBacklog], told: &BTreeSet<String>) -> BTreeSet<String> {
        let left = seen.iter().filter(|each| each.is_unconfigured(self.destinations.as_ref()));
        let tell = |each: &DestinationBacklog| {
            let DestinationBacklog { destination, pending, held, .. } = each;
            if !told.contains(destination) {
                tracing::warn!(
                    destination,
                    pending,
                    held,
                    "deliveries wait for a destination that is not configured here: configure it \
                     again under this name, or give them up with `walpost webhook settle ID \
                     --failed`; if another process sends to it, this says nothing"
                );
            }
            destination.clone()
        };
        left.map(tell).collect()
    }

    async fn look(
        &self,
        session: &mut Option<Client>,
    ) -> Result<Vec<DestinationBacklog>, StoreError> {
        if session.as_ref().is_none_or(Client::is_closed) {
            *session = Some(self.connect().await?);
        }
        self.deliveries.backlog(session.as_ref().expect("it was filled")).await
    }

    async fn connect(&self) -> Result<Client, StoreError> {
        let client = self.database.connect().await.map_err(|error| {
            let (attempted, detail) = ("connecting", error.to_string());
            match error.is_transient() {
                true => StoreError::Unavailable { attempted, detail },
                false => StoreError::Refused { attempted, detail },
            }
        })?;
        let limited = client.batch_execute(STATEMENT_TIMEOUT).await;
        limited.map_err(|error| self.deliveries.error("connecting", "reader", &error))?;
        Ok(client)
    }
}

fn again(failures: u32) -> Duration {
    let pauses = RetrySchedule::backoff(Duration::from_millis(100), Duration::from_secs(5));
    pauses.delay(failures, jitter()).unwrap_or_default()
}

fn describe() {
    describe_gauge!("walpost_webhook_deliveries", "Deliveries that are not done, by state");
    describe_gauge!("walpost_webhook_oldest_pending_seconds", "How long the oldest one waits");
    describe_gauge!("walpost_webhook_blocked", "Pending deliveries that wait for another one");
    describe_gauge!("walpost_webhook_destination_disabled", "1 while what is for it is held");
    describe_gauge!(
        "walpost_webhook_destination_unconfigured",
        "1 while deliveries wait for a destination that this process does not have"
    );
}

/// A destination that is gone has nothing any more.
fn set(
    gauges: &mut BTreeMap<String, Gauges>,
    seen: &[DestinationBacklog],
    configured: Option<&BTreeSet<String>>,
) {
    for (name, gauges) in &*gauges {
        if seen.iter().all(|each| each.destination != *name) {
            gauges.set([0; 5], Duration::ZERO, (false, 0));
            gauges.set_unconfigured(false);
        }
    }
    for each in seen {
        let counts = [each.pending, each.sending, each.failed, each.held, each.unknown];
        let gauges = gauges
            .entry(each.destination.clone())
            .or_insert_with(|| Gauges::new(&each.destination, configured.is_some()));
        let is_disabled = each.state == DestinationState::Disabled;
        gauges.set(counts, each.oldest_pending, (is_disabled, each.blocked));
        gauges.set_unconfigured(each.is_unconfigured(configured));
    }
}

impl Gauges {
    fn new(destination: &str, is_known: bool) -> Self {
        let labels = [("destination", destination.to_owned())];
        // In the order of `set`.
        let states = ["pending", "sending", "failed", "held", "unknown"];
        Self {
            states: states.map(|state| {
                let labels = [("destination", destination.to_owned()), ("state", state.to_owned())];
                gauge!("walpost_webhook_deliveries", &labels)
            }),
            oldest_pending_seconds: gauge!("walpost_webhook_oldest_pending_seconds", &labels),
            disabled: gauge!("walpost_webhook_destination_disabled", &labels),
            blocked: gauge!("walpost_webhook_blocked", &labels),
            unconfigured: is_known
                .then(|| gauge!("walpost_webhook_destination_unconfigured", &labels)),
        }
    }

    fn set_unconfigured(&self, is_unconfigured: bool) {
        if let Some(gauge) = &self.unconfigured {
            gauge.set(f64::from(u8::from(is_unconfigured)));
        }
    }

    fn set(&self, counts: [u64; 5], oldest: Duration, (is_disabled, blocked): (bool, u64)) {
        for (gauge, count) in self.states.iter().zip(counts) {
            gauge.set(count as f64);
        }
        self.oldest_pending_seconds.set(oldest.as_secs_f64());
        self.blocked.set(blocked as f64);
        self.disabled.set(f64::from(u8::from(is_disabled)));
    }
}

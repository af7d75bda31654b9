//! A migrated database, receivers, and processors of a destination.

use std::time::Duration;

use tokio::{sync::oneshot, task::JoinHandle};
use tokio_postgres::Client;
use walpost_migrate::{Migrator, Set};
use walpost_testkit::{Database, fresh_database, until};
use walpost_webhook::{
    AddressPolicy, Bell, ClientSettings, Deliveries, Destination, Endpoint, Message, NewDelivery,
    Pace, Processor, ProcessorSettings, RetryPolicy, Schedule, Snapshot, StoreError,
};

use crate::receiver::Receiver;

/// Bound on every wait.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);
/// Of the one destination.
pub(crate) const NAME: &str = "logistics";

pub(crate) struct World {
    pub(crate) database: Database,
    pub(crate) client: Client,
    pub(crate) deliveries: Deliveries,
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::on(fresh_database().await).await
    }

    pub(crate) async fn on(database: Database) -> Self {
        let mut client = database.connect().await;
        Migrator::new().set(Set::Webhook).migrate(&mut client).await.unwrap();
        Self { database, client, deliveries: Deliveries::new() }
    }

    /// Deliveries by the ids of their events, which are their keys as well.
    pub(crate) async fn insert(&self, ids: &[String]) {
        let new: Vec<NewDelivery> = ids.iter().map(|id| delivery(id)).collect();
        assert_eq!(self.deliveries.insert(&self.client, &new).await.unwrap(), ids.len() as u64);
    }

    /// State, attempts and last outcome of an event's delivery.
    pub(crate) async fn row(&self, event_id: &str) -> (String, i32, Option<String>) {
        let sql = "select state, attempts, outcome from walpost.webhook_delivery \
                   where event_id = $1";
        let row = self.client.query_one(sql, &[&event_id]).await.unwrap();
        (row.get(0), row.get(1), row.get(2))
    }

    /// Waits until so many deliveries are in a state.
    pub(crate) async fn until(&self, state: &str, count: i64) {
        let sql = format!("select count(*) from walpost.webhook_delivery where state = '{state}'");
        let what = format!("{count} deliveries {state}");
        until(LIMIT, &what, async || self.number(&sql).await == count).await;
    }

    /// Waits until a processor looks for deliveries once more.
    pub(crate) async fn polled(&self) {
        self.asked("with due").await;
    }

    /// The same of one whose deliveries go one at a time.
    pub(crate) async fn polled_in_turn(&self) {
        self.asked("commit").await;
    }

    /// Waits until a statement that begins like this is asked once more.
    pub(crate) async fn asked(&self, statement: &str) {
        self.asked_by(statement, 1).await;
    }

    /// The same by so many sessions.
    pub(crate) async fn asked_by(&self, statement: &str, sessions: i64) {
        let now = "select (extract(epoch from clock_timestamp()) * 1e6)::int8";
        let now = self.number(now).await;
        let looked = format!(
            "select count(*) from pg_stat_activity where datname = current_database() \
             and query like '{statement}%' and extract(epoch from query_start) * 1e6 > {now}"
        );
        until(LIMIT, statement, async || self.number(&looked).await >= sessions).await;
    }

    /// From now on a delivery whose attempt failed waits until it is [let go](Self::let_go);
    /// when it would have been due is noted.
    pub(crate) async fn hold_retries(&self) {
        let sql = format!(
            "create table due (delivery bigint, fence bigint, moment timestamptz); \
             create function hold_retry() returns trigger language plpgsql as $$ begin \
             insert into public.due values (new.id, new.fence, new.next_attempt_at); \
             new.next_attempt_at := now() + interval '1 day'; return new; end $$; \
             create trigger hold_retry before update on walpost.webhook_delivery \
             for each row when (old.state = 'sending' and new.state = 'pending' \
             and new.attempts = old.attempts and new.destination = '{NAME}') \
             execute function hold_retry()"
        );
        self.client.batch_execute(&sql).await.unwrap();
    }

    /// The seconds from the end of the last attempt to when its delivery would have been due,
    /// rounded.
    pub(crate) async fn wait(&self) -> i64 {
        let wait = "select round(extract(epoch from due.moment - a.ended_at))::int8 \
                    from due join walpost.webhook_attempt a \
                    on (a.delivery, a.number) = (due.delivery, due.fence) \
                    order by a.number desc limit 1";
        self.number(wait).await
    }

    /// Has those go that wait for another attempt.
    pub(crate) async fn let_go(&self) {
        let go = format!(
            "update walpost.webhook_delivery set next_attempt_at = now() \
             where destination = '{NAME}' and state = 'pending'"
        );
        self.past_triggers(&go).await;
    }

    /// The one number that a query gives.
    pub(crate) async fn number(&self, sql: &str) -> i64 {
        self.client.query_one(sql, &[]).await.unwrap().get(0)
    }

    /// The texts of a query's first column.
    pub(crate) async fn texts(&self, sql: &str) -> Vec<String> {
        let rows = self.client.query(sql, &[]).await.unwrap();
        rows.iter().map(|row| row.get(0)).collect()
    }

    /// Runs what the triggers would refuse: as time would, say.
    pub(crate) async fn past_triggers(&self, sql: &str) {
        let sql = format!("begin; set local session_replication_role = replica; {sql}; commit");
        self.client.batch_execute(&sql).await.unwrap();
    }
}

pub(crate) fn delivery(id: &str) -> NewDelivery {
    NewDelivery::new(NAME, id, Message::new(id, format!("{{\"id\":\"{id}\"}}")))
}

/// `prefix` and a number of three digits, `count` times.
pub(crate) fn ids(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|number| format!("{prefix}{number:03}")).collect()
}

/// Of a processor that tries twice more almost at once.
pub(crate) fn settings(url: &str) -> ProcessorSettings {
    let addresses = AddressPolicy::with_private_networks();
    let endpoint = Endpoint::parse(url, addresses).unwrap();
    let mut settings = ProcessorSettings::new(NAME, Destination::new(endpoint));
    // Where a machine stalls no attempt is to fail that is counted.
    let timeout = Duration::from_secs(20);
    settings.client =
        ClientSettings { timeout, connect_timeout: timeout, ..crate::client::settings() };
    settings.policy = RetryPolicy::new(Schedule::fixed(Duration::from_millis(10), 2));
    settings.pace = Pace { poll: Duration::from_millis(20), ..Pace::default() };
    settings
}

/// The same, for a receiver that takes its time: four at once, as many claimed ahead.
pub(crate) fn patient(url: &str) -> ProcessorSettings {
    let mut settings = settings(url);
    settings.client.timeout = LIMIT;
    settings.lease = LIMIT * 3;
    settings.pace.concurrency = 4;
    settings
}

/// A processor that runs until it is told to stop.
pub(crate) struct Running {
    processor: Processor,
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<(), StoreError>>,
}

pub(crate) fn run(world: &World, settings: ProcessorSettings) -> Running {
    run_at(world.database.url(), settings)
}

/// The same as another role.
pub(crate) fn run_as(world: &World, role: &str, settings: ProcessorSettings) -> Running {
    let url = world.database.url().replacen("postgres@", &format!("{role}@"), 1);
    run_at(&url, settings)
}

/// The same, woken by a bell.
pub(crate) fn run_woken(world: &World, bell: &Bell, settings: ProcessorSettings) -> Running {
    let database = walpost_postgres::Database::parse(world.database.url()).unwrap();
    let processor = Processor::new(database, settings).unwrap();
    processor.woken_by(bell);
    start(processor)
}

/// The same by a way of its own to the database.
pub(crate) fn run_at(url: &str, settings: ProcessorSettings) -> Running {
    let database = walpost_postgres::Database::parse(url).unwrap();
    start(Processor::new(database, settings).unwrap())
}

fn start(processor: Processor) -> Running {
    let (stop, stopped) = oneshot::channel();
    let running = processor.clone();
    let task = tokio::spawn(async move {
        let stopped = async {
            // A test that failed has dropped the other end.
            let _ = stopped.await;
        };
        running.run(stopped).await
    });
    Running { processor, stop, task }
}

impl Running {
    /// What it has counted so far.
    pub(crate) fn snapshot(&self) -> Snapshot {
        self.processor.snapshot()
    }

    pub(crate) async fn stop(self) -> Snapshot {
        self.stop.send(()).unwrap();
        self.task.await.unwrap().unwrap();
        self.processor.snapshot()
    }

    /// Waits for the error that ends it.
    pub(crate) async fn error(self) -> StoreError {
        self.task.await.unwrap().unwrap_err()
    }
}

/// The keys that a receiver got, in order.
pub(crate) fn keys(receiver: &Receiver) -> Vec<String> {
    let key = |request: String| {
        let line = request.lines().find_map(|line| line.strip_prefix("Idempotency-Key: "));
        line.expect("each request has a key").to_owned()
    };
    receiver.requests().into_iter().map(key).collect()
}

/// The same without their order.
pub(crate) fn sorted_keys(receiver: &Receiver) -> Vec<String> {
    let mut keys = keys(receiver);
    keys.sort();
    keys
}

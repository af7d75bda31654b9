//! A migrated database, rows in any state, and a handler that does what an
//! event's type says.

use std::{future::pending, time::Duration};

use tokio::{sync::oneshot, task::JoinHandle};
use tokio_postgres::{Client, Transaction, types::ToSql};
use walpost_inbox::{
    Builder, Database as Place, Error, Event, Handler, HandlerError, Head, Inbox, Insert, NewEvent,
    Processor, RetrySchedule, Snapshot, State,
};
use walpost_migrate::{Migrator, Set};
use walpost_testkit::{Database, MARKER, Quoting, fresh_database, postgres_of, until};

/// Bound on every wait.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

const TABLES: &str = "
    create table effect (number int generated always as identity, event_id text not null);
    create table note (name text primary key);
    create table ticket (number int primary key);
    create sequence tries;
    create function conflict(times int) returns void language plpgsql as $$ begin
        if nextval('tries') <= times then
            raise exception 'later' using errcode = '40001';
        end if;
    end $$;
    create function refuse(name text) returns void language plpgsql as $$ begin
        raise exception 'no % here', name using errcode = '42501', detail = name, hint = name;
    end $$";

/// A database with the tables of the inbox, and a session of its owner.
pub(crate) struct World {
    pub(crate) database: Database,
    pub(crate) client: Client,
    pub(crate) inbox: Inbox,
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::on(fresh_database().await).await
    }

    pub(crate) async fn of(major: u32) -> Self {
        Self::on(postgres_of(major).fresh_database().await).await
    }

    async fn on(database: Database) -> Self {
        let mut client = database.connect().await;
        Migrator::new().set(Set::Inbox).migrate(&mut client).await.unwrap();
        client.batch_execute(TABLES).await.unwrap();
        Self { database, client, inbox: Inbox::new() }
    }

    /// Inserts an event on a session of its own.
    pub(crate) async fn insert(&self, event: &NewEvent) -> Insert {
        let mut client = self.database.connect().await;
        let tx = client.transaction().await.unwrap();
        let insert = self.inbox.insert_once(&tx, event).await.unwrap();
        tx.commit().await.unwrap();
        insert
    }

    /// Inserts events of a type by their ids.
    pub(crate) async fn receive(&self, event_type: &str, ids: impl IntoIterator<Item = String>) {
        let mut client = self.database.connect().await;
        for id in ids {
            let tx = client.transaction().await.unwrap();
            let event = NewEvent::new(&id, event_type, format!("\"{id}\""));
            let _ = self.inbox.insert_once(&tx, &event).await.unwrap();
            tx.commit().await.unwrap();
        }
    }

    /// A processor that tries a failed event twice more, almost at once.
    pub(crate) fn processor(&self) -> Builder {
        Processor::builder(Place::config(self.database.config()))
            .retries(RetrySchedule::new([Duration::from_millis(20); 2]))
    }

    /// Waits until so many events are in a state.
    pub(crate) async fn until(&self, state: State, count: i64) {
        let sql = format!(
            "select count(*) from walpost.inbox where processing_state = '{state}' \
             and (processing_state <> 'failed' or next_attempt_at is null)"
        );
        until(LIMIT, &format!("{count} events {state}"), async || self.number(&sql).await == count)
            .await;
    }

    /// Ids of events with their effects, in the order of these.
    pub(crate) async fn effects(&self) -> Vec<String> {
        self.texts("select event_id from effect order by number", &[]).await
    }

    /// The same, in the order of ids.
    pub(crate) async fn sorted_effects(&self) -> Vec<String> {
        let mut effects = self.effects().await;
        effects.sort();
        effects
    }

    /// The one number that a query gives.
    pub(crate) async fn number(&self, sql: &str) -> i64 {
        self.client.query_one(sql, &[]).await.unwrap().get(0)
    }

    /// The texts of a query's first column.
    pub(crate) async fn texts(&self, sql: &str, parameters: &[&(dyn ToSql + Sync)]) -> Vec<String> {
        let rows = self.client.query(sql, parameters).await.unwrap();
        rows.iter().map(|row| row.get(0)).collect()
    }

    /// State and reason of an event, by its id.
    pub(crate) async fn state(&self, event_id: &str) -> (State, Option<String>) {
        let sql = "select processing_state, reason from walpost.inbox where event_id = $1";
        let row = self.client.query_one(sql, &[&event_id]).await.unwrap();
        (row.get::<_, &str>(0).parse().unwrap(), row.get(1))
    }

    /// A row in `state`, past all triggers; its number.
    pub(crate) async fn plant(&self, state: State) -> i64 {
        // Fence and attempts, next attempt, lease, reason.
        let columns = match state {
            State::Processing => "1, 1, now(), now() + interval '1 hour', null",
            State::Failed => "1, 1, now(), null, 'planted'",
            State::Pending => "0, 0, now(), null, null",
            _ => "0, 0, null, null, null",
        };
        let processed = if state.is_terminal() { "now()" } else { "null" };
        let sql = format!(
            "insert into walpost.inbox (event_id, event_type, processing_state, payload, \
             payload_hash, payload_bytes, processed_at, attempts, fence, next_attempt_at, \
             lease_until, reason) \
             values (gen_random_uuid()::text, 't', '{state}', 'p', sha256('p'), 1, {processed}, \
             {columns})"
        );
        self.past_triggers(&sql).await;
        self.number("select max(seq) from walpost.inbox").await
    }

    /// Runs what the triggers would refuse.
    pub(crate) async fn past_triggers(&self, sql: &str) {
        let sql = format!("begin; set local session_replication_role = replica; {sql}; commit");
        self.client.batch_execute(&sql).await.unwrap();
    }
}

/// `prefix` and a number of three digits, `count` times.
pub(crate) fn ids(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|number| format!("{prefix}{number:03}")).collect()
}

/// A processor that runs until it is told to stop.
pub(crate) struct Running<H> {
    pub(crate) processor: Processor<H>,
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<(), Error>>,
}

pub(crate) fn run<H: Handler>(builder: Builder, handler: H) -> Running<H> {
    let processor = builder.handler(handler).unwrap();
    let (stop, stopped) = oneshot::channel();
    let running = processor.clone();
    let task = tokio::spawn(async move {
        running
            .run(async {
                // A test that failed has dropped the other end.
                let _ = stopped.await;
            })
            .await
    });
    Running { processor, stop, task }
}

impl<H> Running<H> {
    /// Tells it to stop at once; then waits for its end, and says what it has done.
    pub(crate) fn stop(self) -> impl Future<Output = Snapshot> {
        let Self { processor, stop, task } = self;
        stop.send(()).unwrap();
        async move {
            task.await.unwrap().unwrap();
            processor.snapshot()
        }
    }

    /// Drops it where it is.
    pub(crate) async fn abort(self) {
        self.task.abort();
        assert!(self.task.await.unwrap_err().is_cancelled());
    }

    /// Waits for the error that ends it.
    pub(crate) async fn error(self) -> Error {
        self.task.await.unwrap().unwrap_err()
    }
}

/// In events and their failures, and to be found nowhere else.
pub(crate) const SECRET: &str = "s3cr3t";

/// Writes an effect, and then does what the event's type says.
pub(crate) struct ByType;

impl Handler for ByType {
    type Work = String;

    fn select(&self, event: &Head) -> Option<String> {
        assert!(event.event_type() != "select_panics", "{SECRET}");
        (event.event_type() != "unknown").then(|| event.event_type().to_owned())
    }

    async fn process(
        &self,
        tx: &Transaction<'_>,
        work: &String,
        event: &Event,
    ) -> Result<(), HandlerError> {
        let id = event.head().event_id();
        tx.execute("insert into effect (event_id) values ($1)", &[&id]).await?;
        let sql = match &**work {
            "apply" => return Ok(()),
            "retry" => return Err(HandlerError::retry("not today")),
            "twice" if event.head().attempt() < 3 => return Err(HandlerError::retry("not yet")),
            "twice" => return Ok(()),
            "give_up" => return Err(HandlerError::give_up("no such invoice")),
            "transient" if event.head().attempt() > 1 => return Ok(()),
            "panics" => panic!("{}", String::from_utf8_lossy(event.payload())),
            "slow" => pending().await,
            "json" => return Ok(event.json::<()>()?),
            "sleeps" => "select pg_sleep(600)".to_owned(),
            "conflict" => "select conflict(3)".to_owned(),
            "conflicts" => "select conflict(1000)".to_owned(),
            "commit" => "commit".to_owned(),
            "unprepared" => "execute never_prepared".to_owned(),
            "ticket" => {
                "insert into ticket select coalesce(max(number), 0) + 1 from ticket".to_owned()
            }
            "swallow" => {
                let _ = tx.batch_execute("select 1/0").await;
                return Ok(());
            }
            "unique" => format!("insert into note values ('{SECRET}'), ('{SECRET}')"),
            "integer" => format!("select '{SECRET}'::text::int"),
            "syntax" => format!("{SECRET} note"),
            "raise" => format!("select refuse('{SECRET}')"),
            "name" => format!("select '{SECRET}'::text::regclass"),
            other => {
                let quoting =
                    Quoting::named(other).unwrap_or_else(|| panic!("no such type: {other}"));
                tx.query(quoting.statement, &[&MARKER]).await?;
                return Ok(());
            }
        };
        Ok(tx.batch_execute(&sql).await?)
    }
}

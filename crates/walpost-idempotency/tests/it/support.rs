//! A migrated database, and what stands in it.

use std::{sync::OnceLock, time::Duration};

use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use tokio_postgres::Client;
use walpost_idempotency::{
    Claim, Error, Fingerprint, Idempotency, Key, Lookup, Policy, Request, Response, Scope,
    http::Database as Pool,
};
use walpost_migrate::{Migrator, Set};
use walpost_testkit::{Database, fresh_database, postgres_of};

/// Bound on every wait.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

const TABLES: &str = "
    create table effect (number bigint generated always as identity, name text not null);
    create table once (name text primary key)";

/// A database with the tables, and a session of its owner.
pub(crate) struct World {
    pub(crate) database: Database,
    pub(crate) client: Client,
    pub(crate) idempotency: Idempotency,
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
        let sets = [Set::Relay, Set::Idempotency];
        Migrator::new().sets(sets).migrate(&mut client).await.unwrap();
        client.batch_execute(TABLES).await.unwrap();
        Self { database, client, idempotency: Idempotency::new() }
    }

    /// Connections for a layer.
    pub(crate) fn pool(&self) -> Pool {
        Pool::config(self.database.config()).answer_timeout(LIMIT)
    }

    /// Names of effects that were committed, in order of their names.
    pub(crate) async fn effects(&self) -> Vec<String> {
        let rows = self.client.query("select name from effect order by name", &[]).await.unwrap();
        rows.iter().map(|row| row.get(0)).collect()
    }

    /// The one number that a query gives.
    pub(crate) async fn number(&self, sql: &str) -> i64 {
        self.client.query_one(sql, &[]).await.unwrap().get(0)
    }

    /// Lets time pass for all that is stored.
    pub(crate) async fn shift(&self, interval: &str) {
        let times = ["created_at", "completed_at", "expires_at", "gone_until", "lease_until"];
        let set = times.map(|time| format!("{time} = {time} - interval '{interval}'")).join(", ");
        let sql = format!("update walpost.idempotency set {set}");
        self.client.batch_execute(&sql).await.unwrap();
    }

    /// Carries a request out on a connection of its own, with one effect of the
    /// name of its key, unless it is answered otherwise.
    pub(crate) async fn request(
        &self,
        (principal, key, body): (&str, &str, &str),
        policy: &Policy,
    ) -> Result<Claim<()>, Error> {
        let mut client = self.database.connect().await;
        let tx = self.idempotency.begin(&mut client).await?;
        let lookup = lookup(principal, key);
        let claim = self.idempotency.claim(&tx, &lookup, &print(body), policy).await?;
        let refused = match claim {
            Claim::New(claimed) => {
                tx.execute("insert into effect (name) values ($1)", &[&key]).await.unwrap();
                let answer = answer(key);
                self.idempotency.complete_and_commit(tx, &claimed, &answer).await?;
                return Ok(Claim::New(()));
            }
            Claim::Replay(response) => Claim::Replay(response),
            Claim::InFlight { retry_after } => Claim::InFlight { retry_after },
            Claim::Unresolved => Claim::Unresolved,
            Claim::Mismatch => Claim::Mismatch,
            Claim::Gone => Claim::Gone,
        };
        tx.rollback().await.unwrap();
        Ok(refused)
    }
}

/// What [`World::request`] answers.
pub(crate) fn answer(key: &str) -> Response {
    Response::new(201, format!("made {key}")).header("Location", format!("/{key}"))
}

pub(crate) fn lookup(principal: &str, key: &str) -> Lookup {
    Lookup::new(&Scope::principal_and_route(principal, "r"), &Key::new(key).unwrap())
}

pub(crate) fn print(body: &str) -> Fingerprint {
    Fingerprint::of(&Request { body: body.as_bytes(), ..Request::default() })
}

pub(crate) fn policy() -> Policy {
    Policy::new("r")
}

/// The value of a metric's line that has all of these.
pub(crate) fn metric(name: &str, labels: &[(&str, &str)]) -> f64 {
    let text = recorder().render();
    let has = |line: &&str| {
        line.starts_with(name)
            && labels.iter().all(|(key, value)| line.contains(&format!("{key}=\"{value}\"")))
    };
    let values = text.lines().filter(has).filter_map(|line| line.rsplit(' ').next());
    values.map(|value| value.parse::<f64>().unwrap()).sum()
}

/// The one recorder of this process.
pub(crate) fn recorder() -> &'static PrometheusHandle {
    static RECORDER: OnceLock<PrometheusHandle> = OnceLock::new();
    RECORDER.get_or_init(|| {
        let recorder = PrometheusBuilder::new().build_recorder();
        let handle = recorder.handle();
        metrics::set_global_recorder(recorder).unwrap();
        handle
    })
}

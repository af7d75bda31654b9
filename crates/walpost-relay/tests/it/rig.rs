//! A database with Walpost's tables, and relays on it.

use std::{net::ToSocketAddrs, time::Duration};

use tokio_postgres::Client;
use walpost_encode::{Encoder, Encoding};
use walpost_event::Lsn;
use walpost_migrate::{Migrator, Set};
use walpost_postgres::Database;
use walpost_relay::{Outcome, Phase, PipelineStatus, Relay, RelayConfig, RelayError, RunningRelay};
use walpost_router::RouterConfig;
use walpost_testkit::{
    Proxy, SharedPostgres, Target, local::Postgres, postgres, unique_name, until,
};

use crate::sink::World;

pub(crate) const SOON: Duration = Duration::from_secs(20);

/// How many slots a database has.
pub(crate) const SLOTS: &str = "select count(*) from pg_replication_slots \
                                where database = current_database()";

pub(crate) struct Rig {
    pub(crate) database: Database,
    pub(crate) client: Client,
    pub(crate) config: RelayConfig,
    pub(crate) router: RouterConfig,
    pub(crate) world: World,
}

impl Rig {
    pub(crate) async fn new() -> Self {
        Self::on(postgres()).await
    }

    pub(crate) async fn on(server: &'static SharedPostgres) -> Self {
        let fresh = server.fresh_database().await;
        Self::at(fresh.url()).await
    }

    /// On a server of the test's own, in its database `postgres`.
    pub(crate) async fn on_local(server: &'static Postgres) -> Self {
        Self::at(&server.url("postgres")).await
    }

    /// In a database by its connection string.
    pub(crate) async fn at(url: &str) -> Self {
        Self::migrated(url, Migrator::new()).await
    }

    /// With an outbox in partitions.
    pub(crate) async fn partitioned(server: &'static SharedPostgres) -> Self {
        let fresh = server.fresh_database().await;
        Self::migrated(fresh.url(), Migrator::new().partitioned()).await
    }

    async fn migrated(url: &str, migrator: Migrator) -> Self {
        let database = Database::parse(url).unwrap();
        let mut client = database.connect().await.unwrap();
        migrator.set(Set::Relay).migrate(&mut client).await.unwrap();
        let mut config = RelayConfig::new("shop");
        config.slot = unique_name("slot").replace('-', "_");
        config.checkpoint_interval_ms = 50;
        config.start_timeout_ms = Some(12_000);
        // A thread that gets no processor for long costs no session.
        config.wal_sender_timeout_ms = 60_000;
        Self { database, client, config, router: RouterConfig::default(), world: World::default() }
    }

    /// Another pipeline on the same database, with a sink of its own.
    pub(crate) async fn beside(&self, pipeline: &str, row_filter: &str) -> Self {
        let mut config = self.config.clone();
        config.pipeline = pipeline.to_owned();
        config.slot = unique_name("slot").replace('-', "_");
        config.publication = format!("walpost_{pipeline}");
        config.row_filter = Some(row_filter.to_owned());
        Self {
            database: self.database.clone(),
            client: self.database.connect().await.unwrap(),
            config,
            router: self.router.clone(),
            world: World::default(),
        }
    }

    /// The same database under another connection string.
    pub(crate) fn connecting_to(mut self, url: &str) -> Self {
        self.database = Database::parse(url).unwrap();
        self
    }

    /// The same database through a proxy.
    pub(crate) async fn behind_a_proxy(self) -> (Self, Proxy) {
        let (host, port) = self.database.first_target();
        let address = (host.as_str(), port).to_socket_addrs().unwrap().next().unwrap();
        let proxy = Proxy::start(Target::Tcp(address)).await;
        let url = format!(
            "host=127.0.0.1 port={} user={} dbname={}",
            proxy.port(),
            self.database.user(),
            self.database.dbname()
        );
        (self.connecting_to(&url), proxy)
    }

    /// The same with a new session, after a crash of the server.
    pub(crate) async fn reconnected(mut self) -> Self {
        self.client = self.database.connect().await.unwrap();
        self
    }

    pub(crate) fn relay(&self) -> Result<Relay, RelayError> {
        Relay::new(self.database.clone(), self.config.clone(), self.router.clone(), raw())
    }

    pub(crate) fn start(&self) -> RunningRelay {
        let world = self.world.clone();
        self.relay().unwrap().start(async move || world.connect().await)
    }

    /// A relay that streams.
    pub(crate) async fn streaming(&self) -> RunningRelay {
        let mut relay = self.start();
        let mut status = relay.status();
        let streams = status.wait_for(|status| status.phase == Phase::Streaming);
        // Its slot waits for the transactions of other tests, too.
        match tokio::time::timeout(3 * SOON, streams).await {
            Ok(Ok(_)) => {}
            Ok(Err(_)) => panic!("it never streamed: {:?}", relay.finished().await),
            Err(_) => panic!("it does not stream: {:?}", relay.status().borrow()),
        }
        relay
    }

    /// The error that a start ends with.
    pub(crate) async fn refusal(&self) -> String {
        let mut relay = self.start();
        let ended = tokio::time::timeout(SOON, relay.finished()).await;
        let error = ended.expect("the relay refuses to start").unwrap_err();
        let mut text = error.to_string();
        let mut source = std::error::Error::source(&error);
        while let Some(cause) = source {
            text = format!("{text}: {cause}");
            source = cause.source();
        }
        text
    }

    /// What `check` finds about this.
    pub(crate) async fn checked(&self, name: &str) -> (Outcome, String) {
        let results = walpost_relay::check(&self.database, &self.config, &self.router).await;
        let found = results.iter().find(|result| result.name == name);
        let result = found.unwrap_or_else(|| panic!("no check {name:?} in {results:?}"));
        (result.outcome, result.detail.clone())
    }

    /// One event per value, all in one transaction.
    pub(crate) async fn insert(&self, aggregate: &str, values: &[&str]) {
        for chunk in values.chunks(500) {
            let rows: Vec<String> = chunk
                .iter()
                .map(|value| format!("('order', '{aggregate}', 'Placed', '{value}')"))
                .collect();
            let sql = format!(
                "insert into walpost.outbox (aggregatetype, aggregateid, type, payload) values {}",
                rows.join(", ")
            );
            self.client.batch_execute(&sql).await.unwrap();
        }
    }

    pub(crate) async fn landed(&self, count: usize) -> Vec<String> {
        until(SOON, &format!("{count} messages"), async || self.world.values().len() >= count)
            .await;
        self.world.values()
    }

    pub(crate) async fn count(&self, sql: &str) -> i64 {
        self.client.query_one(sql, &[]).await.unwrap().get(0)
    }

    pub(crate) async fn slot_position(&self) -> Lsn {
        self.lsn(&format!(
            "select confirmed_flush_lsn::text from pg_replication_slots where slot_name = '{}'",
            self.config.slot
        ))
        .await
    }

    /// Waits until the server has noticed that nobody streams any more.
    pub(crate) async fn released(&self) {
        let active = format!(
            "select count(*) from pg_replication_slots where slot_name = '{}' and active",
            self.config.slot
        );
        until(SOON, "the slot is free", async || self.count(&active).await == 0).await;
    }

    /// Waits until no session of this database has the advisory lock of that name.
    pub(crate) async fn unlocked(&self, lock: &str) {
        let held = format!(
            "select count(*) from pg_locks join pg_database d on d.oid = database \
             where locktype = 'advisory' and datname = current_database() \
             and classid::int8 = hashtext('{lock}')::int8 & 4294967295"
        );
        until(SOON, lock, async || self.count(&held).await == 0).await;
    }

    pub(crate) async fn lsn(&self, sql: &str) -> Lsn {
        let text: String = self.client.query_one(sql, &[]).await.unwrap().get(0);
        text.parse().unwrap()
    }
}

pub(crate) async fn phase(relay: &RunningRelay, phase: &Phase) {
    status(relay, &format!("phase {}", phase.as_str()), |status| status.phase == *phase).await;
}

pub(crate) async fn status(
    relay: &RunningRelay,
    what: &str,
    mut condition: impl FnMut(&PipelineStatus) -> bool,
) {
    let mut receiver = relay.status();
    let reached = tokio::time::timeout(SOON, receiver.wait_for(|status| condition(status))).await;
    match reached {
        Ok(reached) => drop(reached.unwrap()),
        Err(_) => panic!("never reached {what}: {:?}", relay.status().borrow()),
    }
}

pub(crate) async fn stop(mut relay: RunningRelay) {
    relay.stop();
    tokio::time::timeout(SOON, relay.finished()).await.expect("stops in time").unwrap();
}

/// Ends the session as a death of the relay would: nothing is noted.
pub(crate) async fn interrupt(rig: &Rig, relay: &RunningRelay) {
    let before = relay.status().borrow().failed_sessions;
    let slot = &rig.config.slot;
    let kill = format!(
        "select count(pg_terminate_backend(active_pid)) from pg_replication_slots \
         where slot_name = '{slot}'"
    );
    assert_eq!(rig.count(&kill).await, 1);
    status(relay, "the end of the session", |status| status.failed_sessions > before).await;
}

pub(crate) fn raw() -> Encoding {
    Encoding { key: Encoder::Raw, value: Encoder::Raw }
}

//! Servers of a run's own, the tables of the consumers, and what they tell.

use std::{
    fs,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use tokio::sync::Mutex;
use tokio_postgres::{Client, Error, NoTls, Row};
use walpost_migrate::{Migrator, Set};
use walpost_testkit::{
    Process, create_topic, end_offsets,
    local::{Kafka, Postgres},
    until, until_some,
};

use super::{
    members::Member,
    membership::Membership,
    production::PARTITIONS,
    run::{ConsumerSetting, Sabotage},
};
use crate::{
    LIMIT,
    chaos::{load::connect, stage::off},
};

const DATABASE: &str = "postgres";
pub(super) const TOPIC: &str = "chaos.consumer";
/// Of the consumers, and of their group.
const NAME: &str = "chaos";
/// Of a member that is silent: what a take-over waits for.
const SESSION_TIMEOUT_MS: &str = "3000";

/// The trigger sees each record that is offered to the deduplication, also one
/// that makes no row, and what it writes commits or rolls back with the batch.
const TABLES: &str = "\
create table effect (n bigint generated always as identity, event_id text not null, \
    aggregate text not null, seq bigint not null); \
create table chaos_offered (pos_id int not null, off bigint not null, \
    member text not null default current_setting('application_name')); \
create index on chaos_offered (pos_id, off); \
create function chaos_offer() returns trigger language plpgsql as $$ begin \
    insert into chaos_offered (pos_id, off) values (new.pos_id, new.off); return new; end $$; \
create trigger chaos_offer before insert on walpost.done for each row \
    execute function chaos_offer();";

/// The fence without its compare-and-set.
const NO_FENCE: &str = "\
create or replace function walpost.batch_begin( \
    p int, e bigint, old bigint, new bigint, kn bigint[], le int \
) returns void language plpgsql as $$ begin \
    perform set_config('walpost.end', '', true), \
        set_config('walpost.begin', p || ':' || e || ':' || new, true); \
    update walpost.position q set next_offset = new, known = kn, leader_epoch = le \
        where q.id = p; end $$;";

#[derive(Debug)]
pub(super) struct Servers {
    pub(super) postgres: Postgres,
    pub(super) kafka: Kafka,
}

/// A PostgreSQL, a Kafka, a topic, and the program that consumes it.
#[derive(Debug)]
pub(super) struct Stage {
    pub(super) setting: ConsumerSetting,
    servers: Arc<Servers>,
    started: AtomicUsize,
    /// For looking; `None` after the server was away.
    session: Mutex<Option<Client>>,
}

impl Stage {
    /// Starts everything but the consumers.
    ///
    /// # Panics
    /// When it cannot.
    pub(super) async fn set(setting: ConsumerSetting) -> Self {
        // What an earlier run has left.
        drop(fs::remove_dir_all(&setting.folder));
        fs::create_dir_all(&setting.folder).unwrap();
        let servers = off(|| Servers {
            // Each line of its log names the member and the SQLSTATE.
            postgres: Postgres::builder()
                .throwaway()
                .setting("log_line_prefix", "%m [%p] %a %e ")
                .start()
                .unwrap(),
            kafka: Kafka::builder()
                .property("group.consumer.session.timeout.ms", SESSION_TIMEOUT_MS)
                .property("group.consumer.heartbeat.interval.ms", "500")
                .start()
                .unwrap(),
        })
        .await;
        create_topic(&servers.kafka.bootstrap(), TOPIC, PARTITIONS as i32, &[]).await;
        let (started, session) = (AtomicUsize::new(0), Mutex::new(None));
        let stage = Self { setting, servers: Arc::new(servers), started, session };
        let mut client = connect(&stage.url()).await;
        Migrator::new().set(Set::Consumer).migrate(&mut client).await.unwrap();
        client.batch_execute(TABLES).await.unwrap();
        if stage.setting.sabotage == Some(Sabotage::NoFence) {
            client.batch_execute(NO_FENCE).await.unwrap();
        }
        stage
    }

    pub(super) fn url(&self) -> String {
        self.servers.postgres.url(DATABASE)
    }

    pub(super) fn bootstrap(&self) -> String {
        self.servers.kafka.bootstrap()
    }

    /// Does what blocks to the servers, beside the runtime.
    pub(super) async fn servers<T: Send + 'static>(
        &self,
        act: impl FnOnce(&Servers) -> T + Send + 'static,
    ) -> T {
        let servers = self.servers.clone();
        off(move || act(&servers)).await
    }

    /// Starts a consumer; as `instance`, where its membership is static, or
    /// under its own name.
    pub(super) fn member(&self, membership: Membership, instance: Option<&str>) -> Member {
        self.member_with(membership, instance, None)
    }

    /// The same with a variable of its environment.
    pub(super) fn member_with(
        &self,
        membership: Membership,
        instance: Option<&str>,
        variable: Option<(&str, &str)>,
    ) -> Member {
        let number = self.started.fetch_add(1, Ordering::Relaxed);
        let name = format!("member-{number:03}");
        let instance = instance.unwrap_or(&name).to_owned();
        let settings: Vec<String> = membership
            .settings(&instance)
            .into_iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        let settings = settings.join(";");
        let url = format!("{}?application_name={name}", self.url());
        let args = [url.as_str(), &self.bootstrap(), NAME, TOPIC];
        let env = [("TEST_SESSION_TIMEOUT_MS", SESSION_TIMEOUT_MS), ("TEST_KAFKA", &settings)];
        let env = env.into_iter().chain(variable);
        let process = Process::start(&self.setting.program, args, env);
        Member::new(process, name, instance, &self.setting.folder)
    }

    /// The next offset of each partition that has one, while the database is
    /// there.
    pub(super) async fn next_offsets(&self) -> Option<Vec<(i32, i64)>> {
        let sql = "select part, next_offset from walpost.position \
                   where next_offset is not null order by part";
        let rows = self.look(sql).await?;
        Some(rows.iter().map(|row| (row.get(0), row.get(1))).collect())
    }

    /// Who has committed last in each partition.
    pub(super) async fn owners(&self) -> Option<Vec<String>> {
        let sql = "select last.member from walpost.position p, lateral (select member \
                   from chaos_offered where pos_id = p.id order by off desc limit 1) last";
        let rows = self.look(sql).await?;
        Some(rows.iter().map(|row| row.get(0)).collect())
    }

    async fn look(&self, sql: &str) -> Option<Vec<Row>> {
        let mut session = self.session.lock().await;
        if session.is_none() {
            let connected = tokio_postgres::connect(&self.url(), NoTls).await;
            let (client, connection) = connected.ok()?;
            tokio::spawn(async move { drop(connection.await) });
            *session = Some(client);
        }
        let rows = session.as_ref()?.query(sql, &[]).await;
        if rows.is_err() {
            *session = None;
        }
        rows.ok()
    }

    /// Records that were passed over all partitions.
    pub(super) async fn passed(&self) -> u64 {
        let offsets = until_some(LIMIT, "offsets", async || self.next_offsets().await).await;
        let sum: i64 = offsets.iter().map(|(_, offset)| offset).sum();
        u64::try_from(sum).expect("offsets only grow")
    }

    /// Waits until the consumers have passed every record.
    pub(super) async fn at_the_end(&self) -> bool {
        let ends = end_offsets(&self.bootstrap(), TOPIC).await;
        let arrived = async || {
            let offsets = self.next_offsets().await.unwrap_or_default();
            offsets.len() == ends.len() && offsets.iter().zip(&ends).all(|((_, at), end)| at == end)
        };
        let mut seen = self.passed().await;
        // As long as there is progress there is hope.
        loop {
            let waiting = until(LIMIT, "an end or some progress", async || {
                arrived().await || self.passed().await > seen
            });
            if tokio::time::timeout(LIMIT, waiting).await.is_err() {
                return false;
            }
            if arrived().await {
                return true;
            }
            seen = self.passed().await;
        }
    }

    /// How much the log of PostgreSQL holds.
    pub(super) fn log_length(&self) -> usize {
        fs::metadata(self.servers.postgres.log()).map_or(0, |found| found.len() as usize)
    }

    /// Lines that PostgreSQL has logged since it held so much.
    pub(super) fn log_since(&self, length: usize) -> String {
        let bytes = fs::read(self.servers.postgres.log()).unwrap();
        String::from_utf8_lossy(bytes.get(length..).unwrap_or_default()).into_owned()
    }

    /// The logs of the servers, for evidence.
    pub(super) fn server_logs(&self) -> [(&'static str, PathBuf); 2] {
        [("postgres.log", self.servers.postgres.log()), ("kafka.log", self.servers.kafka.log())]
    }

    pub(super) async fn query<T>(
        &self,
        sql: &str,
        row: impl Fn(&Row) -> T,
    ) -> Result<Vec<T>, Error> {
        let rows = connect(&self.url()).await.query(sql, &[]).await?;
        Ok(rows.iter().map(row).collect())
    }
}

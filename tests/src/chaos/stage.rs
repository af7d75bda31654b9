//! Servers of a run's own, proxies before them, and the relay behind those.

use std::{
    borrow::Borrow,
    fmt, fs,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use tokio::runtime::Runtime;
use walpost_migrate::{Migrator, Set};
use walpost_testkit::{
    Isolation, Process, Proxy, Seeded, Target, create_replicated_topic,
    local::{Kafka, KafkaBuilder, Postgres},
    until,
};

use super::{
    debezium,
    faults::Link,
    load::{self, Load, Ways},
};
use crate::LIMIT;

const DATABASE: &str = "postgres";
const PARTITIONS: i32 = 6;
/// In URLs of the database, which is the same through the proxy.
const USER: &str = "postgres";

/// `sink.publish`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Idempotent.
    Idempotent,
    /// Transactional; read as committed.
    Transactional,
}

impl Mode {
    /// As the configuration has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Idempotent => "idempotent",
            Self::Transactional => "transactional",
        }
    }

    /// What a reader has to ask for to be promised anything.
    pub(super) fn isolation(self) -> Isolation {
        match self {
            Self::Idempotent => Isolation::ReadUncommitted,
            Self::Transactional => Isolation::ReadCommitted,
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Who publishes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// The binary `walpost` at this path.
    Walpost(PathBuf),
    /// Debezium in Kafka Connect, from the outbox table alone.
    Debezium,
}

/// What one run is made of.
#[derive(Clone, Debug)]
pub struct Setting {
    /// Who publishes.
    pub subject: Subject,
    /// How it publishes.
    pub mode: Mode,
    /// Of everything random.
    pub seed: u64,
    /// For logs and, of a violation, the evidence; emptied first.
    pub folder: PathBuf,
    /// Settings of the relay that differ from the defaults, as its environment
    /// has them.
    pub settings: Vec<(String, String)>,
    /// Whether the logs stay also when nothing is wrong.
    pub keep: bool,
    /// Whether to say on stderr how far it is.
    pub progress: bool,
}

impl Setting {
    /// What the run is called: the mode, or the peer.
    pub(super) fn name(&self) -> &'static str {
        match self.subject {
            Subject::Walpost(_) => self.mode.name(),
            Subject::Debezium => "debezium",
        }
    }
}

/// The processes of a stage.
#[derive(Debug)]
pub(super) struct Servers {
    pub(super) postgres: Postgres,
    pub(super) kafka: Kafka,
    /// Further brokers of the same cluster.
    pub(super) followers: Vec<Kafka>,
}

impl Servers {
    /// The first broker has a second address, for a proxy at `proxy_port`.
    fn start(brokers: u32, proxy_port: u16) -> Self {
        let postgres = Postgres::builder().throwaway().start().unwrap();
        let replicas = [
            ("transaction.state.log.replication.factor", brokers.to_string()),
            ("transaction.state.log.min.isr", in_sync_least(brokers).to_string()),
            ("broker.session.timeout.ms", session_timeout_ms(brokers).to_string()),
        ];
        let set = |builder: KafkaBuilder| {
            replicas.iter().fold(builder, |builder, (name, value)| builder.property(*name, value))
        };
        let kafka = set(Kafka::builder().proxied_by(proxy_port)).start().unwrap();
        let follower = |node| set(Kafka::builder().joining(&kafka, node)).start().unwrap();
        let followers = (2..=brokers).map(follower).collect();
        Self { postgres, kafka, followers }
    }
}

/// Alone a broker that was killed is to be back soon. Of several a frozen one is
/// to stay in sync for a while: Kafka's default.
fn session_timeout_ms(brokers: u32) -> u32 {
    if brokers > 1 { 9_000 } else { 2_000 }
}

/// Of so many replicas one may be missing.
fn in_sync_least(replicas: u32) -> u32 {
    replicas.saturating_sub(1).max(1)
}

/// A PostgreSQL, a Kafka, a pipeline from one to the other.
#[derive(Debug)]
pub(super) struct Stage {
    pub(super) setting: Setting,
    pub(super) topic: String,
    servers: Arc<Servers>,
    to_postgres: Proxy,
    to_kafka: Proxy,
    started: AtomicUsize,
    /// Of the proxies alone: what they carry must not wait for anything here.
    /// The last field, so that it outlives them; an `Option` to end it without
    /// waiting.
    proxies: Option<Runtime>,
}

impl Stage {
    /// Starts everything but the relay, with so many brokers.
    ///
    /// # Panics
    /// When it cannot.
    pub(super) async fn set(setting: Setting, brokers: u32) -> Self {
        // What an earlier run has left.
        drop(fs::remove_dir_all(&setting.folder));
        fs::create_dir_all(&setting.folder).unwrap();
        let before_kafka = Proxy::listener();
        let port = before_kafka.local_addr().unwrap().port();
        let servers = off(move || Servers::start(brokers, port)).await;
        let Servers { postgres, kafka, .. } = &servers;
        let proxies = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let postgres_target = Target::Tcp(([127, 0, 0, 1], postgres.port()).into());
        let kafka_target = Target::Tcp(kafka.proxied_address().unwrap());
        let to_postgres = proxies.spawn(Proxy::start(postgres_target)).await.unwrap();
        let to_kafka = proxies.spawn(Proxy::start_with(before_kafka, kafka_target)).await.unwrap();
        let topic = "chaos.order".to_owned();
        let least = in_sync_least(brokers).to_string();
        let configs = [("min.insync.replicas", least.as_str())];
        let brokers: Vec<i32> = (1..).take(brokers as usize).collect();
        let bootstrap = kafka.bootstrap();
        create_replicated_topic(&bootstrap, &topic, PARTITIONS, &brokers, &configs).await;
        let stage = Self {
            setting,
            topic,
            servers: Arc::new(servers),
            to_postgres,
            to_kafka,
            started: AtomicUsize::new(0),
            proxies: Some(proxies),
        };
        let mut client = load::connect(&stage.url()).await;
        Migrator::new().set(Set::Relay).migrate(&mut client).await.unwrap();
        client.batch_execute(load::TABLES).await.unwrap();
        stage
    }

    /// The database, past the proxy.
    pub(super) fn url(&self) -> String {
        self.servers.postgres.url(DATABASE)
    }

    /// The broker, past the proxy.
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

    pub(super) fn proxy(&self, link: Link) -> &Proxy {
        match link {
            Link::Postgres => &self.to_postgres,
            Link::Kafka => &self.to_kafka,
        }
    }

    /// Starts `walpost run` behind the proxies, with its defaults.
    pub(super) fn relay(&self) -> Relay {
        if self.setting.subject == Subject::Debezium {
            return self.kept(debezium::start(&self.servers, DATABASE, &self.setting.folder));
        }
        let url = format!("postgres://{USER}@{}/{DATABASE}", self.to_postgres.address());
        self.relay_at(&url, &self.to_kafka.address().to_string())
    }

    /// The same past the proxies.
    pub(super) fn relay_past_proxies(&self) -> Relay {
        self.relay_at(&self.url(), &self.bootstrap())
    }

    fn relay_at(&self, url: &str, kafka: &str) -> Relay {
        let mut env = vec![
            ("WALPOST_POSTGRES_URL", url),
            ("WALPOST_PIPELINE_NAME", "chaos"),
            ("WALPOST_ROUTER_TOPIC_REPLACEMENT", "chaos.${routedByValue}"),
            ("WALPOST_SINK_PUBLISH", self.setting.mode.name()),
            ("WALPOST_HTTP_LISTEN", ""),
        ];
        let more = self.setting.settings.iter();
        env.extend(more.map(|(name, value)| (name.as_str(), value.as_str())));
        let Subject::Walpost(program) = &self.setting.subject else {
            panic!("only walpost is run past the proxies");
        };
        self.kept(Process::start(program, ["run", "--kafka", kafka], env))
    }

    fn kept(&self, process: Process) -> Relay {
        let number = self.started.fetch_add(1, Ordering::Relaxed);
        Relay { process, log: self.setting.folder.join(format!("relay-{number:03}.log")) }
    }

    /// Starts the relay, and waits until the slot is there, so that what is
    /// written from now on is in its stream.
    pub(super) async fn first_relay(&self) -> Relay {
        let client = load::connect(&self.url()).await;
        if self.setting.subject == Subject::Debezium {
            let slot = debezium::SLOT;
            let sql = format!("select pg_create_logical_replication_slot('{slot}', 'pgoutput')");
            client.batch_execute(&sql).await.unwrap();
            return self.relay();
        }
        let relay = self.relay();
        let sql = "select exists (select from walpost.checkpoint where initial = 'done')";
        until(LIMIT, "the slot", async || client.query_one(sql, &[]).await.unwrap().get(0)).await;
        relay
    }

    pub(super) async fn load(&self, seeded: &mut Seeded) -> Load {
        let ways = match self.setting.subject {
            Subject::Walpost(_) => Ways::All,
            Subject::Debezium => Ways::Table,
        };
        Load::start(&self.url(), ways, seeded).await
    }

    /// Events that are parked: nothing here should be.
    pub(super) async fn parked(&self) -> u64 {
        let client = load::connect(&self.url()).await;
        let sql = "select count(*) from walpost.parked";
        let count: i64 = client.query_one(sql, &[]).await.unwrap().get(0);
        u64::try_from(count).unwrap()
    }

    /// The logs of the servers, for evidence.
    pub(super) fn server_logs(&self) -> [(&'static str, PathBuf); 2] {
        let Servers { postgres, kafka, .. } = &*self.servers;
        [("postgres.log", postgres.log()), ("kafka.log", kafka.log())]
    }

    pub(super) fn say(&self, text: impl fmt::Display) {
        if self.setting.progress {
            eprintln!("chaos: {}: {text}", self.setting.name());
        }
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if let Some(runtime) = self.proxies.take() {
            runtime.shutdown_background();
        }
    }
}

/// A relay whose log outlives it.
#[derive(Debug)]
pub(super) struct Relay {
    process: Process,
    log: PathBuf,
}

impl Relay {
    pub(super) fn kill(&self) {
        self.process.kill();
    }

    /// The largest part of its memory that was ever resident.
    pub(super) fn peak_rss_kb(&self) -> u64 {
        let path = Path::new("/proc").join(self.process.pid().to_string()).join("status");
        let status = fs::read_to_string(path).unwrap();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        peak.trim().trim_end_matches(" kB").parse().unwrap()
    }

    /// SIGTERM; whether it ended as it should.
    pub(super) async fn terminate(self) -> bool {
        off(move || self.process.terminate(LIMIT).success()).await
    }
}

impl Borrow<Process> for Relay {
    fn borrow(&self) -> &Process {
        &self.process
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        drop(fs::write(&self.log, self.process.log()));
    }
}

/// Runs what blocks beside the runtime.
pub(crate) async fn off<T: Send + 'static>(act: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(act).await {
        Ok(value) => value,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

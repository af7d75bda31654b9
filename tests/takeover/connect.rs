//! Kafka Connect with Debezium's PostgreSQL connector on a shop's outbox.

use std::{fs, os::unix::fs::symlink, path::PathBuf, time::Duration};

use serde_json::{Map, Value};
use tempfile::TempDir;
use tokio_postgres::config::Host;
use walpost_testkit::{
    Process, kafka,
    local::{fetch_apicurio_converter, fetch_debezium, find_java, free_port},
    until,
};
use walpost_tests::{Shop, http_ask};

/// Bound on everything that a JVM does on a busy machine.
pub(crate) const LIMIT: Duration = Duration::from_secs(300);
/// Name of the connector, as its file has it.
pub(crate) const CONNECTOR: &str = "orders";
const CONFIG: &str = include_str!("../../connectors/orders.json");
/// Where the classes of Apicurio's converters are, which are no part of Debezium.
const APICURIO: &str = "io.apicurio.";
const JVM_ARGS: [&str; 5] = [
    "-Xmx512m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-cp",
];

/// Which worker runs the connector, and so where its offsets are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Worker {
    /// One process, with its offsets in a file.
    Standalone,
    /// A member of a cluster, with its offsets in a topic.
    Distributed,
}

/// A connector of a shop, on the slot that `shop.relay()` would read.
#[derive(Debug)]
pub(crate) struct Connect {
    worker: Worker,
    folder: TempDir,
    /// Prefix of everything that is named.
    name: String,
    config: Map<String, Value>,
    port: u16,
    process: Option<Process>,
}

impl Connect {
    /// Makes the slot, so that what is written from now on is in its stream, and
    /// starts the connector. `more` are settings of it.
    pub(crate) async fn start(shop: &Shop, worker: Worker, more: &[(&str, &str)]) -> Self {
        let slot = format!("walpost_{}", shop.name);
        let make = format!("select pg_create_logical_replication_slot('{slot}', 'pgoutput')");
        shop.connect().await.batch_execute(&make).await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let plugins = folder.path().join("plugins");
        fs::create_dir_all(&plugins).unwrap();
        if more.iter().any(|(_, value)| value.starts_with(APICURIO)) {
            symlink(fetch_apicurio_converter().unwrap(), plugins.join("apicurio")).unwrap();
        }
        let config = config(shop, &slot, more);
        let (name, port) = (shop.name.clone(), free_port().unwrap());
        let mut connect = Self { worker, folder, name, config, port, process: None };
        connect.start_again().await;
        connect
    }

    /// Where the offsets are, as `walpost take-over` takes it.
    pub(crate) fn offsets(&self) -> [String; 2] {
        match self.worker {
            Worker::Standalone => ["--offsets-file".into(), self.path("offsets")],
            Worker::Distributed => ["--offsets-topic".into(), format!("{}_offsets", self.name)],
        }
    }

    /// The file of the connector.
    pub(crate) fn connector_file(&self) -> String {
        self.path("connector.json")
    }

    /// The file of the worker.
    pub(crate) fn worker_file(&self) -> String {
        self.path("worker.properties")
    }

    /// Another file of the connector, in which these properties are others.
    pub(crate) fn changed_file(&self, changed: &[(&str, &str)]) -> String {
        let mut config = self.config.clone();
        config.extend(changed.iter().map(|(key, value)| ((*key).to_owned(), (*value).into())));
        let path = self.path("changed.json");
        fs::write(&path, Value::Object(config).to_string()).unwrap();
        path
    }

    /// Starts the connector where its offset says, or, of a worker that runs, resumes it.
    pub(crate) async fn start_again(&mut self) {
        if self.process.is_some() {
            self.ask("PUT", "resume", "").await;
            return;
        }
        let class = match self.worker {
            Worker::Standalone => "org.apache.kafka.connect.cli.ConnectStandalone",
            Worker::Distributed => "org.apache.kafka.connect.cli.ConnectDistributed",
        };
        let config = Value::Object(self.config.clone()).to_string();
        fs::write(self.path("connector.json"), &config).unwrap();
        fs::write(self.path("worker.properties"), self.worker_properties()).unwrap();
        let libraries = fetch_debezium().unwrap().join("*");
        let mut args: Vec<PathBuf> = JVM_ARGS.iter().map(PathBuf::from).collect();
        args.extend([libraries, class.into(), self.path("worker.properties").into()]);
        if self.worker == Worker::Standalone {
            args.push(self.path("connector.json").into());
        }
        let java = find_java("java", 17).unwrap();
        self.process = Some(Process::start(java, args, [("LC_ALL", "C.UTF-8")]));
        if self.worker == Worker::Distributed {
            self.ask("PUT", "config", &config).await;
        }
    }

    /// Stops it in order: the process, or of a cluster the connector alone.
    pub(crate) async fn stop(&mut self) {
        if self.worker == Worker::Distributed {
            self.ask("PUT", "stop", "").await;
            let stopped = async || {
                let (status, body) = self.answer("GET", "status", "").await;
                let body: Value = serde_json::from_str(&body).unwrap_or_default();
                status == 200 && body["connector"]["state"] == "STOPPED" && body["tasks"] == json()
            };
            return until(LIMIT, "the connector's stop", stopped).await;
        }
        let process = self.process.take().expect("it runs");
        tokio::task::spawn_blocking(move || process.terminate(LIMIT)).await.unwrap();
    }

    /// The file that a standalone worker keeps its offsets in.
    pub(crate) fn offsets_file(&self) -> Vec<u8> {
        fs::read(self.path("offsets")).unwrap()
    }

    /// Puts another one there.
    pub(crate) fn set_offsets_file(&self, bytes: &[u8]) {
        fs::write(self.path("offsets"), bytes).unwrap();
    }

    /// Takes it away.
    pub(crate) fn forget_offset(&self) {
        fs::remove_file(self.path("offsets")).unwrap();
    }

    /// SIGSTOP.
    pub(crate) fn pause(&self) {
        self.process.as_ref().expect("it runs").pause();
    }

    /// SIGCONT.
    pub(crate) fn resume(&self) {
        self.process.as_ref().expect("it runs").resume();
    }

    /// SIGKILL.
    pub(crate) fn kill(&mut self) {
        self.process.take().expect("it runs").kill();
    }

    /// What the worker has said.
    pub(crate) fn log(&self) -> String {
        self.process.as_ref().map(Process::log).unwrap_or_default()
    }

    async fn ask(&self, method: &str, what: &str, body: &str) {
        until(LIMIT, &format!("{method} {what}"), async || {
            assert!(self.process.as_ref().is_some_and(Process::is_running), "{}", self.log());
            (200..300).contains(&self.answer(method, what, body).await.0)
        })
        .await;
    }

    /// A worker that has not come up yet answers with 0.
    async fn answer(&self, method: &str, what: &str, body: &str) -> (u16, String) {
        let request = format!("{method} /connectors/{CONNECTOR}/{what}");
        let headers = "Content-Type: application/json\r\n";
        http_ask(self.port, &request, headers, body).await.unwrap_or_default()
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    /// The defaults, but that offsets are kept every second and not every minute,
    /// and that a worker on a busy machine may take its time to stop in order.
    fn worker_properties(&self) -> String {
        let (bootstrap, port, name) = (kafka().bootstrap(), self.port, &self.name);
        let offsets = match self.worker {
            Worker::Standalone => format!("offset.storage.file.filename={}", self.path("offsets")),
            Worker::Distributed => format!(
                "group.id={name}\n\
                 config.storage.topic={name}_configs\nconfig.storage.replication.factor=1\n\
                 status.storage.topic={name}_status\nstatus.storage.replication.factor=1\n\
                 offset.storage.topic={name}_offsets\noffset.storage.replication.factor=1\n\
                 offset.storage.partitions=5"
            ),
        };
        format!(
            "bootstrap.servers={bootstrap}\n\
             key.converter=org.apache.kafka.connect.storage.StringConverter\n\
             value.converter=org.apache.kafka.connect.storage.StringConverter\n\
             {offsets}\n\
             offset.flush.interval.ms=1000\n\
             offset.flush.timeout.ms=60000\n\
             task.shutdown.graceful.timeout.ms=120000\n\
             plugin.path={}\n\
             listeners=http://127.0.0.1:{port}\n",
            self.path("plugins")
        )
    }
}

/// No tasks.
fn json() -> Value {
    Value::Array(Vec::new())
}

/// `connectors/orders.json` with the places of this shop.
fn config(shop: &Shop, slot: &str, more: &[(&str, &str)]) -> Map<String, Value> {
    let mut config: Map<String, Value> = serde_json::from_str(CONFIG).unwrap();
    let database = shop.database.config();
    let host = match &database.get_hosts()[0] {
        Host::Tcp(host) => host.clone(),
        Host::Unix(_) => "127.0.0.1".to_owned(),
    };
    let port = database.get_ports().first().copied().unwrap_or(5432).to_string();
    let topic = format!("{}.${{routedByValue}}", shop.name);
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let places = [
        ("database.hostname", host),
        ("database.port", port),
        ("database.user", database.get_user().unwrap_or("postgres").to_owned()),
        ("database.password", text(database.get_password().unwrap_or(b"postgres"))),
        ("database.dbname", shop.database.name().to_owned()),
        ("slot.name", slot.to_owned()),
        ("transforms.outbox.route.topic.replacement", topic),
    ];
    for (key, value) in places {
        let before = config.insert(key.to_owned(), value.into());
        assert!(before.is_some(), "the connector has {key}");
    }
    config.extend(more.iter().map(|(key, value)| ((*key).to_owned(), (*value).into())));
    config
}

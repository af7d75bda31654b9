use std::{ffi::OsString, fs, path::Path, time::Duration};

use reqwest::{Client, Method, Response};
use walpost_testkit::{
    Process,
    local::{fetch_debezium, free_port},
    until,
};

const START_LIMIT: Duration = Duration::from_secs(180);
const ANSWER_LIMIT: Duration = Duration::from_secs(90);
/// Of one worker for all connectors that run at a time.
const JVM_ARGS: [&str; 5] = [
    "-Xmx1g",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-cp",
];

/// A Kafka Connect worker in standalone mode, with Debezium and no connector. Ends
/// with this value.
#[derive(Debug)]
pub struct ConnectWorker {
    process: Process,
    url: String,
    client: Client,
}

impl ConnectWorker {
    /// Starts one that publishes to these brokers unless a connector says
    /// otherwise, and keeps its offsets in `folder`.
    ///
    /// # Panics
    /// When it does not answer in three minutes.
    pub async fn start(java: &Path, bootstrap: &str, folder: &Path) -> Self {
        let port = free_port().unwrap();
        let file = folder.join("worker.properties");
        fs::create_dir_all(folder.join("plugins")).unwrap();
        fs::write(&file, worker_properties(bootstrap, &folder.display().to_string(), port))
            .unwrap();
        let libraries = fetch_debezium().unwrap().join("*");
        let class = "org.apache.kafka.connect.cli.ConnectStandalone";
        let args = JVM_ARGS.map(OsString::from).into_iter();
        let args = args.chain([libraries.into(), class.into(), file.into()]);
        let process = Process::start(java, args, [("LC_ALL", "C.UTF-8")]);
        // A connection that is kept may end just when a request goes out on it.
        let client = Client::builder()
            .timeout(ANSWER_LIMIT)
            .no_proxy()
            .pool_max_idle_per_host(0)
            .build()
            .unwrap();
        let worker = Self { process, url: format!("http://127.0.0.1:{port}"), client };
        until(START_LIMIT, "Kafka Connect to answer", async || {
            assert!(worker.process.is_running(), "Kafka Connect has ended:\n{}", worker.log());
            let answer = worker.ask(Method::GET, "/connectors", None).await;
            answer.is_some_and(|answer| answer.status().is_success())
        })
        .await;
        worker
    }

    /// `http://` and where it listens.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The answer of its REST interface; `body` is JSON.
    pub async fn ask(&self, method: Method, path: &str, body: Option<String>) -> Option<Response> {
        let mut request = self.client.request(method, format!("{}{path}", self.url));
        if let Some(body) = body {
            request = request.header("Content-Type", "application/json").body(body);
        }
        request.send().await.ok()
    }

    /// What it has said.
    pub fn log(&self) -> String {
        self.process.log()
    }
}

/// The properties of a worker, which has the converters that Debezium's image has.
pub(crate) fn worker_properties(bootstrap: &str, folder: &str, rest_port: u16) -> String {
    format!(
        "bootstrap.servers={bootstrap}\n\
         key.converter=org.apache.kafka.connect.json.JsonConverter\n\
         value.converter=org.apache.kafka.connect.json.JsonConverter\n\
         offset.storage.file.filename={folder}/offsets\n\
         offset.flush.interval.ms=5000\n\
         plugin.path={folder}/plugins\n\
         listeners=http://127.0.0.1:{rest_port}\n"
    )
}

//! Kafka Connect with Debezium, and its REST interface.

use std::{fs, path::Path, time::Duration};

use reqwest::{Client, Method, StatusCode};
use serde_json::{Map, Value};
use walpost_testkit::{
    Process,
    local::{fetch_debezium, free_port},
    until,
};

use super::{connector::worker_properties, servers::Servers};

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

/// A worker of its own, in standalone mode. Ends with this value.
#[derive(Debug)]
pub(super) struct Worker {
    process: Process,
    url: String,
    client: Client,
}

/// What a task is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It runs, or is about to.
    Running,
    /// It has failed, with this trace.
    Failed(String),
}

impl Worker {
    /// Starts one that publishes to the first broker unless a connector says
    /// otherwise, and keeps its offsets in `folder`.
    pub(super) async fn start(servers: &Servers, folder: &Path) -> Self {
        let port = free_port().unwrap();
        let file = folder.join("worker.properties");
        fs::create_dir_all(folder.join("plugins")).unwrap();
        let [bootstrap, _] = servers.bootstraps();
        let text = worker_properties(&bootstrap, &folder.display().to_string(), port);
        fs::write(&file, text).unwrap();
        let libraries = fetch_debezium().unwrap().join("*");
        let class = "org.apache.kafka.connect.cli.ConnectStandalone";
        let args = JVM_ARGS.map(Into::into).into_iter();
        let args = args.chain([libraries, class.into(), file]);
        let process = Process::start(servers.java(), args, [("LC_ALL", "C.UTF-8")]);
        let client = Client::builder().timeout(ANSWER_LIMIT).no_proxy().build().unwrap();
        let worker = Self { process, url: format!("http://127.0.0.1:{port}"), client };
        until(START_LIMIT, "Kafka Connect to answer", async || {
            assert!(worker.process.is_running(), "Kafka Connect has ended:\n{}", worker.log());
            let answer = worker.ask(Method::GET, "/connectors", None).await;
            answer.is_some_and(|(status, _)| status.is_success())
        })
        .await;
        worker
    }

    /// Creates a connector, or returns what the worker says against it.
    pub(super) async fn create(&self, name: &str, all: &Map<String, Value>) -> Result<(), String> {
        let body = Value::Object(all.clone()).to_string();
        let path = format!("/connectors/{name}/config");
        let (status, answer) = self.asked(Method::PUT, &path, Some(body)).await;
        if status.is_success() { Ok(()) } else { Err(answer) }
    }

    /// Of its one task.
    pub(super) async fn state(&self, name: &str) -> State {
        let path = format!("/connectors/{name}/status");
        let (_, answer) = self.asked(Method::GET, &path, None).await;
        let status: Value = serde_json::from_str(&answer).unwrap_or_default();
        let failed = [&status["connector"], &status["tasks"][0]];
        match failed.into_iter().find(|part| part["state"] == "FAILED") {
            Some(part) => State::Failed(part["trace"].as_str().unwrap_or_default().to_owned()),
            None => State::Running,
        }
    }

    /// Ends a connector.
    pub(super) async fn delete(&self, name: &str) {
        self.asked(Method::DELETE, &format!("/connectors/{name}"), None).await;
    }

    pub(super) fn log(&self) -> String {
        self.process.log()
    }

    async fn asked(
        &self,
        method: Method,
        path: &str,
        body: Option<String>,
    ) -> (StatusCode, String) {
        let answer = self.ask(method, path, body).await;
        answer.unwrap_or_else(|| panic!("Kafka Connect does not answer {path}:\n{}", self.log()))
    }

    async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<String>,
    ) -> Option<(StatusCode, String)> {
        let mut request = self.client.request(method, format!("{}{path}", self.url));
        if let Some(body) = body {
            request = request.header("Content-Type", "application/json").body(body);
        }
        let response = request.send().await.ok()?;
        let status = response.status();
        Some((status, response.text().await.ok()?))
    }
}

//! Kafka Connect with Debezium, and its REST interface.

use std::{fs, os::unix::fs::symlink, path::Path};

use reqwest::{Method, StatusCode};
use serde_json::{Map, Value};
use walpost_testkit::local::fetch_apicurio_converter;

use super::servers::Servers;
use crate::connect_worker::ConnectWorker;

/// A worker of its own, in standalone mode. Ends with this value.
#[derive(Debug)]
pub(super) struct Worker(ConnectWorker);

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
        if servers.registry.is_some() {
            let plugins = folder.join("plugins");
            fs::create_dir_all(&plugins).unwrap();
            symlink(fetch_apicurio_converter().unwrap(), plugins.join("apicurio")).unwrap();
        }
        let [bootstrap, _] = servers.bootstraps();
        Self(ConnectWorker::start(servers.java(), &bootstrap, folder).await)
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
        self.0.log()
    }

    async fn asked(
        &self,
        method: Method,
        path: &str,
        body: Option<String>,
    ) -> (StatusCode, String) {
        let answered = async {
            let answer = self.0.ask(method, path, body).await?;
            let status = answer.status();
            Some((status, answer.text().await.ok()?))
        };
        let silent = || panic!("Kafka Connect does not answer {path}:\n{}", self.log());
        answered.await.unwrap_or_else(silent)
    }
}

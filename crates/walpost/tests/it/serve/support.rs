use std::time::Duration;

use reqwest::{Client, Method};
use serde_json::{Value, json};
use walpost_local::{Postgres, free_port};
use walpost_testkit::{Process, create_topic, kafka, read_all, unique_name, until, until_some};

use crate::{
    cli::{stderr, walpost},
    mistakes::{migrated, server},
};

pub(super) const LIMIT: Duration = Duration::from_secs(180);
/// Who asks has to name it, where there is one.
pub(super) const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// A server with a database for the connectors, and one with an outbox.
pub(super) struct Stage {
    pub(super) server: Postgres,
    /// Where the connectors are kept.
    url: String,
    /// The one topic of the outbox, and the type of its aggregates.
    pub(super) topic: String,
    kind: String,
}

/// A process that serves.
pub(super) struct Served {
    pub(super) process: Process,
    client: Client,
    /// Of Kafka Connect's interface.
    pub(super) rest: u16,
    /// Of metrics and probes.
    pub(super) probes: u16,
    token: Option<&'static str>,
}

impl Stage {
    pub(super) async fn set() -> Self {
        let server = server();
        migrated(&server, "shop");
        server.psql("postgres", "create database connectors").unwrap();
        let url = server.url("connectors");
        let output = walpost(&["migrate", "--set", "connect", "--postgres", &url], &[]);
        assert!(output.status.success(), "{}", stderr(&output));
        let kind = unique_name("order");
        let topic = format!("outbox.event.{kind}");
        create_topic(kafka().bootstrap(), &topic, 1, &[]).await;
        Self { server, url, topic, kind }
    }

    /// Inserts an event with this number.
    pub(super) fn insert(&self, number: u32) {
        let kind = &self.kind;
        let sql = format!(
            "insert into walpost.outbox (id, aggregatetype, aggregateid, type, payload) values \
             ('00000000-0000-4000-8000-{number:012}', '{kind}', 'k', 'Paid', '{{\"n\": {number}}}')"
        );
        self.server.psql("shop", &sql).unwrap();
    }

    /// The numbers that are in the topic.
    pub(super) async fn published(&self) -> Vec<u64> {
        let records = read_all(kafka().bootstrap(), &self.topic).await;
        let number = |text: String| serde_json::from_str::<Value>(&text).unwrap()["n"].as_u64();
        records.iter().map(|record| number(record.value_text().to_owned()).unwrap()).collect()
    }

    pub(super) async fn until_published(&self, numbers: &[u64]) {
        until(LIMIT, &format!("{numbers:?} in the topic"), async || {
            self.published().await == numbers
        })
        .await;
    }

    /// The process of the server that streams from a slot.
    pub(super) fn walsender(&self, slot: &str) -> Option<u32> {
        let sql = format!("select active_pid from pg_replication_slots where slot_name = '{slot}'");
        self.server.psql("postgres", &sql).unwrap().trim().parse().ok()
    }

    /// The server sees a moment later that nobody streams from a slot any more.
    pub(super) async fn until_left(&self, slot: &str) {
        let what = format!("slot {slot} to be left");
        until(LIMIT, &what, async || self.walsender(slot).is_none()).await;
    }

    /// A connector on the outbox with a slot of this name.
    pub(super) fn config(&self, slot: &str) -> Value {
        json!({
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "tasks.max": 1,
            "plugin.name": "pgoutput",
            "database.hostname": self.server.host(),
            "database.port": self.server.port(),
            "database.user": "postgres",
            "database.password": "postgres",
            "database.dbname": "shop",
            "topic.prefix": "shop",
            "slot.name": slot,
            "publication.name": "walpost",
            "publication.autocreate.mode": "disabled",
            "snapshot.mode": "no_data",
            "table.include.list": "walpost.outbox",
            "transforms": "outbox",
            "transforms.outbox.type": "io.debezium.transforms.outbox.EventRouter",
            "transforms.outbox.route.topic.replacement": "outbox.event.${routedByValue}",
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "org.apache.kafka.connect.storage.StringConverter",
        })
    }

    pub(super) fn serve(&self, more: &[&str]) -> Served {
        self.serve_with(more, &[], None)
    }

    /// Serves where requests have to bring the token.
    pub(super) fn serve_with(
        &self,
        more: &[&str],
        variables: &[(&str, &str)],
        token: Option<&'static str>,
    ) -> Served {
        let (rest, probes) = (free_port().unwrap(), free_port().unwrap());
        let rest_at = format!("connect.listen=127.0.0.1:{rest}");
        let probes_at = format!("http.listen=127.0.0.1:{probes}");
        let common = ["serve", "--postgres", &self.url, "--kafka", kafka().bootstrap()];
        let args = [&common[..], &["--set", &rest_at, "--set", &probes_at], more].concat();
        let variables = variables.iter().copied();
        let process = Process::start(env!("CARGO_BIN_EXE_walpost"), args, variables);
        // A connection that is kept may end just when a request goes out on it.
        let client =
            Client::builder().timeout(LIMIT).no_proxy().pool_max_idle_per_host(0).build().unwrap();
        Served { process, client, rest, probes, token }
    }
}

impl Served {
    /// Waits until it leads, or, with 503, stands by.
    pub(super) async fn until_health(self, code: u16) -> Self {
        until(LIMIT, &format!("/health to be {code}"), async || {
            assert!(self.process.is_running(), "{}", self.process.log());
            self.try_ask("GET", "/health", None).await.is_some_and(|(found, _)| found == code)
        })
        .await;
        self
    }

    async fn try_ask(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Option<(u16, Value)> {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let url = format!("http://127.0.0.1:{}{path}", self.rest);
        let mut request = self.client.request(method, url);
        if let Some(token) = self.token {
            request = request.bearer_auth(token);
        }
        if let Some(body) = body {
            request = request.header("content-type", "application/json").body(body.to_string());
        }
        let response = request.send().await.ok()?;
        let code = response.status().as_u16();
        let text = response.text().await.ok()?;
        let text = if text.is_empty() { "null" } else { &text };
        Some((code, serde_json::from_str(text).unwrap_or_else(|_| text.into())))
    }

    /// Code and body, which is null where there is none.
    pub(super) async fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> (u16, Value) {
        let answer = self.try_ask(method, path, body).await;
        answer.unwrap_or_else(|| panic!("no answer to {path}:\n{}", self.process.log()))
    }

    /// Creates a connector.
    pub(super) async fn create(&self, name: &str, config: &Value) -> (u16, Value) {
        let body = json!({ "name": name, "config": config });
        self.ask("POST", "/connectors", Some(&body)).await
    }

    /// Waits until the task shows a state, or the connector without one; its whole
    /// status then.
    pub(super) async fn until(&self, name: &str, state: &str) -> Value {
        let path = format!("/connectors/{name}/status");
        until_some(LIMIT, &format!("{name} to be {state}"), async || {
            let (_, status) = self.ask("GET", &path, None).await;
            let of_task = status["tasks"][0]["state"].as_str();
            let shown = of_task.or(status["connector"]["state"].as_str());
            (shown == Some(state)).then_some(status)
        })
        .await
    }

    /// What the port of metrics and probes says.
    pub(super) async fn probe(&self, path: &str) -> (u16, String) {
        let url = format!("http://127.0.0.1:{}{path}", self.probes);
        let response = self.client.get(url).send().await.unwrap();
        (response.status().as_u16(), response.text().await.unwrap())
    }
}

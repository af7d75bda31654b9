//! The same requests to a Kafka Connect worker with Debezium and to `walpost
//! serve`: codes and the shapes of bodies are the same, but for what
//! docs/connect-api.md says.

#![allow(clippy::unwrap_used, reason = "tests")]

mod script;
mod shape;

use std::{collections::BTreeSet, time::Duration};

use reqwest::{Client, Method};
use serde_json::{Value, json};
use tokio_postgres::config::Host;
use walpost_migrate::{Migrator, Set};
use walpost_testkit::{
    Process, kafka,
    local::{find_java, free_port},
    until,
};
use walpost_tests::{ConnectWorker, Shop, walpost_binary};

use crate::{
    script::{KNOWN, PLUGINS, RUNNING, STOPPED, Step, WITHOUT_A_CONNECTOR},
    shape::Shape,
};

/// Bound on everything that a JVM does on a busy machine.
const LIMIT: Duration = Duration::from_secs(300);
const DOCUMENT: &str = include_str!("../../docs/connect-api.md");

/// One of the two, and a connector for it.
struct Side {
    url: String,
    client: Client,
    config: Value,
}

impl Side {
    fn new(url: String, shop: &Shop, slot: &str) -> Self {
        // A connection that is kept may end just when a request goes out on it.
        let client =
            Client::builder().timeout(LIMIT).no_proxy().pool_max_idle_per_host(0).build().unwrap();
        Self { url, client, config: config(shop, slot) }
    }

    async fn ask(&self, method: &str, path: &str, body: Option<String>) -> Answer {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let mut request = self.client.request(method, format!("{}{path}", self.url));
        if let Some(body) = body {
            request = request.header("Content-Type", "application/json").body(body);
        }
        let response = request.send().await.unwrap();
        let code = response.status().as_u16();
        let location = response.headers().get("location");
        let location = location.map(|location| location.to_str().unwrap().to_owned());
        let text = response.text().await.unwrap();
        let body = if text.is_empty() { "null" } else { &text };
        Answer { code, location, body: serde_json::from_str(body).unwrap() }
    }

    async fn until(&self, connector: &str, state: &str) {
        let path = format!("/connectors/{connector}/status");
        until(LIMIT, &format!("{connector} of {} to be {state}", self.url), async || {
            let status = self.ask("GET", &path, None).await.body;
            let is_so = |part: &Value| part["state"] == state;
            is_so(&status["connector"]) && (state == "STOPPED" || is_so(&status["tasks"][0]))
        })
        .await;
    }
}

/// What is compared of an answer.
struct Answer {
    code: u16,
    location: Option<String>,
    body: Value,
}

impl Answer {
    /// How it differs from what Kafka Connect answers.
    fn differences(&self, model: &Self) -> Vec<String> {
        if self.code != model.code {
            return vec![format!("{} and not {}", self.code, model.code)];
        }
        let mut found = Shape::of(&self.body).differences(&Shape::of(&model.body));
        match (&self.location, &model.location) {
            (Some(ours), Some(theirs)) if theirs.ends_with(ours) && ours != theirs => {
                found.push("its location is a path".to_owned());
            }
            (ours, theirs) if ours != theirs => {
                found.push(format!("its location is {ours:?} and not {theirs:?}"));
            }
            _ => {}
        }
        found
    }
}

/// `connectors/orders.json` for a shop.
fn config(shop: &Shop, slot: &str) -> Value {
    let text = include_str!("../../connectors/orders.json");
    let mut config: Value = serde_json::from_str(text).unwrap();
    config.as_object_mut().unwrap().remove("name");
    let database = shop.database.config();
    let host = match &database.get_hosts()[0] {
        Host::Tcp(host) => host.clone(),
        Host::Unix(_) => "127.0.0.1".to_owned(),
    };
    let port = database.get_ports().first().copied().unwrap_or(5432);
    let password = database.get_password().unwrap_or(b"postgres").to_vec();
    let places = json!({
        "database.hostname": host,
        "database.port": port.to_string(),
        "database.user": database.get_user().unwrap_or("postgres"),
        "database.password": String::from_utf8(password).unwrap(),
        "database.dbname": shop.database.name(),
        "slot.name": slot,
        "transforms.outbox.route.topic.replacement": format!("{}.${{routedByValue}}", shop.name),
    });
    for (name, value) in places.as_object().unwrap() {
        assert!(config.get(name).is_some(), "the connector has {name}");
        config[name] = value.clone();
    }
    config
}

/// The connector that a step is about.
fn connector_of((_, path, body, _): &Step) -> &'static str {
    match body {
        script::Body::Create(name, _) | script::Body::CreateIn(name, _) => name,
        _ => path.split(['/', '?']).nth(2).unwrap(),
    }
}

/// Sends the same to both; how the first one's answers differ, request by request.
async fn play(ours: &Side, theirs: &Side, steps: &[Step]) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for step in steps {
        let (method, path, body, state) = step;
        let request = format!("{method} {path}{}", body.told());
        let answer = ours.ask(method, path, body.text(&ours.config)).await;
        let model = theirs.ask(method, path, body.text(&theirs.config)).await;
        println!("{request}");
        for Answer { code, body, .. } in [&answer, &model] {
            println!("    {code} {body:.400}");
        }
        let differences = answer.differences(&model).into_iter();
        found.extend(differences.map(|said| (request.clone(), said)));
        if let Some(state) = state {
            for side in [ours, theirs] {
                side.until(connector_of(step), state).await;
            }
        }
    }
    found
}

#[tokio::test]
#[ignore = "deep: needs Kafka Connect"]
async fn requests_are_answered_as_kafka_connect_answers_them_but_for_what_is_documented() {
    let shop = Shop::open(1).await;
    Migrator::new().set(Set::Connect).migrate(&mut shop.connect().await).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let java = find_java("java", 17).unwrap();
    let worker = ConnectWorker::start(&java, kafka().bootstrap(), folder.path()).await;
    let port = free_port().unwrap();
    let listen = format!("connect.listen=127.0.0.1:{port}");
    let args = ["serve", "--postgres", shop.database.url(), "--kafka", kafka().bootstrap()];
    let sets = [&*listen, "http.listen=", "pipeline.wal_sender_timeout_ms=60000"];
    let args = args.into_iter().chain(sets.into_iter().flat_map(|set| ["--set", set]));
    let none: [(&str, &str); 0] = [];
    let walpost = Process::start(walpost_binary(), args, none);
    walpost.wait_for_log("this process runs the connectors", LIMIT);
    let ours = Side::new(format!("http://127.0.0.1:{port}"), &shop, &format!("{}_w", shop.name));
    let theirs = Side::new(worker.url().to_owned(), &shop, &format!("{}_c", shop.name));

    let mut found = Vec::new();
    for steps in [WITHOUT_A_CONNECTOR, STOPPED, RUNNING, PLUGINS] {
        found.extend(play(&ours, &theirs, steps).await);
    }
    assert!(walpost.terminate(LIMIT).success(), "{}", walpost.log());

    let mut met = BTreeSet::new();
    let mut unknown = Vec::new();
    for (request, said) in found {
        let is_known =
            |(of, what, _): &(&str, &str, &str)| request.starts_with(of) && said.starts_with(what);
        match KNOWN.iter().position(is_known) {
            Some(known) => drop(met.insert(known)),
            None => unknown.push(format!("{request}: {said}")),
        }
    }
    assert!(unknown.is_empty(), "not documented:\n{}", unknown.join("\n"));
    for (index, (request, said, told)) in KNOWN.iter().enumerate() {
        assert!(met.contains(&index), "{request}: {said} is documented and not so");
        assert!(DOCUMENT.contains(told), "docs/connect-api.md does not say {told:?}");
    }
}

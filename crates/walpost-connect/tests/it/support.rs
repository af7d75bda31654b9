use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{Router, body::Body, http::Request};
use reqwest::{Method, Response};
use serde_json::{Value, json};
use tokio::{
    net::TcpListener,
    runtime::Handle,
    sync::{RwLock, oneshot, watch},
    task::JoinHandle,
};
use tokio_postgres::{Client, NoTls};
use tower_service::Service as _;
use walpost_connect::{
    Access, Assignment, CLASS, Plugin, Problem, Report, RunFailure, Runner, Sight, StoreError,
    Worker, router,
};
use walpost_connector::{Allowed, Properties, Providers};
use walpost_migrate::{Migrator, Set};
use walpost_testkit::{fresh_database, until, until_some};

pub(crate) const LIMIT: Duration = Duration::from_secs(30);

/// What runs do from now on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Behaviour {
    Work,
    Fail(RunFailure),
    /// They work, and do not end before they may.
    Linger,
}

/// What runs have done, and what they do next, over all processes of a test.
#[derive(Clone)]
pub(crate) struct Stage {
    pub(crate) behaviour: watch::Sender<Behaviour>,
    /// Runs at a time by connector, and how often each has begun.
    runs: Arc<Mutex<BTreeMap<String, (u32, u32)>>>,
    /// What a run was last given.
    pub(crate) given: Arc<Mutex<BTreeMap<String, String>>>,
    holds: watch::Sender<Holds>,
    /// Closed, with the write lock, while a killed process goes.
    entrance: Arc<RwLock<()>>,
}

/// Times in which checks of what polls every 14 ms hang.
#[derive(Default)]
struct Holds {
    begun: u32,
    /// Up to this one.
    over: u32,
    checks: u32,
}

/// For as long as it is there, such checks hang.
pub(crate) struct Hold(Stage, u32);

/// A run that is counted for as long as it lives.
struct Counted(Stage, String);

impl Stage {
    pub(crate) fn new() -> Self {
        Self {
            behaviour: watch::Sender::new(Behaviour::Work),
            runs: Arc::default(),
            given: Arc::default(),
            holds: watch::Sender::default(),
            entrance: Arc::default(),
        }
    }

    pub(crate) fn hold_checks(&self) -> Hold {
        self.holds.send_modify(|holds| holds.begun += 1);
        Hold(self.clone(), self.holds.borrow().begun)
    }

    /// How many checks have been held.
    pub(crate) fn held(&self) -> u32 {
        self.holds.borrow().checks
    }

    fn check(&self, properties: &Properties) -> Vec<Problem> {
        let problem = || Problem {
            property: "poll.interval.ms".to_owned(),
            text: "not on this stage".to_owned(),
        };
        match properties.get("poll.interval.ms") {
            Some("13") => vec![problem()],
            Some("14") => {
                let mut holds = self.holds.subscribe();
                let hold = holds.borrow().begun;
                self.holds.send_modify(|holds| holds.checks += 1);
                let over = Handle::current().block_on(holds.wait_for(|now| now.over >= hold));
                over.map(|_| Vec::new()).unwrap()
            }
            _ => Vec::new(),
        }
    }

    pub(crate) fn begun(&self, name: &str) -> u32 {
        self.runs.lock().unwrap().get(name).map_or(0, |runs| runs.1)
    }

    pub(crate) fn running(&self, name: &str) -> u32 {
        self.runs.lock().unwrap().get(name).map_or(0, |runs| runs.0)
    }

    fn enter(&self, name: &str) -> Counted {
        let mut runs = self.runs.lock().unwrap();
        let of_name = runs.entry(name.to_owned()).or_default();
        of_name.0 += 1;
        of_name.1 += 1;
        assert_eq!(of_name.0, 1, "two runs of {name} at a time");
        Counted(self.clone(), name.to_owned())
    }

    async fn run(self, assignment: Assignment) -> Result<(), RunFailure> {
        // First, so that it is there of each run that has begun.
        let url = assignment.properties.get("database.password").unwrap_or_default();
        self.given.lock().unwrap().insert(assignment.name.clone(), url.to_owned());
        let _counted = {
            let _open = self.entrance.read().await;
            self.enter(&assignment.name)
        };
        let behaviour = self.behaviour.borrow().clone();
        if let Behaviour::Fail(failure) = behaviour {
            return Err(failure);
        }
        assignment.report(Report::Working);
        assignment.stopped().await;
        let mut behaviour = self.behaviour.subscribe();
        let may_end = behaviour.wait_for(|behaviour| *behaviour != Behaviour::Linger).await;
        may_end.map(drop).map_err(|_| unreachable!("the stage outlives its runs"))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.runs.lock().unwrap().get_mut(&self.1).unwrap().0 -= 1;
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.0.holds.send_modify(|holds| holds.over = self.1);
    }
}

/// A process that serves.
pub(crate) struct Served {
    pub(crate) stage: Stage,
    pub(crate) url: String,
    client: reqwest::Client,
    app: Router,
    stop: Option<oneshot::Sender<()>>,
    worker: JoinHandle<Result<(), StoreError>>,
    server: JoinHandle<()>,
}

/// An empty table.
pub(crate) async fn database() -> String {
    let database = fresh_database().await;
    in_session(database.url(), async |client| {
        Migrator::new().sets([Set::Connect]).migrate(client).await.unwrap();
    })
    .await;
    database.url().to_owned()
}

/// What comes of a session of its own, which then ends in order.
pub(crate) async fn in_session<T>(url: &str, work: impl AsyncFnOnce(&mut Client) -> T) -> T {
    let (mut client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    let connection = tokio::spawn(connection);
    let done = work(&mut client).await;
    drop(client);
    connection.await.unwrap().unwrap();
    done
}

impl Served {
    pub(crate) async fn start(url: &str) -> Self {
        Self::start_with(url, Stage::new(), Access::open(), Allowed::nothing()).await
    }

    pub(crate) async fn start_with(
        url: &str,
        stage: Stage,
        access: Access,
        allowed: Allowed,
    ) -> Self {
        let database = walpost_postgres::Database::parse(url).unwrap();
        let plugin = Plugin::new(Providers::new(allowed));
        let of_runs = stage.clone();
        let runner = Runner::new(move |assignment| of_runs.clone().run(assignment)).looking(
            |properties| async move {
                let server = properties.get("topic.prefix").unwrap_or_default().to_owned();
                let partition = json!({ "server": server }).as_object().cloned().unwrap();
                let offset = json!({ "lsn": 7 }).as_object().cloned().unwrap();
                Ok(Sight { topics: vec!["orders".to_owned()], offset: Some((partition, offset)) })
            },
        );
        let of_checks = stage.clone();
        let runner = runner.checking(move |properties| of_checks.check(properties));
        let (worker, connectors) = Worker::new(database, "walpost", plugin, runner);
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address: SocketAddr = listener.local_addr().unwrap();
        let app = router(connectors, address.to_string(), access);
        let serving = axum::serve(listener, app.clone());
        let server = tokio::spawn(async move { serving.await.unwrap() });
        let (stop, stopped) = oneshot::channel::<()>();
        let stopped = async move { drop(stopped.await) };
        let worker = tokio::spawn(worker.run(stopped));
        // A connection that is kept may end just when a request goes out on it.
        let client = reqwest::Client::builder()
            .timeout(LIMIT)
            .no_proxy()
            .pool_max_idle_per_host(0)
            .build()
            .unwrap();
        let url = format!("http://{address}");
        Self { stage, url, client, app, stop: Some(stop), worker, server }
    }

    /// Waits until it leads.
    pub(crate) async fn leads(self) -> Self {
        until_some(LIMIT, "the process to lead", async || {
            (self.ask("GET", "/health", None).await.0 == 200).then_some(())
        })
        .await;
        self
    }

    pub(crate) async fn send(&self, method: &str, path: &str, body: Option<&Value>) -> Response {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let mut request = self.client.request(method, format!("{}{path}", self.url));
        if let Some(body) = body {
            request = request.header("content-type", "application/json").body(body.to_string());
        }
        request.send().await.unwrap()
    }

    pub(crate) async fn raw(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> Response {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let mut request = self.client.request(method, format!("{}{path}", self.url));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.send().await.unwrap()
    }

    /// Code and body, which is null where there is none.
    pub(crate) async fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> (u16, Value) {
        let response = self.send(method, path, body).await;
        let code = response.status().as_u16();
        let text = response.text().await.unwrap();
        (code, if text.is_empty() { Value::Null } else { serde_json::from_str(&text).unwrap() })
    }

    /// Asks, and is gone after a moment without an answer.
    pub(crate) async fn ask_and_leave(&self, method: &str, path: &str) {
        let request = Request::builder().method(method).uri(path).body(Body::empty()).unwrap();
        let asking = self.app.clone().call(request);
        let answer = tokio::time::timeout(Duration::from_millis(500), asking).await;
        assert!(answer.is_err(), "{answer:?}");
    }

    /// The same, while the test goes on.
    pub(crate) fn asking(
        &self,
        method: &str,
        path: &str,
        body: &Value,
    ) -> JoinHandle<(u16, Value)> {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let request = self.client.request(method, format!("{}{path}", self.url));
        let request = request.header("content-type", "application/json").body(body.to_string());
        tokio::spawn(async move {
            let response = request.send().await.unwrap();
            let code = response.status().as_u16();
            (code, serde_json::from_str(&response.text().await.unwrap()).unwrap())
        })
    }

    /// Waits until the task shows a state; the whole status then.
    pub(crate) async fn until(&self, name: &str, state: &str) -> Value {
        let path = format!("/connectors/{name}/status");
        until_some(LIMIT, &format!("{name} to be {state}"), async || {
            let (_, status) = self.ask("GET", &path, None).await;
            let of_task = status["tasks"][0]["state"].as_str();
            let shown = of_task.or(status["connector"]["state"].as_str());
            (shown == Some(state)).then_some(status)
        })
        .await
    }

    /// Ends as on SIGTERM.
    pub(crate) async fn stop(mut self) {
        drop(self.stop.take());
        tokio::time::timeout(LIMIT, &mut self.worker).await.unwrap().unwrap().unwrap();
        self.server.abort();
    }

    /// Ends as by a kill: its runs and its session are gone at once. The runtime
    /// drops them one by one, and until then no other process begins a run.
    pub(crate) async fn kill(mut self) {
        let _closed = self.stage.entrance.write().await;
        self.worker.abort();
        assert!((&mut self.worker).await.unwrap_err().is_cancelled());
        until(LIMIT, "the runs to be gone", async || {
            self.stage.runs.lock().unwrap().values().all(|runs| runs.0 == 0)
        })
        .await;
        self.server.abort();
    }
}

/// Properties of a connector with a slot of this name.
pub(crate) fn config(slot: &str) -> Value {
    json!({
        "connector.class": CLASS,
        "database.hostname": "db",
        "database.user": "app",
        "database.password": "s3cr3t",
        "database.dbname": "shop",
        "topic.prefix": "shop",
        "slot.name": slot,
        "plugin.name": "pgoutput",
        "table.include.list": "public.outbox",
        "publication.autocreate.mode": "filtered",
        "snapshot.mode": "no_data",
        "transforms": "outbox",
        "transforms.outbox.type": "io.debezium.transforms.outbox.EventRouter",
        "key.converter": "org.apache.kafka.connect.storage.StringConverter",
        "value.converter": "org.apache.kafka.connect.storage.StringConverter",
    })
}

/// The same with a property more.
pub(crate) fn with(slot: &str, name: &str, value: &str) -> Value {
    let mut config = config(slot);
    config[name] = value.into();
    config
}

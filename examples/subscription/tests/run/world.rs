//! The parts of the example as processes of their own, and users.

use std::time::Duration;

use http::{HeaderMap, HeaderValue, Method, StatusCode};
use serde_json::Value;
use walpost_testkit::{Database, Process, fresh_database, local::free_port, until, until_some};
use walpost_webhook::{AddressPolicy, Client, ClientSettings, Endpoint, Outcome, Request};

pub(crate) const LIMIT: Duration = Duration::from_secs(120);
const PROGRAM: &str = env!("CARGO_BIN_EXE_subscription");

/// Settings of a world, or what a part is armed with, as environment variables.
pub(crate) type Setting<'a> = (&'a str, &'a str);

/// A server with both databases, the service, and the provider.
pub(crate) struct World {
    database: Database,
    settings: Vec<Setting<'static>>,
    service_port: u16,
    billing_port: u16,
    pub(crate) service: Process,
    pub(crate) billing: Process,
}

/// What a user is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) status: u16,
    pub(crate) body: Value,
}

impl World {
    pub(crate) async fn new(settings: &[Setting<'static>]) -> Self {
        let database = fresh_database().await;
        let mut all = vec![("RUST_LOG", "warn"), ("RECONCILE_EVERY_MS", "200")];
        all.extend(settings);
        let (service_port, billing_port) = (free_port().unwrap(), free_port().unwrap());
        let ports = (service_port, billing_port);
        let service = start_server(&database, &all, ports, "service", service_port, &[]).await;
        let billing = start_server(&database, &all, ports, "billing", billing_port, &[]).await;
        Self { database, settings: all, service_port, billing_port, service, billing }
    }

    /// A part without a port.
    pub(crate) fn part(&self, part: &str, armed: &[Setting<'_>]) -> Process {
        let ports = (self.service_port, self.billing_port);
        start(&self.database, &self.settings, ports, part, armed)
    }

    /// Another one in the place of the service, which is killed unless it is dead.
    pub(crate) async fn restart_service(&mut self, armed: &[Setting<'_>]) {
        self.service.kill();
        let (port, ports) = (self.service_port, (self.service_port, self.billing_port));
        let (database, settings) = (&self.database, &self.settings);
        self.service = start_server(database, settings, ports, "service", port, armed).await;
    }

    pub(crate) async fn restart_billing(&mut self, armed: &[Setting<'_>]) {
        self.billing.kill();
        let (port, ports) = (self.billing_port, (self.service_port, self.billing_port));
        let (database, settings) = (&self.database, &self.settings);
        self.billing = start_server(database, settings, ports, "billing", port, armed).await;
    }

    pub(crate) async fn database(&self, name: &str) -> tokio_postgres::Client {
        self.database.beside(name).connect().await
    }

    /// Users who may subscribe.
    pub(crate) async fn users(&self, names: &[&str]) {
        let insert = "insert into app_user select name, true from unnest($1::text[]) name";
        self.database("app").await.execute(insert, &[&names]).await.unwrap();
    }

    /// What the user is told, or none where the server died.
    pub(crate) async fn subscribe(&self, user: &str) -> Option<Told> {
        self.subscribe_with(user, "k", "basic").await
    }

    pub(crate) async fn subscribe_with(&self, user: &str, key: &str, plan: &str) -> Option<Told> {
        let mut headers = HeaderMap::new();
        headers.insert("x-user", HeaderValue::from_str(user).unwrap());
        headers.insert("idempotency-key", HeaderValue::from_str(key).unwrap());
        let body = serde_json::json!({ "plan": plan }).to_string();
        send(Method::POST, &self.at_service("/subscriptions"), headers, body).await
    }

    /// The same, again and again until the user is told that it is enqueued.
    pub(crate) async fn until_enqueued(&self, user: &str) -> Told {
        until_some(LIMIT, "an answer", async || {
            self.subscribe(user).await.filter(|told| told.status == 202)
        })
        .await
    }

    /// Where the user was told to look.
    pub(crate) async fn look(&self, user: &str, subscription: &str) -> Told {
        let mut headers = HeaderMap::new();
        headers.insert("x-user", HeaderValue::from_str(user).unwrap());
        let url = self.at_service(&format!("/subscriptions/{subscription}"));
        send(Method::GET, &url, headers, String::new()).await.unwrap()
    }

    /// What goes wrong with the next requests to the provider.
    pub(crate) async fn faults(&self, faults: &str) {
        assert_eq!(self.post_to_billing("/faults", faults).await, 204);
    }

    /// What is odd about the next webhooks.
    pub(crate) async fn whims(&self, whims: &str) {
        assert_eq!(self.post_to_billing("/whims", whims).await, 204);
    }

    pub(crate) async fn cancel_at_the_provider(&self, reference: &str) {
        let path = format!("/subscriptions/{reference}/cancel");
        assert_eq!(self.post_to_billing(&path, "").await, 200);
    }

    async fn post_to_billing(&self, path: &str, body: &str) -> u16 {
        let url = format!("{}{path}", url_of(self.billing_port));
        send(Method::POST, &url, HeaderMap::new(), body.to_owned()).await.unwrap().status
    }

    fn at_service(&self, path: &str) -> String {
        format!("{}{path}", url_of(self.service_port))
    }

    /// Waits until the provider has nothing more to tell.
    pub(crate) async fn until_all_is_told(&self) {
        let billing = self.database("billing").await;
        until(LIMIT, "all webhooks answered", async || {
            let open = "select count(*) from webhook where told_at is null";
            billing.query_one(open, &[]).await.unwrap().get::<_, i64>(0) == 0
        })
        .await;
    }

    /// Waits until a count of our tables is this.
    pub(crate) async fn until_count(&self, count: &str, expected: i64) {
        let client = self.database("app").await;
        until(LIMIT, count, async || {
            client.query_one(count, &[]).await.unwrap().get::<_, i64>(0) == expected
        })
        .await;
    }
}

pub(crate) async fn connect(url: &str) -> tokio_postgres::Client {
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

fn start(
    database: &Database,
    settings: &[Setting<'static>],
    (service, billing): (u16, u16),
    part: &str,
    more: &[Setting<'_>],
) -> Process {
    let (service, billing) = (url_of(service), url_of(billing));
    let all =
        [("DATABASE_URL", database.url()), ("SERVICE_URL", &service), ("BILLING_URL", &billing)];
    let all = all.into_iter().chain(settings.iter().copied()).chain(more.iter().copied());
    Process::start(PROGRAM, [part], all)
}

async fn start_server(
    database: &Database,
    settings: &[Setting<'static>],
    ports: (u16, u16),
    part: &str,
    port: u16,
    more: &[Setting<'_>],
) -> Process {
    let listen = format!("127.0.0.1:{port}");
    let more: Vec<Setting<'_>> = more.iter().copied().chain([("LISTEN", &*listen)]).collect();
    let process = start(database, settings, ports, part, &more);
    process.listens(LIMIT).await;
    process
}

async fn send(method: Method, url: &str, headers: HeaderMap, body: String) -> Option<Told> {
    let addresses = AddressPolicy::with_private_networks();
    let settings = ClientSettings { timeout: LIMIT, ..ClientSettings::default() };
    let endpoint = Endpoint::parse(url, addresses).unwrap();
    let request = Request { endpoint, method, headers, body: body.into() };
    let attempt = Client::new(settings).send(&request).await;
    let Outcome::Answered { status, .. } = attempt.outcome else { return None };
    let status: StatusCode = status;
    let body = serde_json::from_slice(&attempt.body).unwrap_or_default();
    Some(Told { status: status.as_u16(), body })
}

fn url_of(port: u16) -> String {
    format!("http://127.0.0.1:{port}")
}

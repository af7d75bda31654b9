//! The parts of the example as processes of their own, and customers.

use std::time::Duration;

use http::{HeaderMap, HeaderValue, Method, StatusCode};
use serde_json::Value;
use walpost_testkit::{Database, Process, fresh_database, local::free_port, until_some};
use walpost_webhook::{AddressPolicy, Client, ClientSettings, Endpoint, Outcome, Request};

pub(crate) const LIMIT: Duration = Duration::from_secs(120);
const PROGRAM: &str = env!("CARGO_BIN_EXE_checkout");

/// Settings of a world, as environment variables.
pub(crate) type Setting = (&'static str, &'static str);

/// Claims end soon after a kill.
const SOON: [Setting; 3] =
    [("LEASE_MS", "1000"), ("ABANDONED_AFTER_MS", "1500"), ("RUST_LOG", "warn")];

/// A server with the three databases, and who charges and ships.
pub(crate) struct World {
    database: Database,
    settings: Vec<Setting>,
    payment_port: u16,
    warehouse_port: u16,
    pub(crate) payment: Option<Process>,
    pub(crate) warehouse: Option<Process>,
}

/// A part that answers requests.
pub(crate) struct Server {
    pub(crate) process: Process,
    url: String,
}

/// What a customer is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) status: StatusCode,
    pub(crate) body: Value,
}

impl Told {
    pub(crate) fn state(&self) -> &str {
        self.body["state"].as_str().unwrap_or_default()
    }

    pub(crate) fn what(&self) -> (u16, &str) {
        (self.status.as_u16(), self.state())
    }
}

impl World {
    /// With providers that are not there yet.
    pub(crate) async fn closed(settings: &[Setting]) -> Self {
        let database = fresh_database().await;
        let settings = SOON.iter().chain(settings).copied().collect();
        let (payment_port, warehouse_port) = (free_port().unwrap(), free_port().unwrap());
        let (payment, warehouse) = (None, None);
        Self { database, settings, payment_port, warehouse_port, payment, warehouse }
    }

    pub(crate) async fn new(settings: &[Setting]) -> Self {
        let mut world = Self::closed(settings).await;
        world.open_payment().await;
        world.open_warehouse().await;
        world
    }

    pub(crate) async fn open_payment(&mut self) {
        let payment = self.server("payment", &[("LISTEN", &address_of(self.payment_port))]).await;
        self.payment = Some(payment.process);
    }

    pub(crate) async fn open_warehouse(&mut self) {
        let listen = address_of(self.warehouse_port);
        let warehouse = self.server("warehouse", &[("LISTEN", &listen)]).await;
        self.warehouse = Some(warehouse.process);
    }

    pub(crate) fn part(&self, part: &str, more: &[(&str, &str)]) -> Process {
        let (payment, warehouse) = (url_of(self.payment_port), url_of(self.warehouse_port));
        let mut all = vec![
            ("DATABASE_URL", self.database.url()),
            ("PAYMENT_URL", &*payment),
            ("WAREHOUSE_URL", &*warehouse),
        ];
        all.extend(self.settings.iter().chain(more));
        Process::start(PROGRAM, [part], all)
    }

    pub(crate) async fn server(&self, part: &str, more: &[(&str, &str)]) -> Server {
        let process = self.part(part, more);
        let url = format!("http://{}", process.listens(LIMIT).await);
        Server { process, url }
    }

    pub(crate) async fn service(&self) -> Server {
        self.server("service", &[]).await
    }

    /// What goes wrong with the next requests to the payment provider.
    pub(crate) async fn payment_faults(&self, faults: &str) {
        tell(self.payment_port, faults).await;
    }

    pub(crate) async fn warehouse_faults(&self, faults: &str) {
        tell(self.warehouse_port, faults).await;
    }

    pub(crate) async fn database(&self, name: &str) -> tokio_postgres::Client {
        self.database.beside(name).connect().await
    }
}

pub(crate) async fn connect(url: &str) -> tokio_postgres::Client {
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

impl Server {
    /// What the customer is told, or none where the server died or says nothing.
    pub(crate) async fn check_out(&self, customer: &str, sku: &str) -> Option<Told> {
        self.check_out_with(customer, sku, "tok_1").await
    }

    pub(crate) async fn check_out_with(
        &self,
        customer: &str,
        sku: &str,
        card: &str,
    ) -> Option<Told> {
        let order = serde_json::json!({
            "sku": sku, "city": "Oslo", "amount_cents": 4_900, "card": card
        });
        let mut headers = HeaderMap::new();
        headers.insert("x-customer", HeaderValue::from_str(customer).unwrap());
        headers.insert("idempotency-key", HeaderValue::from_static("\"cart\""));
        let url = format!("{}/checkouts", self.url);
        send(&url, headers, serde_json::to_vec(&order).unwrap()).await
    }

    /// The same, again and again until the customer is told how it ended.
    pub(crate) async fn until_told(&self, customer: &str, sku: &str) -> Told {
        until_some(LIMIT, "an end that the customer is told", async || {
            let told = self.check_out(customer, sku).await?;
            (!matches!(told.status.as_u16(), 409 | 503)).then_some(told)
        })
        .await
    }
}

async fn tell(port: u16, faults: &str) {
    let url = format!("{}/faults", url_of(port));
    let told = send(&url, HeaderMap::new(), faults.as_bytes().to_vec()).await.unwrap();
    assert_eq!(told.status, StatusCode::NO_CONTENT);
}

async fn send(url: &str, headers: HeaderMap, body: Vec<u8>) -> Option<Told> {
    let addresses = AddressPolicy::with_private_networks();
    let settings = ClientSettings { timeout: LIMIT, ..ClientSettings::default() };
    let endpoint = Endpoint::parse(url, addresses).unwrap();
    let request = Request { endpoint, method: Method::POST, headers, body: body.into() };
    let attempt = Client::new(settings).send(&request).await;
    let Outcome::Answered { status, .. } = attempt.outcome else { return None };
    Some(Told { status, body: serde_json::from_slice(&attempt.body).unwrap_or_default() })
}

fn url_of(port: u16) -> String {
    format!("http://{}", address_of(port))
}

fn address_of(port: u16) -> String {
    format!("127.0.0.1:{port}")
}

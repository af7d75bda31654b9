use std::{net::SocketAddr, sync::Arc, time::Duration};

use tokio::{sync::Mutex, task::spawn_blocking};
use tokio_postgres::{Client, NoTls, Row};
use walpost_testkit::{
    Process, Proxy, Target,
    local::{Postgres, free_port},
    until, until_some,
};

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_erp-round-trip");
pub(crate) const LIMIT: Duration = Duration::from_secs(300);
const FAILPOINT: &str = "WALPOST_FAILPOINT";
/// Between attempts, of which there is no end.
const RETRY_WAIT_MS: &str = "100";

/// One of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Finance,
    Logistics,
}

/// Either way: how finance reads its outbox, and when logistics ships.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Way {
    pub(crate) source: &'static str,
    pub(crate) mode: &'static str,
}

pub(crate) const WAL_INLINE: Way = Way { source: "wal", mode: "inline" };
pub(crate) const POLLING_INBOX: Way = Way { source: "polling", mode: "inbox" };

/// A server, the side's database in it, and its process.
struct House {
    postgres: Arc<Postgres>,
    name: &'static str,
    process: Option<Process>,
    /// For looking; none after the server was away.
    session: Mutex<Option<Client>>,
}

/// Both sides, and the network between them.
pub(crate) struct Stage {
    way: Way,
    finance: House,
    logistics: House,
    port: u16,
    /// What finance takes for logistics.
    pub(crate) proxy: Proxy,
}

pub(crate) async fn blocking<T: Send + 'static>(act: impl FnOnce() -> T + Send + 'static) -> T {
    spawn_blocking(act).await.unwrap()
}

/// Waits until the payer has paid all.
pub(crate) async fn paid(payer: Process) {
    let ended = blocking(move || (payer.wait(LIMIT), payer.log())).await;
    assert!(ended.0.success(), "{}", ended.1);
}

impl House {
    async fn open(name: &'static str) -> Self {
        let postgres = blocking(|| Postgres::builder().throwaway().start().unwrap()).await;
        Self { postgres: Arc::new(postgres), name, process: None, session: Mutex::default() }
    }
}

impl Stage {
    /// Two servers; neither side runs.
    pub(crate) async fn open(way: Way) -> Self {
        let (finance, logistics) = tokio::join!(House::open("finance"), House::open("logistics"));
        let port = free_port().unwrap();
        let proxy = Proxy::start(Target::Tcp(([127, 0, 0, 1], port).into())).await;
        Self { way, finance, logistics, port, proxy }
    }

    pub(crate) fn url(&self, side: Side) -> String {
        let house = self.house(side);
        house.postgres.url(house.name)
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    fn house(&self, side: Side) -> &House {
        match side {
            Side::Finance => &self.finance,
            Side::Logistics => &self.logistics,
        }
    }

    fn house_mut(&mut self, side: Side) -> &mut House {
        match side {
            Side::Finance => &mut self.finance,
            Side::Logistics => &mut self.logistics,
        }
    }

    /// SIGKILL, where it runs, and the next one at once. Finance pays until there
    /// are as many invoices.
    pub(crate) fn start(&mut self, side: Side, invoices: i64, failpoint: Option<&str>) {
        self.kill(side);
        let source = self.way.source;
        let process = self.program(side, source, invoices, failpoint);
        self.house_mut(side).process = Some(process);
    }

    fn program(&self, side: Side, source: &str, invoices: i64, failpoint: Option<&str>) -> Process {
        let house = self.house(side);
        let logistics = match side {
            Side::Finance => self.proxy.address(),
            Side::Logistics => SocketAddr::from(([127, 0, 0, 1], self.port)),
        };
        let mut environment = vec![
            ("DATABASE_URL", house.postgres.url("postgres")),
            ("LOGISTICS", logistics.to_string()),
            ("INVOICES", invoices.to_string()),
            ("SOURCE", source.to_owned()),
            ("MODE", self.way.mode.to_owned()),
            ("RETRY_WAIT_MS", RETRY_WAIT_MS.to_owned()),
        ];
        environment.extend(failpoint.map(|failpoint| (FAILPOINT, format!("webhook/{failpoint}"))));
        Process::start(PROGRAM, [house.name], environment)
    }

    /// Pays until there are as many invoices, and sends nothing.
    pub(crate) async fn pay(&self, invoices: i64) {
        paid(self.payer(invoices)).await;
    }

    /// Who does that, beside finance.
    pub(crate) fn payer(&self, invoices: i64) -> Process {
        self.program(Side::Finance, "elsewhere", invoices, None)
    }

    pub(crate) fn kill(&mut self, side: Side) {
        if let Some(process) = self.house_mut(side).process.take() {
            process.kill();
        }
    }

    pub(crate) fn process(&self, side: Side) -> &Process {
        self.house(side).process.as_ref().unwrap()
    }

    /// SIGTERM to both, which end in order.
    pub(crate) async fn end(&mut self) {
        for side in [Side::Finance, Side::Logistics] {
            let Some(process) = self.house_mut(side).process.take() else { continue };
            let ended = blocking(move || (process.terminate(LIMIT), process.log())).await;
            assert!(ended.0.success(), "{side:?}: {}", ended.1);
        }
    }

    /// Does what blocks to a server.
    pub(crate) async fn server(&self, side: Side, act: impl FnOnce(&Postgres) + Send + 'static) {
        let postgres = Arc::clone(&self.house(side).postgres);
        blocking(move || act(&postgres)).await;
    }

    /// What a query gives, once there is a database that answers it.
    pub(crate) async fn look(&self, side: Side, sql: &str) -> Option<Vec<Row>> {
        let mut session = self.house(side).session.lock().await;
        if session.is_none() {
            let connected = tokio_postgres::connect(&self.url(side), NoTls).await.ok()?;
            tokio::spawn(async move { drop(connected.1.await) });
            *session = Some(connected.0);
        }
        match session.as_ref()?.query(sql, &[]).await {
            Ok(rows) => Some(rows),
            Err(_) => {
                *session = None;
                None
            }
        }
    }

    /// The one number of a query; 0 while nothing answers.
    pub(crate) async fn number(&self, side: Side, sql: &str) -> i64 {
        self.look(side, sql).await.map_or(0, |rows| rows[0].get(0))
    }

    pub(crate) async fn shipments(&self) -> i64 {
        self.number(Side::Logistics, "select count(*) from shipment").await
    }

    /// Attempts that came to nothing, as far as finance knows, once it answers.
    pub(crate) async fn failures(&self) -> i64 {
        let failures = "select count(*) from walpost.webhook_attempt where outcome <> 'success'";
        until_some(LIMIT, "attempts", async || {
            Some(self.look(Side::Finance, failures).await?[0].get(0))
        })
        .await
    }

    /// Waits for so many shipments more, or for the `last` one.
    pub(crate) async fn progress(&self, more: i64, last: i64) {
        let mut target = None;
        until(LIMIT, "shipments between two faults", async || {
            let now = self.shipments().await;
            now > 0 && now >= *target.get_or_insert(last.min(now + more))
        })
        .await;
    }
}

//! `walpost run` under a steady load, with destinations of one kind.

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use tokio::time;
use tokio_postgres::Client;
use walpost_local::{ChildGuard, Launch, Postgres};

use super::receiver::Receiver;
use crate::{
    database::connect,
    latency::{mark, now_micros},
    services::DATABASE,
};

/// Before anything is measured in a phase, at most.
const WARM_UP: Duration = Duration::from_secs(4);
/// For what was written last to arrive.
const ARRIVAL_LIMIT: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(20);

/// How the destinations do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The fast one alone has something to do.
    Alone,
    /// The dead one and the slow one have as much to do.
    Beside,
    /// All are dead.
    Dead,
}

/// What was measured, in microseconds.
#[derive(Debug, Default)]
pub(crate) struct Measured {
    /// From an application's INSERT to the arrival at the fast one.
    pub(crate) arrivals: Vec<u64>,
    /// From BEGIN to the end of COMMIT of the application.
    pub(crate) transactions: Vec<u64>,
}

/// What all phases share.
#[derive(Debug)]
pub(crate) struct Stage {
    pub(crate) postgres: Postgres,
    pub(crate) walpost: PathBuf,
    pub(crate) receiver: Receiver,
    /// A port at which nobody listens.
    pub(crate) dead_url: String,
    pub(crate) folder: tempfile::TempDir,
    pub(crate) rate: u32,
    pub(crate) seconds: u64,
}

impl Stage {
    /// `walpost run` with the destinations fast, slow and dead.
    pub(crate) fn walpost(&self, kind: Kind) -> Result<ChildGuard> {
        let live = |route: &str| match kind {
            Kind::Dead => self.dead_url.clone(),
            Kind::Alone | Kind::Beside => self.receiver.url(route),
        };
        let config = self.folder.path().join("walpost.toml");
        let text = format!(
            "[postgres]\nurl = \"{}\"\n\
             [pipeline]\nname = \"bench\"\ninitial = \"skip\"\n\
             [sink]\nkind = \"webhook\"\n\
             [http]\nlisten = \"\"\n\
             [destination]\nallow_http = true\nallow_private_networks = true\n\
             [destination.fast]\nurl = \"{}\"\nevents = [\"OrderPlaced\"]\n\
             [destination.slow]\nurl = \"{}\"\nevents = [\"Noise\"]\n\
             [destination.dead]\nurl = \"{}\"\nevents = [\"Noise\"]\n",
            self.postgres.url(DATABASE),
            live("fast"),
            live("slow"),
            self.dead_url,
        );
        fs::write(&config, text).with_context(|| format!("writing {}", config.display()))?;
        Launch::new("walpost", &self.walpost, self.log())
            .arg("--config")
            .arg(&config)
            .arg("run")
            .directory(self.folder.path())
            .disposable(Some(self.folder.path()))
            .spawn()
            .context("starting walpost")
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("walpost.log")
    }

    /// Writes at the rate for a while, beside as many rows that are noise for the
    /// others, or for nobody.
    pub(crate) async fn phase(&self, kind: Kind) -> Result<Measured> {
        let conninfo = self.postgres.socket_conninfo(DATABASE);
        let client = connect(&conninfo).await?;
        client.batch_execute("truncate walpost.webhook_delivery cascade").await?;
        let before = self.receiver.fast.count();
        let walpost = self.walpost(kind)?;
        let noise = if kind == Kind::Alone { "Quiet" } else { "Noise" };
        let window = Duration::from_secs(self.seconds);
        let warm_up = async {
            tokio::try_join!(
                write(&conninfo, "OrderPlaced", self.rate, WARM_UP.min(window)),
                write(&conninfo, noise, self.rate, WARM_UP.min(window))
            )
        };
        let mut written = warm_up.await?.0.len() as u64;
        if kind != Kind::Dead {
            self.arrived(before + written).await?;
        }
        self.receiver.fast.take();
        let (transactions, _) = tokio::try_join!(
            write(&conninfo, "OrderPlaced", self.rate, window),
            write(&conninfo, noise, self.rate, window)
        )?;
        written += transactions.len() as u64;
        match kind {
            Kind::Alone | Kind::Beside => self.arrived(before + written).await?,
            Kind::Dead => self.created(&client, written).await?,
        }
        drop(walpost);
        Ok(Measured { arrivals: self.receiver.fast.take(), transactions })
    }

    /// Nothing is left in the WAL that the next phase would deliver.
    async fn created(&self, client: &Client, count: u64) -> Result<()> {
        let sql = "select count(*) from walpost.webhook_delivery where destination = 'fast'";
        let start = Instant::now();
        loop {
            let created: i64 = client.query_one(sql, &[]).await?.get(0);
            if created as u64 >= count {
                return Ok(());
            }
            ensure!(start.elapsed() < ARRIVAL_LIMIT, "{created} of {count} deliveries are there");
            time::sleep(POLL).await;
        }
    }

    async fn arrived(&self, count: u64) -> Result<()> {
        let start = Instant::now();
        while self.receiver.fast.count() < count {
            ensure!(
                start.elapsed() < ARRIVAL_LIMIT,
                "{} of {count} deliveries arrived within {ARRIVAL_LIMIT:?}; {}",
                self.receiver.fast.count(),
                tail(&self.log())
            );
            time::sleep(POLL).await;
        }
        Ok(())
    }
}

/// The last lines of a log.
pub(crate) fn tail(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(5)..].join("\n")
}

/// Commits one order and its event at a time, on a schedule that is fixed
/// beforehand; microseconds that each transaction took.
async fn write(conninfo: &str, kind: &str, rate: u32, window: Duration) -> Result<Vec<u64>> {
    let mut client = connect(conninfo).await?;
    let order = client.prepare("insert into bench_order (body) values ($1)").await?;
    let event = "insert into walpost.outbox (aggregatetype, aggregateid, type, payload) \
                 values ('order', $1, $2, jsonb_build_object('sent', $3::text, 'note', $4::text))";
    let event = client.prepare(event).await?;
    let note = "x".repeat(250);
    let count = (window.as_secs_f64() * f64::from(rate)) as u32;
    let (start, gap) = (time::Instant::now(), Duration::from_secs(1) / rate);
    let mut took = Vec::with_capacity(count as usize);
    for number in 0..count {
        time::sleep_until(start + gap * number).await;
        let begun = Instant::now();
        let sent = mark(now_micros());
        let tx = client.transaction().await?;
        tx.execute(&order, &[&note]).await?;
        let aggregate = (number % 1_000).to_string();
        tx.execute(&event, &[&aggregate, &kind, &sent, &note]).await?;
        tx.commit().await?;
        took.push(begun.elapsed().as_micros() as u64);
    }
    Ok(took)
}

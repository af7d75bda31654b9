//! Uploads that are sent again, and one thumbnail for each file.
//!
//! `api.rs`, `store.rs`, `worker.rs` and `picture.rs` are what services have;
//! `clients.rs` are there already.
//!
//! Without an argument all of it runs here, with clients. `api`, `worker` and
//! `sweep` are the parts alone, on the database at DATABASE_URL and the folder
//! STORE.

mod api;
mod clients;
mod failpoint;
mod picture;
mod report;
mod store;
mod sweep;
mod worker;

use std::{env, path::PathBuf, process::ExitCode, time::Duration};

pub(crate) use stand::Failed;
use stand::{Stand, Stop, folder, program, serve};
use tokio::{
    net::TcpListener,
    task::{JoinHandle, JoinSet},
    time::{MissedTickBehavior, interval},
};
use walpost_migrate::Set;
use walpost_postgres::Database;

use crate::{report::Report, store::Store, sweep::Swept};

/// Files, unless the variable FILES says otherwise.
const FILES: i64 = 100;
const REPORT_INTERVAL: Duration = Duration::from_secs(1);
const SWEEP_INTERVAL: Duration = Duration::from_secs(600);

fn main() -> ExitCode {
    program("upload", async |stop| {
        let place = Place::open().await?;
        match env::args().nth(1).as_deref() {
            None => place.whole(stop).await,
            Some("api") => place.api(listen().await?, stop).await,
            Some("worker") => place.worker(stop).await,
            Some("sweep") => place.sweep().await,
            Some(part) => Err(format!("{part} is no part of this").into()),
        }
    })
}

/// The database and the folder.
#[derive(Clone)]
struct Place {
    database: Database,
    store: Store,
    /// A server of our own ends with the last of these.
    _stand: std::sync::Arc<Stand>,
}

impl Place {
    async fn open() -> Result<Self, Failed> {
        let stand = Stand::open("upload").await?;
        let sets = [Set::Inbox, Set::Idempotency];
        let database = stand.database(stand.first().dbname(), sets, api::TABLES).await?;
        let store = env::var_os("STORE");
        let store = store.map_or_else(|| folder("upload").join("store"), PathBuf::from);
        Ok(Self { database, store: Store::open(&store)?, _stand: stand.into() })
    }

    async fn api(&self, listener: TcpListener, stop: Stop) -> Result<(), Failed> {
        let router = api::router(self.database.config().clone(), self.store.clone())?;
        serve(listener, router, &stop).await
    }

    /// Takes jobs, and sweeps now and then.
    async fn worker(&self, stop: Stop) -> Result<(), Failed> {
        let processor = worker::processor(self.database.config().clone(), self.store.clone())?;
        let mut tick = interval(SWEEP_INTERVAL);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut running = std::pin::pin!(processor.run(stop.requested()));
        loop {
            tokio::select! {
                ended = &mut running => return Ok(ended?),
                _ = tick.tick() => {
                    // What stays for want of it is swept the next time.
                    if let Err(error) = self.swept(sweep::AGE).await {
                        eprintln!("what nobody uses was not swept: {error}");
                    }
                }
            }
        }
    }

    async fn sweep(&self) -> Result<(), Failed> {
        let age = match env::var("AGE_S") {
            Ok(text) => Duration::from_secs(text.parse()?),
            Err(_) => sweep::AGE,
        };
        let swept = self.swept(age).await?;
        println!("swept: {} temporary, {} without a row", swept.temporary, swept.files);
        Ok(())
    }

    async fn swept(&self, age: Duration) -> Result<Swept, Failed> {
        let mut client = self.database.connect().await?;
        sweep::sweep(&mut client, &self.store, age).await
    }

    /// All parts in this process, until the work is done.
    async fn whole(&self, stop: Stop) -> Result<(), Failed> {
        let files = match env::var("FILES") {
            Ok(text) => text.parse().map_err(|error| format!("FILES is no number: {error}"))?,
            Err(_) => FILES,
        };
        let report = Report::new(&self.database, self.store.clone(), files).await?;
        let first = report.so_far().await?;
        first.figures().tell()?;
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let api = listener.local_addr()?;
        let mut parts = JoinSet::new();
        let (place, stopped) = (self.clone(), stop.clone());
        parts.spawn(async move { place.api(listener, stopped).await });
        let (place, stopped) = (self.clone(), stop.clone());
        parts.spawn(async move { place.worker(stopped).await });
        let clients = tokio::spawn(clients::play(api, first.files(), files, stop.clone()));
        let ended = watch(&report, &mut parts, clients, &stop).await;
        stop.stop();
        ended?;
        while let Some(ended) = parts.join_next().await {
            ended??;
        }
        report.so_far().await?.figures().tell_the_end()
    }
}

/// Says every second what there is, until it is all there.
async fn watch(
    report: &Report,
    parts: &mut JoinSet<Result<(), Failed>>,
    mut clients: JoinHandle<Result<(), Failed>>,
    stop: &Stop,
) -> Result<(), Failed> {
    let mut tick = interval(REPORT_INTERVAL);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut is_playing = true;
    loop {
        tokio::select! {
            biased;
            () = stop.requested() => return Ok(()),
            Some(ended) = parts.join_next() => {
                ended??;
                return Err("a part ended by itself".into());
            }
            ended = &mut clients, if is_playing => {
                ended??;
                is_playing = false;
            }
            _ = tick.tick() => {
                if report.so_far().await?.figures().tell()? && !is_playing {
                    return Ok(());
                }
            }
        }
    }
}

async fn listen() -> Result<TcpListener, Failed> {
    let address = env::var("LISTEN").unwrap_or_else(|_| "127.0.0.1:0".to_owned());
    let listener = TcpListener::bind(&address).await?;
    println!("listens on {}", listener.local_addr()?);
    Ok(listener)
}

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

use axum::Router;
pub(crate) use stand::Failed;
use stand::{Running, Stand, Stop, folder, listen, number, program, serve, spawn};
use tokio::time::{MissedTickBehavior, interval};
use walpost_migrate::Set;
use walpost_postgres::Database;

use crate::{report::Report, store::Store, sweep::Swept};

/// Files, unless the variable FILES says otherwise.
const FILES: i64 = 100;
const SWEEP_INTERVAL: Duration = Duration::from_secs(600);

fn main() -> ExitCode {
    program("upload", async |stop| {
        let place = Place::open().await?;
        match env::args().nth(1).as_deref() {
            None => place.whole(stop).await,
            Some("api") => serve(listen().await?, place.router()?, &stop).await,
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
        let database = stand.first_with(sets, api::TABLES).await?;
        let store = env::var_os("STORE");
        let store = store.map_or_else(|| folder("upload").join("store"), PathBuf::from);
        Ok(Self { database, store: Store::open(&store)?, _stand: stand.into() })
    }

    fn router(&self) -> Result<Router, Failed> {
        api::router(self.database.config().clone(), self.store.clone())
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
        let files = number("FILES", FILES)?;
        let report = Report::new(&self.database, self.store.clone(), files).await?;
        let first = report.so_far().await?;
        first.figures().tell()?;
        let mut running = Running::default();
        let api = spawn(&mut running.parts, self.router()?, &stop).await?;
        let (place, stopped) = (self.clone(), stop.clone());
        running.parts.spawn(async move { place.worker(stopped).await });
        let clients = clients::play(api, first.files(), files, stop.clone());
        running.clients = Some(tokio::spawn(clients));
        running.watch(async || Ok(report.so_far().await?.figures()), &stop).await
    }
}

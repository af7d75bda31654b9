//! Signups that are sent again, and one welcome mail for each account.
//!
//! `api.rs`, `mailer.rs` and `smtp.rs` are what services have. `sender.rs` is the
//! program `walpost run` elsewhere; `mail_server.rs` and `clients.rs` are there
//! already.
//!
//! Without an argument all of it runs here, with clients, and with `settle` an
//! operator instead of them. `api`, `sender`, `mailer` and `operator` are the
//! parts alone, on one server at DATABASE_URL.

mod api;
mod clients;
mod failpoint;
mod mail_server;
mod mailer;
mod operator;
mod report;
mod sender;
mod smtp;

use std::{env, path::PathBuf, process::ExitCode, time::Duration};

pub(crate) use stand::Failed;
use stand::{Sending, Stand, Stop, folder, program, serve};
use tokio::{
    net::TcpListener,
    task::JoinSet,
    time::{MissedTickBehavior, interval},
};
use walpost_migrate::Set;
use walpost_postgres::Database;

use crate::{mail_server::Spool, operator::Operator, report::Report};

/// Accounts, unless the variable ACCOUNTS says otherwise.
const ACCOUNTS: i64 = 200;
const REPORT_INTERVAL: Duration = Duration::from_secs(1);
/// What the sender signs with, for a demonstration: `MAILER_KEY` elsewhere.
const KEY: &str = "whsec_d2VsY29tZS1tYWlscy1vZi1hLWRlbW8tYWxvbmU=";

fn main() -> ExitCode {
    program("signup", async |stop| match env::args().nth(1).as_deref() {
        None => whole(stop, Work::Clients).await,
        Some("settle") => whole(stop, Work::Operator).await,
        Some("api") => Places::open().await?.api(stop).await,
        Some("sender") => Places::open().await?.sender(stop).await,
        Some("mailer") => Places::open().await?.mailer(stop).await,
        Some("operator") => Places::open().await?.operator().await,
        Some(part) => Err(format!("{part} is no part of this").into()),
    })
}

/// What is done while all parts run.
enum Work {
    Clients,
    Operator,
}

/// The databases, of two services.
struct Places {
    app: Database,
    mailer: Database,
    /// One of our own ends with this value.
    _stand: Stand,
}

impl Places {
    async fn open() -> Result<Self, Failed> {
        let stand = Stand::open("signup").await?;
        let name = stand.first().dbname();
        let sets = [Set::Relay, Set::Webhook, Set::Idempotency];
        let app = stand.database(name, sets, api::TABLES).await?;
        let mailer = format!("{name}_mailer");
        let mailer = stand.database(&mailer, [Set::Idempotency], mailer::TABLES).await?;
        Ok(Self { app, mailer, _stand: stand })
    }

    async fn api(&self, stop: Stop) -> Result<(), Failed> {
        let listener = listen().await?;
        serve(listener, api::router(self.app.config().clone())?, &stop).await
    }

    async fn mailer(&self, stop: Stop) -> Result<(), Failed> {
        let listener = listen().await?;
        let smtp = env::var("SMTP").map_err(|_| "SMTP names no mail server")?;
        let router = mailer::router(self.mailer.config().clone(), &key(), smtp)?;
        serve(listener, router, &stop).await
    }

    async fn sender(&self, stop: Stop) -> Result<(), Failed> {
        let url = env::var("MAILER").map_err(|_| "MAILER names no mailer")?;
        let mut sending = sender::start(&self.app, &url, &key())?;
        tokio::select! {
            failed = sending.ended() => return Err(failed),
            () = stop.requested() => {}
        }
        sending.stop().await
    }

    async fn operator(&self) -> Result<(), Failed> {
        let spool = env::var_os("SPOOL").map(|spool| Spool::open(&PathBuf::from(spool)));
        let operator = Operator::new(&self.app, &self.mailer, spool.transpose()?).await?;
        println!("{}", operator.settle().await?);
        Ok(())
    }
}

/// All parts in this process, until the work is done.
async fn whole(stop: Stop, work: Work) -> Result<(), Failed> {
    let accounts = match env::var("ACCOUNTS") {
        Ok(text) => text.parse().map_err(|error| format!("ACCOUNTS is no number: {error}"))?,
        Err(_) => ACCOUNTS,
    };
    let places = Places::open().await?;
    let (smtp, spool) = match env::var("SMTP") {
        Ok(smtp) => (smtp, None),
        Err(_) => {
            let spool = Spool::open(&folder("signup").join("mails"))?;
            (mail_server::start(spool.clone())?.to_string(), Some(spool))
        }
    };
    let report = Report::new(&places.app, &places.mailer, spool.clone(), accounts).await?;
    let first = report.so_far().await?;
    first.figures().tell()?;

    let mut parts = JoinSet::new();
    let api = TcpListener::bind(("127.0.0.1", 0)).await?;
    let api_at = api.local_addr()?;
    let router = api::router(places.app.config().clone())?;
    let stopped = stop.clone();
    parts.spawn(async move { serve(api, router, &stopped).await });
    let mailer = TcpListener::bind(("127.0.0.1", 0)).await?;
    let url = format!("http://{}/mails", mailer.local_addr()?);
    let router = mailer::router(places.mailer.config().clone(), KEY, smtp)?;
    let stopped = stop.clone();
    parts.spawn(async move { serve(mailer, router, &stopped).await });
    let mut sending = sender::start(&places.app, &url, KEY)?;

    let ended = match work {
        Work::Clients => {
            let there = first.accounts();
            let clients = tokio::spawn(clients::play(api_at, there, accounts, stop.clone()));
            watch(&report, &mut sending, &mut parts, clients, &stop).await
        }
        Work::Operator => {
            let operator = Operator::new(&places.app, &places.mailer, spool).await?;
            println!("{}", operator.settle().await?);
            Ok(())
        }
    };
    stop.stop();
    ended?;
    sending.stop().await?;
    report.so_far().await?.figures().tell_the_end()
}

/// Says every second what there is, until it is all there.
async fn watch(
    report: &Report,
    sending: &mut Sending,
    parts: &mut JoinSet<Result<(), Failed>>,
    mut clients: tokio::task::JoinHandle<Result<(), Failed>>,
    stop: &Stop,
) -> Result<(), Failed> {
    let mut tick = interval(REPORT_INTERVAL);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut is_playing = true;
    loop {
        tokio::select! {
            biased;
            () = stop.requested() => return Ok(()),
            failed = sending.ended() => return Err(failed),
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

fn key() -> String {
    env::var("MAILER_KEY").unwrap_or_else(|_| KEY.to_owned())
}

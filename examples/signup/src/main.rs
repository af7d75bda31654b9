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

use std::{env, io, path::PathBuf, process::ExitCode};

pub(crate) use stand::Failed;
use stand::{Running, Stand, Stop, folder, listen, number, program, serve, spawn};
use walpost_migrate::Set;
use walpost_postgres::Database;

use crate::{mail_server::Spool, operator::Operator, report::Report};

/// Accounts, unless the variable ACCOUNTS says otherwise.
const ACCOUNTS: i64 = 200;
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
        let sets = [Set::Relay, Set::Webhook, Set::Idempotency];
        let app = stand.first_with(sets, api::TABLES).await?;
        let mailer = stand.database("mailer", [Set::Idempotency], mailer::TABLES).await?;
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
        let operator = Operator::new(&self.app, &self.mailer, spool()?).await?;
        println!("{}", operator.settle().await?);
        Ok(())
    }
}

/// All parts in this process, until the work is done.
async fn whole(stop: Stop, work: Work) -> Result<(), Failed> {
    let accounts = number("ACCOUNTS", ACCOUNTS)?;
    let places = Places::open().await?;
    let (smtp, spool) = match env::var("SMTP") {
        Ok(smtp) => (smtp, spool()?),
        Err(_) => {
            let spool = Spool::open(&folder("signup").join("mails"))?;
            (mail_server::start(spool.clone())?.to_string(), Some(spool))
        }
    };
    let report = Report::new(&places.app, &places.mailer, spool.clone(), accounts).await?;
    let first = report.so_far().await?;
    first.figures().tell()?;

    let mut running = Running::default();
    let api = spawn(&mut running.parts, api::router(places.app.config().clone())?, &stop).await?;
    let router = mailer::router(places.mailer.config().clone(), KEY, smtp)?;
    let mailer = spawn(&mut running.parts, router, &stop).await?;
    let url = format!("http://{mailer}/mails");
    running.sending = Some(sender::start(&places.app, &url, KEY)?);
    match work {
        Work::Clients => {
            let clients = clients::play(api, first.accounts(), accounts, stop.clone());
            running.clients = Some(tokio::spawn(clients));
            running.watch(async || Ok(report.so_far().await?.figures()), &stop).await
        }
        Work::Operator => {
            let operator = Operator::new(&places.app, &places.mailer, spool).await?;
            println!("{}", operator.settle().await?);
            stop.stop();
            running.end().await?;
            report.so_far().await?.figures().tell_the_end()
        }
    }
}

/// The folder of a mail server that is not ours, where SPOOL says that we may look.
fn spool() -> io::Result<Option<Spool>> {
    env::var_os("SPOOL").map(|spool| Spool::open(&PathBuf::from(spool))).transpose()
}

fn key() -> String {
    env::var("MAILER_KEY").unwrap_or_else(|_| KEY.to_owned())
}

//! How the provider tells what became of a request: signed, at least once, in no
//! particular order, and sometimes not at all.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime},
};

use axum::{Router, body::Bytes, http::StatusCode, routing::post};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use stand::Stop;
use tokio::time::{MissedTickBehavior, interval};
use tokio_postgres::{Client as Sql, Error, Transaction};
use walpost_event::error_chain;
use walpost_postgres::Database;
use walpost_webhook::{AddressPolicy, Client, ClientSettings, Endpoint, Outcome, Request, Signer};

use crate::{Failed, failpoint::Failpoint, inbox::SIGNING_KEY};

pub(super) const TABLES: &str = "
    create table if not exists webhook (
        id bigint generated always as identity primary key,
        body text not null,
        copies int not null,
        due_at timestamptz not null,
        told_at timestamptz)";

const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How long it waits for an answer.
const PATIENCE: Duration = Duration::from_secs(5);
const AT_A_TIME: i64 = 20;

/// What is wrong with a webhook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whim {
    /// It is sent twice, though it was answered.
    Twice,
    /// It is sent a second later, behind those that come after it.
    Late,
    /// It is not sent.
    Never,
}

/// What is wrong with the webhooks to come: what it is told to be, or with some of
/// them. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Whims {
    told: Arc<Mutex<VecDeque<Whim>>>,
    count: Arc<AtomicU64>,
    /// One in so many has one; none with 0.
    every: u64,
}

impl Whims {
    pub(super) fn new(every: u64) -> Self {
        Self { told: Arc::default(), count: Arc::default(), every }
    }

    /// `POST /whims` with names, one in each line, for the next webhooks.
    pub(super) fn router(&self) -> Router {
        let told = Arc::clone(&self.told);
        let hear = move |body: Bytes| {
            let told = Arc::clone(&told);
            async move {
                let names = String::from_utf8_lossy(&body);
                let whim = |name: &str| match name.trim() {
                    "twice" => Some(Whim::Twice),
                    "late" => Some(Whim::Late),
                    "never" => Some(Whim::Never),
                    _ => None,
                };
                let Some(whims) = names.lines().map(whim).collect::<Option<Vec<_>>>() else {
                    return StatusCode::BAD_REQUEST;
                };
                told.lock().unwrap_or_else(PoisonError::into_inner).extend(whims);
                StatusCode::NO_CONTENT
            }
        };
        Router::new().route("/whims", post(hear))
    }

    fn next(&self) -> Option<Whim> {
        let told = self.told.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        let is_hit = number.checked_rem(self.every) == Some(self.every.saturating_sub(1));
        let all = [Whim::Twice, Whim::Late, Whim::Never];
        told.or_else(|| is_hit.then(|| all[(number / self.every % 3) as usize]))
    }
}

/// Writes a webhook in the transaction of what it tells.
pub(super) async fn enqueue(tx: &Transaction<'_>, whims: &Whims, body: &str) -> Result<(), Error> {
    let whim = whims.next();
    if whim == Some(Whim::Never) {
        return Ok(());
    }
    let copies = if whim == Some(Whim::Twice) { 2 } else { 1 };
    let wait = if whim == Some(Whim::Late) { 1.0 } else { 0.0 };
    let insert = "insert into webhook (body, copies, due_at) \
                  values ($1, $2, clock_timestamp() + $3 * interval '1 second')";
    tx.execute(insert, &[&body, &copies, &wait]).await?;
    Ok(())
}

/// Sends webhooks until it is told to stop.
pub(crate) async fn tell(database: Database, url: String, stop: Stop) -> Result<(), Failed> {
    let addresses = AddressPolicy::with_private_networks();
    let endpoint = Endpoint::parse(&url, addresses)?;
    let signer = Signer::new([SIGNING_KEY.parse()?])?;
    let settings = ClientSettings { timeout: PATIENCE, ..ClientSettings::default() };
    let http = Client::new(settings);
    let sql = database.connect().await?;
    let mut tick = interval(LOOK_EVERY);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = stop.requested() => return Ok(()),
            _ = tick.tick() => {}
        }
        if let Err(error) = tell_what_is_due(&sql, &http, &endpoint, &signer).await {
            tracing::warn!(error = error_chain(&*error), "the provider cannot tell");
        }
    }
}

async fn tell_what_is_due(
    sql: &Sql,
    http: &Client,
    endpoint: &Endpoint,
    signer: &Signer,
) -> Result<(), Failed> {
    let select = "select id, body, copies from webhook \
                  where told_at is null and due_at <= clock_timestamp() order by id limit $1";
    for row in sql.query(select, &[&AT_A_TIME]).await? {
        let (id, body, copies): (i64, String, i32) = (row.get(0), row.get(1), row.get(2));
        Failpoint::Telling.reached();
        let mut is_told = false;
        for _ in 0..copies {
            let mut headers = HeaderMap::new();
            headers.insert("content-type", HeaderValue::from_static("application/json"));
            let signature = signer.sign(&format!("wh_{id}"), SystemTime::now(), body.as_bytes())?;
            for (name, value) in signature.headers() {
                headers.insert(HeaderName::from_static(name), HeaderValue::from_str(&value)?);
            }
            let (endpoint, body) = (endpoint.clone(), body.clone().into());
            let request = Request { endpoint, method: Method::POST, headers, body };
            let outcome = http.send(&request).await.outcome;
            is_told = matches!(outcome, Outcome::Answered { status, .. } if status.is_success());
        }
        Failpoint::Told.reached();
        let update = if is_told {
            "update webhook set told_at = clock_timestamp() where id = $1"
        } else {
            "update webhook set due_at = clock_timestamp() + interval '300 ms' where id = $1"
        };
        sql.execute(update, &[&id]).await?;
    }
    Ok(())
}

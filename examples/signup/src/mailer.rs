//! The service that mails: it takes deliveries of `account.created`, and hands a
//! welcome mail to the mail server once for each event, or never again where it
//! cannot know.
//!
//! A mail cannot be rolled back. So the intent is committed before the contents
//! go out, in the table `mail`, and whoever finds an intent without its end sends
//! nothing: it says that it does not know.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use axum::{
    Json, Router,
    body::{Body, to_bytes},
    extract::{Request, State},
    http::{HeaderMap, StatusCode, header::RETRY_AFTER, request::Parts},
    middleware::{Next, from_fn_with_state},
    response::{IntoResponse, Response},
    routing::post,
};
use lettre::{Message, message::Mailbox};
use serde::Deserialize;
use tokio_postgres::{Config, Transaction};
use walpost_idempotency::{
    Mode, Policy,
    http::{Database, IdempotencyLayer, Run, TxError},
};
use walpost_webhook::{SigningKey, Verifier};

use crate::{
    Failed,
    failpoint::Failpoint,
    smtp::{NotAccepted, Refused, Session},
};

pub(crate) const TABLES: &str = "
    create table if not exists mail (
        event_id text primary key,
        begun_at timestamptz not null default now(),
        accepted_at timestamptz)";

/// The header of the delivery's key, which its signature covers.
const KEY_HEADER: &str = "webhook-id";
const BODY_MAX_BYTES: usize = 64 * 1_024;
/// How long a run may be silent before another one may look how far it came.
const LEASE: Duration = Duration::from_secs(10);
/// Longer than the limits of [`Session`] together.
const LIMIT: Duration = Duration::from_secs(14);
/// Of answers: retries that come later find what is in the table.
const ANSWERS: Duration = Duration::from_secs(72 * 3_600);
const FROM: &str = "Signup <welcome@signup.example>";

/// What of the event is of interest here.
#[derive(Deserialize)]
struct AccountCreated {
    email: String,
    name: String,
}

/// Set once the signature was found to be right.
#[derive(Clone)]
struct Signed;

/// What the table knew before this run.
enum Begun {
    ByUs,
    /// And the mail server has it.
    Accepted,
    /// And nobody knows more.
    Unknown,
}

/// `POST /mails`, for deliveries that are signed with `key`, through the mail
/// server at `smtp`.
pub(crate) fn router(config: Config, key: &str, smtp: String) -> Result<Router, Failed> {
    let key: SigningKey = key.parse()?;
    let verifier = Arc::new(Verifier::standard([key.verifying_key()]));
    let policy = Policy::new("POST /mails")
        .mode(Mode::Leased)
        .key_header(KEY_HEADER)
        .lease(LEASE)
        .handler_timeout(LIMIT)
        .ttl(ANSWERS);
    let signed = |request: &Parts| request.extensions.get::<Signed>().map(|_| "signup".to_owned());
    let layer = IdempotencyLayer::new(Database::config(config), policy, signed)?;
    let mails = post(welcome).layer(layer).layer(from_fn_with_state(verifier, verify));
    Ok(Router::new().route("/mails", mails).with_state(Arc::from(smtp)))
}

async fn verify(State(verifier): State<Arc<Verifier>>, request: Request, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    let Ok(body) = to_bytes(body, BODY_MAX_BYTES).await else {
        return StatusCode::PAYLOAD_TOO_LARGE.into_response();
    };
    if verifier.verify(&parts.headers, &body, SystemTime::now()).is_err() {
        return StatusCode::UNAUTHORIZED.into_response();
    }
    parts.extensions.insert(Signed);
    next.run(Request::from_parts(parts, Body::from(body))).await
}

/// What it answers decides what becomes of the delivery: 200 is delivered, 429
/// comes again, 422 as well until its schedule has ended, and 500 is held as
/// unknown.
async fn welcome(
    State(smtp): State<Arc<str>>,
    run: Run,
    headers: HeaderMap,
    Json(account): Json<AccountCreated>,
) -> Result<Response, TxError> {
    let event_id = headers.get(KEY_HEADER).and_then(|id| id.to_str().ok()).unwrap_or_default();
    let Some(mail) = mail(event_id, &account) else {
        return Ok((StatusCode::UNPROCESSABLE_ENTITY, "this can be no mail").into_response());
    };
    Failpoint::BeforeSmtp.reached();
    let mut session = match Session::open(&smtp, mail.envelope()).await {
        Ok(session) => session,
        Err(refused) => return Ok(refused.into_response()),
    };
    match begin(&run, event_id).await? {
        Begun::ByUs => {}
        Begun::Accepted => return Ok(StatusCode::OK.into_response()),
        Begun::Unknown => return Ok(unknown("a run before this one did not come to its end")),
    }
    match session.hand_over(&mail.formatted()).await {
        Ok(()) => {
            Failpoint::AfterSmtp.reached();
            accepted(&run, event_id).await?;
            session.close().await;
            Ok(StatusCode::OK.into_response())
        }
        Err(NotAccepted::Refused(refused)) => {
            take_back(&run, event_id).await?;
            Ok(refused.into_response())
        }
        Err(NotAccepted::Unknown(detail)) => Ok(unknown(&detail)),
    }
}

/// From its commit on a mail may be on its way.
async fn begin(run: &Run, event_id: &str) -> Result<Begun, TxError> {
    let event_id = event_id.to_owned();
    run.phase("begun", move |tx| {
        Box::pin(async move {
            let insert = "insert into mail (event_id) values ($1) on conflict do nothing";
            if tx.execute(insert, &[&event_id]).await? == 1 {
                return Ok(Begun::ByUs);
            }
            let select = "select accepted_at is not null from mail where event_id = $1";
            let is_accepted = tx.query_one(select, &[&event_id]).await?.get(0);
            Ok(if is_accepted { Begun::Accepted } else { Begun::Unknown })
        })
    })
    .await
}

async fn accepted(run: &Run, event_id: &str) -> Result<(), TxError> {
    let update = "update mail set accepted_at = now() where event_id = $1";
    note(run, "accepted", update, event_id).await
}

/// The mail server has refused the mail: the next run may begin anew.
async fn take_back(run: &Run, event_id: &str) -> Result<(), TxError> {
    note(run, "refused", "delete from mail where event_id = $1", event_id).await
}

async fn note(
    run: &Run,
    recovery_point: &str,
    sql: &'static str,
    event_id: &str,
) -> Result<(), TxError> {
    let event_id = event_id.to_owned();
    run.phase(recovery_point, move |tx: &Transaction<'_>| {
        Box::pin(async move {
            tx.execute(sql, &[&event_id]).await?;
            Ok(())
        })
    })
    .await
}

/// The mail, whose Message-ID is that of the event, so that whoever looks for it
/// at the mail server knows what to look for.
fn mail(event_id: &str, account: &AccountCreated) -> Option<Message> {
    let is_fit = |c: char| c.is_ascii_alphanumeric() || c == '-';
    if event_id.is_empty() || !event_id.chars().all(is_fit) {
        return None;
    }
    let to = Mailbox::new(Some(account.name.clone()), account.email.parse().ok()?);
    Message::builder()
        .message_id(Some(message_id(event_id)))
        .from(FROM.parse().ok()?)
        .to(to)
        .subject("Welcome")
        .body(format!("Hello {},\n\nyour account is there.\n", account.name))
        .ok()
}

/// RFC 5322, 3.6.4.
pub(crate) fn message_id(event_id: &str) -> String {
    format!("<{event_id}@signup.example>")
}

/// 500, which no answer that was stored ever is: the next run looks again.
fn unknown(detail: &str) -> Response {
    (StatusCode::INTERNAL_SERVER_ERROR, format!("nobody knows: {detail}\n")).into_response()
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        match self {
            Self::ForNow(detail) => {
                (StatusCode::TOO_MANY_REQUESTS, [(RETRY_AFTER, "1")], detail).into_response()
            }
            Self::ForGood(detail) => (StatusCode::UNPROCESSABLE_ENTITY, detail).into_response(),
        }
    }
}

//! The service that takes files: row, job and answer are one transaction.
//!
//! The body is streamed to the disk first. Behind that the request has a body of
//! some bytes, which says what the first one was, and that is what idempotency
//! sees: it keeps no file in memory, and other contents under a key are another
//! request.

use std::{sync::Arc, time::Duration};

use axum::{
    Extension, Json, Router,
    body::Body,
    extract::{Request, State},
    http::{
        StatusCode,
        header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE},
        request::Parts,
    },
    middleware::{Next, from_fn_with_state},
    response::{IntoResponse, Response},
    routing::post,
};
use serde::Serialize;
use serde_json::json;
use tokio::time::timeout;
use tokio_postgres::{Config, Transaction};
use walpost_contracts::Contracts;
use walpost_idempotency::{
    AfterExpiry, InFlight, Policy,
    http::{Database, IdempotencyLayer, Tx, TxError},
};
use walpost_inbox::{Inbox, Insert, NewEvent};

use crate::{
    Failed,
    failpoint::Failpoint,
    store::{Incomplete, Received, Store},
};

pub(crate) const TABLES: &str = "
    create table if not exists file (
        id bigint generated always as identity primary key,
        owner text not null,
        sha256 text not null,
        bytes bigint not null,
        created_at timestamptz not null default now());
    create index if not exists file_sha256 on file (sha256);
    create table if not exists thumbnail (
        file_id bigint not null references file,
        width int not null,
        height int not null,
        made_at timestamptz not null default now())";

/// Who sends the jobs, to the inbox.
pub(crate) const SOURCE: &str = "upload";
pub(crate) const FILE_UPLOADED: &str = "file.uploaded";
/// What this service and its worker agree on.
const CONTRACT: &str = include_str!("../../../docs/events/files/file-uploaded.md");
/// Of a file; in memory there is a piece of it at a time.
const FILE_MAX_BYTES: u64 = 64 * 1_024 * 1_024;
/// For a file to come.
const LIMIT: Duration = Duration::from_secs(300);
/// Stands for the authentication that is there elsewhere: whose token it is.
const USERS: [(&str, &str); 2] =
    [("Bearer token-of-alice", "alice"), ("Bearer token-of-bob", "bob")];

/// The payload of the event.
#[derive(Serialize)]
struct FileUploaded<'a> {
    file_id: i64,
    sha256: &'a str,
    bytes: u64,
}

/// Whose request it is.
#[derive(Clone)]
struct User(&'static str);

#[derive(Clone)]
struct Uploads {
    store: Store,
    contracts: Arc<Contracts>,
    inbox: Inbox,
}

/// `POST /files`.
pub(crate) fn router(config: Config, store: Store) -> Result<Router, Failed> {
    let contracts = Contracts::parse([("file-uploaded.md".into(), CONTRACT.to_owned())])?;
    let uploads = Uploads { store, contracts: Arc::new(contracts), inbox: Inbox::new() };
    let policy =
        Policy::new("POST /files").in_flight(InFlight::Wait).after_expiry(AfterExpiry::Gone);
    let user = |request: &Parts| request.extensions.get::<User>().map(|user| user.0.to_owned());
    let layer = IdempotencyLayer::new(Database::config(config), policy, user)?;
    let files = post(upload).layer(layer).layer(from_fn_with_state(uploads.clone(), receive));
    Ok(Router::new().route("/files", files).with_state(uploads))
}

/// Authenticates, and puts what describes the body in its place.
async fn receive(State(uploads): State<Uploads>, request: Request, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    let token = parts.headers.get(AUTHORIZATION).map(|value| value.as_bytes());
    let user = USERS.iter().find(|(known, _)| Some(known.as_bytes()) == token);
    let Some((_, user)) = user else {
        return problem(StatusCode::UNAUTHORIZED, "nobody is known by this token");
    };
    let received = match timeout(LIMIT, uploads.store.receive(body, FILE_MAX_BYTES)).await {
        Ok(Ok(received)) => received,
        Ok(Err(incomplete)) => return incomplete.into_response(),
        Err(_) => return problem(StatusCode::REQUEST_TIMEOUT, "the file took too long"),
    };
    let Received { sha256, bytes, .. } = &received;
    let description = json!({ "sha256": sha256, "bytes": bytes }).to_string();
    parts.headers.insert(CONTENT_LENGTH, description.len().into());
    parts.extensions.insert(User(user));
    // Leaves with the request, also where that is the second of its kind.
    parts.extensions.insert(received);
    next.run(Request::from_parts(parts, Body::from(description))).await
}

async fn upload(
    State(uploads): State<Uploads>,
    Extension(User(user)): Extension<User>,
    Extension(received): Extension<Received>,
    tx: Tx,
) -> Result<Response, TxError> {
    let sha256 = received.sha256.clone();
    let file_id: i64 =
        tx.run(move |tx| Box::pin(async move { uploads.add(tx, user, &received).await })).await?;
    let answer = json!({ "file_id": file_id, "sha256": sha256 });
    Ok((StatusCode::CREATED, Json(answer)).into_response())
}

impl Uploads {
    /// The file under its name, its row, and its job. What of it the database has
    /// commits together with the answer; the name alone may be there without.
    async fn add(
        &self,
        tx: &Transaction<'_>,
        user: &str,
        received: &Received,
    ) -> Result<i64, TxError> {
        let Received { sha256, bytes, .. } = received;
        lock(tx, sha256).await?;
        self.store.place(received).map_err(|error| refused(true, error.to_string()))?;
        Failpoint::Placed.reached();
        let insert = "insert into file (owner, sha256, bytes) values ($1, $2, $3) returning id";
        let length = i64::try_from(*bytes).unwrap_or(i64::MAX);
        let file_id: i64 = tx.query_one(insert, &[&user, sha256, &length]).await?.get(0);
        let payload = FileUploaded { file_id, sha256, bytes: *bytes };
        let payload =
            serde_json::to_vec(&payload).map_err(|error| refused(false, error.to_string()))?;
        let checked = self.contracts.check_payload(FILE_UPLOADED, &payload);
        checked.map_err(|error| refused(false, error.to_string()))?;
        // One row, one job: the inbox takes an id once.
        let job = NewEvent::new(format!("file-{file_id}"), FILE_UPLOADED, payload).source(SOURCE);
        match self.inbox.insert_once(tx, &job).await {
            Ok(Insert::Inserted(_)) => {}
            Ok(_) => return Err(refused(false, format!("file {file_id} has a job already"))),
            Err(error) => return Err(refused(error.is_transient(), error.to_string())),
        }
        Ok(file_id)
    }
}

/// Contents are placed, and removed, by one transaction at a time.
pub(crate) async fn lock(tx: &Transaction<'_>, sha256: &str) -> Result<(), tokio_postgres::Error> {
    let lock = "select pg_advisory_xact_lock(hashtextextended($1, 0))";
    tx.execute(lock, &[&sha256]).await?;
    Ok(())
}

fn refused(is_transient: bool, detail: String) -> TxError {
    TxError::Database { detail, is_transient }
}

/// RFC 9457.
fn problem(status: StatusCode, detail: &str) -> Response {
    let body = json!({ "status": status.as_u16(), "detail": detail }).to_string();
    (status, [(CONTENT_TYPE, "application/problem+json")], body).into_response()
}

impl IntoResponse for Incomplete {
    fn into_response(self) -> Response {
        match self {
            Self::TooLong => problem(StatusCode::PAYLOAD_TOO_LARGE, "a file has 64 MiB at most"),
            Self::BrokenOff => problem(StatusCode::BAD_REQUEST, "the file broke off"),
            Self::Disk(error) => {
                eprintln!("a file cannot be written: {error}");
                problem(StatusCode::SERVICE_UNAVAILABLE, "there is no room for it now")
            }
        }
    }
}

use axum::{
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde_json::{Value, json};
use tokio_postgres::{Client, Error, Transaction};

/// What a server of others keeps its answers in: see [`once`].
pub const ANSWERS: &str = "
    create table if not exists answer (
        key text primary key,
        request text not null,
        status int,
        body text)";

/// What is answered.
pub type Answered = (StatusCode, Value);

/// Does the work once for the key, and keeps its answer in the same transaction,
/// as providers do: the first one is given to whoever asks again.
///
/// # Errors
/// When the database fails; nothing is done then.
pub async fn once(
    client: &mut Client,
    key: &str,
    request: &str,
    work: impl AsyncFnOnce(&Transaction<'_>) -> Result<Answered, Error>,
) -> Result<Answered, Error> {
    let tx = client.transaction().await?;
    // A twin waits here for the first one's end.
    let insert = "insert into answer (key, request) values ($1, $2) on conflict do nothing";
    if tx.execute(insert, &[&key, &request]).await? == 0 {
        let select = "select request, status, body from answer where key = $1";
        let row = tx.query_one(select, &[&key]).await?;
        let (first, status, body): (&str, i32, &str) = (row.get(0), row.get(1), row.get(2));
        if first != request {
            return Ok((StatusCode::UNPROCESSABLE_ENTITY, json!({ "problem": "key_reused" })));
        }
        let status = u16::try_from(status).ok().and_then(|code| StatusCode::from_u16(code).ok());
        let body = serde_json::from_str(body).unwrap_or_default();
        return Ok((status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), body));
    }
    let (status, body) = work(&tx).await?;
    let update = "update answer set status = $2, body = $3 where key = $1";
    tx.execute(update, &[&key, &i32::from(status.as_u16()), &body.to_string()]).await?;
    tx.commit().await?;
    Ok((status, body))
}

/// The key of a request.
#[must_use]
pub fn key(headers: &HeaderMap) -> Option<String> {
    Some(headers.get("idempotency-key")?.to_str().ok()?.to_owned())
}

/// As JSON; 503 where the database has failed.
pub fn response(answer: Result<Answered, Error>) -> Response {
    match answer {
        Ok((status, body)) => {
            (status, [(header::CONTENT_TYPE, "application/json")], body.to_string()).into_response()
        }
        Err(error) => {
            eprintln!("a server of others has no database: {error}");
            StatusCode::SERVICE_UNAVAILABLE.into_response()
        }
    }
}

/// 400.
pub fn bad_request() -> Response {
    response(Ok((StatusCode::BAD_REQUEST, json!({ "problem": "bad_request" }))))
}

//! Clients as they are out there: they lose answers, send twins, and come again.

use std::{net::SocketAddr, time::Duration};

use serde_json::json;
use stand::{Answer, Stop, number, post, post_and_go};
use tokio::{task::JoinSet, time::sleep};

use crate::Failed;

/// Between two of them, unless the variable PACE_MS says otherwise.
const PACE_MS: u64 = 25;
const AT_A_TIME: usize = 16;
/// Before a client sends its request again.
const PAUSE: Duration = Duration::from_millis(200);
/// So many of those that have accounts come again at a start: they may have been
/// killed with their answers.
const AGAIN: i64 = 50;

/// One client for each account, until there are as many, or it is asked to stop.
pub(crate) async fn play(
    api: SocketAddr,
    there: i64,
    accounts: i64,
    stop: Stop,
) -> Result<(), Failed> {
    let pace = Duration::from_millis(number("PACE_MS", PACE_MS)?);
    let mut clients = JoinSet::new();
    for number in (there - AGAIN).max(0)..accounts {
        let client = async { sleep(pace).await };
        tokio::select! {
            () = client => {}
            () = stop.requested() => break,
        }
        if clients.len() >= AT_A_TIME
            && let Some(ended) = clients.join_next().await
        {
            ended??;
        }
        let stopped = stop.requested();
        clients.spawn(async move {
            tokio::select! {
                ended = sign_up(api, number) => ended,
                () = stopped => Ok(()),
            }
        });
    }
    while let Some(ended) = clients.join_next().await {
        ended??;
    }
    Ok(())
}

async fn sign_up(api: SocketAddr, number: i64) -> Result<(), Failed> {
    let (key, body) = (format!("client-{number}"), body(number));
    match number % 5 {
        1 => post_and_go(api, "/signup", &headers(&key), body.as_bytes()).await,
        2 => {
            let (one, other) = tokio::join!(answered(api, &key, &body), answered(api, &key, &body));
            same(number, &one, &other)?;
        }
        _ => {}
    }
    let first = answered(api, &key, &body).await;
    if !matches!(first.status, 201 | 410) {
        return Err(format!("client {number} got {} {}", first.status, first.body).into());
    }
    if number % 5 == 3 {
        same(number, &first, &answered(api, &key, &body).await)?;
    }
    if number % 5 == 4 {
        // As if it had forgotten its key.
        let other = answered(api, &format!("{key}-anew"), &body).await;
        if !matches!(other.status, 409 | 410) {
            return Err(format!("client {number} got {} under another key", other.status).into());
        }
    }
    Ok(())
}

/// Sends the same until there is an answer that is one.
async fn answered(api: SocketAddr, key: &str, body: &str) -> Answer {
    loop {
        match post(api, "/signup", &headers(key), body.as_bytes()).await {
            Some(answer) if !answer.asks_for_another() => return answer,
            _ => sleep(PAUSE).await,
        }
    }
}

fn same(number: i64, one: &Answer, other: &Answer) -> Result<(), Failed> {
    if (one.status, &one.body) == (other.status, &other.body) {
        return Ok(());
    }
    Err(format!("client {number} got {} and then {}", one.status, other.status).into())
}

fn headers(key: &str) -> [(&str, &str); 2] {
    [("content-type", "application/json"), ("idempotency-key", key)]
}

fn body(number: i64) -> String {
    json!({ "email": format!("user-{number}@example.org"), "name": format!("User {number}") })
        .to_string()
}

//! Clients as they are out there: they lose answers, break off, send twins, and
//! come again.

use std::{io::Cursor, net::SocketAddr, time::Duration};

use image::{ImageFormat, Rgb, RgbImage};
use stand::{Answer, Stop, number, post, post_a_part, post_and_go};
use tokio::{task::JoinSet, time::sleep};

use crate::Failed;

/// Between two of them, unless the variable PACE_MS says otherwise.
const PACE_MS: u64 = 50;
const AT_A_TIME: usize = 8;
/// Before a client sends its request again.
const PAUSE: Duration = Duration::from_millis(200);
/// So many of those that have files come again at a start: they may have been
/// killed with their answers.
const AGAIN: i64 = 25;

/// One client for each file, until there are as many, or it is asked to stop.
pub(crate) async fn play(
    api: SocketAddr,
    there: i64,
    files: i64,
    stop: Stop,
) -> Result<(), Failed> {
    let pace = Duration::from_millis(number("PACE_MS", PACE_MS)?);
    let mut clients = JoinSet::new();
    for number in (there - AGAIN).max(0)..files {
        tokio::select! {
            () = sleep(pace) => {}
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
                ended = upload(api, number) => ended,
                () = stopped => Ok(()),
            }
        });
    }
    while let Some(ended) = clients.join_next().await {
        ended??;
    }
    Ok(())
}

async fn upload(api: SocketAddr, number: i64) -> Result<(), Failed> {
    let (key, body) = (format!("client-{number}"), picture(number)?);
    match number % 5 {
        1 => post_and_go(api, "/files", &headers(&key), &body).await,
        2 => drop(post_a_part(api, "/files", &headers(&key), (&body, body.len() / 2)).await),
        3 => {
            let (one, other) = tokio::join!(answered(api, &key, &body), answered(api, &key, &body));
            if (one.status, &one.body) != (other.status, &other.body) {
                return Err(format!("client {number} got two answers").into());
            }
        }
        _ => {}
    }
    let answer = answered(api, &key, &body).await;
    if !matches!(answer.status, 201 | 410) {
        return Err(format!("client {number} got {} {}", answer.status, answer.body).into());
    }
    if number % 5 == 4 {
        let other = answered(api, &key, &picture(number + 1)?).await;
        if !matches!(other.status, 422 | 410) {
            return Err(format!("client {number} got {} for another file", other.status).into());
        }
    }
    Ok(())
}

/// Sends the same until there is an answer that is one.
async fn answered(api: SocketAddr, key: &str, body: &[u8]) -> Answer {
    loop {
        match post(api, "/files", &headers(key), body).await {
            Some(answer) if !answer.asks_for_another() => return answer,
            _ => sleep(PAUSE).await,
        }
    }
}

fn headers(key: &str) -> [(&str, &str); 3] {
    [
        ("content-type", "image/png"),
        ("authorization", "Bearer token-of-alice"),
        ("idempotency-key", key),
    ]
}

fn picture(number: i64) -> Result<Vec<u8>, Failed> {
    let shade = |x: u32| (i64::from(x) + number).rem_euclid(256) as u8;
    let picture = RgbImage::from_fn(320, 200, |x, y| Rgb([shade(x), shade(y), shade(x + y)]));
    let mut png = Cursor::new(Vec::new());
    picture.write_to(&mut png, ImageFormat::Png)?;
    Ok(png.into_inner())
}

//! Whether `walpost run` can open `http.listen`.

use std::{net::SocketAddr, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::{sleep, timeout},
};
use walpost_relay::{CheckResult, Outcome};

use crate::http;

const NAME: &str = "listener";
/// Another `walpost check` opens it for a moment as well.
const ATTEMPTS: usize = 5;
const PAUSE: Duration = Duration::from_millis(100);
const ANSWER_LIMIT: Duration = Duration::from_secs(2);

/// Opens the address as `run` does, and closes it. An address on which a walpost
/// answers is fine: it may be the one that is checked.
pub(super) async fn check(address: SocketAddr) -> CheckResult {
    let ok = |detail| CheckResult { name: NAME, outcome: Outcome::Ok, detail, next_step: None };
    let mut problem = None;
    for attempt in 0..ATTEMPTS {
        if attempt > 0 {
            sleep(PAUSE).await;
        }
        match http::bind(address).await {
            Ok(_) => return ok(format!("{address} is free")),
            Err(failure) => problem = Some(failure),
        }
        if answers(address).await {
            return ok(format!("{address} is in use by a walpost that runs"));
        }
    }
    let failure = problem.expect("it was attempted");
    CheckResult {
        name: NAME,
        outcome: Outcome::Fail,
        detail: failure.text().to_owned(),
        next_step: failure.remedy().map(str::to_owned),
    }
}

/// Whether `/live` answers there as `walpost run` answers it.
async fn answers(address: SocketAddr) -> bool {
    let asked = async {
        let mut stream = TcpStream::connect(address).await?;
        stream
            .write_all(b"GET /live HTTP/1.1\r\nHost: walpost\r\nConnection: close\r\n\r\n")
            .await?;
        let mut answer = Vec::new();
        stream.take(4_096).read_to_end(&mut answer).await?;
        Ok::<_, std::io::Error>(answer)
    };
    let answer = timeout(ANSWER_LIMIT, asked).await;
    answer.is_ok_and(|answer| answer.is_ok_and(|answer| answer.ends_with(b"live\n")))
}

#[cfg(test)]
mod tests {
    use axum::{Router, routing::get};
    use tokio::net::TcpListener;

    use super::*;

    async fn taken() -> (TcpListener, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        (listener, address)
    }

    #[tokio::test]
    async fn a_free_address_is_fine_and_a_taken_one_is_not() {
        let (listener, address) = taken().await;
        let found = check(address).await;
        assert_eq!(found.outcome, Outcome::Fail);
        assert!(found.detail.contains(&format!("cannot listen on {address}")), "{found:?}");
        assert!(found.next_step.unwrap().contains("http.listen"));
        drop(listener);
        assert_eq!(check(address).await.outcome, Outcome::Ok);
    }

    #[tokio::test]
    async fn an_address_on_which_a_walpost_answers_is_fine() {
        let (listener, address) = taken().await;
        let router = Router::new().route("/live", get(async || "live\n"));
        tokio::spawn(axum::serve(listener, router).into_future());
        let found = check(address).await;
        assert_eq!(found.outcome, Outcome::Ok);
        assert!(found.detail.contains("a walpost that runs"), "{found:?}");
    }
}

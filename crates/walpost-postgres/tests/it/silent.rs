//! Servers, or poolers, that take a login and say nothing behind it.

use std::time::{Duration, Instant};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};
use walpost_postgres::{ConnectError, Database};

/// AuthenticationOk and ReadyForQuery.
const LOGGED_IN: &[u8] = b"R\0\0\0\x08\0\0\0\0Z\0\0\0\x05I";

/// Answers each login, and then nothing more.
async fn silent() -> Database {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                let mut startup = [0; 1_024];
                let _ = stream.read(&mut startup).await;
                let _ = stream.write_all(LOGGED_IN).await;
                while stream.read(&mut startup).await.is_ok_and(|bytes| bytes > 0) {}
            });
        }
    });
    let url = "user=u dbname=d sslmode=disable connect_timeout=2";
    Database::parse(&format!("host=127.0.0.1 port={port} {url}")).unwrap()
}

#[tokio::test]
async fn connect_timeout_bounds_what_follows_the_login_too() {
    let database = silent().await;
    let began = Instant::now();
    let error = database.connect().await.unwrap_err();
    assert!(matches!(error, ConnectError::TimedOut { .. }), "{error}");
    assert!(began.elapsed() < Duration::from_millis(3_400), "{:?}", began.elapsed());
}

//! The connections to the port: so many at a time, and none for ever. A client
//! that holds some open takes no descriptor from the relay.

use std::{pin::pin, time::Duration};

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::{sleep, timeout},
};

/// Connections at a time. Others wait until one is over, and the server does not
/// know of them.
const CONNECTIONS_MAX: usize = 64;
/// For the head of a request, from the connection or the last answer on: as long
/// a connection may be idle.
const HEAD_MAX: Duration = Duration::from_secs(10);
/// What may be read and not understood yet. No request of ours is longer.
const HEAD_MAX_BYTES: usize = 16 * 1024;
/// Of a connection, after which the request at hand is its last one.
const LIFE_MAX: Duration = Duration::from_secs(60);
/// For that one, also where nobody reads its answer.
const LAST_MAX: Duration = Duration::from_secs(10);
/// After a connection could not be taken.
const TAKE_AGAIN: Duration = Duration::from_secs(1);

/// Answers requests until the task is ended, and with it all connections.
pub(super) async fn serve(listener: TcpListener, router: Router) {
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        if connections.len() >= CONNECTIONS_MAX {
            connections.join_next().await;
            continue;
        }
        match listener.accept().await {
            Ok((stream, _)) => {
                connections.spawn(connection(stream, router.clone()));
            }
            Err(error) => {
                tracing::warn!(%error, "a connection to the HTTP port could not be taken");
                sleep(TAKE_AGAIN).await;
            }
        }
    }
}

/// Whatever goes wrong is the client's affair.
async fn connection(stream: TcpStream, router: Router) {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD_MAX).max_buf_size(HEAD_MAX_BYTES);
    let service = TowerToHyperService::new(router);
    let mut connection = pin!(http.serve_connection(TokioIo::new(stream), service));
    if timeout(LIFE_MAX, connection.as_mut()).await.is_err() {
        connection.as_mut().graceful_shutdown();
        drop(timeout(LAST_MAX, connection).await);
    }
}

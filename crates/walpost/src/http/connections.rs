//! The connections to the port: so many at a time, and none for ever. A new one
//! never waits for the others: it takes the place of the one that has been idle
//! for longest, and a probe is answered whatever else is open.

use std::{
    convert::Infallible,
    pin::pin,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use axum::{
    Router,
    extract::Request,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use hyper::{
    body::Incoming,
    server::conn::http1,
    service::{Service, service_fn},
};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    task::{AbortHandle, JoinSet},
    time::{sleep, timeout},
};

/// Connections at a time.
const CONNECTIONS_MAX: usize = 64;
/// Requests at a time, but for probes, which wait for nothing. So some connections
/// are always idle, and one of them can be closed for a new one.
const REQUESTS_MAX: usize = 48;
/// Paths that are answered without waiting for anything.
const PROBES: [&str; 3] = ["/live", "/ready", "/metrics"];
/// For the head of a request, from the connection or the last answer on: as long
/// a connection may be idle.
const HEAD_MAX: Duration = Duration::from_secs(10);
/// What may be read and not understood yet. No request of ours is longer.
const HEAD_MAX_BYTES: usize = 16 * 1024;
/// Of a connection, after which the request at hand is its last one.
const LIFE_MAX: Duration = Duration::from_secs(60);
/// For that one, also where nobody reads its answer.
const LAST_MAX: Duration = Duration::from_secs(10);
/// After a connection could not be taken and none could be closed.
const TAKE_AGAIN: Duration = Duration::from_secs(1);
/// For a connection that was closed to let go of its descriptor.
const LET_GO: Duration = Duration::from_millis(10);

/// Answers requests until the task is ended, and with it all connections.
pub(super) async fn serve(listener: TcpListener, router: Router) {
    let requests = Arc::new(Semaphore::new(REQUESTS_MAX));
    let mut open = Open { tasks: JoinSet::new(), connections: Vec::new(), requests };
    loop {
        match listener.accept().await {
            Ok((stream, _)) => open.add(stream, router.clone()),
            Err(error) => {
                tracing::warn!(%error, "a connection to the HTTP port could not be taken");
                // The process may have no descriptor left.
                let closed = open.close_idle();
                sleep(if closed { LET_GO } else { TAKE_AGAIN }).await;
            }
        }
    }
}

/// The connections at hand.
struct Open {
    tasks: JoinSet<()>,
    connections: Vec<Connection>,
    /// Requests that may begin.
    requests: Arc<Semaphore>,
}

struct Connection {
    state: Arc<State>,
    task: AbortHandle,
}

/// What a connection does.
struct State(Mutex<Doing>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doing {
    /// It waits for a request, or for its client to read an answer.
    Idle { since: Instant },
    /// It has a request.
    Answering,
    /// It is closed, and begins nothing more.
    Closing,
}

impl State {
    fn new() -> Self {
        Self(Mutex::new(Doing::Idle { since: Instant::now() }))
    }

    fn update<T>(&self, change: impl FnOnce(&mut Doing) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A request begins, unless the connection is being closed.
    fn begin(&self) -> bool {
        self.update(|doing| {
            let may_begin = *doing != Doing::Closing;
            if may_begin {
                *doing = Doing::Answering;
            }
            may_begin
        })
    }

    fn end(&self) {
        self.update(|doing| {
            if *doing == Doing::Answering {
                *doing = Doing::Idle { since: Instant::now() };
            }
        });
    }

    fn idle_since(&self) -> Option<Instant> {
        self.update(|doing| match doing {
            Doing::Idle { since } => Some(*since),
            Doing::Answering | Doing::Closing => None,
        })
    }

    /// Whether it was idle, and is closed now.
    fn close(&self) -> bool {
        self.update(|doing| {
            let is_idle = matches!(doing, Doing::Idle { .. });
            if is_idle {
                *doing = Doing::Closing;
            }
            is_idle
        })
    }
}

impl Open {
    fn add(&mut self, stream: TcpStream, router: Router) {
        while self.tasks.try_join_next().is_some() {}
        self.connections.retain(|connection| !connection.task.is_finished());
        if self.connections.len() >= CONNECTIONS_MAX {
            self.close_idle();
        }
        let state = Arc::new(State::new());
        let serving = connection(stream, router, state.clone(), self.requests.clone());
        let task = self.tasks.spawn(serving);
        self.connections.push(Connection { state, task });
    }

    /// Closes the connection that has been idle for longest; whether there was one.
    fn close_idle(&mut self) -> bool {
        let idle = self.connections.iter().enumerate();
        let idle = idle.filter_map(|(index, open)| Some((open.state.idle_since()?, index)));
        let Some((_, index)) = idle.min() else { return false };
        let closes = self.connections[index].state.close();
        if closes {
            self.connections.swap_remove(index).task.abort();
        }
        closes
    }
}

/// Answers one request.
async fn answer(
    request: Request<Incoming>,
    router: &TowerToHyperService<Router>,
    state: &State,
    requests: &Semaphore,
) -> Response {
    if !state.begin() {
        return busy();
    }
    let is_probe = PROBES.contains(&request.uri().path());
    let permit = requests.try_acquire();
    let response = match permit {
        Err(_) if !is_probe => busy(),
        _ => router.call(request).await.unwrap_or_else(|never| match never {}),
    };
    state.end();
    response
}

fn busy() -> Response {
    let text = "too many requests at a time; try again\n";
    (StatusCode::SERVICE_UNAVAILABLE, text).into_response()
}

/// Whatever goes wrong is the client's affair.
async fn connection(
    stream: TcpStream,
    router: Router,
    state: Arc<State>,
    requests: Arc<Semaphore>,
) {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD_MAX).max_buf_size(HEAD_MAX_BYTES);
    let router = TowerToHyperService::new(router);
    let service = service_fn(move |request: Request<Incoming>| {
        let (router, state, requests) = (router.clone(), state.clone(), requests.clone());
        async move { Ok::<_, Infallible>(answer(request, &router, &state, &requests).await) }
    });
    let mut connection = pin!(http.serve_connection(TokioIo::new(stream), service));
    if timeout(LIFE_MAX, connection.as_mut()).await.is_err() {
        connection.as_mut().graceful_shutdown();
        drop(timeout(LAST_MAX, connection).await);
    }
}

#[cfg(test)]
mod tests {
    use axum::routing::get;
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        sync::watch,
    };

    use super::*;

    const PROMPT: Duration = Duration::from_secs(3);

    struct Port {
        address: std::net::SocketAddr,
        /// Requests to `/slow` that have begun.
        begun: watch::Receiver<usize>,
        /// Each lets one of them go on.
        go_on: Arc<Semaphore>,
    }

    impl Port {
        async fn open() -> Self {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let go_on = Arc::new(Semaphore::new(0));
            let (count, begun) = watch::channel(0);
            let waits = go_on.clone();
            let slow = get(async move || {
                count.send_modify(|begun| *begun += 1);
                drop(waits.acquire().await);
                "done"
            });
            let router = Router::new().route("/live", get(async || "live")).route("/slow", slow);
            tokio::spawn(serve(listener, router));
            Self { address, begun, go_on }
        }

        /// A connection on which this was sent.
        async fn connect(&self, sent: &str) -> TcpStream {
            let mut stream = TcpStream::connect(self.address).await.unwrap();
            stream.write_all(sent.as_bytes()).await.unwrap();
            stream
        }

        async fn is_live(&self) -> bool {
            let stream = self.connect("GET /live HTTP/1.0\r\n\r\n").await;
            let answer = timeout(PROMPT, rest(stream)).await;
            answer.is_ok_and(|answer| answer.ends_with("live"))
        }
    }

    async fn rest(mut stream: TcpStream) -> String {
        let mut text = String::new();
        // It may be closed with something unread.
        let _ = stream.read_to_string(&mut text).await;
        text
    }

    #[tokio::test]
    async fn silent_connections_never_delay_a_probe() {
        let port = Port::open().await;
        let mut silent = Vec::new();
        for index in 0..3 * CONNECTIONS_MAX {
            let sent = if index % 2 == 0 { "" } else { "GET /live HTTP/1.1\r\nhost: " };
            silent.push(port.connect(sent).await);
            assert!(index % 16 != 0 || port.is_live().await, "{index} connections");
        }
        assert!(port.is_live().await);
        let oldest = timeout(PROMPT, rest(silent.swap_remove(0))).await;
        assert!(oldest.is_ok(), "the oldest connection was closed");
    }

    #[tokio::test]
    async fn requests_at_hand_keep_their_connections_and_no_probe_waits_for_them() {
        let mut port = Port::open().await;
        let slow = "GET /slow HTTP/1.0\r\n\r\n";
        let mut slow_ones = Vec::new();
        for _ in 0..REQUESTS_MAX {
            slow_ones.push(port.connect(slow).await);
        }
        port.begun.wait_for(|begun| *begun == REQUESTS_MAX).await.unwrap();
        let refused = timeout(PROMPT, rest(port.connect(slow).await)).await.unwrap();
        assert!(refused.contains(" 503 "), "{refused}");
        let mut silent_ones = Vec::new();
        for _ in 0..2 * CONNECTIONS_MAX {
            silent_ones.push(port.connect("").await);
        }
        assert!(port.is_live().await);
        port.go_on.add_permits(REQUESTS_MAX);
        for stream in slow_ones {
            let answer = timeout(PROMPT, rest(stream)).await.unwrap();
            assert!(answer.contains(" 200 ") && answer.ends_with("done"), "{answer}");
        }
    }
}

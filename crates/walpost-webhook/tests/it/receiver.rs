//! A receiver that does over each connection what a test says.

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    task::JoinSet,
};
use walpost_webhook::{AddressPolicy, Endpoint, Request};

/// Either end of a connection, in the clear or not.
pub(crate) trait Wire: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Wire for T {}

/// On a port of its own, until it is dropped.
pub(crate) struct Receiver {
    pub(crate) address: SocketAddr,
    connections: Arc<AtomicUsize>,
    requests: Arc<Mutex<Vec<Vec<u8>>>>,
    _tasks: JoinSet<()>,
}

/// What a connection's script has of its receiver.
#[derive(Clone)]
pub(crate) struct Notes {
    requests: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl Receiver {
    /// Runs `script` for each connection.
    pub(crate) async fn scripted<F, R>(script: F) -> Self
    where
        F: Fn(TcpStream, Notes) -> R + Clone + Send + 'static,
        R: Future<Output = io::Result<()>> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (connections, requests) = (Arc::<AtomicUsize>::default(), Arc::<Mutex<_>>::default());
        let (counted, noted) = (Arc::clone(&connections), Arc::clone(&requests));
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut open = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::SeqCst);
                let notes = Notes { requests: Arc::clone(&noted) };
                // A client that goes away is what some tests are about.
                open.spawn(script(stream, notes));
            }
        });
        Self { address, connections, requests, _tasks: tasks }
    }

    /// Answers each request with `answer`, and keeps its connections.
    pub(crate) async fn answering(answer: impl Into<Vec<u8>>) -> Self {
        let answer: Arc<[u8]> = answer.into().into();
        Self::scripted(move |mut stream, notes| {
            let answer = Arc::clone(&answer);
            async move {
                while notes.read(&mut stream).await? {
                    stream.write_all(&answer).await?;
                }
                Ok(())
            }
        })
        .await
    }

    /// Answers each request as `judge` says by its text.
    pub(crate) async fn judging<J>(judge: J) -> Self
    where
        J: Fn(&str) -> String + Clone + Send + Sync + 'static,
    {
        Self::scripted(move |mut stream, notes| {
            let judge = judge.clone();
            async move {
                while let Some(request) = notes.request(&mut stream).await? {
                    let answer = judge(&request);
                    stream.write_all(answer.as_bytes()).await?;
                }
                Ok(())
            }
        })
        .await
    }

    /// Answers each request with `answer` once `gate` has a permit for it.
    pub(crate) async fn gated(answer: impl Into<Vec<u8>>, gate: &Arc<Semaphore>) -> Self {
        let (answer, gate): (Arc<[u8]>, _) = (answer.into().into(), Arc::clone(gate));
        Self::scripted(move |mut stream, notes| {
            let (answer, gate) = (Arc::clone(&answer), Arc::clone(&gate));
            async move {
                while notes.read(&mut stream).await? {
                    gate.acquire().await.unwrap().forget();
                    stream.write_all(&answer).await?;
                }
                Ok(())
            }
        })
        .await
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    pub(crate) fn requests(&self) -> Vec<String> {
        let requests = self.requests.lock().unwrap();
        requests.iter().map(|request| String::from_utf8_lossy(request).into_owned()).collect()
    }

    pub(crate) fn url(&self, host: &str) -> String {
        format!("http://{host}:{}/hook", self.address.port())
    }

    /// A request to it by its address.
    pub(crate) fn request(&self) -> Request {
        request(&self.url("127.0.0.1"))
    }
}

pub(crate) fn request(url: &str) -> Request {
    request_under(url, AddressPolicy::with_private_networks())
}

/// The same under another policy; its host is a name.
pub(crate) fn request_under(url: &str, addresses: AddressPolicy) -> Request {
    Request {
        endpoint: Endpoint::parse(url, addresses).unwrap(),
        method: http::Method::POST,
        headers: http::HeaderMap::new(),
        body: "{\"a\":1}".into(),
    }
}

impl Notes {
    /// Reads a request with its body, byte for byte, and keeps it; false at the
    /// end of the connection.
    pub(crate) async fn read(&self, stream: &mut dyn Wire) -> io::Result<bool> {
        Ok(self.request(stream).await?.is_some())
    }

    /// The same; what was read.
    pub(crate) async fn request(&self, stream: &mut dyn Wire) -> io::Result<Option<String>> {
        let mut bytes = Vec::new();
        while !is_whole(&bytes) {
            let mut byte = [0];
            if stream.read(&mut byte).await? == 0 {
                return Ok(None);
            }
            bytes.extend(byte);
        }
        let text = String::from_utf8_lossy(&bytes).into_owned();
        self.requests.lock().unwrap().push(bytes);
        Ok(Some(text))
    }
}

fn is_whole(bytes: &[u8]) -> bool {
    let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else { return false };
    let head = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
    let length = head
        .split("content-length: ")
        .nth(1)
        .map_or(0, |rest| rest.lines().next().unwrap().parse().unwrap());
    bytes.len() == end + 4 + length
}

/// An answer with a body, over a connection that stays.
pub(crate) fn answer(status: &str, headers: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\n{headers}content-length: {}\r\n\r\n{body}", body.len())
}

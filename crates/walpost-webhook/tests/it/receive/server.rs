//! A receiver on a port of its own, and requests byte for byte.

use std::net::Ipv4Addr;

use axum::Router;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

use super::sign::Sender;

/// Until it is dropped.
pub(super) struct Server {
    pub(super) port: u16,
    _task: JoinSet<()>,
}

/// An answer, read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) head: String,
    pub(super) body: String,
}

/// What is answered to the first of its kind.
pub(super) const OK: &str = r#"{"status":"ok"}"#;
/// And to those behind it.
pub(super) const ALREADY: &str = r#"{"status":"ok","already_processed":true}"#;

impl Server {
    pub(super) async fn start(router: Router) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut task = JoinSet::new();
        task.spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { port, _task: task }
    }

    /// Sends an event as its sender does.
    pub(super) async fn event(&self, sender: Sender, id: &str, kind: &str) -> Answer {
        event(self.port, sender, id, kind).await.expect("an answer")
    }

    /// Sends a body with headers.
    pub(super) async fn post(
        &self,
        path: &str,
        headers: &[(String, String)],
        body: &[u8],
    ) -> Answer {
        let bytes = request(path, headers, body);
        exchange(self.port, &bytes).await.expect("an answer")
    }

    pub(super) async fn raw(&self, bytes: &[u8]) -> Answer {
        exchange(self.port, bytes).await.expect("an answer")
    }

    pub(super) async fn connect(&self) -> TcpStream {
        TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).await.unwrap()
    }
}

/// None where the server died.
pub(super) async fn event(port: u16, sender: Sender, id: &str, kind: &str) -> Option<Answer> {
    let body = sender.body(id, kind);
    let headers = sender.headers(id, kind, body.as_bytes());
    exchange(port, &request(&sender.path(), &headers, body.as_bytes())).await
}

/// A whole request, behind which the connection ends.
pub(super) fn request(path: &str, headers: &[(String, String)], body: &[u8]) -> Vec<u8> {
    let mut bytes = head(path, headers);
    bytes.extend(format!("content-length: {}\r\n\r\n", body.len()).as_bytes());
    bytes.extend(body);
    bytes
}

/// Without its end, so that more headers can follow.
pub(super) fn head(path: &str, headers: &[(String, String)]) -> Vec<u8> {
    let mut head = format!("POST {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n");
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.into_bytes()
}

async fn exchange(port: u16, bytes: &[u8]) -> Option<Answer> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.ok()?;
    // An answer may come before all of it is read.
    let _ = stream.write_all(bytes).await;
    read(&mut stream).await
}

/// None where the connection ends without one.
pub(super) async fn read(stream: &mut TcpStream) -> Option<Answer> {
    let mut bytes = Vec::new();
    let mut some = [0; 4_096];
    loop {
        match stream.read(&mut some).await {
            Ok(0) | Err(_) => break,
            Ok(read) => bytes.extend(&some[..read]),
        }
    }
    let text = String::from_utf8(bytes).unwrap();
    let (head, body) = text.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some(Answer { status, head: head.to_lowercase(), body: body.to_owned() })
}

impl Answer {
    /// Status and body.
    pub(super) fn what(&self) -> (u16, &str) {
        (self.status, &self.body)
    }

    /// Status and the last part of the problem's type; it has to be one, and to
    /// say its own status, and when to come again where that helps.
    pub(super) fn problem(&self) -> (u16, &str) {
        assert!(self.head.contains("content-type: application/problem+json"), "{self:?}");
        assert!(self.body.contains(&format!("\"status\":{}", self.status)), "{self:?}");
        assert_eq!(self.head.contains("retry-after: 5"), self.status == 503, "{self:?}");
        let rest = self.body.split("webhook-receiving.md#").nth(1).unwrap();
        (self.status, rest.split('"').next().unwrap())
    }
}

//! A client as it is out there: one request on a connection of its own, whose
//! answer may be lost.

use std::{io, net::SocketAddr, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

const PATIENCE: Duration = Duration::from_secs(60);

/// What came back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// Status line and headers, as they came.
    pub head: String,
    /// The body.
    pub body: String,
}

impl Answer {
    /// Whether it is the stored answer of an earlier request.
    #[must_use]
    pub fn is_replay(&self) -> bool {
        self.head.contains("idempotent-replayed: true")
    }

    /// Whether the same request is to be sent again, by its `retry-after`.
    #[must_use]
    pub fn asks_for_another(&self) -> bool {
        self.head.contains("retry-after: ")
    }
}

/// Posts a body; none where the answer was lost, or nobody was there.
pub async fn post(
    to: SocketAddr,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Option<Answer> {
    let answered = async {
        let mut stream = send(to, path, headers, body).await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
        Ok::<_, io::Error>(answer)
    };
    let answer = timeout(PATIENCE, answered).await.ok()?.ok()?;
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some(Answer { status, head: head.to_owned(), body: body.to_owned() })
}

/// Posts a body and goes away at once, as a phone does in a tunnel.
pub async fn post_and_go(to: SocketAddr, path: &str, headers: &[(&str, &str)], body: &[u8]) {
    // What becomes of it is what the client does not learn.
    let _ = timeout(PATIENCE, send(to, path, headers, body)).await;
}

/// Promises a whole body and posts its first bytes. The client goes away with the
/// connection that this returns; none where nobody was there.
pub async fn post_a_part(
    to: SocketAddr,
    path: &str,
    headers: &[(&str, &str)],
    (body, sent): (&[u8], usize),
) -> Option<TcpStream> {
    let begun = async {
        let mut stream = begin(to, path, headers, body.len()).await?;
        stream.write_all(&body[..sent]).await?;
        stream.flush().await?;
        Ok::<_, io::Error>(stream)
    };
    timeout(PATIENCE, begun).await.ok()?.ok()
}

async fn send(
    to: SocketAddr,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> io::Result<TcpStream> {
    let mut stream = begin(to, path, headers, body.len()).await?;
    stream.write_all(body).await?;
    Ok(stream)
}

async fn begin(
    to: SocketAddr,
    path: &str,
    headers: &[(&str, &str)],
    body_bytes: usize,
) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect(to).await?;
    let mut head = format!(
        "POST {path} HTTP/1.1\r\nhost: {to}\r\nconnection: close\r\ncontent-length: {body_bytes}\r\n"
    );
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("\r\n");
    stream.write_all(head.as_bytes()).await?;
    Ok(stream)
}

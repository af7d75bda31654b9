use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

const ANSWER_LIMIT: Duration = Duration::from_secs(10);

/// What a server on this machine answers to a GET: the body of a 200.
///
/// # Errors
/// When it cannot be reached, does not answer in 10 s, or answers otherwise.
pub async fn http_get(port: u16, path: &str) -> io::Result<String> {
    match http_ask(port, &format!("GET {path}"), "", "").await? {
        (200, body) => Ok(body),
        (status, body) => Err(io::Error::other(format!("{status}: {body}"))),
    }
}

/// What a server on this machine answers: status and body. `what` is the method and
/// the path, `headers` whole lines.
///
/// # Errors
/// When it cannot be reached, or does not answer in 10 s.
pub async fn http_ask(
    port: u16,
    what: &str,
    headers: &str,
    body: &str,
) -> io::Result<(u16, String)> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let length = body.len();
    // So that the body ends with the connection.
    let request = format!(
        "{what} HTTP/1.0\r\nHost: {address}\r\nContent-Length: {length}\r\n{headers}\r\n{body}"
    );
    let asked = timeout(ANSWER_LIMIT, async {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
        Ok::<_, io::Error>(answer)
    });
    let answer = asked.await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    let answer = String::from_utf8(answer).map_err(io::Error::other)?;
    let parts = answer.split_once("\r\n\r\n");
    let parts = parts.and_then(|(head, body)| Some((head.split(' ').nth(1)?.parse().ok()?, body)));
    let (status, body) = parts.ok_or_else(|| io::Error::other(answer.clone()))?;
    Ok((status, body.to_owned()))
}

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
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let asked = timeout(ANSWER_LIMIT, async {
        let mut stream = TcpStream::connect(address).await?;
        // So that the body ends with the connection.
        let request = format!("GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
        Ok::<_, io::Error>(answer)
    });
    let answer = asked.await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    let answer = String::from_utf8(answer).map_err(io::Error::other)?;
    match answer.split_once("\r\n\r\n") {
        Some((head, body)) if head.split(' ').nth(1) == Some("200") => Ok(body.to_owned()),
        _ => Err(io::Error::other(answer)),
    }
}

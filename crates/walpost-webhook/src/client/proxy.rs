use std::{fmt, io};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use url::Url;

use super::Trouble;
use crate::{Endpoint, Failure};

/// Longest head of a proxy's answer, in bytes.
const HEAD_MAX_BYTES: usize = 8 * 1_024;
/// Of a head.
const END: &[u8] = b"\r\n\r\n";

/// A forward proxy that requests go through: `https` by CONNECT (RFC 9110, 9.3.6), `http`
/// in absolute form (RFC 9112, 3.2.2).
///
/// The proxy looks names up and dials them. So it is the proxy that has to keep requests
/// from addresses that nothing may be sent to; here an address is only checked where a
/// URL has one and no name, as that is parsed. The proxy's own address may be any.
///
/// ```
/// use walpost_webhook::Proxy;
///
/// let proxy = Proxy::parse("http://egress.internal:4750")?;
/// assert_eq!(proxy.to_string(), "http://egress.internal:4750");
/// assert!(Proxy::parse("https://egress.internal:4750").is_err());
/// # Ok::<(), walpost_webhook::ProxyError>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Proxy {
    host: String,
    port: u16,
}

/// This is no proxy that can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProxyError {
    /// It is no URL of a proxy.
    #[error("a proxy is http://host:port")]
    Syntax,
    /// It has a name or a password.
    #[error("a proxy has no user and no password; let it know this machine by its address")]
    User,
}

impl Proxy {
    /// # Errors
    /// When it is not `http://host:port`.
    pub fn parse(text: &str) -> Result<Self, ProxyError> {
        let url = Url::parse(text).map_err(|_| ProxyError::Syntax)?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err(ProxyError::User);
        }
        let is_bare =
            matches!(url.path(), "" | "/") && url.query().is_none() && url.fragment().is_none();
        let (Some(host), Some(port)) = (url.host_str(), url.port_or_known_default()) else {
            return Err(ProxyError::Syntax);
        };
        if url.scheme() != "http" || !is_bare {
            return Err(ProxyError::Syntax);
        }
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        Ok(Self { host, port })
    }

    /// Where it is, to be dialled.
    pub(super) fn place(&self) -> (&str, u16) {
        (&self.host, self.port)
    }
}

impl fmt::Display for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}", authority(&self.host, self.port))
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Proxy({self})")
    }
}

/// Has the proxy connect the stream to an endpoint. Behind it what goes over the stream
/// is between us and the endpoint.
pub(super) async fn tunnel(stream: &mut TcpStream, endpoint: &Endpoint) -> Result<(), Trouble> {
    let failed = |error: io::Error| Trouble::unsent(Failure::Connect, format!("proxy: {error}"));
    let to = authority(endpoint.host(), endpoint.port());
    let request = format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.map_err(failed)?;
    let (mut head, mut some) = (Vec::new(), [0; 1_024]);
    // Not a byte beyond the head: that is the endpoint's.
    while !head.ends_with(END) {
        if head.len() >= HEAD_MAX_BYTES {
            let detail = "proxy: its answer has no end";
            return Err(Trouble::unsent(Failure::Connect, detail));
        }
        let (before, seen) = (head.len(), stream.peek(&mut some).await.map_err(failed)?);
        if seen == 0 {
            return Err(failed(io::ErrorKind::UnexpectedEof.into()));
        }
        head.extend_from_slice(&some[..seen]);
        let end = head.windows(END.len()).position(|bytes| bytes == END);
        head.truncate(end.map_or(head.len(), |end| end + END.len()));
        stream.read_exact(&mut some[..head.len() - before]).await.map_err(failed)?;
    }
    match status(&head) {
        Some(200..=299) => Ok(()),
        Some(status) => {
            let detail = format!("the proxy refuses to connect, with status {status}");
            Err(Trouble::unsent(Failure::Connect, detail))
        }
        None => Err(Trouble::unsent(Failure::Connect, "the proxy's answer is no HTTP")),
    }
}

/// Of a status line (RFC 9112, 4).
fn status(head: &[u8]) -> Option<u16> {
    let line = head.split(|byte| *byte == b'\r').next()?;
    let mut parts = std::str::from_utf8(line).ok()?.split(' ');
    let version = parts.next()?;
    let status = parts.next().filter(|status| status.len() == 3)?;
    status.parse().ok().filter(|_| version.starts_with("HTTP/1."))
}

fn authority(host: &str, port: u16) -> String {
    match host.contains(':') {
        true => format!("[{host}]:{port}"),
        false => format!("{host}:{port}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_is_a_scheme_a_host_and_a_port() {
        for (text, place) in [
            ("http://egress:3128", ("egress", 3128)),
            ("http://egress:3128/", ("egress", 3128)),
            ("http://10.0.0.1", ("10.0.0.1", 80)),
            ("http://[::1]:8080", ("::1", 8080)),
        ] {
            assert_eq!(Proxy::parse(text).unwrap().place(), place, "{text}");
        }
        for (text, expected) in [
            ("", ProxyError::Syntax),
            ("egress:3128", ProxyError::Syntax),
            ("https://egress:3128", ProxyError::Syntax),
            ("socks5://egress:1080", ProxyError::Syntax),
            ("http://egress:3128/path", ProxyError::Syntax),
            ("http://egress:3128/?a=b", ProxyError::Syntax),
            ("http://user:s3cr3t@egress:3128", ProxyError::User),
        ] {
            assert_eq!(Proxy::parse(text).unwrap_err(), expected, "{text}");
        }
    }

    #[test]
    fn a_status_line_is_read_and_nothing_else() {
        assert_eq!(status(b"HTTP/1.1 200 Connection established\r\n\r\n"), Some(200));
        assert_eq!(status(b"HTTP/1.0 403\r\n\r\n"), Some(403));
        for head in ["HTTP/2 200\r\n\r\n", "SSH-2.0-x\r\n\r\n", "HTTP/1.1 20 x\r\n\r\n", ""] {
            assert_eq!(status(head.as_bytes()), None, "{head}");
        }
    }
}

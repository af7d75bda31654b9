use std::{io, net::SocketAddr, sync::Arc};

use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http1::{Builder, SendRequest};
use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, pki_types::ServerName};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    task::AbortHandle,
    time::{Instant, timeout_at},
};
use tokio_rustls::TlsConnector;

use super::{
    ClientSettings, Trouble,
    limit::{Limit, Limited},
    proxy::tunnel,
    resolve::Lookups,
};
use crate::{Endpoint, Failure};

/// As many addresses of one name are tried.
const ADDRESSES_MAX: usize = 8;
/// The least that hyper takes.
const HEAD_MIN_BYTES: usize = 8 * 1_024;

/// A connection. It ends with this value, whatever it is doing.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) sender: SendRequest<Full<Bytes>>,
    pub(super) limit: Limit,
    driver: AbortHandle,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// A connection to be made.
#[derive(Debug)]
pub(super) struct Dialling<'a> {
    pub(super) settings: &'a ClientSettings,
    pub(super) lookups: &'a Lookups,
    pub(super) endpoint: &'a Endpoint,
    pub(super) deadline: Instant,
}

impl Dialling<'_> {
    /// What is dialled is what was checked: the name is asked for once.
    pub(super) async fn connect(&self) -> Result<Connection, Trouble> {
        let limit = self.deadline.min(Instant::now() + self.settings.connect_timeout);
        let connecting = async {
            let addresses = self.addresses().await?;
            let mut stream = self.dial(&addresses, limit).await?;
            stream.set_nodelay(true).map_err(|error| Trouble::unsent(Failure::Connect, error))?;
            if self.settings.proxy.is_some() && self.endpoint.is_tls() {
                tunnel(&mut stream, self.endpoint).await?;
            }
            let bytes = Limit::default();
            let stream = Limited::new(stream, bytes.clone());
            if !self.endpoint.is_tls() {
                return self.handshake(stream, bytes).await;
            }
            let tls = |error: io::Error| Trouble::unsent(Failure::Tls, error);
            let config = self.settings.tls.config();
            let config: Arc<ClientConfig> =
                config.map_err(|error| Trouble::unsent(Failure::Tls, error))?;
            // A name may end with the dot of the root, a certificate's does not.
            let host = self.endpoint.host().trim_end_matches('.').to_owned();
            let name = ServerName::try_from(host).map_err(|error| tls(io::Error::other(error)))?;
            let stream = TlsConnector::from(config).connect(name, stream).await.map_err(tls)?;
            self.handshake(stream, bytes).await
        };
        let timed_out = || {
            let detail = format!("no connection in {:?}", self.settings.connect_timeout);
            Trouble::unsent(Failure::Timeout, detail)
        };
        timeout_at(limit, connecting).await.unwrap_or_else(|_| Err(timed_out()))
    }

    /// What is dialled: the endpoint, or the proxy, which has to know what it may dial.
    async fn addresses(&self) -> Result<Vec<SocketAddr>, Trouble> {
        let port = self.endpoint.port();
        if !self.settings.may_dial(self.endpoint) {
            let detail = format!("port {port} is none that may be dialled");
            return Err(Trouble::unsent(Failure::Blocked, detail));
        }
        let Some(proxy) = &self.settings.proxy else {
            let addresses = self.resolve((self.endpoint.host(), port)).await?;
            self.check(&addresses)?;
            return Ok(addresses);
        };
        self.resolve(proxy.place()).await
    }

    async fn resolve(&self, (host, port): (&str, u16)) -> Result<Vec<SocketAddr>, Trouble> {
        let resolved = match host.parse() {
            Ok(address) => Ok(vec![SocketAddr::new(address, port)]),
            Err(_) => self.lookups.resolve(&self.settings.resolver, host, port).await,
        };
        let addresses = resolved.map_err(|error| Trouble::unsent(Failure::Dns, error))?;
        if addresses.is_empty() {
            return Err(Trouble::unsent(Failure::Dns, "the name leads to no address"));
        }
        Ok(addresses)
    }

    /// All of them, or none if one of them is forbidden.
    fn check(&self, addresses: &[SocketAddr]) -> Result<(), Trouble> {
        let of_all = addresses.iter().map(SocketAddr::ip);
        self.endpoint.addresses().check_all(of_all).map_err(|(address, why)| {
            let key = if why.is_private() { ", without allow_private_networks" } else { "" };
            Trouble::unsent(Failure::Blocked, format!("{address} is {why}{key}"))
        })
    }

    /// One address after another, each with its part of the time that is left.
    async fn dial(&self, addresses: &[SocketAddr], limit: Instant) -> Result<TcpStream, Trouble> {
        let addresses = &addresses[..addresses.len().min(ADDRESSES_MAX)];
        let mut last = Trouble::unsent(Failure::Connect, "no address");
        for (tried, address) in addresses.iter().enumerate() {
            let left = limit.saturating_duration_since(Instant::now());
            let until = Instant::now() + left / (addresses.len() - tried) as u32;
            last = match timeout_at(until, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => return Ok(stream),
                Ok(Err(error)) => Trouble::unsent(Failure::Connect, error),
                Err(_) => Trouble::unsent(Failure::Timeout, format!("{address} does not answer")),
            };
        }
        Err(last)
    }

    async fn handshake<S>(&self, stream: S, limit: Limit) -> Result<Connection, Trouble>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let head_max_bytes = self.settings.head_max_bytes.max(HEAD_MIN_BYTES);
        let made = Builder::new()
            .max_buf_size(head_max_bytes)
            // As receivers know it that compare names with their case.
            .title_case_headers(true)
            .handshake(TokioIo::new(stream))
            .await;
        let (sender, connection) =
            made.map_err(|error| Trouble::unsent(Failure::Connect, error))?;
        // Its end is told to the sender as well.
        let driver = tokio::spawn(async move { drop(connection.await) });
        Ok(Connection { sender, limit, driver: driver.abort_handle() })
    }
}

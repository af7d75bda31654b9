use std::{fmt, io, net::SocketAddr, pin::Pin, sync::Arc};

type Resolving = Pin<Box<dyn Future<Output = io::Result<Vec<SocketAddr>>> + Send>>;
type Resolve = dyn Fn(String, u16) -> Resolving + Send + Sync;

/// How a host's name becomes addresses. Whatever it says is checked before
/// anything is dialled, for each new connection.
#[derive(Clone)]
pub struct Resolver(Option<Arc<Resolve>>);

impl Resolver {
    /// As this machine does it.
    pub fn system() -> Self {
        Self(None)
    }

    /// By a function of name and port.
    pub fn by<F, R>(resolve: F) -> Self
    where
        F: Fn(String, u16) -> R + Send + Sync + 'static,
        R: Future<Output = io::Result<Vec<SocketAddr>>> + Send + 'static,
    {
        Self(Some(Arc::new(move |host, port| Box::pin(resolve(host, port)))))
    }

    pub(super) async fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        match &self.0 {
            Some(resolve) => resolve(host.to_owned(), port).await,
            None => Ok(tokio::net::lookup_host((host, port)).await?.collect()),
        }
    }
}

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Resolver(given)" } else { "Resolver(system)" })
    }
}

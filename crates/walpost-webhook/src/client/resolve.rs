use std::{
    fmt, io,
    net::{SocketAddr, ToSocketAddrs},
    pin::Pin,
    sync::Arc,
};

use tokio::{sync::Semaphore, task::spawn_blocking};

type Resolving = Pin<Box<dyn Future<Output = io::Result<Vec<SocketAddr>>> + Send>>;
type Resolve = dyn Fn(String, u16) -> Resolving + Send + Sync;
type ResolveBlocking = dyn Fn(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + Sync;

/// How a host's name becomes addresses. Whatever it says is checked before
/// anything is dialled, for each new connection.
#[derive(Clone)]
pub struct Resolver(How);

#[derive(Clone)]
enum How {
    System,
    Async(Arc<Resolve>),
    Blocking(Arc<ResolveBlocking>),
}

impl Resolver {
    /// As this machine does it.
    pub fn system() -> Self {
        Self(How::System)
    }

    /// By a function of name and port.
    pub fn by<F, R>(resolve: F) -> Self
    where
        F: Fn(String, u16) -> R + Send + Sync + 'static,
        R: Future<Output = io::Result<Vec<SocketAddr>>> + Send + 'static,
    {
        Self(How::Async(Arc::new(move |host, port| Box::pin(resolve(host, port)))))
    }

    /// By a function of name and port that takes a thread for as long as it
    /// takes: one of those that tokio has for what blocks.
    pub fn by_blocking<F>(resolve: F) -> Self
    where
        F: Fn(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + Sync + 'static,
    {
        Self(How::Blocking(Arc::new(resolve)))
    }
}

/// Looks of one client, of which there are so many at a time.
#[derive(Debug)]
pub(super) struct Lookups(Arc<Semaphore>);

impl Lookups {
    pub(super) fn new(lookups_max: usize) -> Self {
        Self(Arc::new(Semaphore::new(lookups_max.clamp(1, Semaphore::MAX_PERMITS))))
    }

    /// Waits for its turn as well; whoever asks bounds the whole.
    pub(super) async fn resolve(
        &self,
        resolver: &Resolver,
        host: &str,
        port: u16,
    ) -> io::Result<Vec<SocketAddr>> {
        let turn = Arc::clone(&self.0).acquire_owned().await.expect("nobody closes it");
        let resolve: Arc<ResolveBlocking> = match &resolver.0 {
            How::Async(resolve) => return resolve(host.to_owned(), port).await,
            How::Blocking(resolve) => Arc::clone(resolve),
            How::System => Arc::new(|host, port| Ok((host, port).to_socket_addrs()?.collect())),
        };
        let host = host.to_owned();
        let looking = spawn_blocking(move || {
            // Also where nobody waits any more: a thread that asks a dead server
            // is busy until that has come to its end.
            let _turn = turn;
            resolve(&host, port)
        });
        looking.await.map_err(io::Error::other)?
    }
}

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            How::System => "Resolver(system)",
            How::Async(_) | How::Blocking(_) => "Resolver(given)",
        })
    }
}

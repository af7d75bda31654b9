use std::{
    collections::VecDeque,
    io,
    net::SocketAddr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream, lookup_host},
    task::{JoinHandle, JoinSet},
};
use tokio_postgres::{Config, config::Host};

use crate::Database;

/// Connections to the server before one is used again.
const SERVERS: usize = 3;
const SSL_REQUEST: i32 = 80_877_103;

/// A pooler in transaction mode inside the test, as PgBouncer is one: each
/// transaction of a client goes to another connection of the server, the one
/// that was idle for longest. Ends with this value.
///
/// For one database and user, without a password. It follows no prepared
/// statements.
#[derive(Debug)]
pub struct Pooler {
    config: Config,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

#[derive(Debug)]
struct Shared {
    server: SocketAddr,
    idle: Mutex<VecDeque<TcpStream>>,
    clients: AtomicUsize,
}

impl Pooler {
    /// Starts before the server of a database.
    ///
    /// # Panics
    ///
    /// When no port is free, or the server is not reached by TCP.
    pub async fn before(database: &Database) -> Self {
        let config = database.config();
        let [Host::Tcp(host), ..] = config.get_hosts() else { panic!("no TCP host: {config:?}") };
        let port = config.get_ports().first().copied().unwrap_or(5432);
        let found = lookup_host((host.as_str(), port)).await.expect("the host has an address");
        let server = found.into_iter().next().expect("the host has an address");
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let (idle, clients) = (Mutex::default(), AtomicUsize::new(0));
        let shared = Arc::new(Shared { server, idle, clients });
        let task = tokio::spawn(serve(listener, Arc::clone(&shared)));
        let mut by = Config::new();
        by.host("127.0.0.1").port(address.port()).dbname(database.name());
        by.user(config.get_user().expect("the database has a user"));
        Self { config: by, shared, task }
    }

    /// How clients connect to it.
    #[must_use]
    pub fn config(&self) -> Config {
        self.config.clone()
    }

    /// How many clients have connected.
    #[must_use]
    pub fn clients(&self) -> usize {
        self.shared.clients.load(Ordering::Relaxed)
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    let mut clients = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        shared.clients.fetch_add(1, Ordering::Relaxed);
        let shared = Arc::clone(&shared);
        clients.spawn(async move {
            // A client that leaves in the middle of a transaction takes its server
            // along.
            let _ = shared.attend(client).await;
        });
    }
}

/// A message behind its start: type, and everything of it.
async fn message(stream: &mut TcpStream) -> io::Result<(u8, Vec<u8>)> {
    let kind = stream.read_u8().await?;
    let length = stream.read_i32().await?;
    let mut whole = vec![kind];
    whole.extend(length.to_be_bytes());
    let body = usize::try_from(length - 4).map_err(io::Error::other)?;
    whole.resize(5 + body, 0);
    stream.read_exact(&mut whole[5..]).await?;
    Ok((kind, whole))
}

/// What a client says first.
async fn startup(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    loop {
        let length = stream.read_i32().await?;
        let mut whole = length.to_be_bytes().to_vec();
        whole.resize(usize::try_from(length).map_err(io::Error::other)?, 0);
        stream.read_exact(&mut whole[4..]).await?;
        if whole[4..8] != SSL_REQUEST.to_be_bytes() {
            return Ok(whole);
        }
        stream.write_all(b"N").await?;
    }
}

impl Shared {
    async fn attend(&self, mut client: TcpStream) -> io::Result<()> {
        client.set_nodelay(true)?;
        let startup = startup(&mut client).await?;
        // What the server says to it, it says to each client.
        let (server, welcome) = self.connect(&startup).await?;
        self.give_back(server);
        client.write_all(&welcome).await?;
        loop {
            let first = message(&mut client).await?;
            if first.0 == b'X' {
                return Ok(());
            }
            let server = match self.take() {
                Some(server) => server,
                None => self.connect(&startup).await?.0,
            };
            match transaction(&mut client, server, first).await? {
                Some(server) => self.give_back(server),
                None => return Ok(()),
            }
        }
    }

    async fn connect(&self, startup: &[u8]) -> io::Result<(TcpStream, Vec<u8>)> {
        let mut server = TcpStream::connect(self.server).await?;
        server.set_nodelay(true)?;
        server.write_all(startup).await?;
        let mut welcome = Vec::new();
        loop {
            let (kind, whole) = message(&mut server).await?;
            welcome.extend(whole);
            match kind {
                b'Z' => return Ok((server, welcome)),
                b'E' => return Err(io::Error::other("the server refuses the client")),
                _ => {}
            }
        }
    }

    fn take(&self) -> Option<TcpStream> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < SERVERS { None } else { idle.pop_front() }
    }

    fn give_back(&self, server: TcpStream) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push_back(server);
    }
}

/// From a client's message to the end of its transaction; `None` if the client
/// leaves then.
async fn transaction(
    client: &mut TcpStream,
    mut server: TcpStream,
    first: (u8, Vec<u8>),
) -> io::Result<Option<TcpStream>> {
    let is_answered = |kind: u8| usize::from(matches!(kind, b'Q' | b'S'));
    let mut open = is_answered(first.0);
    server.write_all(&first.1).await?;
    let (mut from_client, mut from_server) = (Vec::new(), Vec::new());
    loop {
        tokio::select! {
            read = client.read_buf(&mut from_client) => {
                if read? == 0 {
                    return Ok(None);
                }
                while let Some((kind, whole)) = cut(&mut from_client) {
                    open += is_answered(kind);
                    server.write_all(&whole).await?;
                }
            }
            read = server.read_buf(&mut from_server) => {
                if read? == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                let (mut is_idle, mut answer) = (false, Vec::new());
                while let Some((kind, whole)) = cut(&mut from_server) {
                    if kind == b'Z' {
                        open -= 1;
                        is_idle = open == 0 && whole.last() == Some(&b'I');
                    }
                    answer.extend(whole);
                }
                client.write_all(&answer).await?;
                if is_idle && from_client.is_empty() {
                    return Ok(Some(server));
                }
            }
        }
    }
}

/// The first message of `bytes`, if it is whole.
fn cut(bytes: &mut Vec<u8>) -> Option<(u8, Vec<u8>)> {
    let length: [u8; 4] = bytes.get(1..5)?.try_into().ok()?;
    let whole = 1 + usize::try_from(i32::from_be_bytes(length)).ok()?;
    if bytes.len() < whole {
        return None;
    }
    let rest = bytes.split_off(whole);
    let message = std::mem::replace(bytes, rest);
    Some((message[0], message))
}

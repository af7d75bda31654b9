use std::{
    io,
    net::SocketAddr,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpStream, UnixStream},
    sync::watch,
    task::{JoinHandle, JoinSet},
};

const BUFFER_BYTES: usize = 16 * 1024;

/// Where a [`Proxy`] connects to.
#[derive(Debug, Clone)]
pub enum Target {
    /// A TCP address.
    Tcp(SocketAddr),
    /// The path of a Unix socket.
    Unix(PathBuf),
}

/// The way of bytes that a fault concerns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the client to the service: requests.
    ToTarget,
    /// From the service to the client: answers.
    ToClient,
    /// Both ways.
    Both,
}

/// What happens to bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Forward,
    Delay(Duration),
    Hold,
    Swallow,
    Cut,
}

/// A TCP proxy inside the test, with faults. Ends with this value.
///
/// Runs on the tokio runtime that started it.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    to_target: watch::Sender<Mode>,
    to_client: watch::Sender<Mode>,
    cuts: watch::Sender<u64>,
    counters: Arc<Counters>,
    task: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Counters {
    open: AtomicUsize,
    accepted: AtomicU64,
    bytes_to_target: AtomicU64,
    bytes_to_client: AtomicU64,
}

impl Proxy {
    /// Starts one on a free port, forwarding.
    ///
    /// # Panics
    ///
    /// When it cannot listen.
    pub async fn start(target: Target) -> Self {
        Self::start_with(Self::listener(), target).await
    }

    /// A listener on a free port of 127.0.0.1, for [`Proxy::start_with`]. For a
    /// broker, whose [`proxied_by`](walpost_local::KafkaBuilder::proxied_by) must
    /// know the port long before its proxy can start: so nobody else takes it.
    ///
    /// # Panics
    ///
    /// When there is no free port.
    #[must_use]
    pub fn listener() -> std::net::TcpListener {
        loop {
            let port = walpost_local::free_port().expect("a free port for the proxy");
            if let Ok(listener) = std::net::TcpListener::bind(("127.0.0.1", port)) {
                return listener;
            }
        }
    }

    /// Starts one on this listener, forwarding.
    ///
    /// # Panics
    ///
    /// When the listener is of no use to tokio.
    pub async fn start_with(listener: std::net::TcpListener, target: Target) -> Self {
        listener.set_nonblocking(true).expect("a listener need not block");
        let listener = TcpListener::from_std(listener).expect("tokio takes a listener");
        let address = listener.local_addr().expect("a listener has an address");
        let (to_target, to_client) =
            (watch::Sender::new(Mode::Forward), watch::Sender::new(Mode::Forward));
        let cuts = watch::Sender::new(0);
        let counters = Arc::new(Counters::default());
        let accepting = Accepting {
            target,
            to_target: to_target.subscribe(),
            to_client: to_client.subscribe(),
            cuts: cuts.subscribe(),
            counters: Arc::clone(&counters),
        };
        let task = tokio::spawn(accepting.run(listener));
        Self { address, to_target, to_client, cuts, counters, task }
    }

    /// Where clients connect to.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The port of [`Proxy::address`].
    #[must_use]
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Forwards everything again, first what was held. Connections that lost
    /// bytes by [`Proxy::swallow`] stay dead.
    pub fn restore(&self) {
        self.forward(Direction::Both);
    }

    /// The same for one direction. What was held of a client that is gone is
    /// delivered, and then its end.
    pub fn forward(&self, direction: Direction) {
        self.set(direction, Mode::Forward);
    }

    /// Closes all connections, and every new one at once, until
    /// [`Proxy::restore`].
    pub fn cut(&self) {
        self.set(Direction::Both, Mode::Cut);
    }

    /// Closes the connections of now. New ones are served.
    pub fn cut_connections(&self) {
        self.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// Delays every piece of up to 16 KiB.
    pub fn delay(&self, direction: Direction, by: Duration) {
        self.set(direction, Mode::Delay(by));
    }

    /// Keeps bytes, also the end of a connection, until [`Proxy::restore`].
    /// Connections are accepted.
    pub fn hold(&self, direction: Direction) {
        self.set(direction, Mode::Hold);
    }

    /// Half open: accepts connections and bytes, and delivers nothing, not
    /// even the end of a connection.
    pub fn swallow(&self, direction: Direction) {
        self.set(direction, Mode::Swallow);
    }

    /// Connections open now.
    #[must_use]
    pub fn open(&self) -> usize {
        self.counters.open.load(Ordering::SeqCst)
    }

    /// Connections accepted so far.
    #[must_use]
    pub fn accepted(&self) -> u64 {
        self.counters.accepted.load(Ordering::SeqCst)
    }

    /// Bytes read from clients so far, delivered or not.
    #[must_use]
    pub fn bytes_to_target(&self) -> u64 {
        self.counters.bytes_to_target.load(Ordering::SeqCst)
    }

    /// Bytes read from the service so far, delivered or not.
    #[must_use]
    pub fn bytes_to_client(&self) -> u64 {
        self.counters.bytes_to_client.load(Ordering::SeqCst)
    }

    fn set(&self, direction: Direction, mode: Mode) {
        if direction != Direction::ToClient {
            self.to_target.send_replace(mode);
        }
        if direction != Direction::ToTarget {
            self.to_client.send_replace(mode);
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[derive(Debug)]
struct Accepting {
    target: Target,
    to_target: watch::Receiver<Mode>,
    to_client: watch::Receiver<Mode>,
    cuts: watch::Receiver<u64>,
    counters: Arc<Counters>,
}

impl Accepting {
    /// The connections end with this future.
    async fn run(self, listener: TcpListener) {
        let mut connections = JoinSet::new();
        while let Ok((client, _)) = listener.accept().await {
            while connections.try_join_next().is_some() {}
            self.counters.accepted.fetch_add(1, Ordering::SeqCst);
            let open = Open::new(Arc::clone(&self.counters));
            let (target, mut cuts) = (self.target.clone(), self.cuts.clone());
            let (to_target, to_client) = (self.to_target.clone(), self.to_client.clone());
            cuts.mark_unchanged();
            connections.spawn(async move {
                let served = serve(client, target, to_target, to_client, &open.0);
                tokio::select! {
                    _ = served => {}
                    _ = cuts.changed() => {}
                }
                drop(open);
            });
        }
    }
}

/// Counts a connection while it is open.
#[derive(Debug)]
struct Open(Arc<Counters>);

impl Open {
    fn new(counters: Arc<Counters>) -> Self {
        counters.open.fetch_add(1, Ordering::SeqCst);
        Self(counters)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::SeqCst);
    }
}

async fn serve(
    client: TcpStream,
    target: Target,
    to_target: watch::Receiver<Mode>,
    to_client: watch::Receiver<Mode>,
    counters: &Counters,
) -> io::Result<()> {
    client.set_nodelay(true)?;
    let (from_client, into_client) = client.into_split();
    let (into_target, from_target): (Writer, Reader) = match target {
        Target::Tcp(address) => {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            let (read, write) = stream.into_split();
            (Box::new(write), Box::new(read))
        }
        Target::Unix(path) => {
            let (read, write) = UnixStream::connect(path).await?.into_split();
            (Box::new(write), Box::new(read))
        }
    };
    let client_is_gone = AtomicBool::new(false);
    let requests = async {
        let (bytes, other) = (&counters.bytes_to_target, AtomicBool::new(false));
        pump(Box::new(from_client), into_target, to_target, bytes, &other).await?;
        client_is_gone.store(true, Ordering::SeqCst);
        Ok::<(), io::Error>(())
    };
    let answers = pump(
        from_target,
        Box::new(into_client),
        to_client,
        &counters.bytes_to_client,
        &client_is_gone,
    );
    tokio::try_join!(requests, answers)?;
    Ok(())
}

type Reader = Box<dyn AsyncRead + Send + Unpin>;
type Writer = Box<dyn AsyncWrite + Send + Unpin>;

/// Moves the bytes of one direction. An error ends the other direction too, but
/// whoever breaks off has ended: what he has sent before is delivered. The end of
/// what was swallowed is told to nobody, also when `nobody_is_there`.
async fn pump(
    mut from: Reader,
    mut into: Writer,
    mut mode: watch::Receiver<Mode>,
    bytes: &AtomicU64,
    nobody_is_there: &AtomicBool,
) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut swallowed = false;
    loop {
        let read = tokio::select! {
            read = from.read(&mut buffer) => read.unwrap_or(0),
            cut = until_cut(mode.clone()) => return cut,
        };
        bytes.fetch_add(u64::try_from(read).expect("a length fits in a u64"), Ordering::SeqCst);
        swallowed |= !may_pass(&mut mode).await?;
        match (read, swallowed) {
            (0, true) if nobody_is_there.load(Ordering::SeqCst) => return Ok(()),
            (0, true) => return until_cut(mode).await,
            (0, false) => return into.shutdown().await,
            (_, true) => {}
            (_, false) => tokio::select! {
                written = into.write_all(&buffer[..read]) => written?,
                cut = until_cut(mode.clone()) => return cut,
            },
        }
    }
}

/// Whether the bytes in hand may be delivered, once that is decided.
async fn may_pass(mode: &mut watch::Receiver<Mode>) -> io::Result<bool> {
    loop {
        let now = *mode.borrow_and_update();
        match now {
            Mode::Forward => return Ok(true),
            Mode::Swallow => return Ok(false),
            Mode::Cut => return Err(io::ErrorKind::ConnectionAborted.into()),
            Mode::Hold => changed(mode).await?,
            Mode::Delay(by) => tokio::select! {
                () = tokio::time::sleep(by) => return Ok(true),
                changed = changed(mode) => changed?,
            },
        }
    }
}

async fn until_cut(mut mode: watch::Receiver<Mode>) -> io::Result<()> {
    let cut = mode.wait_for(|mode| *mode == Mode::Cut).await.is_ok();
    debug_assert!(cut || mode.has_changed().is_err(), "only a cut or the end of the proxy");
    Err(io::ErrorKind::ConnectionAborted.into())
}

async fn changed(mode: &mut watch::Receiver<Mode>) -> io::Result<()> {
    mode.changed().await.map_err(|_| io::ErrorKind::ConnectionAborted.into())
}

use std::{
    net::{SocketAddr, ToSocketAddrs},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream, UnixListener},
    time::timeout,
};
use walpost_testkit::{Direction, Proxy, Target, postgres, until};

const LIMIT: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_millis(100);

/// A server that answers every byte with itself.
async fn echo() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut read, mut write) = stream.split();
                drop(tokio::io::copy(&mut read, &mut write).await);
            });
        }
    });
    address
}

async fn proxy_and_client() -> (Proxy, TcpStream) {
    let proxy = Proxy::start(Target::Tcp(echo().await)).await;
    let mut client = TcpStream::connect(proxy.address()).await.unwrap();
    assert_eq!(exchange(&mut client, b"hello").await.unwrap(), b"hello");
    (proxy, client)
}

async fn exchange(client: &mut TcpStream, bytes: &[u8]) -> std::io::Result<Vec<u8>> {
    client.write_all(bytes).await?;
    receive(client, bytes.len()).await
}

async fn receive(client: &mut TcpStream, len: usize) -> std::io::Result<Vec<u8>> {
    let mut answer = vec![0; len];
    timeout(LIMIT, client.read_exact(&mut answer)).await.expect("an answer in time")?;
    Ok(answer)
}

async fn is_silent(client: &mut TcpStream) -> bool {
    timeout(SHORT, client.read_u8()).await.is_err()
}

#[tokio::test]
async fn bytes_and_the_end_are_forwarded() {
    let (proxy, mut client) = proxy_and_client().await;
    assert_eq!((proxy.open(), proxy.accepted()), (1, 1));
    assert_eq!((proxy.bytes_to_target(), proxy.bytes_to_client()), (5, 5));
    client.shutdown().await.unwrap();
    assert_eq!(timeout(LIMIT, client.read(&mut [0])).await.unwrap().unwrap(), 0);
    until(LIMIT, "the end of the connection", async || proxy.open() == 0).await;
}

#[tokio::test]
async fn a_cut_closes_old_and_new_connections_until_it_is_restored() {
    let (proxy, mut client) = proxy_and_client().await;
    proxy.cut();
    until(LIMIT, "the cut", async || proxy.open() == 0).await;
    assert!(exchange(&mut client, b"x").await.is_err());
    let mut other = TcpStream::connect(proxy.address()).await.unwrap();
    assert!(exchange(&mut other, b"x").await.is_err());
    proxy.restore();
    let mut third = TcpStream::connect(proxy.address()).await.unwrap();
    assert_eq!(exchange(&mut third, b"x").await.unwrap(), b"x");
}

#[tokio::test]
async fn connections_can_be_cut_once() {
    let (proxy, mut client) = proxy_and_client().await;
    proxy.cut_connections();
    assert!(exchange(&mut client, b"x").await.is_err());
    let mut other = TcpStream::connect(proxy.address()).await.unwrap();
    assert_eq!(exchange(&mut other, b"x").await.unwrap(), b"x");
}

#[tokio::test]
async fn held_answers_arrive_after_the_release() {
    let (proxy, mut client) = proxy_and_client().await;
    proxy.hold(Direction::ToClient);
    client.write_all(b"late").await.unwrap();
    until(LIMIT, "the answer at the proxy", async || proxy.bytes_to_client() == 9).await;
    assert!(is_silent(&mut client).await);
    proxy.restore();
    assert_eq!(receive(&mut client, 4).await.unwrap(), b"late");
}

#[tokio::test]
async fn a_hold_can_end_in_a_cut() {
    let (proxy, mut client) = proxy_and_client().await;
    proxy.hold(Direction::ToTarget);
    client.write_all(b"lost").await.unwrap();
    until(LIMIT, "the request at the proxy", async || proxy.bytes_to_target() == 9).await;
    proxy.cut();
    assert!(receive(&mut client, 4).await.is_err());
    assert_eq!(proxy.bytes_to_client(), 5);
}

#[tokio::test]
async fn a_half_open_connection_is_accepted_and_silent_and_stays_dead() {
    let (proxy, mut old) = proxy_and_client().await;
    proxy.swallow(Direction::Both);
    let mut new = TcpStream::connect(proxy.address()).await.unwrap();
    for client in [&mut old, &mut new] {
        client.write_all(b"gone").await.unwrap();
        assert!(is_silent(client).await);
    }
    until(LIMIT, "the bytes at the proxy", async || proxy.bytes_to_target() == 13).await;
    proxy.restore();
    old.write_all(b"also gone").await.unwrap();
    assert!(is_silent(&mut old).await);
    let mut third = TcpStream::connect(proxy.address()).await.unwrap();
    assert_eq!(exchange(&mut third, b"x").await.unwrap(), b"x");
}

/// A server that counts what it gets, and answers every piece.
async fn counting() -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, got) = (listener.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
    let count = got.clone();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut buffer = [0; 1_000];
        while let Ok(read @ 1..) = stream.read(&mut buffer).await {
            count.fetch_add(read, Ordering::SeqCst);
            stream.write_all(b"got it").await.unwrap();
        }
    });
    (address, got)
}

#[tokio::test]
async fn what_was_held_of_a_client_that_died_is_delivered_when_it_is_released() {
    const BYTES: usize = 100_000;
    let (address, got) = counting().await;
    let proxy = Proxy::start(Target::Tcp(address)).await;
    let mut client = TcpStream::connect(proxy.address()).await.unwrap();
    client.write_all(b"x").await.unwrap();
    until(LIMIT, "the first byte", async || got.load(Ordering::SeqCst) == 1).await;
    proxy.hold(Direction::ToTarget);
    proxy.swallow(Direction::ToClient);
    client.write_all(&[7; BYTES]).await.unwrap();
    until(LIMIT, "held bytes", async || proxy.bytes_to_target() > 1).await;
    // It leaves an answer unread, so that its end is a reset.
    drop(client);
    assert_eq!((proxy.open(), got.load(Ordering::SeqCst)), (1, 1));
    proxy.forward(Direction::ToTarget);
    until(LIMIT, "the end of the connection", async || proxy.open() == 0).await;
    assert_eq!(got.load(Ordering::SeqCst), 1 + BYTES);
}

#[tokio::test]
async fn a_delay_delays() {
    let (proxy, mut client) = proxy_and_client().await;
    proxy.delay(Direction::ToTarget, SHORT);
    let start = Instant::now();
    assert_eq!(exchange(&mut client, b"slow").await.unwrap(), b"slow");
    assert!(start.elapsed() >= SHORT);
}

#[tokio::test]
async fn dropping_the_proxy_closes_everything() {
    let (proxy, mut client) = proxy_and_client().await;
    let address = proxy.address();
    drop(proxy);
    assert!(exchange(&mut client, b"x").await.is_err());
    until(LIMIT, "the end of the listener", async || TcpStream::connect(address).await.is_err())
        .await;
}

#[tokio::test]
async fn a_unix_socket_is_a_target() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    let proxy = Proxy::start(Target::Unix(path)).await;
    let mut client = TcpStream::connect(proxy.address()).await.unwrap();
    let (mut server, _) = timeout(LIMIT, listener.accept()).await.unwrap().unwrap();
    server.write_all(b"hello").await.unwrap();
    assert_eq!(receive(&mut client, 5).await.unwrap(), b"hello");
}

#[tokio::test]
async fn postgres_can_be_reached_through_a_proxy() {
    let database = postgres().fresh_database().await;
    let config = database.config();
    let Some(tokio_postgres::config::Host::Tcp(host)) = config.get_hosts().first() else {
        panic!("the address of the server must be a host name");
    };
    let service = (host.as_str(), config.get_ports()[0]).to_socket_addrs().unwrap().next();
    let proxy = Proxy::start(Target::Tcp(service.unwrap())).await;
    let mut through = tokio_postgres::Config::new();
    through.user(config.get_user().unwrap()).dbname(database.name());
    through.password(config.get_password().unwrap_or_default());
    through.host(proxy.address().ip().to_string()).port(proxy.port());
    let (client, connection) = through.connect(tokio_postgres::NoTls).await.unwrap();
    let driver = tokio::spawn(connection);
    client.batch_execute("select 1").await.unwrap();
    proxy.cut();
    assert!(timeout(LIMIT, driver).await.unwrap().unwrap().is_err());
}

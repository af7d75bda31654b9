//! Ports that may be dialled, and a proxy that requests go through.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};
use walpost_webhook::{
    AddressPolicy, Client, ClientSettings, Endpoint, EndpointError, Failure, Ports, Proxy,
    Resolver, Tls,
};

use crate::{
    client::{answered, settings, unanswered},
    receiver::{Receiver, answer, request, request_under},
    tls,
};

/// A proxy that knows one place, whatever it is called, and notes the first lines of
/// what it is asked.
struct Forwarding {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
    _tasks: JoinSet<()>,
}

impl Forwarding {
    /// To `place`; what it may not connect to is refused.
    async fn to(place: SocketAddr, refused: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, asked) = (listener.local_addr().unwrap(), Arc::<Mutex<Vec<_>>>::default());
        let (noted, mut tasks) = (Arc::clone(&asked), JoinSet::new());
        tasks.spawn(async move {
            let mut open = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                open.spawn(forward(stream, place, (Arc::clone(&noted), refused)));
            }
        });
        Self { address, asked, _tasks: tasks }
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }

    /// Of who goes through it.
    fn settings(&self) -> ClientSettings {
        let proxy = Proxy::parse(&format!("http://{}", self.address)).unwrap();
        ClientSettings { proxy: Some(proxy), ..settings() }
    }
}

async fn forward(
    mut stream: TcpStream,
    place: SocketAddr,
    (noted, refused): (Arc<Mutex<Vec<String>>>, &'static str),
) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let Ok(byte) = stream.read_u8().await else { return };
        head.push(byte);
    }
    let text = String::from_utf8(head.clone()).unwrap();
    let line = text.lines().next().unwrap().to_owned();
    noted.lock().unwrap().push(line.clone());
    if line.contains(refused) {
        let _ = stream.write_all(b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n").await;
        return;
    }
    let mut onward = TcpStream::connect(place).await.unwrap();
    if line.starts_with("CONNECT ") {
        stream.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await.unwrap();
    } else {
        onward.write_all(&head).await.unwrap();
    }
    let _ = copy_bidirectional(&mut stream, &mut onward).await;
}

#[tokio::test]
async fn a_request_over_tls_goes_through_the_proxy_to_whom_its_certificate_names() {
    let (receiver, certificate) = tls::receiver().await;
    let proxy = Forwarding::to(receiver.address, "nobody").await;
    let tls = Tls::with_roots(certificate.as_bytes()).unwrap();
    let client = Client::new(ClientSettings { tls, ..proxy.settings() });
    let url = receiver.url("localhost").replace("http://", "https://");
    for number in 0..2 {
        let attempt = client.send(&request(&url)).await;
        assert_eq!((attempt.outcome, attempt.reused), (answered(200), number > 0), "{attempt:?}");
    }
    // Whoever the proxy leads to, it has to be the one that was meant.
    let other = client.send(&request("https://other.example:8443/")).await;
    assert_eq!(other.outcome, unanswered(Failure::Tls, false));
    let port = receiver.address.port();
    let connects = [
        format!("CONNECT localhost:{port} HTTP/1.1"),
        "CONNECT other.example:8443 HTTP/1.1".into(),
    ];
    assert_eq!(proxy.asked(), connects);
    assert!(receiver.requests()[0].starts_with("POST /hook HTTP/1.1\r\n"));
}

#[tokio::test]
async fn a_request_in_the_clear_has_the_whole_url_for_the_proxy() {
    let receiver = Receiver::answering(answer("200 OK", "", "")).await;
    let proxy = Forwarding::to(receiver.address, "nobody").await;
    let client = Client::new(proxy.settings());
    let url = "http://a-name-that-we-do-not-look-up.invalid:8080/hook?a=b";
    for number in 0..2 {
        let attempt = client.send(&request(url)).await;
        assert_eq!((attempt.outcome, attempt.reused), (answered(200), number > 0), "{attempt:?}");
    }
    assert_eq!(proxy.asked(), [format!("POST {url} HTTP/1.1")]);
    let host = "\r\nHost: a-name-that-we-do-not-look-up.invalid:8080\r\n";
    assert!(receiver.requests()[1].contains(host), "{:?}", receiver.requests());
}

#[tokio::test]
async fn what_the_proxy_refuses_is_not_sent_and_neither_is_a_forbidden_address() {
    let receiver = Receiver::answering(answer("200 OK", "", "")).await;
    let proxy = Forwarding::to(receiver.address, "forbidden.example").await;
    let client = Client::new(proxy.settings());
    let attempt = client.send(&request("https://forbidden.example/")).await;
    assert_eq!(attempt.outcome, unanswered(Failure::Connect, false));
    assert_eq!(attempt.detail, "the proxy refuses to connect, with status 403");
    let forbidden = Endpoint::parse("http://10.0.0.1/", AddressPolicy::public());
    assert!(matches!(forbidden, Err(EndpointError::Address { .. })));
    assert_eq!((proxy.asked().len(), receiver.requests().len()), (1, 0));
    // No proxy at all.
    let client = Client::new(Forwarding::to(receiver.address, "").await.settings());
    let attempt = client.send(&request("https://example.com/")).await;
    assert_eq!(attempt.outcome, unanswered(Failure::Connect, false));
}

#[tokio::test]
async fn a_port_that_is_not_allowed_is_not_dialled() {
    let receiver = Receiver::answering(answer("200 OK", "", "")).await;
    let port = receiver.address.port();
    let send = async |ports: Option<Ports>, addresses: AddressPolicy| {
        let resolver = Resolver::by(async |_, port| Ok(vec![([127, 0, 0, 1], port).into()]));
        let client = Client::new(ClientSettings { ports, resolver, ..settings() });
        client.send(&request_under(&receiver.url("inside.example"), addresses)).await
    };
    let private = AddressPolicy::with_private_networks();
    for ports in [None, Some(Ports::any()), Some(Ports::only([port]))] {
        assert_eq!(send(ports, private).await.outcome, answered(200));
    }
    let connections = receiver.connections();
    for (ports, addresses) in [
        (Some(Ports::web()), private),
        (Some(Ports::only([])), private),
        // Before anything is looked up.
        (None, AddressPolicy::public()),
    ] {
        let attempt = send(ports, addresses).await;
        assert_eq!(attempt.outcome, unanswered(Failure::Blocked, false));
        assert_eq!(attempt.detail, format!("port {port} is none that may be dialled"));
    }
    assert_eq!(receiver.connections(), connections);
}

//! What is dialled is what was checked.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    time::{Duration, Instant},
};

use walpost_testkit::until;
use walpost_webhook::{AddressPolicy, Client, ClientSettings, Failure, Ports, Resolver};

use crate::{
    client::{LIMIT, answered, settings, unanswered},
    receiver::{Receiver, answer, request, request_under},
};

#[tokio::test]
async fn nobody_there_is_known_not_to_have_got_it() {
    let port = walpost_testkit::local::free_port().unwrap();
    let attempt =
        Client::new(settings()).send(&request(&format!("http://127.0.0.1:{port}/"))).await;
    assert_eq!(attempt.outcome, unanswered(Failure::Connect, false));
    let unknown = request("http://no-such-host.invalid/");
    let attempt =
        Client::new(resolving(|| Err(io::ErrorKind::NotFound.into()))).send(&unknown).await;
    assert_eq!(attempt.outcome, unanswered(Failure::Dns, false));
    let attempt = Client::new(resolving(|| Ok(Vec::new()))).send(&unknown).await;
    assert_eq!(attempt.outcome, unanswered(Failure::Dns, false));
    let begun = Instant::now();
    let resolver = Resolver::by(|_, _| std::future::pending());
    let connect_timeout = Duration::from_millis(200);
    let silent = Client::new(ClientSettings { resolver, connect_timeout, ..settings() });
    let attempt = silent.send(&unknown).await;
    assert_eq!(attempt.outcome, unanswered(Failure::Timeout, false));
    assert!(begun.elapsed() < LIMIT, "{attempt:?}");
}

/// Settings whose resolver answers by `answer`.
fn resolving(
    answer: impl Fn() -> io::Result<Vec<IpAddr>> + Send + Sync + 'static,
) -> ClientSettings {
    let resolver = Resolver::by(move |_, port| {
        let answer = answer();
        async move { Ok(answer?.into_iter().map(|address| SocketAddr::new(address, port)).collect()) }
    });
    ClientSettings { resolver, ..settings() }
}

fn addresses<const N: usize>(texts: [&str; N]) -> Vec<IpAddr> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

#[tokio::test]
async fn a_name_that_changes_its_address_is_checked_whenever_it_is_dialled() {
    let receiver = Receiver::answering(answer("200 OK", "connection: close\r\n", "")).await;
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    let client = Client::new(resolving(move || {
        let times = counted.fetch_add(1, Ordering::SeqCst);
        Ok(addresses([if times == 0 { "127.0.0.1" } else { "169.254.169.254" }]))
    }));
    let request = request(&receiver.url("rebinding.example"));
    assert_eq!(client.send(&request).await.outcome, answered(200));
    assert_eq!(asked.load(Ordering::SeqCst), 1, "asked once, for what is checked and dialled");
    let attempt = client.send(&request).await;
    assert_eq!(attempt.outcome, unanswered(Failure::Blocked, false));
    assert_eq!(attempt.detail, "169.254.169.254 is a link-local address");
    assert_eq!(receiver.connections(), 1);
}

#[tokio::test]
async fn a_name_with_one_forbidden_address_is_not_dialled_at_any() {
    let receiver = Receiver::answering(answer("200 OK", "", "")).await;
    let request = request(&receiver.url("mixed.example"));
    for mixed in [
        ["127.0.0.1", "169.254.169.254"],
        ["::ffff:169.254.169.254", "127.0.0.1"],
        ["127.0.0.1", "64:ff9b::7f00:1"],
    ] {
        let client = Client::new(resolving(move || Ok(addresses(mixed))));
        let attempt = client.send(&request).await;
        assert_eq!(attempt.outcome, unanswered(Failure::Blocked, false), "{mixed:?}");
    }
    assert_eq!(receiver.connections(), 0);
}

#[tokio::test]
async fn without_the_switch_nothing_local_is_dialled() {
    let receiver = Receiver::answering(answer("200 OK", "", "")).await;
    for (host, answered) in [
        ("localhost", None),
        ("inside.example", Some(addresses(["127.0.0.1"]))),
        ("inside.example", Some(addresses(["::ffff:127.0.0.1"]))),
    ] {
        let base = answered.map_or_else(settings, |all| resolving(move || Ok(all.clone())));
        let client = Client::new(ClientSettings { ports: Some(Ports::any()), ..base });
        let request = request_under(&receiver.url(host), AddressPolicy::public());
        let attempt = client.send(&request).await;
        assert_eq!(attempt.outcome, unanswered(Failure::Blocked, false), "{host}");
        assert!(attempt.detail.contains(" is an address of this machine"), "{}", attempt.detail);
        assert!(attempt.detail.ends_with("without allow_private_networks"), "{}", attempt.detail);
    }
    assert_eq!(receiver.connections(), 0);
}

#[tokio::test]
async fn the_next_address_is_tried_where_one_does_not_answer() {
    let receiver = Receiver::answering(answer("200 OK", "", "")).await;
    let client = Client::new(resolving(|| Ok(addresses(["127.0.0.2", "127.0.0.1"]))));
    let attempt = client.send(&request(&receiver.url("two.example"))).await;
    assert_eq!(attempt.outcome, answered(200), "{attempt:?}");
    let expected = format!("Host: two.example:{}\r\n", receiver.address.port());
    assert!(receiver.requests()[0].contains(&expected));
}

#[tokio::test]
async fn a_resolver_that_hangs_takes_few_threads_and_stops_no_other_client() {
    let receiver = Receiver::answering(answer("200 OK", "", "")).await;
    let (asked, (release, released)) = (Arc::<AtomicUsize>::default(), mpsc::channel::<()>());
    let (counted, released) = (Arc::clone(&asked), Mutex::new(released));
    let resolver = Resolver::by_blocking(move |_, port| {
        counted.fetch_add(1, Ordering::SeqCst);
        // Until the other end is dropped.
        let _ = released.lock().unwrap().recv();
        Ok(vec![SocketAddr::new(IpAddr::from([127, 0, 0, 1]), port)])
    });
    let connect_timeout = Duration::from_millis(200);
    let hanging = Client::new(ClientSettings { resolver, connect_timeout, ..settings() });
    let request = request(&receiver.url("hanging.example"));
    // The second round finds the threads of the first as busy as they were.
    for _ in 0..2 {
        let sending = (0..40).map(|_| {
            let (client, request) = (hanging.clone(), request.clone());
            async move { client.send(&request).await.outcome }
        });
        let begun = Instant::now();
        let outcomes = futures_util::future::join_all(sending).await;
        assert_eq!(outcomes, [unanswered(Failure::Timeout, false); 40]);
        assert!(begun.elapsed() < LIMIT, "{:?}", begun.elapsed());
        until(LIMIT, "a thread for each", async || asked.load(Ordering::SeqCst) >= 16).await;
        assert_eq!(asked.load(Ordering::SeqCst), 16);
    }
    let local = crate::receiver::request(&receiver.url("localhost"));
    assert_eq!(Client::new(settings()).send(&local).await.outcome, answered(200));
    drop(release);
    let is_answered = async || hanging.send(&request).await.outcome == answered(200);
    until(LIMIT, "free threads", is_answered).await;
}

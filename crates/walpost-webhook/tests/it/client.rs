//! One attempt against receivers that do what they should not.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use http::{Method, StatusCode};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::interval,
};
use walpost_testkit::until;
use walpost_webhook::{Attempt, Client, ClientSettings, Failure, Outcome};

use crate::receiver::{Receiver, answer};

/// Far longer than whatever goes well takes.
pub(crate) const LIMIT: Duration = Duration::from_secs(30);
/// Of those that wait for it.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(5);

pub(crate) fn settings() -> ClientSettings {
    ClientSettings { timeout: LIMIT, connect_timeout: LIMIT, ..ClientSettings::default() }
}

/// Of who is to come to the deadline.
fn hasty() -> ClientSettings {
    ClientSettings { timeout: TIMEOUT, ..settings() }
}

pub(crate) fn answered(status: u16) -> Outcome {
    Outcome::Answered { status: StatusCode::from_u16(status).unwrap(), retry_after: None }
}

pub(crate) fn unanswered(failure: Failure, sent: bool) -> Outcome {
    Outcome::Unanswered { failure, sent }
}

async fn send_to(receiver: &Receiver) -> Attempt {
    Client::new(settings()).send(&receiver.request()).await
}

/// It came to its end at the deadline, not before, and not with the test's limit.
fn assert_timed(attempt: &Attempt, begun: Instant) {
    let took = begun.elapsed();
    assert!(took >= TIMEOUT && took < LIMIT, "{took:?} {attempt:?}");
}

#[tokio::test]
async fn what_is_sent_is_what_was_given_and_framed_by_us() {
    let receiver = Receiver::answering(answer("202 Accepted", "", "thanks")).await;
    let mut request = receiver.request();
    for (name, value) in [
        ("x-shop", "7"),
        ("content-length", "999"),
        ("transfer-encoding", "chunked"),
        ("host", "evil.example"),
        ("connection", "close"),
    ] {
        request.headers.insert(name, value.parse().unwrap());
    }
    let attempt = Client::new(settings()).send(&request).await;
    assert_eq!(attempt.outcome, answered(202));
    assert_eq!((&*attempt.body, attempt.is_cut), (&b"thanks"[..], false));
    let port = receiver.address.port();
    let expected = format!(
        "POST /hook HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nX-Shop: 7\r\nContent-Length: 7\r\n\r\n\
         {{\"a\":1}}"
    );
    assert_eq!(receiver.requests(), [expected]);
}

#[tokio::test]
async fn a_connection_is_used_again_while_it_lasts() {
    let receiver = Receiver::answering(answer("200 OK", "", "{\"status\":\"ok\"}")).await;
    let idle_timeout = Duration::from_secs(10);
    let client = Client::new(ClientSettings { idle_timeout, ..settings() });
    for number in 0..50 {
        let attempt = client.send(&receiver.request()).await;
        assert_eq!((attempt.outcome, attempt.reused), (answered(200), number > 0));
    }
    assert_eq!((receiver.connections(), client.idle()), (1, 1));
    until(LIMIT, "the end of what is idle", async || client.idle() == 0).await;
    assert!(!client.send(&receiver.request()).await.reused);
    assert_eq!(receiver.connections(), 2);
    let none = Client::new(ClientSettings { idle_timeout: Duration::ZERO, ..settings() });
    for _ in 0..3 {
        assert!(!none.send(&receiver.request()).await.reused);
    }
    assert_eq!((receiver.connections(), none.idle()), (5, 0));
}

#[tokio::test]
async fn many_at_once_have_a_connection_each_and_keep_a_few() {
    let receiver = Receiver::answering(answer("200 OK", "", "")).await;
    let client = Client::new(ClientSettings { idle_max: 4, ..settings() });
    let sending = (0..40).map(|_| {
        let (client, request) = (client.clone(), receiver.request());
        async move { client.send(&request).await.outcome }
    });
    let outcomes = futures_util::future::join_all(sending).await;
    assert_eq!(outcomes, [answered(200); 40]);
    assert!(receiver.connections() <= 40 && client.idle() <= 4, "{}", client.idle());
    assert_eq!(receiver.requests().len(), 40);
}

#[tokio::test]
async fn a_connection_that_the_receiver_closes_is_not_used_again() {
    let closing = answer("200 OK", "connection: close\r\n", "");
    let receiver = Receiver::answering(closing).await;
    let client = Client::new(settings());
    for _ in 0..3 {
        let attempt = client.send(&receiver.request()).await;
        assert_eq!((attempt.outcome, attempt.reused), (answered(200), false));
    }
    let once = Receiver::scripted(|mut stream, notes| async move {
        notes.read(&mut stream).await?;
        stream.write_all(answer("200 OK", "", "").as_bytes()).await
    })
    .await;
    for number in 1..4 {
        assert_eq!(client.send(&once.request()).await.outcome, answered(200));
        assert_eq!(once.connections(), number);
        until(LIMIT, "a connection that is closed", async || client.idle() == 0).await;
    }
}

#[tokio::test]
async fn a_head_that_trickles_ends_at_the_deadline() {
    let receiver = Receiver::scripted(|mut stream, notes| async move {
        notes.read(&mut stream).await?;
        let mut ticks = interval(Duration::from_millis(10));
        stream.write_all(b"HTTP/1.1 200 OK\r\nx-slow: ").await?;
        loop {
            ticks.tick().await;
            stream.write_all(b"a").await?;
        }
    })
    .await;
    let begun = Instant::now();
    let attempt = Client::new(hasty()).send(&receiver.request()).await;
    assert_eq!(attempt.outcome, unanswered(Failure::Timeout, true));
    assert_timed(&attempt, begun);
}

#[tokio::test]
async fn a_body_that_trickles_ends_at_the_deadline_and_the_status_counts() {
    let receiver = Receiver::scripted(|mut stream, notes| async move {
        notes.read(&mut stream).await?;
        let mut ticks = interval(Duration::from_millis(10));
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n").await?;
        loop {
            ticks.tick().await;
            stream.write_all(b"a").await?;
        }
    })
    .await;
    let begun = Instant::now();
    let client = Client::new(hasty());
    let attempt = client.send(&receiver.request()).await;
    assert_eq!((attempt.outcome, attempt.is_cut), (answered(200), true));
    assert!(!attempt.body.is_empty() && attempt.body.len() < 1_000, "{attempt:?}");
    assert_timed(&attempt, begun);
    assert_eq!(client.idle(), 0);
}

#[tokio::test]
async fn an_endless_body_is_cut_and_its_connection_closed() {
    let written = Arc::new(AtomicUsize::new(0));
    let ended = Arc::new(AtomicUsize::new(0));
    let (counted, noted) = (Arc::clone(&written), Arc::clone(&ended));
    let receiver = Receiver::scripted(move |mut stream, notes| {
        let (counted, noted) = (Arc::clone(&counted), Arc::clone(&noted));
        async move {
            notes.read(&mut stream).await?;
            stream.write_all(b"HTTP/1.1 500 Oops\r\n\r\n").await?;
            while stream.write_all(&[b'x'; 4_096]).await.is_ok() {
                counted.fetch_add(4_096, Ordering::SeqCst);
            }
            noted.fetch_add(1, Ordering::SeqCst);
            Ok(())
        }
    })
    .await;
    let begun = Instant::now();
    let attempt = send_to(&receiver).await;
    assert_eq!((attempt.outcome, attempt.is_cut), (answered(500), true));
    assert_eq!(attempt.body, vec![b'x'; 16 * 1_024]);
    assert!(begun.elapsed() < LIMIT, "{attempt:?}");
    until(LIMIT, "the receiver's end", async || ended.load(Ordering::SeqCst) == 1).await;
    // What was on its way in buffers, and no more.
    assert!(written.load(Ordering::SeqCst) < 32 << 20);
}

#[tokio::test]
async fn a_body_of_just_the_length_that_is_kept_is_whole() {
    for (bytes, is_cut) in [(16 * 1_024, false), (16 * 1_024 + 1, true)] {
        let receiver = Receiver::answering(answer("200 OK", "", &"a".repeat(bytes))).await;
        let attempt = send_to(&receiver).await;
        assert_eq!((attempt.is_cut, attempt.body.len()), (is_cut, 16 * 1_024));
    }
}

#[tokio::test]
async fn a_head_without_end_is_refused() {
    let lines = Receiver::scripted(|mut stream, notes| async move {
        notes.read(&mut stream).await?;
        stream.write_all(b"HTTP/1.1 200 OK\r\n").await?;
        for number in 0_u64.. {
            stream.write_all(format!("x-{number}: a\r\n").as_bytes()).await?;
        }
        Ok(())
    })
    .await;
    let line = Receiver::scripted(|mut stream, notes| async move {
        notes.read(&mut stream).await?;
        stream.write_all(b"HTTP/1.1 200 OK\r\nx-long: ").await?;
        loop {
            stream.write_all(&[b'a'; 1_024]).await?;
        }
    })
    .await;
    for receiver in [lines, line] {
        let attempt = send_to(&receiver).await;
        assert_eq!(attempt.outcome, unanswered(Failure::TooLarge, true), "{attempt:?}");
    }
}

#[tokio::test]
async fn what_is_no_http_is_no_answer() {
    for text in [
        "SSH-2.0-OpenSSH_9.2\r\n",
        "HTTP/1.1 2000 OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: many\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
        "\u{16}\u{3}\u{1}\r\n\r\n",
    ] {
        let receiver = Receiver::answering(text).await;
        let attempt = send_to(&receiver).await;
        assert_eq!(attempt.outcome, unanswered(Failure::Malformed, true), "{text:?}");
    }
}

#[tokio::test]
async fn a_header_with_an_invalid_value_does_no_harm() {
    let mut bytes = b"HTTP/1.1 200 OK\r\nx-odd: \xff\xfe\r\nretry-after: \xff\r\n".to_vec();
    bytes.extend(b"retry-after: 1, 2\r\ncontent-length: 0\r\n\r\n");
    let receiver = Receiver::answering(bytes).await;
    assert_eq!(send_to(&receiver).await.outcome, answered(200));
}

#[tokio::test]
async fn retry_after_is_read_and_the_longest_counts() {
    let headers = "retry-after: 7\r\nretry-after: 120\r\nretry-after: soon\r\n";
    let receiver = Receiver::answering(answer("429 Too Many Requests", headers, "")).await;
    let expected = Outcome::Answered {
        status: StatusCode::TOO_MANY_REQUESTS,
        retry_after: Some(Duration::from_secs(120)),
    };
    assert_eq!(send_to(&receiver).await.outcome, expected);
}

#[tokio::test]
async fn a_redirect_is_an_answer_and_is_not_followed() {
    let target = Receiver::answering(answer("200 OK", "", "")).await;
    for (status, location) in [
        (301, "http://169.254.169.254/latest/meta-data/".to_owned()),
        (302, target.url("127.0.0.1")),
        (307, target.url("localhost")),
        (308, "//169.254.169.254/".to_owned()),
    ] {
        let location = format!("location: {location}\r\n");
        let receiver = Receiver::answering(answer(&format!("{status} Away"), &location, "")).await;
        let attempt = send_to(&receiver).await;
        assert_eq!(attempt.outcome, answered(status));
        assert_eq!(receiver.connections(), 1);
    }
    assert_eq!(target.connections(), 0);
}

#[tokio::test]
async fn answers_ahead_of_the_answer_are_passed_over() {
    let early = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n";
    let receiver = Receiver::answering(format!("{early}{}", answer("200 OK", "", ""))).await;
    let client = Client::new(settings());
    for _ in 0..2 {
        assert_eq!(client.send(&receiver.request()).await.outcome, answered(200));
    }
    assert_eq!(receiver.connections(), 1);
    let endless = Receiver::scripted(|mut stream, notes| async move {
        notes.read(&mut stream).await?;
        loop {
            stream.write_all(b"HTTP/1.1 102 Processing\r\n\r\n").await?;
        }
    })
    .await;
    let begun = Instant::now();
    let attempt = Client::new(hasty()).send(&endless.request()).await;
    assert_eq!(attempt.outcome, unanswered(Failure::Timeout, true));
    assert_timed(&attempt, begun);
}

#[tokio::test]
async fn a_connection_that_speaks_another_protocol_is_not_kept() {
    let switched = "HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n";
    let receiver = Receiver::answering(switched).await;
    let client = Client::new(settings());
    for number in 1..3 {
        let attempt = client.send(&receiver.request()).await;
        assert_eq!((attempt.outcome, client.idle()), (answered(101), 0), "{attempt:?}");
        assert_eq!(receiver.connections(), number);
    }
}

#[tokio::test]
async fn a_connection_that_ends_before_the_answer_leaves_it_open_whether_it_arrived() {
    let half = Receiver::scripted(|mut stream, notes| async move {
        notes.read(&mut stream).await?;
        stream.shutdown().await?;
        // The other half stays open.
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).await.map(drop)
    })
    .await;
    let in_head = Receiver::scripted(|mut stream, notes| async move {
        notes.read(&mut stream).await?;
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-le").await
    })
    .await;
    let reset = Receiver::scripted(|stream, _| async move { stream.set_zero_linger() }).await;
    for receiver in [half, in_head, reset] {
        let begun = Instant::now();
        let attempt = send_to(&receiver).await;
        assert_eq!(attempt.outcome, unanswered(Failure::Broken, true), "{attempt:?}");
        assert!(begun.elapsed() < LIMIT, "{attempt:?}");
    }
}

#[tokio::test]
async fn a_receiver_that_takes_nothing_is_given_up_at_the_deadline() {
    let receiver = Receiver::scripted(|stream, _| async move {
        std::future::pending::<()>().await;
        drop(stream);
        Ok(())
    })
    .await;
    let begun = Instant::now();
    let mut large = receiver.request();
    large.body = vec![0; 64 << 20].into();
    let attempt = Client::new(hasty()).send(&large).await;
    assert_eq!(attempt.outcome, unanswered(Failure::Timeout, true));
    assert_timed(&attempt, begun);
}

#[tokio::test]
async fn any_method_is_sent_and_nothing_is_printed_of_contents() {
    let receiver = Receiver::answering(answer("200 OK", "", "s3cr3t answer")).await;
    let mut put = receiver.request();
    put.method = Method::PUT;
    put.body = "s3cr3t body".into();
    put.headers.insert("x-token", "s3cr3t header".parse().unwrap());
    put.endpoint = put.endpoint.at_path("/s3cr3t?a=s3cr3t").unwrap();
    let attempt = Client::new(settings()).send(&put).await;
    assert_eq!(attempt.outcome, answered(200));
    assert!(receiver.requests()[0].starts_with("PUT /hook/s3cr3t?a=s3cr3t HTTP/1.1\r\n"));
    let shown = format!("{put:?} {attempt:?}");
    assert!(!shown.contains("s3cr3t"), "{shown}");
}

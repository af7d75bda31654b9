//! Requests that are no events.

use std::time::{Duration, Instant};

use tokio::io::AsyncWriteExt;
use walpost_testkit::until;
use walpost_webhook::receive::{Place, Receiver, Source};

use super::{
    handler::ByType,
    server::{OK, Server, head, read, request},
    sign::{KEY, SENDERS, Sender},
    world::World,
};
use crate::world::LIMIT;

const BODY_MAX_BYTES: usize = 10_000;

async fn server(world: &World) -> Server {
    server_within(world, LIMIT).await
}

async fn server_within(world: &World, answer_within: Duration) -> Server {
    let builder = SENDERS.iter().fold(world.builder(), |builder, sender| {
        builder.inline(sender.path(), sender.source(), ByType::new())
    });
    let builder = builder.body_max_bytes(BODY_MAX_BYTES).answer_within(answer_within);
    Server::start(builder.build().unwrap().router()).await
}

/// As GitHub sends it.
async fn github(server: &Server, id: &str, body: &[u8]) -> super::server::Answer {
    let headers = Sender::Github.headers(id, "apply", body);
    server.post("/webhooks/github", &headers, body).await
}

#[tokio::test]
async fn a_body_may_be_so_long_and_no_longer() {
    let world = World::new().await;
    let server = server(&world).await;
    assert_eq!(github(&server, "a", &[b'x'; BODY_MAX_BYTES]).await.what(), (200, OK));
    let refused = github(&server, "b", &[b'x'; BODY_MAX_BYTES + 1]).await;
    assert_eq!(refused.problem(), (413, "body-too-large"));
    // A length is believed before the body is there.
    let mut bytes = head("/webhooks/github", &[]);
    bytes.extend(b"content-length: 1000000000000\r\n\r\n");
    assert_eq!(server.raw(&bytes).await.problem(), (413, "body-too-large"));
    // Without a length.
    let mut bytes = head("/webhooks/github", &[]);
    bytes.extend(b"transfer-encoding: chunked\r\n\r\n");
    for _ in 0..20 {
        bytes.extend(format!("{:x}\r\n{}\r\n", 1_000, "x".repeat(1_000)).as_bytes());
    }
    assert_eq!(server.raw(&bytes).await.problem(), (413, "body-too-large"));
    assert_eq!(world.effects().await, ["a"]);
}

#[tokio::test]
async fn a_body_that_has_no_end_is_answered_in_time() {
    let world = World::new().await;
    // It binds the one that is whole as well.
    let server = server_within(&world, Duration::from_secs(10)).await;
    let headers = Sender::Github.headers("a", "apply", b"body");
    let mut slow = server.connect().await;
    let mut bytes = head("/webhooks/github", &headers);
    bytes.extend(b"content-length: 4\r\n\r\nbod");
    let begun = Instant::now();
    slow.write_all(&bytes).await.unwrap();
    let answer = read(&mut slow).await.unwrap();
    assert_eq!(answer.problem(), (408, "body-late"));
    assert!(answer.head.contains("connection: close"), "{answer:?}");
    assert!((10.0..40.0).contains(&begun.elapsed().as_secs_f64()), "{:?}", begun.elapsed());
    // Others are served meanwhile and afterwards.
    assert_eq!(github(&server, "a", b"body").await.what(), (200, OK));
}

#[tokio::test]
async fn a_sender_that_goes_away_in_its_body_leaves_nothing() {
    let world = World::new().await;
    let server = server(&world).await;
    let headers = Sender::Github.headers("a", "apply", b"body");
    let mut gone = server.connect().await;
    let mut bytes = head("/webhooks/github", &headers);
    bytes.extend(b"content-length: 4\r\n\r\nbod");
    gone.write_all(&bytes).await.unwrap();
    drop(gone);
    assert_eq!(github(&server, "b", b"body").await.what(), (200, OK));
    assert_eq!(world.effects().await, ["b"]);
}

#[tokio::test]
async fn bytes_that_are_no_text_are_kept_where_nobody_looks_into_them() {
    let world = World::new().await;
    let server = server(&world).await;
    let body = b"\xff\xfe\x00{\xc3\x28";
    assert_eq!(github(&server, "a", body).await.what(), (200, OK));
    let stored = "select payload from walpost.inbox where event_id = 'a'";
    let stored = world.client.query_one(stored, &[]).await.unwrap();
    assert_eq!(stored.get::<_, Vec<u8>>(0), body);
    for sender in [Sender::Standard, Sender::Stripe, Sender::Slack, Sender::Generic] {
        for body in [&body[..], b"", b"{\"id\":\"a\",\"type\":\"\xff\"}"] {
            let headers = sender.headers("b", "apply", body);
            let refused = server.post(&sender.path(), &headers, body).await;
            assert_eq!(refused.problem(), (400, "no-json"), "{sender:?}");
        }
    }
    assert_eq!(world.effects().await, ["a"]);
}

#[tokio::test]
async fn a_header_that_is_there_twice_is_nobodys_word() {
    let world = World::new().await;
    let server = server(&world).await;
    for sender in SENDERS {
        let body = sender.body("a", "apply").into_bytes();
        let headers = sender.headers("a", "apply", &body);
        for twice in 0..headers.len() {
            let mut headers = headers.clone();
            headers.push(headers[twice].clone());
            let refused = server.post(&sender.path(), &headers, &body).await;
            let is_signed = sender.is_timed()
                || headers[twice].0.to_lowercase().contains("sign")
                || headers[twice].0.contains("Hmac");
            let expected = if is_signed { (401, "signature-refused") } else { (400, "malformed") };
            assert_eq!(refused.problem(), expected, "{sender:?} {}", headers[twice].0);
        }
    }
    assert_eq!(world.effects().await, [""; 0]);
}

#[tokio::test]
async fn without_an_id_or_a_type_that_can_be_stored_nothing_is_taken() {
    let world = World::new().await;
    let server = server(&world).await;
    let long = "x".repeat(513);
    for (body, problem) in [
        (r#"{"type":"apply"}"#.to_owned(), "id-missing"),
        (r#"{"id":null,"type":"apply"}"#.to_owned(), "id-missing"),
        (r#"{"id":"","type":"apply"}"#.to_owned(), "id-missing"),
        (r#"{"id":{"a":1},"type":"apply"}"#.to_owned(), "malformed"),
        (r#"{"id":1.5,"type":"apply"}"#.to_owned(), "malformed"),
        (r#"{"id":"a"}"#.to_owned(), "type-missing"),
        (r#"{"id":"a","type":["apply"]}"#.to_owned(), "malformed"),
        (format!(r#"{{"id":"{long}","type":"apply"}}"#), "unfit"),
        (format!(r#"{{"id":"a","type":"{long}"}}"#), "unfit"),
        (r#"{"id":"a\u0000b","type":"apply"}"#.to_owned(), "unfit"),
        (r#"[1,2]"#.to_owned(), "id-missing"),
        (r#""a""#.to_owned(), "id-missing"),
        ("[".repeat(200) + &"]".repeat(200), "no-json"),
    ] {
        let headers = Sender::Stripe.headers("", "", body.as_bytes());
        let refused = server.post("/webhooks/stripe", &headers, body.as_bytes()).await;
        assert_eq!(refused.problem(), (400, problem), "{body}");
        assert!(!refused.body.contains("xxx"), "{refused:?}");
    }
    let body = br#"{"id":77,"type":"apply"}"#;
    let headers = Sender::Stripe.headers("", "", body);
    assert_eq!(server.post("/webhooks/stripe", &headers, body).await.what(), (200, OK));
    assert_eq!(world.effects().await, ["77"]);
}

#[tokio::test]
async fn webhooks_come_by_post() {
    let world = World::new().await;
    let server = server(&world).await;
    for method in ["GET", "PUT", "DELETE", "OPTIONS"] {
        let bytes = request("/webhooks/github", &[], b"");
        let text = String::from_utf8(bytes).unwrap().replacen("POST", method, 1);
        let refused = server.raw(text.as_bytes()).await;
        assert_eq!(refused.problem(), (405, "method-not-allowed"), "{method}");
        assert!(refused.head.contains("allow: post"), "{refused:?}");
    }
}

#[tokio::test]
async fn more_requests_than_there_may_be_are_refused_at_once() {
    let world = World::new().await;
    let handler = ByType::new();
    let builder = world.builder().requests(1);
    let builder = builder.inline("/webhooks/github", Sender::Github.source(), handler.clone());
    let server = Server::start(builder.build().unwrap().router()).await;
    let mut slow = server.connect().await;
    let headers = Sender::Github.headers("a", "apply", b"body");
    let mut bytes = head("/webhooks/github", &headers);
    bytes.extend(b"content-length: 4\r\n\r\nbod");
    slow.write_all(&bytes).await.unwrap();
    until(LIMIT, "a request that is read", async || {
        github(&server, "b", b"body").await.status == 503
    })
    .await;
    assert_eq!(github(&server, "b", b"body").await.problem(), (503, "busy"));
    slow.write_all(b"y").await.unwrap();
    assert_eq!(read(&mut slow).await.unwrap().what(), (200, OK));
}

#[tokio::test]
async fn what_cannot_be_is_refused_before_anything_is_served() {
    let place = || walpost_inbox::Database::config("host=localhost".parse().unwrap());
    let source = || Source::github("github", [KEY]);
    let fixed = source().event_id([Place::fixed("always")]);
    for (builder, setting) in [
        (Receiver::builder(place()).answer_within(Duration::ZERO), "answer_within"),
        (Receiver::builder(place()).body_max_bytes(0), "body_max_bytes"),
        (Receiver::builder(place()).connections(0), "connections"),
        (Receiver::builder(place()).requests(0), "requests"),
        (Receiver::builder(place()).inbox("a", source()), "path \"a\""),
        (Receiver::builder(place()).inbox("/{a}", source()), "path \"/{a}\""),
        (Receiver::builder(place()).inbox("/a", fixed), "event_id of source \"github\""),
        (Receiver::builder(place()).inbox("/a", source().event_id([])), "event_id of source"),
        (
            Receiver::builder(place()).inbox("/a", source().event_type(Place::pointer("type"))),
            "places of source",
        ),
        (Receiver::builder(place()).inbox("/a", Source::github("", [KEY])), "name of source"),
        (Receiver::builder(place()).inbox("/a", Source::github("github", [""])), "keys of source"),
        (Receiver::builder(place()).inbox("/a", Source::standard("a", [])), "keys of source"),
        (Receiver::builder(place()).inbox("/a", source()).inbox("/b", source()), "source"),
        (
            Receiver::builder(place()).inbox("/a", source()).inbox("/a", Sender::Slack.source()),
            "source \"slack\" at /a",
        ),
    ] {
        let error = builder.build().unwrap_err();
        assert!(error.setting.starts_with(setting), "{error}");
    }
}

//! Each sender's own signature, and those that are not.

use walpost_webhook::receive::{Builder, Receiver};

use super::{
    handler::ByType,
    server::{ALREADY, OK, Server},
    sign::{SENDERS, Sender, seconds_ago},
    world::World,
};

/// All senders, each on its path, in the mode inline.
fn inline(builder: Builder) -> Receiver {
    let all = SENDERS.iter().fold(builder, |builder, sender| {
        builder.inline(sender.path(), sender.source(), ByType::new())
    });
    all.build().unwrap()
}

#[tokio::test]
async fn each_sender_is_taken_once_by_its_own_signature() {
    let world = World::new().await;
    let server = Server::start(inline(world.builder()).router()).await;
    for sender in SENDERS {
        let first = server.event(sender, sender.name(), "apply").await;
        assert_eq!(first.what(), (200, OK), "{sender:?}");
        assert!(first.head.contains("content-type: application/json"), "{first:?}");
        for _ in 0..2 {
            let again = server.event(sender, sender.name(), "apply").await;
            assert_eq!(again.what(), (200, ALREADY), "{sender:?}");
        }
    }
    let mut expected = SENDERS.map(|sender| {
        let id = sender.stored_id(sender.name(), "apply");
        [sender.name(), &id, "apply", "succeeded"].map(str::to_owned)
    });
    expected.sort_by(|a, b| a[1].cmp(&b[1]));
    assert_eq!(world.rows().await, expected);
    assert_eq!(world.effects().await, expected.map(|row| row[1].clone()));
}

#[tokio::test]
async fn a_signature_that_is_missing_wrong_or_of_other_bytes_is_refused_and_leaves_nothing() {
    let world = World::new().await;
    let server = Server::start(inline(world.builder()).router()).await;
    for sender in SENDERS {
        let body = sender.body("a", "apply").into_bytes();
        let good = sender.headers("a", "apply", &body);
        let other = sender.headers_of_another_key("a", "apply", &body);
        let mut changed = body.clone();
        *changed.last_mut().unwrap() = b' ';
        let mut longer = body.clone();
        longer.push(b'\n');
        for (headers, body) in [
            (&Vec::new(), &body),
            (&other, &body),
            (&good, &changed),
            (&good, &longer),
            (&good, &Vec::new()),
        ] {
            let refused = server.post(&sender.path(), headers, body).await;
            assert_eq!(refused.problem(), (401, "signature-refused"), "{sender:?}");
            assert!(refused.head.contains("www-authenticate: webhook-signature"));
        }
        // What one sender has signed is nothing on another one's path.
        let elsewhere = SENDERS[(sender as usize + 1) % SENDERS.len()];
        let refused = server.post(&elsewhere.path(), &good, &body).await;
        assert_eq!(refused.problem(), (401, "signature-refused"), "{sender:?}");
    }
    assert_eq!(world.rows().await, Vec::<[String; 4]>::new());
    assert_eq!(world.effects().await, [""; 0]);
}

#[tokio::test]
async fn an_old_signature_and_one_of_the_future_are_refused_where_times_are_signed() {
    let world = World::new().await;
    let server = Server::start(inline(world.builder()).router()).await;
    for sender in SENDERS.into_iter().filter(|sender| sender.is_timed()) {
        for (ago, problem) in [
            (240, None),
            (-240, None),
            (360, Some("timestamp_too_old")),
            (86_400, Some("timestamp_too_old")),
            (-360, Some("timestamp_too_new")),
        ] {
            let id = format!("{}{ago}", sender.name());
            let body = sender.body(&id, "apply").into_bytes();
            let headers = sender.headers_at(&id, "apply", &body, seconds_ago(ago));
            let answer = server.post(&sender.path(), &headers, &body).await;
            if let Some(problem) = problem {
                assert_eq!(answer.problem().0, 401, "{sender:?} {ago}");
                assert!(answer.body.contains(problem), "{answer:?}");
            } else {
                assert_eq!(answer.what(), (200, OK), "{sender:?} {ago}");
            }
        }
    }
    assert_eq!(world.effects().await.len(), 6);
}

#[tokio::test]
async fn a_request_that_was_recorded_has_no_second_effect() {
    let world = World::new().await;
    let server = Server::start(inline(world.builder()).router()).await;
    for sender in SENDERS {
        let id = sender.name();
        let body = sender.body(id, "apply").into_bytes();
        let headers = sender.headers(id, "apply", &body);
        let first = server.post(&sender.path(), &headers, &body).await;
        assert_eq!(first.what(), (200, OK), "{sender:?}");
        let replayed = server.post(&sender.path(), &headers, &body).await;
        assert_eq!(replayed.what(), (200, ALREADY), "{sender:?}");
    }
    assert_eq!(world.effects().await.len(), SENDERS.len());
}

#[tokio::test]
async fn ids_of_different_senders_are_different_events() {
    let world = World::new().await;
    let server = Server::start(inline(world.builder()).router()).await;
    for sender in SENDERS {
        assert_eq!(server.event(sender, "same", "apply").await.what(), (200, OK), "{sender:?}");
    }
    assert_eq!(world.effects().await.len(), SENDERS.len());
}

#[tokio::test]
async fn one_event_of_shopify_comes_once_for_each_topic() {
    let world = World::new().await;
    let builder = world.builder().inbox("/webhooks/shopify", Sender::Shopify.source());
    let server = Server::start(builder.build().unwrap().router()).await;
    for answer in [OK, ALREADY] {
        for topic in ["orders/create", "orders/paid"] {
            let again = server.event(Sender::Shopify, "e1", topic).await;
            assert!(again.body.starts_with(&answer[..answer.len() - 1]), "{again:?}");
        }
    }
    let rows = world.rows().await;
    let ids: Vec<&str> = rows.iter().map(|row| &*row[1]).collect();
    assert_eq!(ids, ["orders/create/e1", "orders/paid/e1"]);
}

#[tokio::test]
async fn slack_gets_its_challenge_back_when_it_is_signed() {
    let world = World::new().await;
    let server = Server::start(inline(world.builder()).router()).await;
    let body = br#"{"type":"url_verification","challenge":"3eZbrw1a"}"#;
    let headers = Sender::Slack.headers("", "", body);
    let answer = server.post("/webhooks/slack", &headers, body).await;
    assert_eq!(answer.what(), (200, "3eZbrw1a"));
    assert!(answer.head.contains("content-type: text/plain"), "{answer:?}");
    assert_eq!(server.post("/webhooks/slack", &[], body).await.problem().0, 401);
    // Nobody else asks so.
    let headers = Sender::Stripe.headers("", "", body);
    let refused = server.post("/webhooks/stripe", &headers, body).await;
    assert_eq!(refused.problem(), (400, "id-missing"));
    assert_eq!(world.rows().await, Vec::<[String; 4]>::new());
}

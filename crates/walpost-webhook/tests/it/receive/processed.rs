//! From end to end: received, and processed behind the answer; and between two
//! systems of ours, sent and received.

use tokio::sync::oneshot;
use walpost_inbox::{OnUnknown, Processor};
use walpost_relay::Sink;
use walpost_testkit::until;
use walpost_webhook::{
    Deliveries, Secret,
    receive::{Place, Source},
    sink::{BodyForm, Subscription, Subscriptions, WebhookConnector},
};

use super::{
    handler::ByType,
    server::{ALREADY, OK, Server},
    sign::{KEY, SENDERS, Sender},
    world::World,
};
use crate::{
    sink::{event, settled},
    world::{LIMIT, World as Sending, ids, run, settings},
};

#[tokio::test(flavor = "multi_thread")]
async fn what_was_received_is_processed_once_with_its_own_event() {
    let world = World::new().await;
    let builder = SENDERS
        .iter()
        .fold(world.builder(), |builder, sender| builder.inbox(sender.path(), sender.source()));
    let server = Server::start(builder.build().unwrap().router()).await;
    let processor = Processor::builder(world.place())
        .on_unknown(OnUnknown::Ignore)
        .handler(ByType::new())
        .unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let running = tokio::spawn(async move {
        let stopped = async {
            // A test that failed has dropped the other end.
            let _ = stopped.await;
        };
        processor.run(stopped).await
    });
    for sender in SENDERS {
        for number in 0..5 {
            let id = format!("{}{number}", sender.name());
            assert_eq!(server.event(sender, &id, "emit").await.what(), (200, OK));
            // A copy at any moment of the first.
            let copy = server.event(sender, &id, "emit").await;
            assert!(copy.status == 200 && copy.body.contains("\"already_processed\":true"));
        }
    }
    assert_eq!(server.event(Sender::Standard, "other", "unknown").await.what(), (200, OK));
    let done = "select count(*) from walpost.inbox where processed_at is not null";
    until(LIMIT, "all events", async || world.number(done).await == 31).await;
    for sender in SENDERS {
        let id = format!("{}0", sender.name());
        assert_eq!(server.event(sender, &id, "emit").await.what(), (200, ALREADY), "{sender:?}");
    }
    let ignored = server.event(Sender::Standard, "other", "unknown").await;
    assert_eq!(ignored.what(), (200, ALREADY));
    stop.send(()).unwrap();
    running.await.unwrap().unwrap();
    let effects = world.effects().await;
    assert_eq!(effects.len(), 30);
    let written = "select aggregateid::text from walpost.outbox order by 1";
    let written = world.client.query(written, &[]).await.unwrap();
    let written: Vec<String> = written.iter().map(|row| row.get(0)).collect();
    let (mut effects, mut written) = (effects, written);
    effects.sort();
    written.sort();
    assert_eq!(written, effects);
}

#[tokio::test]
async fn its_own_event_commits_with_an_effect_that_is_made_inline() {
    let world = World::new().await;
    let builder = world.builder();
    let builder = builder.inline("/webhooks/standard", Sender::Standard.source(), ByType::new());
    let server = Server::start(builder.build().unwrap().router()).await;
    for answer in [OK, ALREADY] {
        assert_eq!(server.event(Sender::Standard, "a", "emit").await.what(), (200, answer));
    }
    assert_eq!(
        world.number("select count(*) from walpost.outbox where aggregateid = 'a'").await,
        1
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_one_system_sends_another_one_applies_once() {
    let (sending, world) = (Sending::new().await, World::new().await);
    let source = Source::standard("finance", [KEY.parse().unwrap()])
        .event_type(Place::fixed("apply"))
        .related_reference(Place::pointer("/id"));
    let receiver = world.builder().inline("/hook", source, ByType::new()).build().unwrap();
    let server = Server::start(receiver.router()).await;
    let mut settings = settings(&format!("http://127.0.0.1:{}/hook", server.port));
    settings.destination.signing_keys = vec![Secret::Text(KEY.to_owned())];
    let ids = ids("a", 50);
    sending.insert(&ids).await;
    let running = run(&sending, settings.clone());
    sending.until("delivered", 50).await;
    running.stop().await;
    assert_eq!(world.effects().await, ids);
    // Their answers were lost, as far as the sender knows.
    let again = "update walpost.webhook_delivery set state = 'pending', next_attempt_at = now(), \
                 finished_at = null";
    sending.past_triggers(again).await;
    let running = run(&sending, settings);
    sending.until("delivered", 50).await;
    running.stop().await;
    assert_eq!(world.effects().await, ids);
    let referred = "select count(*) from walpost.inbox where related_reference = event_id";
    assert_eq!(world.number(referred).await, 50);
}

/// Without a word of the receiver about where the type stands.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_relay_sends_in_the_standard_form_is_processed_by_its_type() {
    let (sending, world) = (Sending::new().await, World::new().await);
    let source = Source::standard("finance", [KEY.parse().unwrap()]);
    let receiver = world.builder().inbox("/hook", source).build().unwrap();
    let server = Server::start(receiver.router()).await;
    let mut settings = settings(&format!("http://127.0.0.1:{}/hook", server.port));
    settings.destination.signing_keys = vec![Secret::Text(KEY.to_owned())];
    let mut subscription = Subscription::of(&settings);
    subscription.body = BodyForm::Standard;
    let database = walpost_postgres::Database::parse(sending.database.url()).unwrap();
    let subscriptions = Subscriptions::new([subscription]).unwrap();
    let mut sink =
        WebhookConnector::new(database, Deliveries::new(), subscriptions).connect().await.unwrap();
    sink.allow(1);
    for (ticket, (id, kind)) in [("a", "apply"), ("b", "emit"), ("c", "unknown")].iter().enumerate()
    {
        let mut event = event(id, kind);
        event.timestamp_ms = Some(1_000);
        sink.try_send(ticket as u64, event).unwrap();
    }
    assert!(settled(&mut sink).await.iter().all(|delivery| delivery.result.is_ok()));
    sink.close().await;
    let running = run(&sending, settings);
    sending.until("delivered", 3).await;
    running.stop().await;
    let processor = Processor::builder(world.place())
        .on_unknown(OnUnknown::Ignore)
        .handler(ByType::new())
        .unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let running =
        tokio::spawn(
            async move { processor.run(async { stopped.await.unwrap_or_default() }).await },
        );
    let done = "select count(*) from walpost.inbox where processed_at is not null";
    until(LIMIT, "all events", async || world.number(done).await == 3).await;
    stop.send(()).unwrap();
    running.await.unwrap().unwrap();
    // Such an id is unique within its table alone, for which the topic stands.
    let key = |id: &str| format!("outbox%2Eevent%2Einvoice:{id}");
    assert_eq!(world.effects().await, [key("a"), key("b")]);
    let row =
        |id: &str, kind: &str, state: &str| ["finance", &key(id), kind, state].map(str::to_owned);
    let rows = [
        row("a", "apply", "succeeded"),
        row("b", "emit", "succeeded"),
        row("c", "unknown", "ignored"),
    ];
    assert_eq!(world.rows().await, rows);
    let written = format!("select count(*) from walpost.outbox where aggregateid = '{}'", key("b"));
    assert_eq!(world.number(&written).await, 1);
    let payload = "select count(*) from walpost.inbox where convert_from(payload, 'utf8') like \
                   '{\"type\":%,\"timestamp\":\"1970-01-01T00:00:01.000Z\",\"data\":{}}'";
    assert_eq!(world.number(payload).await, 3);
}

#[tokio::test]
async fn a_trial_is_answered_and_leaves_nothing_unless_a_handler_knows_it() {
    let world = World::new().await;
    let (standard, stripe) = (Sender::Standard, Sender::Stripe);
    let builder = world.builder().inline(standard.path(), standard.source(), ByType::new());
    let builder = builder.inbox(stripe.path(), stripe.source());
    let server = Server::start(builder.build().unwrap().router()).await;
    for _ in 0..2 {
        let answer = server.event(stripe, "t", "walpost.test").await;
        assert_eq!(answer.what(), (200, r#"{"status":"ok","stored":false}"#));
    }
    assert_eq!(world.number("select count(*) from walpost.inbox").await, 0);
    // Whoever has the type gets it: here it is one that the handler refuses.
    assert_eq!(server.event(standard, "t", "walpost.test").await.status, 500);
    world.client.batch_execute("drop schema walpost cascade").await.unwrap();
    assert_eq!(server.event(stripe, "t", "walpost.test").await.status, 503, "not without tables");
}

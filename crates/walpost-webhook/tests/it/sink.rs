//! Events of a relay as deliveries.

use std::{future::poll_fn, time::Duration};

use bytes::Bytes;
use tokio::{sync::mpsc, time::timeout};
use tokio_postgres::{AsyncMessage, NoTls};
use walpost_event::{Header, Message};
use walpost_relay::{Delivery, DeliveryErrorKind, RelayError, Sink, Unsent};
use walpost_testkit::fresh_database;
use walpost_webhook::{
    Deliveries,
    sink::{Subscription, Subscriptions, WebhookConnector, WebhookSink},
};

use crate::world::{LIMIT, World, ids};

fn subscriptions() -> Subscriptions {
    let mut invoices = Subscription::new("logistics");
    invoices.events = vec!["invoice.*".to_owned()];
    Subscriptions::new([invoices, Subscription::new("audit")]).unwrap()
}

fn connector(url: &str) -> WebhookConnector {
    connector_of(url, Deliveries::new())
}

fn connector_of(url: &str, deliveries: Deliveries) -> WebhookConnector {
    let database = walpost_postgres::Database::parse(url).unwrap();
    WebhookConnector::new(database, deliveries, subscriptions())
}

pub(crate) async fn sink(world: &World) -> WebhookSink {
    let mut sink = connector(world.database.url()).connect().await.unwrap();
    sink.allow(1);
    sink
}

pub(crate) fn event(id: &str, event_type: &str) -> Message {
    let header = |(name, value): (&str, &str)| Header {
        name: name.into(),
        value: Some(Bytes::copy_from_slice(value.as_bytes())),
    };
    Message {
        topic: "outbox.event.invoice".into(),
        partition: None,
        key: None,
        value: Some(Bytes::from_static(b"{}")),
        headers: [("id", id), ("webhook-type", event_type)].map(header).into_iter().collect(),
        timestamp_ms: None,
    }
}

/// The fate of everything that was sent.
pub(crate) async fn settled(sink: &mut WebhookSink) -> Vec<Delivery> {
    let mut deliveries = Vec::new();
    while sink.outstanding() > 0 {
        timeout(LIMIT, sink.deliveries(&mut deliveries)).await.expect("news from the sink");
    }
    deliveries.sort_by_key(|delivery| delivery.ticket);
    deliveries
}

fn kinds(deliveries: &[Delivery]) -> Vec<Option<DeliveryErrorKind>> {
    let kind = |delivery: &Delivery| delivery.result.as_ref().err().map(|error| error.kind);
    deliveries.iter().map(kind).collect()
}

const ROWS: &str =
    "select destination || ' ' || event_id from walpost.webhook_delivery order by id";

#[tokio::test]
async fn each_event_becomes_its_deliveries_in_its_order_once() {
    let world = World::new().await;
    for _ in 0..2 {
        let mut sink = sink(&world).await;
        for (ticket, (id, of)) in
            [("b", "invoice.paid"), ("a", "order.placed"), ("c", "invoice.sent")].iter().enumerate()
        {
            sink.try_send(ticket as u64, event(id, of)).unwrap();
        }
        assert_eq!(kinds(&settled(&mut sink).await), [None, None, None]);
        sink.close().await;
    }
    let rows = ["audit b", "logistics b", "audit a", "audit c", "logistics c"];
    assert_eq!(world.texts(ROWS).await, rows);
}

#[tokio::test]
async fn a_sink_tells_who_sends_unless_its_deliveries_say_otherwise() {
    let world = World::new().await;
    let url = world.database.url();
    let (client, mut connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    let (tell, mut told) = mpsc::channel(100);
    tokio::spawn(async move {
        while let Some(Ok(message)) = poll_fn(|cx| connection.poll_message(cx)).await {
            if let AsyncMessage::Notification(notification) = message {
                tell.send(notification.payload().to_owned()).await.unwrap();
            }
        }
    });
    client.batch_execute("listen walpost_webhook").await.unwrap();
    let silent = || Deliveries::new().notifies(false);
    let both: &[&str] = &["audit", "logistics"];
    for (id, connector, expected) in
        [("a", connector(url), both), ("b", connector_of(url, silent()), &[])]
    {
        let mut sink = connector.connect().await.unwrap();
        sink.allow(1);
        sink.try_send(0, event(id, "invoice.paid")).unwrap();
        assert_eq!(kinds(&settled(&mut sink).await), [None]);
        // Behind whatever it has told.
        client.execute("select pg_notify('walpost_webhook', 'end')", &[]).await.unwrap();
        let mut heard = Vec::new();
        while let Some(destination) = told.recv().await.filter(|told| told != "end") {
            heard.push(destination);
        }
        heard.sort();
        assert_eq!(heard, expected, "{id}");
    }
}

#[tokio::test]
async fn many_events_go_in_few_statements_and_none_is_lost() {
    let world = World::new().await;
    let mut sink = sink(&world).await;
    let ids = ids("e", 5_000);
    let mut deliveries = Vec::new();
    for (ticket, id) in ids.iter().enumerate() {
        let mut message = event(id, "order.placed");
        while let Err(Unsent::Full(back)) = sink.try_send(ticket as u64, message) {
            message = *back;
            timeout(LIMIT, sink.deliveries(&mut deliveries)).await.unwrap();
        }
    }
    deliveries.extend(settled(&mut sink).await);
    assert_eq!(deliveries.len(), ids.len());
    assert!(deliveries.iter().all(|delivery| delivery.result.is_ok()));
    let events = "select event_id from walpost.webhook_delivery order by id";
    assert_eq!(world.texts(events).await, ids);
    let statements = "select count(distinct xmin::text::bigint) from walpost.webhook_delivery";
    assert!(world.number(statements).await < 20);
}

#[tokio::test]
async fn there_is_room_for_so_many_bytes_and_for_one_that_is_larger() {
    let world = World::new().await;
    let mut sink = connector(world.database.url()).queue_max_bytes(1_000).connect().await.unwrap();
    let message = || event("e1", "order.placed");
    assert!(matches!(sink.try_send(0, message()), Err(Unsent::Full(_))), "no place is named");
    sink.allow(1);
    let mut large = event("large", "order.placed");
    large.value = Some(vec![b' '; 5_000].into());
    sink.try_send(0, large).unwrap();
    assert!(matches!(sink.try_send(1, message()), Err(Unsent::Full(_))));
    assert_eq!(kinds(&settled(&mut sink).await), [None]);
    sink.try_send(1, message()).unwrap();
    assert_eq!(kinds(&settled(&mut sink).await), [None]);
}

/// What the database refuses is found among the others, and nothing that was sent
/// behind it is there before it.
#[tokio::test]
async fn an_event_that_the_database_refuses_takes_none_before_it_and_all_behind_it() {
    let world = World::new().await;
    let mut sink = sink(&world).await;
    for (ticket, (id, of)) in [("a", "x"), ("b", "nul\0"), ("c", "x")].iter().enumerate() {
        sink.try_send(ticket as u64, event(id, of)).unwrap();
    }
    let rejected = Some(DeliveryErrorKind::Rejected);
    let not_sent = Some(DeliveryErrorKind::NotSent);
    assert_eq!(kinds(&settled(&mut sink).await), [None, rejected, not_sent]);
    assert_eq!(world.texts(ROWS).await, ["audit a"]);
    assert!(matches!(sink.try_send(3, event("d", "x")), Err(Unsent::Full(_))));
}

#[tokio::test]
async fn what_was_on_its_way_when_the_session_ended_is_unknown_and_comes_again() {
    let world = World::new().await;
    let mut first = sink(&world).await;
    world.client.batch_execute("begin; lock table walpost.webhook_delivery").await.unwrap();
    first.try_send(0, event("a", "x")).unwrap();
    let mut deliveries = Vec::new();
    // It is waiting for the lock; what comes meanwhile waits for it.
    let brief = Duration::from_millis(200);
    timeout(brief, first.deliveries(&mut deliveries)).await.unwrap_err();
    first.try_send(1, event("b", "x")).unwrap();
    let end = "select pg_terminate_backend(pid) from pg_stat_activity where datname = \
               current_database() and application_name = 'walpost webhooks'";
    world.client.batch_execute(end).await.unwrap();
    let unknown = Some(DeliveryErrorKind::Unknown);
    let not_sent = Some(DeliveryErrorKind::NotSent);
    assert_eq!(kinds(&settled(&mut first).await), [unknown, not_sent]);
    world.client.batch_execute("commit").await.unwrap();
    let mut second = sink(&world).await;
    for (ticket, id) in ["a", "b"].into_iter().enumerate() {
        second.try_send(ticket as u64, event(id, "x")).unwrap();
    }
    assert_eq!(kinds(&settled(&mut second).await), [None, None]);
    assert_eq!(world.texts(ROWS).await, ["audit a", "audit b"]);
}

#[tokio::test]
async fn what_nobody_takes_is_settled_and_what_is_no_delivery_is_refused() {
    let world = World::new().await;
    let mut sink = sink(&world).await;
    let mut empty = event("e", "x");
    empty.value = None;
    // What is refused again, as a retry of what is parked, is told of the same place.
    let place = sink.place_name(&empty);
    assert_ne!(place, empty.topic);
    let Err(Unsent::Never { topic, detail }) = sink.try_send(0, empty) else {
        panic!("it was taken")
    };
    assert!(topic == place && detail.contains("payload"), "{topic}: {detail}");
    let only = Subscriptions::new([{
        let mut none = Subscription::new("none");
        none.events.clear();
        none
    }]);
    let database = walpost_postgres::Database::parse(world.database.url()).unwrap();
    let connector = WebhookConnector::new(database, Deliveries::new(), only.unwrap());
    let mut sink = connector.connect().await.unwrap();
    sink.allow(1);
    sink.try_send(0, event("e", "x")).unwrap();
    assert_eq!(kinds(&settled(&mut sink).await), [None]);
    assert_eq!(world.texts(ROWS).await, [""; 0]);
}

#[tokio::test]
async fn without_the_tables_or_the_right_to_write_the_error_says_what_to_do() {
    let bare = fresh_database().await;
    let refused = connector(bare.url()).connect().await.unwrap_err();
    let RelayError::Prerequisite { problem, .. } = &refused else { panic!("{refused}") };
    assert!(problem.contains("walpost migrate --set webhook"), "{problem}");
    let world = World::new().await;
    let role = walpost_testkit::unique_name("writer");
    let create = format!("create role {role} login; grant usage on schema walpost to {role}");
    world.client.batch_execute(&create).await.unwrap();
    let url = world.database.url().replacen("postgres@", &format!("{role}@"), 1);
    let refused = connector(&url).connect().await.unwrap_err();
    let RelayError::Prerequisite { problem, .. } = &refused else { panic!("{refused}") };
    assert!(problem.contains("webhook_grant('writer'"), "{problem}");
    let grant = format!("select walpost.webhook_grant('writer', '{role}')");
    world.client.batch_execute(&grant).await.unwrap();
    connector(&url).connect().await.unwrap();
}

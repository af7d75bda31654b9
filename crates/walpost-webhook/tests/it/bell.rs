//! New deliveries wake whoever sends them.

use std::{sync::Arc, time::Duration};

use walpost_relay::Sink;
use walpost_testkit::until;
use walpost_webhook::{Bell, NewDelivery, ProcessorSettings};

use crate::{
    receiver::{Receiver, answer},
    sink::{event, settled, sink},
    world::{LIMIT, World, delivery, ids, run_woken, settings},
};

const LISTENING: &str = "select count(*) from pg_stat_activity \
                         where datname = current_database() and query like '%listen _walpost%' \
                         and pid <> pg_backend_pid()";

/// Looks once an hour by itself.
fn drowsy(receiver: &Receiver) -> ProcessorSettings {
    let mut drowsy = settings(&receiver.url("127.0.0.1"));
    drowsy.pace.poll = Duration::from_secs(3_600);
    drowsy
}

fn bell(world: &World) -> Arc<Bell> {
    Arc::new(Bell::new(walpost_postgres::Database::parse(world.database.url()).unwrap()))
}

/// Has it ring until the test ends.
async fn ring(world: &World, bell: &Arc<Bell>) {
    let listening = Arc::clone(bell);
    tokio::spawn(async move { listening.run(std::future::pending()).await });
    until(LIMIT, "a session that listens", async || world.number(LISTENING).await == 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_delivery_wakes_its_sender_and_no_other_one() {
    let world = World::new().await;
    let receiver = Receiver::answering(answer("200 OK", "", "")).await;
    let bell = bell(&world);
    let other = ProcessorSettings { name: "other".to_owned(), ..drowsy(&receiver) };
    let running = [run_woken(&world, &bell, drowsy(&receiver)), run_woken(&world, &bell, other)];
    let registered = "select count(*) from walpost.webhook_destination";
    until(LIMIT, "both", async || world.number(registered).await == 2).await;
    for _ in 0..2 {
        // Their first look may be behind it.
        world.asked_by("with place", 2).await;
    }
    let of_other = |id| NewDelivery { destination: "other".to_owned(), ..delivery(id) };
    // What came before it rang both look for once, and behind that nobody wakes all.
    let before = [delivery("before"), of_other("before")];
    world.deliveries.insert(&world.client, &before).await.unwrap();
    ring(&world, &bell).await;
    world.until("delivered", 2).await;
    // Without a notification, for an hour.
    world.deliveries.insert(&world.client, &[of_other("silent")]).await.unwrap();
    // Those of the relay's sink, and of an application that wants it.
    let mut sink = sink(&world).await;
    sink.try_send(0, event("a", "invoice.paid")).unwrap();
    settled(&mut sink).await;
    world.until("delivered", 3).await;
    let telling = world.deliveries.clone().notifies(true);
    let ordered = NewDelivery { order_key: Some("k".to_owned()), ..delivery("c") };
    for one in [delivery("b"), ordered] {
        assert_eq!(telling.insert(&world.client, std::slice::from_ref(&one)).await.unwrap(), 1);
        assert_eq!(telling.insert(&world.client, &[one]).await.unwrap(), 0);
    }
    world.until("delivered", 5).await;
    assert_eq!(world.row("silent").await.0, "pending");
    for each in running {
        each.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_session_is_opened_again_and_what_came_meanwhile_is_found() {
    let world = World::new().await;
    let receiver = Receiver::answering(answer("200 OK", "", "")).await;
    let bell = bell(&world);
    ring(&world, &bell).await;
    let running = run_woken(&world, &bell, drowsy(&receiver));
    let registered = "select count(*) from walpost.webhook_destination";
    until(LIMIT, "its row", async || world.number(registered).await == 1).await;
    let telling = world.deliveries.clone().notifies(true);
    for (number, id) in ids("a", 5).iter().enumerate() {
        let end = "select pg_terminate_backend(pid) from pg_stat_activity \
                   where datname = current_database() and query like '%listen _walpost%' \
                   and pid <> pg_backend_pid()";
        world.client.query(end, &[]).await.unwrap();
        telling.insert(&world.client, &[delivery(id)]).await.unwrap();
        world.until("delivered", number as i64 + 1).await;
    }
    running.stop().await;
}

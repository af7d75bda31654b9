//! Each kind of role can do its work, and nothing else.

use tokio::time::timeout;
use walpost_testkit::unique_name;
use walpost_webhook::Order;

use crate::{
    order::{in_order, of_key},
    order_races::SOON,
    receiver::{Receiver, answer},
    world::{LIMIT, World, delivery, ids, run, run_as, settings},
};

/// The same database as another role.
pub(crate) async fn as_role(world: &World, kind: &str) -> World {
    let role = unique_name("role");
    let sql = format!("create role {role} login; select walpost.webhook_grant('{kind}', '{role}')");
    world.client.batch_execute(&sql).await.unwrap();
    let client = world.database.connect().await;
    client.batch_execute(&format!("set role {role}")).await.unwrap();
    World { database: world.database.clone(), client, deliveries: world.deliveries.clone() }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_kind_can_do_its_work() {
    let world = World::new().await;
    let receiver = Receiver::answering(answer("500 Oops", "", "answer")).await;
    let writer = as_role(&world, "writer").await;
    writer.insert(&ids("a", 3)).await;
    let running = run(&world, settings(&receiver.url("127.0.0.1")));
    world.until("failed", 3).await;
    running.stop().await;
    let reader = as_role(&world, "reader").await;
    let seen = "select d.event_id || a.outcome from walpost.webhook_delivery d \
                join walpost.webhook_attempt a on a.delivery = d.id where d.event_id = 'a000'";
    assert_eq!(reader.texts(seen).await, ["a000http_5xx"; 3]);
    let operator = as_role(&world, "operator").await;
    let id = operator.number("select min(id) from walpost.webhook_delivery").await;
    assert_eq!(operator.deliveries.retry(&operator.client, &[id]).await.unwrap().done, [id]);
    operator.deliveries.disable(&operator.client, "other", "a reason").await.unwrap();
    operator.deliveries.enable(&operator.client, "other").await.unwrap();
    operator.deliveries.release(&operator.client, "other", 1).await.unwrap();
    let pruner = as_role(&world, "pruner").await;
    let pruned = "delete from walpost.webhook_delivery where state = 'failed'";
    assert_eq!(pruner.client.execute(pruned, &[]).await.unwrap(), 2);
    assert_eq!(world.number("select count(*) from walpost.webhook_attempt").await, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_and_answers_are_for_those_who_send_them() {
    let world = World::new().await;
    world.insert(&ids("a", 1)).await;
    for kind in ["reader", "writer", "operator", "pruner"] {
        let role = as_role(&world, kind).await;
        for secret in [
            "select body from walpost.webhook_delivery",
            "select response from walpost.webhook_attempt",
        ] {
            let refused = role.client.query(secret, &[]).await.unwrap_err();
            assert_eq!(refused.code().unwrap().code(), "42501", "{kind} {secret}");
        }
    }
    let reader = as_role(&world, "reader").await;
    let refused = reader.deliveries.insert(&reader.client, &[delivery("b")]).await.unwrap_err();
    assert!(refused.to_string().contains("webhook_grant('writer', '<role>')"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sender_by_its_grants_sends_in_order() {
    for order in [Order::Key, Order::All] {
        let world = World::new().await;
        let receiver = Receiver::answering(answer("200 OK", "", "")).await;
        let role = unique_name("role");
        let sql = format!(
            "create role {role} login; select walpost.webhook_grant('writer', '{role}'); \
             select walpost.webhook_grant('sender', '{role}')"
        );
        world.client.batch_execute(&sql).await.unwrap();
        assert_eq!(world.deliveries.insert(&world.client, &[of_key("k0:000")]).await.unwrap(), 1);
        let running = run_as(&world, &role, in_order(order, &receiver.url("127.0.0.1")));
        let done = timeout(SOON, world.until("delivered", 1)).await;
        if done.is_err() {
            panic!("{order:?}: {:?}", timeout(LIMIT, running.error()).await);
        }
        running.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_claimed_and_cannot_be_read_is_given_back() {
    let world = World::new().await;
    let receiver = Receiver::answering(answer("200 OK", "", "")).await;
    let role = unique_name("role");
    let sql = format!(
        "create role {role} login; select walpost.webhook_grant('sender', '{role}'); \
         revoke select on walpost.webhook_delivery from {role}; \
         select walpost.webhook_grant('operator', '{role}')"
    );
    world.client.batch_execute(&sql).await.unwrap();
    world.deliveries.insert(&world.client, &[of_key("k0:000")]).await.unwrap();
    let running = run_as(&world, &role, in_order(Order::All, &receiver.url("127.0.0.1")));
    let refused = running.error().await;
    assert!(refused.to_string().contains("reading deliveries"), "{refused}");
    assert_eq!(world.row("k0:000").await, ("pending".to_owned(), 0, None));
    let fence = "select fence from walpost.webhook_delivery";
    assert_eq!(world.number(fence).await, 1, "it was claimed");
    assert!(receiver.requests().is_empty());
}

//! What an operator sees and decides.

use std::{sync::Arc, time::Duration};

use tokio::sync::Semaphore;
use walpost_webhook::{
    DeliveryEntry, DeliveryFilter, DeliveryState, DestinationBacklog, DestinationState,
    NewDelivery, Order, ProcessorSettings, Settlement, StoreError,
};

use crate::{
    grants::as_role,
    order::of_keys,
    receiver::{Receiver, answer},
    world::{NAME, World, delivery, ids, run, settings, sorted_keys},
};

/// Puts the delivery of an event into `state` past all triggers, as if an attempt
/// had brought it there.
pub(crate) async fn plant(world: &World, event_id: &str, state: DeliveryState) {
    let columns = match state {
        DeliveryState::Pending => "next_attempt_at = now() + interval '1 h', lease_until = null",
        DeliveryState::Sending => "next_attempt_at = null, lease_until = now() + interval '1 h'",
        DeliveryState::Delivered | DeliveryState::Failed => {
            "next_attempt_at = null, finished_at = now()"
        }
        DeliveryState::Held | DeliveryState::Unknown => "next_attempt_at = null",
    };
    let sql = format!(
        "update walpost.webhook_delivery set state = '{state}', attempts = 1, fence = 1, \
         outcome = 'broken', {columns} where event_id = '{event_id}'; \
         insert into walpost.webhook_attempt (delivery, number, outcome, elapsed_ms) \
         select id, 1, 'broken', 7 from walpost.webhook_delivery where event_id = '{event_id}' \
         and state <> 'sending'"
    );
    world.past_triggers(&sql).await;
}

async fn id(world: &World, event_id: &str) -> i64 {
    let sql = format!("select id from walpost.webhook_delivery where event_id = '{event_id}'");
    world.number(&sql).await
}

fn events(entries: &[DeliveryEntry]) -> Vec<&str> {
    entries.iter().map(|entry| &*entry.event_id).collect()
}

async fn backlog(world: &World, name: &str) -> DestinationBacklog {
    world.deliveries.destination(&world.client, name).await.unwrap().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_destination_says_what_waits_for_it_and_why() {
    let world = World::new().await;
    assert_eq!(world.deliveries.destinations(&world.client).await.unwrap(), []);
    let names = DeliveryState::ALL.map(DeliveryState::as_str);
    world.insert(&names.map(str::to_owned)).await;
    world.insert(&ids("waits", 2)).await;
    let stranger = NewDelivery { destination: "billing".to_owned(), ..delivery("pending") };
    let mut later = NewDelivery { destination: "billing".to_owned(), ..delivery("later") };
    later.not_before = Some(std::time::SystemTime::now() + Duration::from_secs(3_600));
    world.deliveries.insert(&world.client, &[later]).await.unwrap();
    for state in DeliveryState::ALL {
        plant(&world, state.as_str(), state).await;
    }
    world.deliveries.insert(&world.client, &[stranger]).await.unwrap();
    let older = "update walpost.webhook_delivery set created_at = now() - interval '400 s' \
                 where event_id = 'pending' and attempts = 1; \
                 update walpost.webhook_delivery set next_attempt_at = now() - interval '90 s' \
                 where event_id = 'waits001'; \
                 update walpost.webhook_attempt set outcome = 'http_5xx', status = 503, \
                 ended_at = now() + interval '1 s' where delivery = (select id from \
                 walpost.webhook_delivery where event_id = 'failed')";
    world.past_triggers(older).await;
    world.deliveries.disable(&world.client, NAME, "moves house").await.unwrap();

    let all = world.deliveries.destinations(&world.client).await.unwrap();
    let [billing, logistics] = &all[..] else { panic!("{all:?}") };
    let one = &logistics.backlog;
    assert_eq!((&*one.destination, one.state), (NAME, DestinationState::Disabled));
    assert_eq!(one.reason.as_deref(), Some("moves house"));
    assert_eq!((one.pending, one.sending, one.failed, one.held, one.unknown), (3, 1, 1, 1, 1));
    assert_eq!(logistics.delivered_day, 1);
    let oldest_s = one.oldest_pending.as_secs();
    assert!((400..460).contains(&oldest_s), "since it was created: {oldest_s}");
    let error = logistics.last_error.as_ref().unwrap();
    assert_eq!((&*error.outcome, error.status), ("http_5xx", Some(503)));

    let one = &billing.backlog;
    assert_eq!((&*one.destination, one.state), ("billing", DestinationState::New));
    assert_eq!((one.pending, one.failed), (2, 0));
    assert!(one.oldest_pending < Duration::from_secs(60), "one of them is not due yet");
    assert_eq!(billing.last_error, None);
    let gone = "delete from walpost.webhook_delivery where event_id in ('pending', 'failed')";
    world.past_triggers(gone).await;
    let one = backlog(&world, NAME).await;
    let oldest_s = one.oldest_pending.as_secs();
    assert!((90..150).contains(&oldest_s), "since its first attempt was due: {oldest_s}");
    assert_eq!(world.deliveries.destination(&world.client, "nobody").await.unwrap(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn deliveries_are_listed_by_state_destination_and_event() {
    let world = World::new().await;
    let names = DeliveryState::ALL.map(DeliveryState::as_str);
    world.insert(&names.map(str::to_owned)).await;
    let other = NewDelivery { destination: "billing".to_owned(), ..delivery("unknown") };
    world.deliveries.insert(&world.client, &[other]).await.unwrap();
    for state in DeliveryState::ALL {
        plant(&world, state.as_str(), state).await;
    }
    let list =
        async |filter: DeliveryFilter| world.deliveries.list(&world.client, &filter).await.unwrap();
    let all = list(DeliveryFilter::new(100)).await;
    // Rows of one insert are in the order of their events.
    assert_eq!(events(&all)[..6], ["delivered", "failed", "held", "pending", "sending", "unknown"]);
    let open = list(DeliveryFilter::new(100).states(DeliveryState::OPEN)).await;
    assert_eq!(open.len(), 6);
    assert!(open.iter().all(|entry| entry.state != DeliveryState::Delivered));
    assert_eq!(events(&list(DeliveryFilter::new(2)).await), ["delivered", "failed"]);
    for state in DeliveryState::ALL {
        let found = list(DeliveryFilter::new(100).states([state]).destination(NAME)).await;
        assert_eq!(events(&found), [state.as_str()]);
        assert_eq!(found[0].state, state);
    }
    let newest = list(DeliveryFilter::new(2).newest()).await;
    assert_eq!(newest.iter().map(|one| &*one.destination).collect::<Vec<_>>(), ["billing", NAME]);
    assert!(newest[0].id > newest[1].id);
    let newest = list(DeliveryFilter::new(1).newest().event_id("unknown")).await;
    assert_eq!(&*newest[0].destination, "billing");
    let of_event = list(DeliveryFilter::new(100).event_id("unknown")).await;
    let places: Vec<&str> = of_event.iter().map(|entry| &*entry.destination).collect();
    assert_eq!(places, [NAME, "billing"]);
    let filter = DeliveryFilter::new(100).event_id("unknown").states([DeliveryState::Failed]);
    assert_eq!(list(filter).await, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delivery_is_shown_with_its_attempts_and_what_is_sent_only_to_senders() {
    let world = World::new().await;
    let receiver = Receiver::answering(answer("500 Oops", "", "no such table")).await;
    world.insert(&ids("a", 1)).await;
    let running = run(&world, settings(&receiver.url("127.0.0.1")));
    world.until("failed", 1).await;
    running.stop().await;
    let id = id(&world, "a000").await;
    let reader = as_role(&world, "reader").await;
    let shown = reader.deliveries.show(&reader.client, id).await.unwrap().unwrap();
    assert_eq!((shown.state, shown.attempts, shown.claims), (DeliveryState::Failed, 3, 3));
    assert_eq!((shown.outcome.as_deref(), shown.status), (Some("http_5xx"), Some(500)));
    let attempts = reader.deliveries.attempts(&reader.client, &shown).await.unwrap();
    let told: Vec<_> = attempts.iter().map(|one| (one.number, one.status)).collect();
    assert_eq!(told, [(1, Some(500)), (2, Some(500)), (3, Some(500))]);
    assert!(attempts.is_sorted_by_key(|one| one.ended_at));
    let refused = reader.deliveries.contents(&reader.client, id, 99).await.unwrap_err();
    assert!(refused.to_string().contains("webhook_grant('sender', '<role>')"), "{refused}");

    let sender = as_role(&world, "sender").await;
    let contents = sender.deliveries.contents(&sender.client, id, 5).await.unwrap();
    assert_eq!(contents.body.as_deref(), Some(&b"{\"id\""[..]));
    assert_eq!(contents.response.as_deref(), Some(&b"no su"[..]));
    assert!(!format!("{contents:?}").contains("no su"));
    assert_eq!(world.deliveries.show(&world.client, 99).await.unwrap(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_has_looked_says_what_became_of_an_unknown_one() {
    let world = World::new().await;
    let names = DeliveryState::ALL.map(DeliveryState::as_str);
    world.insert(&names.map(str::to_owned)).await;
    world.insert(&ids("u", 1)).await;
    for state in DeliveryState::ALL {
        plant(&world, state.as_str(), state).await;
    }
    plant(&world, "u000", DeliveryState::Unknown).await;
    let operator = as_role(&world, "operator").await;
    let settle = async |event_id: &str, settlement| {
        let id = id(&world, event_id).await;
        let decided = operator.deliveries.settle(&operator.client, &[id], settlement).await;
        let decided = decided.unwrap();
        (decided.done == [id], decided.left.first().and_then(|(_, state)| *state))
    };
    for state in [DeliveryState::Sending, DeliveryState::Delivered] {
        for settlement in [Settlement::Delivered, Settlement::Failed] {
            assert_eq!(settle(state.as_str(), settlement).await, (false, Some(state)));
        }
    }
    let pending = (false, Some(DeliveryState::Pending));
    assert_eq!(settle("pending", Settlement::Delivered).await, pending);
    assert_eq!(settle("pending", Settlement::Failed).await, (true, None));
    // It has failed already: somebody gives it up, once.
    let failed = (false, Some(DeliveryState::Failed));
    assert_eq!(settle("failed", Settlement::Delivered).await, failed);
    assert_eq!(settle("failed", Settlement::Failed).await, (true, None));
    assert_eq!(settle("failed", Settlement::Failed).await, failed);
    let held = (false, Some(DeliveryState::Held));
    assert_eq!(settle("held", Settlement::Delivered).await, held);
    assert_eq!(settle("held", Settlement::Failed).await, (true, None));
    assert_eq!(settle("unknown", Settlement::Delivered).await, (true, None));
    assert_eq!(settle("u000", Settlement::Failed).await, (true, None));
    let settled = Some("settled".to_owned());
    assert_eq!(world.row("unknown").await, ("delivered".to_owned(), 1, settled.clone()));
    assert_eq!(world.row("u000").await, ("failed".to_owned(), 1, settled.clone()));
    assert_eq!(world.row("held").await, ("failed".to_owned(), 1, settled.clone()));
    assert_eq!(world.row("pending").await, ("failed".to_owned(), 1, settled));
    let unknown = id(&world, "unknown").await;
    let shown = operator.deliveries.show(&operator.client, unknown).await.unwrap().unwrap();
    assert!(shown.finished_at.is_some());
    let attempts = operator.deliveries.attempts(&operator.client, &shown).await.unwrap();
    assert_eq!(attempts[0].outcome, "broken", "what was known stays");
    let none = operator.deliveries.settle(&operator.client, &[99], Settlement::Failed).await;
    assert_eq!(none.unwrap().left, [(99, None)]);

    let reader = as_role(&world, "reader").await;
    let refused = reader.deliveries.settle(&reader.client, &[unknown], Settlement::Failed).await;
    assert!(matches!(refused, Err(StoreError::Denied { kind: "operator", .. })), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_gives_up_what_is_pending_crosses_no_claim() {
    for order in [Order::None, Order::Key, Order::All] {
        let world = World::new().await;
        let gate = Arc::new(Semaphore::new(0));
        let receiver = Receiver::gated(answer("200 OK", "", ""), &gate).await;
        // The destination says its order before the first one is created.
        let sending = ProcessorSettings { order, ..settings(&receiver.url("127.0.0.1")) };
        run(&world, sending.clone()).stop().await;
        let new: Vec<NewDelivery> = of_keys(20, 5);
        world.deliveries.insert(&world.client, &new).await.unwrap();
        let all = "select id::text from walpost.webhook_delivery order by id desc";
        let all: Vec<i64> = world.texts(all).await.iter().map(|id| id.parse().unwrap()).collect();
        let running: Vec<_> = (0..2).map(|_| run(&world, sending.clone())).collect();
        let mut given_up = 0;
        // From the end on, while they come from the beginning. Until one is given up none
        // arrives, so that they do not claim all of them before that.
        for some in all.chunks(3) {
            let decided = world.deliveries.settle(&world.client, some, Settlement::Failed).await;
            let done = decided.unwrap().done.len();
            if given_up == 0 && done > 0 {
                gate.add_permits(1_000);
            }
            given_up += done;
        }
        world.until("pending", 0).await;
        world.until("sending", 0).await;
        for each in running {
            each.stop().await;
        }
        let delivered =
            "select event_id from walpost.webhook_delivery where state = 'delivered' order by 1";
        assert_eq!(sorted_keys(&receiver), world.texts(delivered).await, "{order:?}");
        let failed = "select count(*) from walpost.webhook_delivery where state = 'failed' \
                      and outcome = 'settled'";
        assert_eq!(world.number(failed).await, given_up as i64, "{order:?}");
        assert!(given_up > 0, "{order:?}");
    }
}

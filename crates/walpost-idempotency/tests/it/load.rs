//! A thousand requests at once, ten for each of a hundred keys.

use std::collections::HashMap;

use axum::{Router, body::Bytes};
use walpost_idempotency::{InFlight, Policy};

use crate::{
    call::{Answer, post},
    handler::{Gate, layer, router},
    support::{LIMIT, World},
};

const KEYS: usize = 100;
const REQUESTS: usize = 1_000;

struct Load {
    world: World,
    router: Router,
}

impl Load {
    async fn new(in_flight: InFlight) -> Self {
        let world = World::new().await;
        let policy =
            Policy::new("load").in_flight(in_flight).wait_max(LIMIT).handler_timeout(LIMIT);
        let router = router(&layer(world.pool(), policy), &Gate::new());
        Self { world, router }
    }

    /// All requests at once, each with its key.
    async fn run(&self) -> Vec<(String, Answer)> {
        let requests = (0..REQUESTS).map(|number| {
            let (router, key) = (self.router.clone(), format!("key {}", number % KEYS));
            tokio::spawn(async move {
                let (quoted, body) = (format!("\"{key}\""), format!("event {key}"));
                let answer = post(&router, "alice", &quoted, &body).await;
                (key, answer)
            })
        });
        let mut answers = Vec::new();
        for request in requests.collect::<Vec<_>>() {
            answers.push(request.await.unwrap());
        }
        answers
    }

    /// Each key has one effect and one event.
    async fn is_exact(&self) {
        let mut expected: Vec<String> = (0..KEYS).map(|key| format!("event key {key}")).collect();
        expected.sort();
        assert_eq!(self.world.effects().await, expected);
        let events = self.world.number("select count(*) from walpost.outbox").await;
        assert_eq!(events, KEYS as i64);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_of_1000_requests_that_wait_gets_the_answer_of_its_key() {
    let load = Load::new(InFlight::Wait).await;
    let mut answers: HashMap<String, (u16, Bytes)> = HashMap::new();
    for (key, answer) in load.run().await {
        assert_eq!(answer.status.as_u16(), 201, "{answer:?}");
        assert_eq!(*answers.entry(key).or_insert_with(|| answer.what()), answer.what());
    }
    assert_eq!(answers.len(), KEYS);
    load.is_exact().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_of_1000_requests_is_answered_or_gets_409_and_its_answer_on_retry() {
    let load = Load::new(InFlight::Conflict).await;
    let mut answers: HashMap<String, (u16, Bytes)> = HashMap::new();
    let mut conflicts = Vec::new();
    for (key, answer) in load.run().await {
        match answer.status.as_u16() {
            201 => assert_eq!(*answers.entry(key).or_insert_with(|| answer.what()), answer.what()),
            409 => {
                assert_eq!(&*answer.problem(), "in-flight");
                assert!(answer.header("retry-after").is_some_and(|text| text == "1"));
                conflicts.push(key);
            }
            _ => panic!("{answer:?}"),
        }
    }
    assert_eq!(answers.len(), KEYS, "the first request of a key meets no twin");
    for key in conflicts {
        let again =
            post(&load.router, "alice", &format!("\"{key}\""), &format!("event {key}")).await;
        assert_eq!(again.what(), answers[&key]);
    }
    load.is_exact().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_key_under_two_users_at_once_is_two_requests() {
    let load = Load::new(InFlight::Conflict).await;
    let both = ["alice", "bob"].map(|user| {
        let router = load.router.clone();
        tokio::spawn(async move { post(&router, user, "k", &format!("event {user}")).await })
    });
    for answer in both {
        assert_eq!(answer.await.unwrap().status.as_u16(), 201);
    }
    assert_eq!(load.world.effects().await, ["event alice", "event bob"]);
}

//! What the layer costs: counted in round trips, by a way that is slow.

use std::time::{Duration, Instant};

use axum::Router;
use tokio_postgres::types::Type;
use walpost_idempotency::Policy;
use walpost_testkit::Direction;

use crate::{
    call::post as call,
    handler::{Gate, layer, router},
    outage::Rig,
};

/// How long a request takes to get to the server.
const WAY: Duration = Duration::from_millis(400);

/// The shortest time of three.
async fn shortest(router: &Router, prefix: &str) -> Duration {
    let mut shortest = Duration::MAX;
    for turn in 0..3 {
        let begun = Instant::now();
        let answer = call(router, "alice", &format!("{prefix}-{turn}"), "apply").await;
        assert_eq!(answer.status.as_u16(), 201);
        shortest = shortest.min(begun.elapsed());
    }
    shortest
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_request_costs_one_round_trip_more_than_its_handler_alone() {
    let rig = Rig::new().await;
    let mut client = rig.connect().await;
    let layered = router(&layer(rig.pool.clone(), Policy::new("cost")), &Gate::new());
    // Connected and warm.
    let _ = call(&layered, "alice", "warm", "apply").await;
    rig.proxy.delay(Direction::ToTarget, WAY);
    let sql = "insert into effect (name) values ($1) returning number";
    let mut bare = Duration::MAX;
    for _ in 0..3 {
        let begun = Instant::now();
        let tx = client.transaction().await.unwrap();
        // Unprepared, so that nothing is sent beside what is waited for.
        let _: i64 = tx.query_typed_one(sql, &[(&"apply", Type::TEXT)]).await.unwrap().get(0);
        tx.commit().await.unwrap();
        bare = bare.min(begun.elapsed());
    }
    let with_layer = shortest(&layered, "new").await;
    let more = with_layer.saturating_sub(bare);
    assert!(bare > WAY * 3, "the way is slow: {bare:?}");
    assert!(more > WAY / 2 && more < WAY * 3 / 2, "{with_layer:?} after {bare:?}");
}

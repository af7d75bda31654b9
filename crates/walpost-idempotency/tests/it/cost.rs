//! What the layer costs: counted in round trips, by a way that is slow.

use std::time::{Duration, Instant};

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

/// Asserts that it costs so many ways. None can take less than these; whatever
/// stalls makes one take more, so the shortest of some counts.
async fn costs(ways: u32, mut attempt: impl AsyncFnMut(u32)) {
    for turn in 0..20 {
        let begun = Instant::now();
        attempt(turn).await;
        let elapsed = begun.elapsed();
        assert!(elapsed >= WAY * ways, "{elapsed:?} for {ways} ways");
        if elapsed < WAY * (ways + 1) {
            return;
        }
    }
    panic!("each time it took more than {ways} ways");
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
    costs(3, async |_| {
        let tx = client.transaction().await.unwrap();
        // Unprepared, so that nothing is sent beside what is waited for.
        let _: i64 = tx.query_typed_one(sql, &[(&"apply", Type::TEXT)]).await.unwrap().get(0);
        tx.commit().await.unwrap();
    })
    .await;
    costs(4, async |turn| {
        let answer = call(&layered, "alice", &format!("new-{turn}"), "apply").await;
        assert_eq!(answer.status.as_u16(), 201);
    })
    .await;
}

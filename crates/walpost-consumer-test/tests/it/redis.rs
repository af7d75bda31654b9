//! Keys in Redis as the guard, which all databases of a test share.

use std::time::Duration;

use walpost_consumer::{Builder, Guard, OnReset, Park, RedisGuard};
use walpost_consumer_test::{Step, Way};
use walpost_testkit::local::Redis;

use crate::support::{Counting, event, events, test};

#[tokio::test]
#[ignore = "deep: needs Redis"]
async fn no_run_knows_the_keys_of_another() {
    let redis = Redis::start_new().unwrap();
    let url = redis.url();
    let guarded = move |builder: Builder| {
        let month = Duration::from_secs(30 * 86_400);
        let guard = Guard::best_effort_redis(RedisGuard::new(&url, month));
        builder.guard(guard).on_reset(OnReset::Fill).park(Park::Event)
    };
    let test = test(|_| Counting).await.consumer(guarded);
    let ways = [Way::AllAgain, Way::OtherPartition, Way::Crash(Step::BeforeCommit)];
    let ways = test.ways(&ways, &events(&["1", "2"])).await.unwrap();
    ways.assert_same();
    assert_eq!(ways.undisturbed.applied, 2);
    assert!(ways.runs.iter().all(|run| run.report.applied == 2), "{ways}");
    test.deliver(&[event("1", 0)]).await.unwrap().assert_applied(1);
    test.deliver(&[event("1", 0)]).await.unwrap().assert_applied(0).assert_duplicates(1);
    // Rows are the guard of a run without one, and know nothing either.
    let repetition = test.without_guard().twice(&[event("1", 0)]).await.unwrap();
    assert_eq!(repetition.changes[0].counts(), (0, 1, 0), "{repetition}");
}

//! No more is sent than a rate lets.

use std::time::{Duration, Instant};

use walpost_webhook::Rate;

use crate::{
    receiver::{Receiver, answer},
    world::{World, ids, run, settings, sorted_keys},
};

#[tokio::test(flavor = "multi_thread")]
async fn no_more_is_sent_than_burst_and_rate_give() {
    let world = World::new().await;
    let receiver = Receiver::answering(answer("200 OK", "", "")).await;
    let ids = ids("a", 45);
    world.insert(&ids).await;
    let mut settings = settings(&receiver.url("127.0.0.1"));
    settings.rate = Some(Rate { per_second: 20.0, burst: 5 });
    let begun = Instant::now();
    let running = run(&world, settings);
    let mut last = 0;
    while last < ids.len() {
        // Never less than what has come by now.
        let came = receiver.requests().len();
        let most = 5.0 + begun.elapsed().as_secs_f64() * 20.0;
        assert!(came as f64 <= most, "{came} after {:?}", begun.elapsed());
        last = came;
        world.number("select 1::int8").await;
    }
    // Neither is it much less: 40 tokens are 2 s.
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    world.until("delivered", 45).await;
    running.stop().await;
    assert_eq!(sorted_keys(&receiver), ids);
}

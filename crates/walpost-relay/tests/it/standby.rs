use walpost_relay::Phase;

use crate::rig::{Rig, phase, stop};

#[tokio::test]
async fn a_second_relay_stands_by_and_takes_over() {
    let rig = Rig::new().await;
    let first = rig.streaming().await;
    let second = rig.start();
    phase(&second, &Phase::Standby).await;
    rig.insert("a", &["1"]).await;
    rig.landed(1).await;
    stop(first).await;
    phase(&second, &Phase::Streaming).await;
    rig.insert("a", &["2"]).await;
    assert_eq!(rig.landed(2).await, ["1", "2"]);
    assert_eq!(second.status().borrow().failed_sessions, 0);
    stop(second).await;
}

//! Records that their leader has and its replicas have not.

use std::time::Duration;

use tokio::time::timeout;
use walpost_relay::{POSITION_HEADER, Sink};
use walpost_testkit::{create_replicated_topic, local::Kafka};

use crate::{
    read_back::{floors, positions, try_read_back, with},
    rig::{Driver, LIMIT, connector, message},
};

const SETTLE: Duration = Duration::from_millis(500);
/// Long enough to read a few records back, were that enough, and far from where
/// the frozen replica is counted out.
const TOO_EARLY: Duration = Duration::from_secs(5);

#[tokio::test]
async fn what_no_replica_has_taken_yet_is_waited_for_and_read_back() {
    let first = Kafka::builder().property("broker.session.timeout.ms", "30000").start().unwrap();
    let second = Kafka::builder().joining(&first, 2).start().unwrap();
    let bootstrap = first.bootstrap();
    create_replicated_topic(&bootstrap, "replicated", 1, &[1, 2], &[]).await;
    let mut predecessor = Driver::connect(&connector(&bootstrap, &[])).await;
    for n in 0..2 {
        if n == 1 {
            second.pause().unwrap();
        }
        let position = format!("p{n}");
        let sent = with(message("replicated", "a", "v"), &[(POSITION_HEADER, &position)]);
        predecessor.send(sent).await.unwrap();
        if n == 0 {
            predecessor.settle().await;
        }
    }
    let id = predecessor.sink.places()[0].topic_id.clone();
    let reading =
        try_read_back(&bootstrap, vec![floors("replicated", id.as_ref(), &[0])], Some(SETTLE));
    tokio::pin!(reading);
    assert!(timeout(TOO_EARLY, &mut reading).await.is_err(), "read back without the last record");
    assert_eq!(predecessor.sink.outstanding(), 1, "nobody has acknowledged it");
    second.resume().unwrap();
    let (sink, told) = timeout(LIMIT, reading).await.expect("the replica has it").unwrap();
    assert_eq!(positions(&told), ["p0", "p1"]);
    drop(sink);
    predecessor.settle().await;
    assert_eq!(predecessor.failures(), 0);
}

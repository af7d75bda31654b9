//! Records that their leader has and its replicas have not.

use std::{fs, time::Duration};

use tokio::time::timeout;
use walpost_relay::{POSITION_HEADER, Sink};
use walpost_testkit::{create_replicated_topic, local::Kafka, until};

use crate::{
    read_back::{floors, positions, try_read_back, with},
    rig::{Driver, LIMIT, connector, message},
};

const SETTLE: Duration = Duration::from_millis(500);
/// Long enough to read a few records back, were that enough, and far from where
/// the frozen replica is counted out.
const TOO_EARLY: Duration = Duration::from_secs(5);

#[tokio::test]
#[ignore = "deep: two brokers of its own"]
async fn what_no_replica_has_taken_yet_is_waited_for_and_read_back() {
    let home = tempfile::tempdir().unwrap();
    let first = Kafka::builder().home(home.path().join("kafka"));
    let first = first.property("broker.session.timeout.ms", "30000").start().unwrap();
    let second = Kafka::builder().joining(&first, 2).start().unwrap();
    let bootstrap = first.bootstrap();
    create_replicated_topic(&bootstrap, "replicated", 1, &[1, 2], &[]).await;
    let log = home.path().join("kafka/data/replicated-0/00000000000000000000.log");
    let log_bytes = || fs::metadata(&log).unwrap().len();
    let mut predecessor = Driver::connect(&connector(&bootstrap, &[])).await;
    let mut replicated_bytes = 0;
    for n in 0..2 {
        if n == 1 {
            replicated_bytes = log_bytes();
            second.pause().unwrap();
        }
        let position = format!("p{n}");
        let sent = with(message("replicated", "a", "v"), &[(POSITION_HEADER, &position)]);
        predecessor.send(sent).await.unwrap();
        if n == 0 {
            predecessor.settle().await;
        }
    }
    until(LIMIT, "the last record at the leader", async || log_bytes() > replicated_bytes).await;
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

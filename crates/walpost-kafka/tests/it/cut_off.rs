//! A broker that is cut off from its controller goes on answering by what it knew.

use std::{net::SocketAddr, time::Duration};

use rdkafka::{ClientConfig, admin::AdminClient, client::DefaultClientContext};
use walpost_relay::{POSITION_HEADER, Sink};
use walpost_testkit::{
    Proxy, Target, create_replicated_topic,
    local::{Kafka, free_port},
    until,
};

use crate::{
    read_back::{floors, positions, try_read_back, with},
    rig::{Driver, LIMIT, connector, message},
};

const ASK: Duration = Duration::from_secs(10);

/// Brokers that this one names.
fn named(broker: &Kafka) -> Vec<i32> {
    let mut config = ClientConfig::new();
    let client: AdminClient<DefaultClientContext> =
        config.set("bootstrap.servers", broker.bootstrap()).create().unwrap();
    let Ok(metadata) = client.inner().fetch_metadata(None, ASK) else { return Vec::new() };
    metadata.brokers().iter().map(|broker| broker.id()).collect()
}

/// Positions of these numbers, by this broker.
async fn publish(broker: &Kafka, topic: &str, numbers: std::ops::Range<u32>) {
    let mut driver = Driver::connect(&connector(&broker.bootstrap(), &[])).await;
    for n in numbers {
        let position = format!("p{n}");
        driver.send(with(message(topic, "a", "v"), &[(POSITION_HEADER, &position)])).await.unwrap();
        driver.settle().await;
    }
    assert_eq!(driver.failures(), 0);
    driver.sink.close().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "deep: two brokers of its own"]
async fn a_broker_without_its_controller_is_not_believed() {
    let (listener, port) = (Proxy::listener(), free_port().unwrap());
    let behind = listener.local_addr().unwrap().port();
    // The second is told this way to the controller, and no other.
    let advertised = format!("CLIENT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{behind}");
    let first = Kafka::builder().port(port).property("advertised.listeners", advertised);
    let first = first.start().unwrap();
    let controller = SocketAddr::from(([127, 0, 0, 1], first.controller_port()));
    let proxy = Proxy::start_with(listener, Target::Tcp(controller)).await;
    let second = Kafka::builder()
        .joining(&first, 2)
        .property("controller.quorum.voters", format!("1@127.0.0.1:{behind}"))
        .start()
        .unwrap();
    // Led by the second, and then by the first.
    create_replicated_topic(&first.bootstrap(), "led", 1, &[2, 1], &[]).await;
    publish(&first, "led", 0..2).await;
    proxy.cut();
    until(LIMIT, "the second counted out", async || named(&first) == [1]).await;
    create_replicated_topic(&first.bootstrap(), "made", 1, &[1], &[]).await;
    for topic in ["led", "made"] {
        publish(&first, topic, 2..5).await;
    }
    assert_eq!(named(&second).len(), 2, "the second knows what was");

    // Which broker is asked is chance.
    for _ in 0..5 {
        let wanted = vec![floors("led", None, &[0]), floors("made", None, &[0])];
        let (sink, mut told) = try_read_back(&second.bootstrap(), wanted, None).await.unwrap();
        told.sort();
        assert_eq!(positions(&told), ["p0", "p1", "p2", "p2", "p3", "p3", "p4", "p4"]);
        sink.close().await;
    }

    // Alone its word proves nothing.
    first.pause().unwrap();
    let wanted = vec![floors("made", None, &[0])];
    let refused = try_read_back(&second.bootstrap(), wanted, None).await.err();
    first.resume().unwrap();
    let refused = refused.expect("nothing is known");
    assert!(refused.is_transient() && refused.to_string().contains("do not answer"), "{refused}");
}

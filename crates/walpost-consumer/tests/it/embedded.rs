//! The broker inside librdkafka, which `walpost demo` uses.

use rdkafka::{
    ClientConfig,
    message::{Header, OwnedHeaders},
    mocking::MockCluster,
    producer::{BaseProducer, BaseRecord, Producer},
};

use crate::support::{Effects, LIMIT, World, each, ids, run};

#[tokio::test(flavor = "multi_thread")]
#[ignore = "deep: takes long"]
async fn the_consumer_works_on_the_embedded_broker() {
    let world = World::new(1).await;
    let cluster = MockCluster::new(1).unwrap();
    cluster.create_topic(&world.topic, 2, 1).unwrap();
    let broker = cluster.bootstrap_servers();
    let producer: BaseProducer =
        ClientConfig::new().set("bootstrap.servers", &broker).create().unwrap();
    let events = ids("a", 1000);
    for (number, id) in events.iter().enumerate() {
        let headers = OwnedHeaders::new().insert(Header { key: "id", value: Some(id) });
        let record = BaseRecord::<str, str>::to(&world.topic).partition(number as i32 % 2);
        producer.send(record.headers(headers)).map_err(|(error, _)| error).unwrap();
    }
    producer.flush(LIMIT).unwrap();
    for _ in 0..2 {
        let consumer = world.consumer().kafka("bootstrap.servers", &broker);
        let mut running = run(consumer.handler(Effects).unwrap());
        world.until_number("select count(*) from effect", 1000).await;
        running.until_running(2).await;
        running.stop().await.unwrap();
    }
    assert_eq!(world.effects().await, each(&events, 1));
    assert_eq!(world.stored().await, 1000);
}

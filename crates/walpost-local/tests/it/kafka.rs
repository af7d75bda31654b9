use std::time::Instant;

use walpost_local::{Kafka, is_alive};

#[test]
fn a_broker_starts_stops_and_keeps_its_topics_over_a_kill() {
    let start = Instant::now();
    walpost_local::fetch_kafka().unwrap();
    println!("fetched in {:?}", start.elapsed());
    let start = Instant::now();
    let kafka = Kafka::builder().start().unwrap();
    println!("started in {:?}", start.elapsed());
    let bootstrap = kafka.bootstrap();
    let topics = |args: &[&str]| {
        let class = "org.apache.kafka.tools.TopicCommand";
        kafka.run_tool(class, [&["--bootstrap-server", &bootstrap], args].concat())
    };
    let create = ["--create", "--if-not-exists", "--topic", "orders", "--partitions", "3"];
    let at = Instant::now();
    // It may be counted out for a moment behind its start.
    while let Err(error) = topics(&create) {
        let is_counted_out = error.to_string().contains("fenced");
        assert!(is_counted_out && at.elapsed().as_secs() < 60, "{error}");
    }
    for stop in [Kafka::stop, Kafka::kill] {
        let at = Instant::now();
        stop(&kafka).unwrap();
        println!("stopped in {:?}", at.elapsed());
        assert_eq!(kafka.pid(), None);
        let at = Instant::now();
        kafka.start().unwrap();
        println!("started again in {:?}", at.elapsed());
        assert_eq!(kafka.bootstrap(), bootstrap);
        assert!(topics(&["--list"]).unwrap().lines().any(|topic| topic == "orders"));
    }
    let pid = kafka.pid().unwrap();
    drop(kafka);
    assert!(!is_alive(pid));
}

#[test]
#[ignore = "deep: brokers of its own"]
fn three_brokers_replicate_a_topic_and_keep_it_while_one_is_frozen() {
    let first = Kafka::builder().start().unwrap();
    let others = [2, 3].map(|node| Kafka::builder().joining(&first, node).start().unwrap());
    let bootstrap = first.bootstrap();
    let topics = |args: &[&str]| {
        let class = "org.apache.kafka.tools.TopicCommand";
        first.run_tool(class, [&["--bootstrap-server", &bootstrap], args].concat())
    };
    let create = ["--create", "--if-not-exists", "--topic", "three"];
    let of_three = ["--partitions", "3", "--replication-factor", "3"];
    let create = [create, of_three].concat();
    let start = Instant::now();
    // One may be counted out for a moment behind its start.
    while let Err(error) = topics(&create) {
        assert!(start.elapsed().as_secs() < 60, "{error}");
    }
    others[1].pause().unwrap();
    let start = Instant::now();
    // The frozen one is counted out when its session is over.
    loop {
        // The tool may have asked the frozen one, and waited for it in vain.
        let described = match topics(&["--describe", "--topic", "three"]) {
            Ok(described) => described,
            Err(error) => {
                assert!(start.elapsed().as_secs() < 120, "{error}");
                continue;
            }
        };
        let in_sync = described.lines().filter_map(|line| line.split("Isr: ").nth(1));
        let in_sync: Vec<_> = in_sync.filter_map(|rest| rest.split_whitespace().next()).collect();
        assert_eq!(in_sync.len(), 3, "{described}");
        if in_sync.iter().all(|brokers| !brokers.contains('3')) {
            break;
        }
        assert!(start.elapsed().as_secs() < 120, "{described}");
    }
    others[1].resume().unwrap();
}

#[test]
#[ignore = "deep: brokers of its own"]
fn consumer_groups_can_be_listed_with_kafkas_own_tool() {
    let kafka = Kafka::builder().start().unwrap();
    let class = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand";
    let args = ["--bootstrap-server", &kafka.bootstrap(), "--list", "--timeout", "60000"];
    assert_eq!(kafka.run_tool(class, args).unwrap().trim(), "");
}

#[test]
fn a_property_that_kafka_refuses_is_reported() {
    let error = Kafka::builder().property("num.io.threads", "none").start().unwrap_err();
    assert!(error.to_string().contains("num.io.threads"), "{error}");
}

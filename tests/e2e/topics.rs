//! One topic that cannot be used, beside one that can.

use rdkafka::{
    ClientConfig,
    admin::{AdminClient, AdminOptions},
    client::DefaultClientContext,
    consumer::{BaseConsumer, Consumer},
};
use walpost_testkit::{
    Committed, Process, Published, ReadRecord, create_topic, judge, kafka, local::Kafka, postgres,
    read_all, until,
};
use walpost_tests::{LIMIT, Shop, Writer, walpost_binary};

/// Inserts bills of one aggregate, each in a transaction of its own.
async fn bills(shop: &Shop, numbers: std::ops::RangeInclusive<i64>) {
    let client = shop.connect().await;
    let insert = "insert into walpost.outbox (aggregatetype, aggregateid, type, payload) \
                  values ('bill', 'x', 'Issued', jsonb_build_object('seq', $1::int8))";
    for number in numbers {
        client.execute(insert, &[&number]).await.unwrap();
    }
}

async fn numbers(bootstrap: &str, topic: &str) -> Vec<i64> {
    let number = |record: &ReadRecord| {
        let json: serde_json::Value = serde_json::from_str(record.value_text()).unwrap();
        json["seq"].as_i64().unwrap()
    };
    read_all(bootstrap, topic).await.iter().map(number).collect()
}

async fn delete_topic(name: &str) {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", kafka().bootstrap());
    let admin: AdminClient<DefaultClientContext> = config.create().unwrap();
    let options = AdminOptions::new().operation_timeout(Some(LIMIT));
    for deleted in admin.delete_topics(&[name], &options).await.unwrap() {
        deleted.unwrap();
    }
    // The controller has answered; the broker takes records until it knows.
    let consumer: BaseConsumer = config.create().unwrap();
    until(LIMIT, "a broker that knows", async || {
        let metadata = consumer.fetch_metadata(Some(name), LIMIT).unwrap();
        metadata.topics().iter().all(|topic| topic.error().is_some())
    })
    .await;
}

/// What the shop committed of one type, and what stands in its topic.
async fn orders_are_exactly_once(shop: &Shop) {
    let client = shop.connect().await;
    let sql = "select id::text, aggregateid from walpost.outbox where aggregatetype = 'order' \
               order by seq";
    let rows = client.query(sql, &[]).await.unwrap();
    let committed: Vec<Committed> =
        rows.iter().map(|row| Committed { id: row.get(0), aggregate: row.get(1) }).collect();
    let published: Vec<Published> = shop.published().await;
    judge(&committed, &published, None).assert_exactly_once();
}

async fn orders_go_on(shop: &Shop, writer: &Writer) {
    let target = usize::try_from(writer.written()).unwrap() + 100;
    until(LIMIT, "orders beside it", async || shop.records().await.len() >= target).await;
}

async fn a_deleted_topic_holds_up_no_other(mode: &str) {
    let shop = Shop::open(2).await;
    let bill = format!("{}.bill", shop.name);
    create_topic(kafka().bootstrap(), &bill, 2, &[]).await;
    let settings = [
        ("WALPOST_SINK_PUBLISH", mode),
        ("WALPOST_KAFKA_TOPIC_METADATA_PROPAGATION_MAX_MS", "1000"),
        ("WALPOST_KAFKA_TOPIC_METADATA_REFRESH_INTERVAL_MS", "1000"),
        ("WALPOST_PIPELINE_MISSING_TOPIC_TIMEOUT_MS", "600000"),
    ];
    let relay = shop.relay_with(&settings);
    shop.slot_made().await;
    let writer = Writer::start(&shop, 0).await;
    bills(&shop, 1..=20).await;
    let arrived = async || numbers(kafka().bootstrap(), &bill).await;
    until(LIMIT, "20 bills", async || arrived().await.len() == 20).await;

    delete_topic(&bill).await;
    bills(&shop, 21..=40).await;
    orders_go_on(&shop, &writer).await;
    // Twice over: with a relay that saw the topic go, and one that did not.
    relay.kill();
    let relay = shop.relay_with(&settings);
    bills(&shop, 41..=60).await;
    orders_go_on(&shop, &writer).await;
    let parked = "select count(*) from walpost.parked";
    let client = shop.connect().await;
    assert_eq!(client.query_one(parked, &[]).await.unwrap().get::<_, i64>(0), 0);

    create_topic(kafka().bootstrap(), &bill, 2, &[]).await;
    let last = async || arrived().await.last() == Some(&60);
    until(LIMIT, "the last bill", last).await;
    assert_eq!(arrived().await, (21..=60).collect::<Vec<_>>(), "{mode}");
    let written = usize::try_from(writer.stop().await).unwrap();
    until(LIMIT, "all orders", async || shop.records().await.len() >= written).await;
    orders_are_exactly_once(&shop).await;
    drop(relay);
}

#[tokio::test]
async fn a_topic_that_is_deleted_under_load_holds_up_no_other_and_gets_what_it_missed() {
    a_deleted_topic_holds_up_no_other("idempotent").await;
}

#[tokio::test]
#[ignore = "deep: takes long"]
async fn in_transactions_a_topic_that_is_deleted_holds_up_no_other_either() {
    a_deleted_topic_holds_up_no_other("transactional").await;
}

#[tokio::test]
async fn one_row_for_a_topic_that_does_not_exist_keeps_no_initial_load_from_its_end() {
    let shop = Shop::open(1).await;
    let client = shop.connect().await;
    let order = "insert into walpost.outbox (aggregatetype, aggregateid, type, payload) \
                 values ('order', 'first', 'Placed', '{\"seq\": 0}')";
    client.batch_execute(order).await.unwrap();
    bills(&shop, 1..=1).await;
    let relay = shop.relay_with(&[
        ("WALPOST_PIPELINE_INITIAL", "publish"),
        ("WALPOST_PIPELINE_MISSING_TOPIC_TIMEOUT_MS", "2000"),
    ]);
    let parked = "select count(*) from walpost.parked where reason = 'no_topic'";
    until(LIMIT, "the bill is parked", async || {
        client.query_one(parked, &[]).await.unwrap().get::<_, i64>(0) == 1
    })
    .await;
    relay.wait_for_log("streaming", LIMIT);
    let writer = Writer::start(&shop, 0).await;
    orders_go_on(&shop, &writer).await;
    let written = 1 + usize::try_from(writer.stop().await).unwrap();
    until(LIMIT, "all orders", async || shop.records().await.len() >= written).await;
    orders_are_exactly_once(&shop).await;
}

/// Changes what anybody may do with a topic.
fn acls(kafka: &Kafka, change: &str, args: &[&str]) {
    let bootstrap = kafka.bootstrap();
    let all = [&["--bootstrap-server", &bootstrap, change, "--force"], args].concat();
    kafka.run_tool("org.apache.kafka.tools.AclCommand", all).unwrap();
}

#[tokio::test]
#[ignore = "deep: a broker of its own"]
async fn a_topic_that_refuses_us_holds_up_no_other_and_its_events_are_parked_in_time() {
    let kafka = Kafka::builder()
        .property(
            "authorizer.class.name",
            "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        )
        .property("allow.everyone.if.no.acl.found", "true")
        .start()
        .unwrap();
    let bootstrap = kafka.bootstrap();
    let shop = Shop::without_topic(postgres()).await;
    let bill = format!("{}.bill", shop.name);
    for topic in [&shop.topic, &bill] {
        create_topic(&bootstrap, topic, 1, &[]).await;
    }
    let all = ["--allow-principal", "User:*", "--operation", "All", "--topic", &bill];
    acls(&kafka, "--add", &all);
    let write = ["--deny-principal", "User:*", "--operation", "Write", "--topic", &bill];
    acls(&kafka, "--add", &write);
    let (slot, replacement) =
        (format!("walpost_{}", shop.name), format!("{}.${{routedByValue}}", shop.name));
    let _relay = Process::start(
        walpost_binary(),
        ["run", "--kafka", &bootstrap],
        [
            ("WALPOST_POSTGRES_URL", shop.database.url()),
            ("WALPOST_PIPELINE_NAME", &shop.name),
            ("WALPOST_PIPELINE_SLOT", &slot),
            ("WALPOST_PIPELINE_MISSING_TOPIC_TIMEOUT_MS", "8000"),
            ("WALPOST_PIPELINE_CHECKPOINT_INTERVAL_MS", "200"),
            ("WALPOST_ROUTER_TOPIC_REPLACEMENT", &replacement),
            ("WALPOST_HTTP_LISTEN", ""),
        ],
    );
    shop.slot_made().await;
    let writer = Writer::start(&shop, 0).await;
    bills(&shop, 1..=5).await;
    let orders = async || read_all(&bootstrap, &shop.topic).await.len();
    for _ in 0..2 {
        let target = usize::try_from(writer.written()).unwrap() + 100;
        until(LIMIT, "orders beside it", async || orders().await >= target).await;
    }
    let client = shop.connect().await;
    let parked = "select count(*) from walpost.parked where reason = 'no_topic' \
                  and detail like '%authorization failed%'";
    let count = async || client.query_one(parked, &[]).await.unwrap().get::<_, i64>(0);
    until(LIMIT, "five bills", async || count().await == 5).await;

    acls(&kafka, "--remove", &write);
    let retry = "update walpost.parked set requested = 'retry' where reason = 'no_topic'";
    client.batch_execute(retry).await.unwrap();
    until(LIMIT, "the bills", async || numbers(&bootstrap, &bill).await.len() == 5).await;
    assert_eq!(numbers(&bootstrap, &bill).await, [1, 2, 3, 4, 5]);
    let written = usize::try_from(writer.stop().await).unwrap();
    until(LIMIT, "all orders", async || orders().await >= written).await;
    assert_eq!(orders().await, written, "none twice");
}

//! What is wrong from the start.

use walpost_consumer::{Consumer, Database, Error, error_chain};
use walpost_testkit as testkit;

use crate::support::{Effects, World, each, ids, run};

#[tokio::test]
async fn missing_tables_name_the_command() {
    let database = testkit::fresh_database().await;
    let consumer = Consumer::builder("shipping")
        .kafka("bootstrap.servers", testkit::kafka().bootstrap())
        .topics(["orders"])
        .database(Database::config(database.config()))
        .handler(Effects)
        .unwrap();
    let error = run(consumer).end().await.unwrap_err();
    assert!(matches!(error, Error::NotMigrated { .. }), "{error}");
    assert!(error.to_string().contains("walpost migrate --set consumer"), "{error}");
    // As a `main` prints it that returns it.
    assert!(format!("{error:?}").starts_with(&error.to_string()), "{error:?}");
}

#[tokio::test]
async fn a_database_that_refuses_is_an_error_at_once() {
    let world = World::new(1).await;
    let mut config = world.database.config();
    config.dbname("no_such_database");
    let consumer = world.consumer().database(Database::config(config)).handler(Effects).unwrap();
    let error = run(consumer).end().await.unwrap_err();
    assert!(matches!(error, Error::Database { .. }), "{error}");
    let text = error_chain(&error);
    assert!(text.contains("(database no_such_database, user "), "{text}");
    assert!(text.contains("correct the name of the database"), "{text}");
    assert!(text.ends_with("FATAL 3D000: database \"no_such_database\" does not exist"), "{text}");
}

#[tokio::test]
async fn a_refusal_is_found_behind_an_error_of_the_applications_own() {
    #[derive(Debug, thiserror::Error)]
    #[error("the pool has no connection")]
    struct Pool(#[source] tokio_postgres::Error);
    let world = World::new(1).await;
    let mut config = world.database.config();
    config.dbname("no_such_database");
    let database = Database::connect_with(move || {
        let config = config.clone();
        async move {
            let (client, connection) = config.connect(tokio_postgres::NoTls).await.map_err(Pool)?;
            tokio::spawn(connection);
            Ok::<_, Pool>(client)
        }
    });
    let consumer = world.consumer().database(database).handler(Effects).unwrap();
    let error = run(consumer).end().await.unwrap_err();
    assert!(matches!(error, Error::Database { .. }), "{error}");
}

#[tokio::test]
async fn a_refusal_is_found_behind_an_error_that_shows_it() {
    let world = World::new(1).await;
    let settings = walpost_postgres::Database::parse(world.database.url()).unwrap();
    let settings = settings.with_dbname("no_such_database");
    let database = Database::connect_with(move || {
        let settings = settings.clone();
        async move { settings.connect().await }
    });
    let consumer = world.consumer().database(database).handler(Effects).unwrap();
    let error = run(consumer).end().await.unwrap_err();
    assert!(matches!(error, Error::Database { .. }), "{error}");
    assert!(error_chain(&error).contains("correct the name of the database"), "{error}");
}

#[tokio::test]
async fn a_standby_is_an_error_that_names_the_primary() {
    let world = World::new(1).await;
    let mut config = world.database.config();
    config.options("-c default_transaction_read_only=on");
    let consumer = world.consumer().database(Database::config(config)).handler(Effects).unwrap();
    let error = run(consumer).end().await.unwrap_err();
    assert!(matches!(error, Error::Database { .. }), "{error}");
    assert!(error_chain(&error).contains("connect to the primary"), "{error}");
}

#[tokio::test]
async fn a_wrong_kafka_setting_is_an_error_at_once() {
    let world = World::new(1).await;
    let consumer = world.consumer().kafka("no.such.setting", "1").handler(Effects).unwrap();
    let error = run(consumer).end().await.unwrap_err();
    assert!(matches!(error, Error::Kafka { .. }), "{error}");
}

#[tokio::test]
async fn a_topic_that_does_not_exist_yet_is_waited_for() {
    let world = World::new(1).await;
    let topic = testkit::unique_name("later");
    let consumer = world
        .consumer()
        .topics([topic.clone(), world.topic.clone()])
        .kafka("topic.metadata.refresh.interval.ms", "500");
    let mut running = run(consumer.handler(Effects).unwrap());
    world.publish(0, ids("a", 5)).await;
    running.until_applied(5).await;
    testkit::create_topic(testkit::kafka().bootstrap(), &topic, 1, &[]).await;
    running.until_running(2).await;
    running.stop().await.unwrap();
    assert_eq!(world.effects().await, each(&ids("a", 5), 1));
}

#[tokio::test]
async fn a_topic_created_anew_halts_with_the_steps() {
    let world = World::new(1).await;
    world.publish(0, ids("a", 5)).await;
    let mut running = run(world.consumer().handler(Effects).unwrap());
    running.until_applied(5).await;
    running.stop().await.unwrap();
    world.tamper("topic_id = 'another'").await;
    let error =
        run(world.consumer().handler(Effects).unwrap()).end().await.unwrap_err().to_string();
    assert!(error.contains("topic id another") && error.contains("delete the row"), "{error}");
}

#[tokio::test]
async fn a_consumer_whose_broker_or_database_is_away_waits_and_can_be_stopped() {
    let nobody = testkit::local::free_port().unwrap();
    let world = World::new(1).await;
    let broker = format!("127.0.0.1:{nobody}");
    let consumer = world.consumer().kafka("bootstrap.servers", broker);
    run(consumer.handler(Effects).unwrap()).stop().await.unwrap();
    let mut config = tokio_postgres::Config::new();
    config.host("127.0.0.1").port(nobody).user("nobody");
    let consumer = world.consumer().database(Database::config(config));
    run(consumer.handler(Effects).unwrap()).stop().await.unwrap();
}

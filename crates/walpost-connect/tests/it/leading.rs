use serde_json::json;
use walpost_connect::{Access, StoreError, Worker};
use walpost_connector::{Allowed, Providers};
use walpost_testkit::{until, until_some};

use crate::support::{Behaviour, LIMIT, Served, Stage, config, database, in_session, with};

async fn start(database: &str, stage: &Stage) -> Served {
    Served::start_with(database, stage.clone(), Access::open(), Allowed::nothing()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn one_process_leads_and_another_takes_over() {
    let (database, stage) = (database().await, Stage::new());
    let first = start(&database, &stage).await.leads().await;
    first.ask("PUT", "/connectors/orders/config", Some(&config("orders"))).await;
    first.until("orders", "RUNNING").await;

    let second = start(&database, &stage).await;
    until_some(LIMIT, "the second one to stand by", async || {
        let (code, health) = second.ask("GET", "/health", None).await;
        let is_so = health["message"].as_str().unwrap().contains("stands by");
        (code == 503 && is_so).then_some(())
    })
    .await;
    for (method, path) in [("GET", "/connectors"), ("PUT", "/connectors/orders/pause")] {
        let (code, error) = second.ask(method, path, None).await;
        assert_eq!(code, 409);
        assert!(error["message"].as_str().unwrap().contains("ask that one"), "{error}");
    }
    assert_eq!(stage.begun("orders"), 1);

    first.kill().await;
    let second = second.leads().await;
    second.until("orders", "RUNNING").await;
    assert_eq!((stage.begun("orders"), stage.running("orders")), (2, 1));
    second.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_session_ends_no_connector() {
    let (database, stage) = (database().await, Stage::new());
    let served = start(&database, &stage).await.leads().await;
    served.ask("PUT", "/connectors/orders/config", Some(&config("orders"))).await;
    served.until("orders", "RUNNING").await;
    cut(&database).await;
    // What is asked meanwhile is not kept, and says so; later it is.
    until(LIMIT, "a request to be kept again", async || {
        let changed = with("orders", "poll.interval.ms", "7");
        let (code, _) = served.ask("PUT", "/connectors/orders/config", Some(&changed)).await;
        assert!([200, 500].contains(&code), "{code}");
        code == 200
    })
    .await;
    until(LIMIT, "the changed one", async || stage.begun("orders") == 2).await;
    served.until("orders", "RUNNING").await;
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_database_holds_up_is_given_up_and_costs_no_lead() {
    let (database, stage) = (database().await, Stage::new());
    let served = start(&database, &stage).await.leads().await;
    served.ask("PUT", "/connectors/orders/config", Some(&config("orders"))).await;
    served.until("orders", "RUNNING").await;
    in_session(&database, async |client| {
        client.batch_execute("begin; lock table walpost.connector").await.unwrap();
        let (code, error) = served.ask("PUT", "/connectors/orders/pause", None).await;
        let said = error["message"].as_str().unwrap();
        assert!(code == 500 && said.contains("canceling statement due to"), "{said}");
        client.batch_execute("rollback").await.unwrap();
    })
    .await;
    // The session that leads is the same one.
    assert_eq!(served.ask("PUT", "/connectors/orders/pause", None).await.0, 202);
    served.until("orders", "PAUSED").await;
    assert_eq!(stage.begun("orders"), 1);
    served.stop().await;
}

/// Ends the session that leads.
async fn cut(database: &str) {
    let cut = "select count(pg_terminate_backend(pid)) from pg_locks where locktype = 'advisory' \
               and database = (select oid from pg_database where datname = current_database())";
    let cut = in_session(database, async |client| client.query_one(cut, &[]).await.unwrap()).await;
    assert_eq!(cut.get::<_, i64>(0), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_check_that_hangs_costs_neither_the_lead_nor_a_stop() {
    let (database, stage) = (database().await, Stage::new());
    let served = start(&database, &stage).await.leads().await;
    let (path, slow) = ("/connectors/orders/config", with("orders", "poll.interval.ms", "14"));
    let hold = stage.hold_checks();
    let asking = served.asking("PUT", path, &slow);
    until(LIMIT, "a check that hangs", async || stage.held() == 1).await;
    // Its lead is looked after, and taken again, which answers what was asked before.
    cut(&database).await;
    let (code, error) = asking.await.unwrap();
    let said = error["message"].as_str().unwrap();
    assert!(code == 500 && said.contains("was lost while the configuration was checked"), "{said}");
    assert_eq!(served.ask("GET", "/connectors", None).await, (200, json!([])));
    drop(hold);

    let hold = stage.hold_checks();
    let asking = served.asking("PUT", path, &slow);
    until(LIMIT, "another one", async || stage.held() == 2).await;
    served.stop().await;
    assert_eq!(asking.await.unwrap().0, 409);
    assert_eq!(rows(&database).await, 0);
    drop(hold);
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_are_carried_out_in_their_order_behind_a_check_that_takes_long() {
    let (database, stage) = (database().await, Stage::new());
    let served = start(&database, &stage).await.leads().await;
    let path = "/connectors/orders/config";
    let hold = stage.hold_checks();
    let first = served.asking("PUT", path, &with("orders", "poll.interval.ms", "14"));
    until(LIMIT, "a check that hangs", async || stage.held() == 1).await;
    let second = served.asking("PUT", path, &with("orders", "poll.interval.ms", "15"));
    // What changes nothing is answered meanwhile.
    assert_eq!(served.ask("GET", "/connectors", None).await, (200, json!([])));
    assert!(!first.is_finished() && !second.is_finished());
    drop(hold);
    assert_eq!((first.await.unwrap().0, second.await.unwrap().0), (201, 200));
    let (_, config) = served.ask("GET", path, None).await;
    assert_eq!(config["poll.interval.ms"], "15");
    served.until("orders", "RUNNING").await;
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_nobody_waits_for_any_more_is_not_carried_out() {
    let (database, stage) = (database().await, Stage::new());
    let served = start(&database, &stage).await.leads().await;
    served.ask("PUT", "/connectors/orders/config", Some(&config("orders"))).await;
    served.until("orders", "RUNNING").await;
    let hold = stage.hold_checks();
    let slow = with("invoices", "poll.interval.ms", "14");
    let first = served.asking("PUT", "/connectors/invoices/config", &slow);
    until(LIMIT, "a check that hangs", async || stage.held() == 1).await;
    served.ask_and_leave("DELETE", "/connectors/orders").await;
    served.ask_and_leave("PUT", "/connectors/orders/stop").await;
    drop(hold);
    assert_eq!(first.await.unwrap().0, 201);
    // Behind them in the order.
    assert_eq!(served.ask("PUT", "/connectors/invoices/pause", None).await.0, 202);
    assert_eq!(rows(&database).await, 2);
    served.until("orders", "RUNNING").await;
    assert_eq!((stage.begun("orders"), stage.running("orders")), (1, 1));
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_takes_long_to_end_is_waited_for() {
    let (database, stage) = (database().await, Stage::new());
    let served = start(&database, &stage).await.leads().await;
    stage.behaviour.send_replace(Behaviour::Linger);
    served.ask("PUT", "/connectors/orders/config", Some(&config("orders"))).await;
    served.until("orders", "RUNNING").await;
    let served = std::sync::Arc::new(served);
    let asking = served.clone();
    let deleting =
        tokio::spawn(async move { asking.ask("DELETE", "/connectors/orders", None).await });
    // It is deleted already, and still there.
    until(LIMIT, "the row to leave", async || rows(&database).await == 0).await;
    assert_eq!(stage.running("orders"), 1);
    let body = json!({ "name": "orders", "config": config("orders") });
    let leaving = "Connector orders is being deleted, and its run has not ended yet; try again";
    let refused = (409, json!({ "error_code": 409, "message": leaving }));
    assert_eq!(served.ask("POST", "/connectors", Some(&body)).await, refused);
    let path = "/connectors/orders/config";
    assert_eq!(served.ask("PUT", path, Some(&config("orders"))).await, refused);
    assert!(!deleting.is_finished());
    stage.behaviour.send_replace(Behaviour::Work);
    assert_eq!(deleting.await.unwrap().0, 204);
    assert_eq!(served.ask("POST", "/connectors", Some(&body)).await.0, 201);
    std::sync::Arc::into_inner(served).unwrap().stop().await;
}

async fn rows(database: &str) -> i64 {
    let count = "select count(*) from walpost.connector";
    in_session(database, async |client| client.query_one(count, &[]).await.unwrap().get(0)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn without_its_table_it_ends_and_says_what_to_do() {
    let database = walpost_testkit::fresh_database().await;
    let database = walpost_postgres::Database::parse(database.url()).unwrap();
    let plugin = walpost_connect::Plugin::new(Providers::new(Allowed::nothing()));
    let runner = walpost_connect::Runner::new(|_| async { Ok(()) });
    let (worker, _connectors) = Worker::new(database, "walpost", plugin, runner);
    let error = worker.run(std::future::pending()).await.unwrap_err();
    assert!(matches!(error, StoreError::NoTable { .. }), "{error}");
    assert!(error.to_string().contains("walpost migrate --set connect"), "{error}");
}

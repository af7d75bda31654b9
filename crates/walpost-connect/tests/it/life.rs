use serde_json::{Value, json};
use walpost_connect::{Access, RunFailure};
use walpost_connector::Allowed;
use walpost_testkit::until;

use crate::support::{Behaviour, LIMIT, Served, Stage, config, database, with};

#[tokio::test(flavor = "multi_thread")]
async fn a_connector_is_created_paused_stopped_and_deleted() {
    let served = Served::start(&database().await).await.leads().await;
    let body = json!({ "name": "orders", "config": config("orders") });
    let response = served.send("POST", "/connectors", Some(&body)).await;
    assert_eq!(response.status(), 201);
    assert_eq!(response.headers()["location"], "/connectors/orders");
    let info: Value = serde_json::from_str(&response.text().await.unwrap()).unwrap();
    assert_eq!((&info["name"], &info["type"]), (&json!("orders"), &json!("source")));
    assert_eq!(info["config"]["name"], "orders");
    assert_eq!(info["tasks"], json!([{ "connector": "orders", "task": 0 }]));
    let status = served.until("orders", "RUNNING").await;
    let worker = served.url.strip_prefix("http://").unwrap();
    let part = json!({ "state": "RUNNING", "worker_id": worker, "version": "0.1.0" });
    assert_eq!(status["connector"], part);
    let (code, task) = served.ask("GET", "/connectors/orders/tasks/0/status", None).await;
    assert_eq!((code, &task), (200, &status["tasks"][0]));
    assert_eq!(task["id"], 0);

    assert_eq!(served.ask("PUT", "/connectors/orders/pause", None).await, (202, Value::Null));
    let status = served.until("orders", "PAUSED").await;
    assert_eq!(status["connector"]["state"], "PAUSED");
    assert!(status["tasks"][0]["trace"].as_str().unwrap().contains("slot keeps WAL"));
    assert_eq!(served.stage.running("orders"), 0);
    assert_eq!(served.ask("PUT", "/connectors/orders/resume", None).await, (202, Value::Null));
    served.until("orders", "RUNNING").await;
    assert_eq!(served.stage.begun("orders"), 2);

    assert_eq!(served.ask("PUT", "/connectors/orders/stop", None).await, (204, Value::Null));
    // Once it is answered, nothing runs.
    assert_eq!(served.stage.running("orders"), 0);
    let (_, status) = served.ask("GET", "/connectors/orders/status", None).await;
    assert_eq!((&status["connector"]["state"], &status["tasks"]), (&json!("STOPPED"), &json!([])));
    assert_eq!(served.ask("GET", "/connectors/orders/tasks", None).await, (200, json!([])));
    let (code, _) = served.ask("GET", "/connectors/orders/tasks/0/status", None).await;
    assert_eq!(code, 404);

    assert_eq!(served.ask("PUT", "/connectors/orders/resume", None).await.0, 202);
    served.until("orders", "RUNNING").await;
    assert_eq!(served.ask("DELETE", "/connectors/orders", None).await, (204, Value::Null));
    assert_eq!(served.stage.running("orders"), 0);
    assert_eq!(served.ask("GET", "/connectors", None).await, (200, json!([])));
    assert_eq!(served.ask("GET", "/connectors/orders/status", None).await.0, 404);
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connector_begins_in_the_state_that_is_asked_for() {
    let served = Served::start(&database().await).await.leads().await;
    for (name, state) in [("p", "PAUSED"), ("s", "STOPPED")] {
        let body = json!({ "name": name, "config": config(name), "initial_state": state });
        assert_eq!(served.ask("POST", "/connectors", Some(&body)).await.0, 201);
        served.until(name, state).await;
        assert_eq!(served.stage.begun(name), 0);
    }
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connectors_are_listed_with_what_is_asked_for() {
    let served = Served::start(&database().await).await.leads().await;
    for name in ["a b", "c"] {
        let slot = name.replace(' ', "_");
        let body = json!({ "name": name, "config": config(&slot) });
        let response = served.send("POST", "/connectors", Some(&body)).await;
        let place = format!("/connectors/{}", name.replace(' ', "%20"));
        assert_eq!(response.headers()["location"], &*place);
        served.until(&name.replace(' ', "%20"), "RUNNING").await;
    }
    assert_eq!(served.ask("GET", "/connectors", None).await, (200, json!(["a b", "c"])));
    let path = "/connectors/?expand=status&expand=info&expand=more";
    let (_, all) = served.ask("GET", path, None).await;
    assert_eq!(all["c"]["status"]["connector"]["state"], "RUNNING");
    assert_eq!(all["a b"]["info"]["config"]["slot.name"], "a_b");
    let (_, one) = served.ask("GET", "/connectors/a%20b", None).await;
    assert_eq!(one, all["a b"]["info"]);
    assert_eq!(served.ask("GET", "/connectors?expand=more", None).await.1["c"], json!({}));
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_configuration_begins_a_run_and_the_same_does_not() {
    let served = Served::start(&database().await).await.leads().await;
    let path = "/connectors/orders/config";
    assert_eq!(served.ask("PUT", path, Some(&config("orders"))).await.0, 201);
    served.until("orders", "RUNNING").await;
    assert_eq!(served.ask("PUT", path, Some(&config("orders"))).await.0, 200);
    assert_eq!(served.stage.begun("orders"), 1);
    let (code, info) =
        served.ask("PUT", path, Some(&with("orders", "poll.interval.ms", "100"))).await;
    assert_eq!((code, &info["config"]["poll.interval.ms"]), (200, &json!("100")));
    until(LIMIT, "a second run", async || served.stage.begun("orders") == 2).await;
    let patch = json!({ "poll.interval.ms": null, "tasks.max": 1 });
    let (code, info) = served.ask("PATCH", path, Some(&patch)).await;
    assert_eq!((code, &info["config"]["tasks.max"]), (200, &json!("1")));
    assert_eq!(info["config"]["poll.interval.ms"], Value::Null);
    until(LIMIT, "a third run", async || served.stage.begun("orders") == 3).await;
    served.until("orders", "RUNNING").await;
    // A stopped one stays so.
    served.ask("PUT", "/connectors/orders/stop", None).await;
    assert_eq!(served.ask("PUT", path, Some(&config("orders"))).await.0, 200);
    served.until("orders", "STOPPED").await;
    assert_eq!(served.stage.begun("orders"), 3);
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_connector_says_why_and_a_restart_mends_it() {
    let served = Served::start(&database().await).await.leads().await;
    for before_start in [false, true] {
        let failure = RunFailure { text: "no such slot".to_owned(), before_start, may_heal: false };
        served.stage.behaviour.send_replace(Behaviour::Fail(failure));
        let body = json!({ "name": "orders", "config": config("orders") });
        assert_eq!(served.ask("POST", "/connectors", Some(&body)).await.0, 201);
        let status = served.until("orders", "FAILED").await;
        let of = if before_start { &status["connector"] } else { &status["tasks"][0] };
        assert_eq!((&of["state"], &of["trace"]), (&json!("FAILED"), &json!("no such slot")));

        served.stage.behaviour.send_replace(Behaviour::Work);
        let path = "/connectors/orders/restart?includeTasks=true&onlyFailed=true";
        let (code, status) = served.ask("POST", path, None).await;
        assert_eq!(code, 202);
        let of = if before_start { &status["connector"] } else { &status["tasks"][0] };
        assert_eq!(of["state"], "RESTARTING");
        served.until("orders", "RUNNING").await;
        served.ask("DELETE", "/connectors/orders", None).await;
    }
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn restarts_are_of_what_they_name() {
    let served = Served::start(&database().await).await.leads().await;
    served.ask("PUT", "/connectors/orders/config", Some(&config("orders"))).await;
    served.until("orders", "RUNNING").await;
    // The connector alone, and what has failed: nothing begins anew.
    assert_eq!(served.ask("POST", "/connectors/orders/restart", None).await, (204, Value::Null));
    let path = "/connectors/orders/restart?includeTasks=true&onlyFailed=true";
    let (code, status) = served.ask("POST", path, None).await;
    assert_eq!((code, &status["tasks"][0]["state"]), (202, &json!("RUNNING")));
    assert_eq!(served.stage.begun("orders"), 1);
    let path = "/connectors/orders/restart?includeTasks=true";
    assert_eq!(served.ask("POST", path, None).await.1["tasks"][0]["state"], "RESTARTING");
    until(LIMIT, "a second run", async || served.stage.begun("orders") == 2).await;
    served.until("orders", "RUNNING").await;
    let path = "/connectors/orders/tasks/0/restart";
    assert_eq!(served.ask("POST", path, None).await, (204, Value::Null));
    until(LIMIT, "a third run", async || served.stage.begun("orders") == 3).await;
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_connector_has_stored_is_shown_and_not_changed() {
    let served = Served::start(&database().await).await.leads().await;
    served.ask("PUT", "/connectors/orders/config", Some(&config("orders"))).await;
    let path = "/connectors/orders/offsets";
    let stored =
        json!({ "offsets": [{ "partition": { "server": "shop" }, "offset": { "lsn": 7 } }] });
    assert_eq!(served.ask("GET", path, None).await, (200, stored.clone()));
    let topics = json!({ "orders": { "topics": ["orders"] } });
    assert_eq!(served.ask("GET", "/connectors/orders/topics", None).await, (200, topics));
    for (method, body) in [("DELETE", None), ("PATCH", Some(&stored))] {
        let (code, error) = served.ask(method, path, body).await;
        assert_eq!(code, 400);
        let said = error["message"].as_str().unwrap();
        assert!(said.starts_with("Connectors must be in the STOPPED state"), "{said}");
    }
    served.ask("PUT", "/connectors/orders/stop", None).await;
    for (method, body) in [("DELETE", None), ("PATCH", Some(&stored))] {
        let (code, error) = served.ask(method, path, body).await;
        assert_eq!(code, 400);
        assert!(error["message"].as_str().unwrap().contains("`walpost replay`"), "{error}");
    }
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_process_leaves_its_connectors_to_the_next_one() {
    let (database, stage) = (database().await, Stage::new());
    let start = || Served::start_with(&database, stage.clone(), Access::open(), Allowed::nothing());
    let served = start().await.leads().await;
    for name in ["works", "paused", "stopped"] {
        let body = json!({ "name": name, "config": with(name, "poll.interval.ms", "7") });
        assert_eq!(served.ask("POST", "/connectors", Some(&body)).await.0, 201);
        served.until(name, "RUNNING").await;
    }
    served.ask("PUT", "/connectors/paused/pause", None).await;
    served.ask("PUT", "/connectors/stopped/stop", None).await;
    served.until("paused", "PAUSED").await;
    served.kill().await;
    until(LIMIT, "the runs to be gone", async || stage.running("works") == 0).await;

    let served = start().await.leads().await;
    served.until("works", "RUNNING").await;
    served.until("paused", "PAUSED").await;
    served.until("stopped", "STOPPED").await;
    assert_eq!((stage.begun("works"), stage.begun("paused"), stage.begun("stopped")), (2, 1, 1));
    let (_, config) = served.ask("GET", "/connectors/works/config", None).await;
    assert_eq!(config["poll.interval.ms"], "7");
    served.stop().await;
    assert_eq!(stage.running("works"), 0, "a process that ends has ended its runs");
}

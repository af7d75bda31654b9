use serde_json::{Value, json};

use crate::support::{Served, config, database, with};

fn refused(code: u16, message: &str) -> (u16, Value) {
    (code, json!({ "error_code": code, "message": message }))
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_there_is_answered_as_kafka_connect_does() {
    let served = Served::start(&database().await).await.leads().await;
    for (method, path, message) in [
        ("GET", "/nothing", "HTTP 404 Not Found"),
        ("GET", "/connectors/none", "Connector none not found"),
        ("GET", "/connectors/none/config", "Connector none not found"),
        ("GET", "/connectors/none/status", "No status found for connector none"),
        ("GET", "/connectors/none/tasks", "Connector none not found"),
        ("GET", "/connectors/none/tasks/0/status", "No status found for task none-0"),
        ("GET", "/connectors/none/tasks/x/status", "HTTP 404 Not Found"),
        ("GET", "/connectors/none/offsets", "Connector none not found"),
        ("DELETE", "/connectors/none/offsets", "Connector none not found"),
        ("PUT", "/connectors/none/pause", "Unknown connector none"),
        ("PUT", "/connectors/none/resume", "Unknown connector none"),
        ("PUT", "/connectors/none/stop", "Connector none not found"),
        ("POST", "/connectors/none/restart?includeTasks=true", "Unknown connector: none"),
        ("DELETE", "/connectors/none", "Connector none not found"),
        ("GET", "/connector-plugins/none/config", "Unknown plugin none."),
    ] {
        assert_eq!(served.ask(method, path, None).await, refused(404, message), "{method} {path}");
    }
    let patch = json!({ "a": "b" });
    let answer = served.ask("PATCH", "/connectors/none/config", Some(&patch)).await;
    assert_eq!(answer, refused(404, "Connector none not found"));
    let topics = served.ask("GET", "/connectors/none/topics", None).await;
    assert_eq!(topics, (200, json!({ "none": { "topics": [] } })));
    for (method, path) in [("POST", "/health"), ("DELETE", "/connectors")] {
        let answer = served.ask(method, path, None).await;
        assert_eq!(answer, refused(405, "HTTP 405 Method Not Allowed"), "{method} {path}");
    }
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connector_that_cannot_be_is_refused() {
    let served = Served::start(&database().await).await.leads().await;
    let create = async |name: &str, config: Value| {
        let body = json!({ "name": name, "config": config });
        served.ask("POST", "/connectors", Some(&body)).await
    };
    assert_eq!(create("orders", config("orders")).await.0, 201);
    let exists = "Connector orders already exists";
    assert_eq!(create("orders", config("orders")).await, refused(409, exists));
    let (code, error) = create("others", config("orders")).await;
    let said = error["message"].as_str().unwrap();
    assert!(said.contains("slot.name: connector orders has this slot"), "{said}");
    assert_eq!(code, 400);
    let (code, error) = create("others", with("Others", "topic.prefix", "")).await;
    let said = error["message"].as_str().unwrap();
    let first = "Connector configuration is invalid and contains the following 2 error(s):\n";
    assert!(said.starts_with(first) && said.contains("slot.name: "), "{said}");
    assert_eq!(code, 400);
    let (code, error) = create("others", with("others", "name", "another")).await;
    let message = "Connector name configuration (another) doesn't match connector name in the URL \
                   (others)";
    assert_eq!((code, error), refused(400, message));
    // Of what is refused nothing stays.
    assert_eq!(served.ask("GET", "/connectors", None).await, (200, json!(["orders"])));

    let answer = served.raw("POST", "/connectors", &[("content-type", "text/plain")]).await;
    assert_eq!(answer.status(), 415);
    let large = json!({ "name": "x", "config": { "p": "x".repeat(1024 * 1024) } });
    assert_eq!(served.ask("POST", "/connectors", Some(&large)).await.0, 413);
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn configurations_are_validated_without_a_connector() {
    let served = Served::start(&database().await).await.leads().await;
    let path = "/connector-plugins/PostgresConnector/config/validate";
    let (code, answer) = served.ask("PUT", path, Some(&with("orders", "name", "orders"))).await;
    assert_eq!((code, &answer["error_count"]), (200, &json!(0)));
    let (code, answer) = served.ask("PUT", path, Some(&config("Not a slot"))).await;
    assert_eq!((code, &answer["error_count"]), (200, &json!(2)), "without a name, too");
    let path = "/connector-plugins/none/config/validate";
    assert_eq!(served.ask("PUT", path, Some(&config("orders"))).await.0, 400);
    // What the runner has against it stands with its property.
    let path = "/connector-plugins/PostgresConnector/config/validate";
    let mut stage = with("orders", "name", "orders");
    stage["poll.interval.ms"] = "13".into();
    let (code, answer) = served.ask("PUT", path, Some(&stage)).await;
    assert_eq!((code, &answer["error_count"]), (200, &json!(1)));
    let configs = answer["configs"].as_array().unwrap();
    let of = configs.iter().find(|one| one["value"]["name"] == "poll.interval.ms").unwrap();
    assert_eq!(of["value"]["errors"], json!(["not on this stage"]));
    let (code, error) = served.ask("PUT", "/connectors/orders/config", Some(&stage)).await;
    assert_eq!(code, 400);
    let said = error["message"].as_str().unwrap();
    assert!(said.contains("1 error(s):\npoll.interval.ms: not on this stage\n"), "{said}");
    let (_, plugins) = served.ask("GET", "/connector-plugins", None).await;
    assert_eq!(plugins[0]["type"], "source");
    let path = "/connector-plugins/PostgresConnector/config";
    let (code, definitions) = served.ask("GET", path, None).await;
    assert_eq!((code, &definitions[0]["name"]), (200, &json!("name")));
    assert_eq!(served.ask("GET", "/connectors", None).await, (200, json!([])));
    served.stop().await;
}

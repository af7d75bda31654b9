use serde_json::json;
use walpost_connect::Access;
use walpost_connector::Allowed;
use walpost_testkit::until;

use crate::support::{LIMIT, Served, Stage, config, database, with};

#[tokio::test(flavor = "multi_thread")]
async fn no_answer_has_a_secret_and_what_was_read_may_be_sent_back() {
    let served = Served::start(&database().await).await.leads().await;
    let path = "/connectors/orders/config";
    let (_, created) = served.ask("PUT", path, Some(&config("orders"))).await;
    assert_eq!(created["config"]["database.password"], "***");
    served.until("orders", "RUNNING").await;
    let mut read = served.ask("GET", path, None).await.1;
    for path in ["", "/config", "/tasks", "/status", "/offsets"] {
        let (_, answer) = served.ask("GET", &format!("/connectors/orders{path}"), None).await;
        assert!(!answer.to_string().contains("s3cr3t"), "{path}");
    }
    let (_, all) = served.ask("GET", "/connectors?expand=info", None).await;
    assert!(!all.to_string().contains("s3cr3t"));

    read["poll.interval.ms"] = "9".into();
    assert_eq!(served.ask("PUT", path, Some(&read)).await.0, 200);
    until(LIMIT, "a second run", async || served.stage.begun("orders") == 2).await;
    assert_eq!(served.stage.given.lock().unwrap()["orders"], "s3cr3t");
    // Nobody has the password sent to a host of theirs.
    read["database.hostname"] = "elsewhere".into();
    let (code, error) = served.ask("PUT", path, Some(&read)).await;
    assert_eq!(code, 400);
    assert!(error["message"].as_str().unwrap().contains("write database.password itself"));
    let patch = json!({ "database.hostname": "elsewhere" });
    let (code, _) = served.ask("PATCH", path, Some(&patch)).await;
    assert_eq!(code, 400, "nor by a change of the host alone");
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn placeholders_are_kept_as_they_are_and_lead_where_they_may() {
    let folder = std::env::temp_dir().join(walpost_testkit::unique_name("walpost_connect"));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("password"), "from a file").unwrap();
    let placeholder = format!("${{dir:{}:password}}", folder.display());
    let given = with("orders", "database.password", &placeholder);
    let database = database().await;

    let served = Served::start(&database).await.leads().await;
    let (code, error) = served.ask("PUT", "/connectors/orders/config", Some(&given)).await;
    assert_eq!(code, 400);
    let said = error["message"].as_str().unwrap();
    assert!(said.contains("is not resolved here") && said.contains("--allow-env"), "{error}");
    assert!(!said.contains("replacing a placeholder"), "said once: {error}");
    served.stop().await;

    let allowed = Allowed::nothing().with_path(folder.canonicalize().unwrap());
    let served = Served::start_with(&database, Stage::new(), Access::open(), allowed).await;
    let served = served.leads().await;
    let (code, info) = served.ask("PUT", "/connectors/orders/config", Some(&given)).await;
    assert_eq!((code, &info["config"]["database.password"]), (201, &json!(placeholder)));
    served.until("orders", "RUNNING").await;
    assert_eq!(served.stage.given.lock().unwrap()["orders"], "from a file");
    let elsewhere = with("others", "database.password", "${file:/etc/passwd:root}");
    let (code, _) = served.ask("PUT", "/connectors/others/config", Some(&elsewhere)).await;
    assert_eq!(code, 400);
    served.stop().await;
    std::fs::remove_dir_all(folder).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn who_has_no_login_is_not_answered() {
    let access = Access::open().bearer("t0ken").basic("admin", "s3cr3t");
    let database = database().await;
    let served = Served::start_with(&database, Stage::new(), access, Allowed::nothing()).await;
    let ask = async |headers: &[(&str, &str)]| {
        let answer = served.raw("GET", "/connectors", headers).await;
        (answer.status().as_u16(), answer.headers().contains_key("www-authenticate"))
    };
    assert_eq!(ask(&[]).await, (401, true));
    assert_eq!(ask(&[("authorization", "Bearer other")]).await, (401, true));
    for login in ["Bearer t0ken", "Basic YWRtaW46czNjcjN0"] {
        until(LIMIT, "an answer", async || ask(&[("authorization", login)]).await.0 == 200).await;
    }
    served.stop().await;

    let served = Served::start(&database).await.leads().await;
    let rebound = [("host", "rebound.example")];
    assert_eq!(served.raw("GET", "/connectors", &rebound).await.status(), 403);
    let page = [("origin", "http://evil.example")];
    assert_eq!(served.raw("PUT", "/connectors/x/pause", &page).await.status(), 403);
    served.stop().await;
}

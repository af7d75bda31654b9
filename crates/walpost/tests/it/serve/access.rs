use std::{fs, time::Duration};

use serde_json::json;
use walpost_testkit::Process;

use super::support::{LIMIT, Stage, TOKEN};
use crate::cli::{nowhere, stderr, stdout, walpost};

#[tokio::test]
async fn a_token_lets_in_and_nothing_else_does() {
    let stage = Stage::set().await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("token");
    fs::write(&path, format!("{TOKEN}\n")).unwrap();
    let of_file = format!("connect.token_file={}", path.display());
    let of_variable = "connect.token_variable=SERVE_TOKEN";
    for set in [&*of_file, of_variable] {
        let variables = [("SERVE_TOKEN", TOKEN)];
        let served = stage.serve_with(&["--set", set], &variables, Some(TOKEN));
        let served = served.until_health(200).await;
        assert_eq!(served.ask("GET", "/connectors", None).await, (200, json!([])));
        for token in [None, Some("0123456789abcdef0123456789abcdeF")] {
            let mut request = reqwest::Client::builder()
                .no_proxy()
                .build()
                .unwrap()
                .get(format!("http://127.0.0.1:{}/connectors", served.rest));
            if let Some(token) = token {
                request = request.bearer_auth(token);
            }
            let response = request.send().await.unwrap();
            assert_eq!(response.status(), 401, "{token:?}");
            assert!(response.headers().contains_key("www-authenticate"));
        }
        // Probes and metrics have no secrets and need none.
        assert_eq!(served.probe("/ready").await.0, 200);
        assert!(!served.process.log().contains(TOKEN), "{}", served.process.log());
        assert!(served.process.terminate(LIMIT).success());
    }
}

#[test]
fn what_others_reach_is_not_served_without_a_token() {
    let url = nowhere();
    let folder = tempfile::tempdir().unwrap();
    let short = folder.path().join("short");
    fs::write(&short, "s3cr3t\n").unwrap();
    let short = format!("connect.token_file={}", short.display());
    for (set, said) in [
        (&["connect.listen=0.0.0.0:0"][..], "connect.listen is 0.0.0.0:0, which others reach"),
        (&["connect.listen=[::]:0"], "connect.listen is [::]:0, which others reach"),
        (&["connect.listen="], "connect.listen is \"\"; an address such as 127.0.0.1:8083"),
        (&[&short], "connect.token_file leads to is no token: 16 or more"),
        (&["connect.token_file=/no/such"], "cannot read the file that connect.token_file names"),
        (&["connect.token_variable=NO_SUCH"], "the environment has no text under that name"),
        (&["connect.token_file=a", "connect.token_variable=B"], "are both set"),
    ] {
        let set = set.iter().flat_map(|set| ["--set", set]);
        let args: Vec<&str> = ["serve", "--postgres", &url].into_iter().chain(set).collect();
        let output = walpost(&args, &[]);
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains(said), "expected {said:?} in: {text}");
        assert!(!text.contains("s3cr3t"), "{text}");
    }
    let output = walpost(&["serve", "--postgres", &url, "--connector", "orders.json"], &[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("takes connectors over HTTP"), "{}", stderr(&output));
    let help = stdout(&walpost(&["serve", "--help"], &[]));
    assert!(help.contains("docs/connect-api.md") && help.contains("--allow-placeholders"));
}

#[tokio::test]
async fn placeholders_that_come_over_http_lead_where_it_is_allowed_alone() {
    let stage = Stage::set().await;
    let folder = tempfile::tempdir().unwrap();
    let secrets = folder.path().join("secrets.properties");
    fs::write(&secrets, "password=postgres\n").unwrap();
    let placeholder = format!("${{file:{}:password}}", secrets.display());
    let mut config = stage.config("orders");
    config["database.password"] = placeholder.clone().into();

    let served = stage.serve(&[]).until_health(200).await;
    let (code, error) = served.create("orders", &config).await;
    let said = error["message"].as_str().unwrap();
    assert!(code == 400 && said.contains("database.password: "), "{error}");
    assert!(served.process.terminate(LIMIT).success());

    let allowed = folder.path().display().to_string();
    let served = stage.serve(&["--allow-placeholders", &allowed]).until_health(200).await;
    let (code, info) = served.create("orders", &config).await;
    assert_eq!((code, &info["config"]["database.password"]), (201, &json!(placeholder)));
    served.until("orders", "RUNNING").await;
    config["database.password"] = "${file:/etc/passwd:root}".into();
    let (code, _) = served.ask("PUT", "/connectors/orders/config", Some(&config)).await;
    assert_eq!(code, 400);
    // A secret itself shows nowhere.
    config["database.password"] = "s3cr3t-s3cr3t".into();
    let path = "/connectors/orders/config";
    assert_eq!(served.ask("PUT", path, Some(&config)).await.0, 200);
    for path in ["/connectors?expand=info", path, "/connectors/orders/tasks"] {
        let (_, body) = served.ask("GET", path, None).await;
        assert!(body.to_string().contains("***"), "{body}");
        assert!(!body.to_string().contains("s3cr3t-s3cr3t"), "{body}");
    }
    assert!(!served.process.log().contains("s3cr3t-s3cr3t"), "{}", served.process.log());
    assert!(served.process.terminate(LIMIT).success());
}

#[tokio::test]
async fn without_its_table_a_process_ends_and_says_how_to_make_it() {
    let server = crate::mistakes::server();
    let url = server.url("postgres");
    let set = ["--set", "connect.listen=127.0.0.1:0", "--set", "http.listen="];
    let args = [&["serve", "--postgres", &url][..], &set].concat();
    let none: [(&str, &str); 0] = [];
    let process = Process::start(env!("CARGO_BIN_EXE_walpost"), args, none);
    let status = process.wait(Duration::from_secs(60));
    assert_eq!(status.code(), Some(3), "{}", process.log());
    assert!(process.log().contains("walpost migrate --set connect"), "{}", process.log());
}

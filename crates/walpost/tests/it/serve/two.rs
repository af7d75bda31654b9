use serde_json::json;
use walpost_testkit::until;

use super::support::{LIMIT, Stage};

#[tokio::test]
#[ignore = "deep: takes a minute"]
async fn a_process_that_hangs_is_replaced_and_stands_by_when_it_wakes() {
    let stage = Stage::set().await;
    let first = stage.serve(&[]).until_health(200).await;
    assert_eq!(first.create("orders", &stage.config("orders")).await.0, 201);
    first.until("orders", "RUNNING").await;
    stage.insert(1);
    stage.until_published(&[1]).await;
    let second = stage.serve(&[]).until_health(503).await;
    first.process.pause();
    stage.insert(2);
    let second = second.until_health(200).await;
    second.until("orders", "RUNNING").await;
    stage.until_published(&[1, 2]).await;
    first.process.resume();
    let first = first.until_health(503).await;
    stage.insert(3);
    stage.until_published(&[1, 2, 3]).await;
    for process in [first.process, second.process] {
        assert!(process.terminate(LIMIT).success(), "{}", process.log());
    }
}

#[tokio::test]
#[ignore = "deep: takes long"]
async fn a_process_that_stands_by_goes_on_where_a_killed_one_was() {
    let stage = Stage::set().await;
    // Two connectors publish the one table.
    let overlap = ["--set", "pipeline.allow_overlap=true"];
    let first = stage.serve(&overlap).until_health(200).await;
    assert_eq!(first.create("orders", &stage.config("orders")).await.0, 201);
    assert_eq!(first.create("paused", &stage.config("paused")).await.0, 201);
    first.until("orders", "RUNNING").await;
    first.until("paused", "RUNNING").await;
    assert_eq!(first.ask("PUT", "/connectors/paused/pause", None).await.0, 202);
    first.until("paused", "PAUSED").await;
    stage.insert(1);
    stage.until_published(&[1]).await;

    let second = stage.serve(&overlap).until_health(503).await;
    until(LIMIT, "the second to stand by", async || {
        let (code, body) = second.probe("/ready").await;
        code == 200 && body.contains("\"role\":\"stands by\"")
    })
    .await;
    let (code, error) = second.ask("GET", "/connectors", None).await;
    assert_eq!((code, &error["error_code"]), (409, &json!(409)));

    first.process.kill();
    first.process.killed(LIMIT);
    stage.insert(2);
    let second = second.until_health(200).await;
    second.until("orders", "RUNNING").await;
    second.until("paused", "PAUSED").await;
    stage.until_published(&[1, 2]).await;
    assert!(second.process.terminate(LIMIT).success());
}

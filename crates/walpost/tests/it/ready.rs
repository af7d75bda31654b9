//! What `/ready`, the log and `walpost status` say of a slot that stands still,
//! in the words of the program.

use std::{
    io::{Read, Write},
    net::TcpStream,
    time::Duration,
};

use rdkafka::mocking::MockCluster;
use walpost_local::{Postgres, Signal, free_port, send_signal};
use walpost_testkit::{Process, until};

use crate::{
    cli::{stdout, walpost},
    mistakes::{migrated, server},
};

const LIMIT: Duration = Duration::from_secs(60);

/// Status line and body.
fn get(port: u16, accept: &str) -> (String, String) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    write!(stream, "GET /ready HTTP/1.0\r\naccept: {accept}\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    (head.lines().next().unwrap().to_owned(), body.to_owned())
}

pub(crate) async fn answers(port: u16, code: &str, reason: &str) -> String {
    let what = format!("{code}, {reason}");
    until(LIMIT, &what, async || {
        let (status, body) = get(port, "*/*");
        status.contains(code) && body.contains(reason)
    })
    .await;
    get(port, "*/*").1
}

fn walsender(server: &Postgres) -> u32 {
    let sql = "select active_pid from pg_replication_slots";
    server.psql("shop", sql).unwrap().trim().parse().unwrap()
}

#[tokio::test]
#[ignore = "deep: takes long"]
async fn a_stuck_slot_is_told_by_probe_log_and_status_and_its_end_too() {
    let server = server();
    let url = migrated(&server, "shop");
    let broker = MockCluster::new(1).unwrap();
    let port = free_port().unwrap();
    let listen = format!("http.listen=127.0.0.1:{port}");
    let kafka = broker.bootstrap_servers();
    let common = ["--postgres", &url, "--kafka", &kafka];
    let set = ["--set", &listen, "--set", "pipeline.wal_budget_bytes=67_108_864"];
    let args = |command| [&[command], &common[..], &set[..]].concat();
    let nothing: [(&str, &str); 0] = [];
    let relay = Process::start(env!("CARGO_BIN_EXE_walpost"), args("run"), nothing);
    relay.wait_for_log("streaming", LIMIT);
    answers(port, " 200 ", "\"retained_bytes\":").await;
    assert_eq!(get(port, "text/plain").1, "ready: streaming\n");

    let pid = walsender(&server);
    send_signal(pid, Signal::Stop).unwrap();
    let noise = "create table noise as select repeat('x', 500) from generate_series(1, 100000)";
    server.psql("shop", noise).unwrap();
    let body = answers(port, " 503 ", "still holds the slot").await;
    assert!(body.contains(&format!("\"walsender_pid\":{pid}")), "{body}");
    assert!(body.contains("\"limit_bytes\":67108864,"), "{body}");
    assert!(get(port, "text/plain").1.starts_with("not ready: interrupted: process"));
    relay.wait_for_log("the WAL kept for the slot has reached", LIMIT);
    relay.wait_for_log("ERROR", LIMIT);
    relay.wait_for_log("not ready", LIMIT);
    let status = stdout(&walpost(&args("status"), &[]));
    assert!(status.contains("WAL budget (main) "), "{status}");
    assert!(status.contains("of 64.0 MiB, by wal_budget_bytes"), "{status}");

    send_signal(pid, Signal::Continue).unwrap();
    answers(port, " 200 ", "\"reason\":\"streaming\"").await;
    relay.wait_for_log("ready again", LIMIT);
    until(LIMIT, "the end of the warning", async || {
        server.psql("shop", "checkpoint").unwrap();
        relay.log().contains("is down to")
    })
    .await;
    assert!(relay.terminate(LIMIT).success());
}

/// As many as would take every descriptor that the relay may have.
fn silent_connections(port: u16) -> Vec<TcpStream> {
    let connect = |index: usize| {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        if index.is_multiple_of(2) {
            write!(stream, "GET /ready HTTP/1.1\r\nhost: ").unwrap();
        }
        stream
    };
    (0..200).map(connect).collect()
}

#[tokio::test]
#[ignore = "deep: takes long"]
async fn connections_that_say_nothing_take_no_descriptor_that_the_relay_needs_and_end() {
    let server = server();
    let url = migrated(&server, "shop");
    let broker = MockCluster::new(1).unwrap();
    let port = free_port().unwrap();
    let listen = format!("http.listen=127.0.0.1:{port}");
    let kafka = broker.bootstrap_servers();
    let limited = "ulimit -n 200; exec \"$0\" \"$@\"";
    let run = [env!("CARGO_BIN_EXE_walpost"), "run", "--postgres", &url, "--kafka", &kafka];
    let args = [&["-c", limited], &run[..], &["--set", &listen]].concat();
    let nothing: [(&str, &str); 0] = [];
    let relay = Process::start("/bin/sh", args, nothing);
    relay.wait_for_log("streaming", LIMIT);
    answers(port, " 200 ", "\"retained_bytes\":").await;
    let descriptors = || std::fs::read_dir(format!("/proc/{}/fd", relay.pid())).unwrap().count();
    let before = descriptors();
    let silent = silent_connections(port);
    until(LIMIT, "as many as are served", async || descriptors() >= before + 50).await;
    // The relay has some of its own that come and go, and one that is closed for a new
    // one stays for a moment.
    until(LIMIT, "no more than that", async || descriptors() <= before + 64 + 10).await;

    let before = walsender(&server);
    server.psql("shop", &format!("select pg_terminate_backend({before})")).unwrap();
    let another = "select count(*) from pg_replication_slots where active_pid <> ";
    let another = format!("{another}{before}");
    until(LIMIT, "the relay connects again", async || {
        server.psql("shop", &another).unwrap().trim() == "1"
    })
    .await;
    for mut stream in silent {
        stream.set_read_timeout(Some(2 * LIMIT)).unwrap();
        let mut rest = Vec::new();
        // With a word or without one; what counts is that it ends.
        if let Err(error) = stream.read_to_end(&mut rest) {
            assert!(error.kind() == std::io::ErrorKind::ConnectionReset, "{error}");
        }
    }
    answers(port, " 200 ", "\"reason\":\"streaming\"").await;
    assert!(relay.terminate(LIMIT).success());
}

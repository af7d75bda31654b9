use walpost_local::Postgres;

use crate::cli::{stderr, stdout, walpost};

fn postgres() -> Postgres {
    Postgres::builder().throwaway().start().unwrap()
}

#[test]
fn printed_sql_is_that_of_the_set() {
    let relay = stdout(&walpost(&["migrate", "--print", "--set", "relay"], &[]));
    assert!(relay.contains(".outbox (") && !relay.contains(".consumer_parked ("));
    let all = stdout(&walpost(&["migrate", "--print", "--schema", "other"], &[]));
    assert!(all.contains("\"other\".outbox (") && all.contains("\"other\".consumer_parked ("));
    assert!(!all.contains(".inbox ("), "nobody asked for it");
    let inbox = stdout(&walpost(&["migrate", "--print", "--set", "inbox"], &[]));
    assert!(inbox.contains(".inbox (") && !inbox.contains(".outbox ("));
    let sent = stdout(&walpost(&["migrate", "--print", "--set", "sink.kind=webhook"], &[]));
    assert!(sent.contains(".outbox (") && sent.contains(".webhook_delivery ("));
    assert!(!sent.contains(".consumer_parked ("), "nothing goes to a topic");
}

#[test]
fn the_sets_are_told_by_the_program() {
    let help = stdout(&walpost(&["migrate", "--help"], &[]));
    for set in ["relay", "consumer", "inbox", "idempotency", "webhook", "connect", "all"] {
        assert!(help.contains(&format!("--set {set} ")), "{help}");
    }
    let output = walpost(&["migrate", "--set", "foo"], &[]);
    assert_eq!(output.status.code(), Some(2));
    let text = stderr(&output);
    let told = "or one of relay, consumer, inbox, idempotency, webhook, connect, all, not \"foo\"";
    assert!(text.contains(told), "{text}");
}

#[test]
fn a_database_is_migrated_once_and_then_has_a_status() {
    let postgres = postgres();
    let url = postgres.url("postgres");
    let walpost = |args: &[&str]| walpost(&[args, &["--postgres", &url]].concat(), &[]);
    let output = walpost(&["status"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(stderr(&output).contains("next step: run `walpost migrate`"), "{}", stderr(&output));

    assert!(stdout(&walpost(&["migrate", "--status"])).contains("pending"));
    let output = walpost(&["migrate"]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stdout(&output).contains("applied relay/0001_outbox"));
    assert!(stdout(&walpost(&["migrate"])).contains("nothing to apply"));
    assert!(stdout(&walpost(&["migrate", "--status"])).contains("applied by postgres"));

    let status = stdout(&walpost(&["status"]));
    assert!(status.contains("no pipeline has run here yet"), "{status}");
    assert!(status.contains("walpost.outbox"), "{status}");
    assert_eq!(stdout(&walpost(&["parked", "list"])), "nothing is parked\n");
    let output = walpost(&["parked", "show", "7"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("number 7"), "{}", stderr(&output));
}

#[test]
fn a_check_shows_every_finding_and_exits_by_the_first_side_that_fails() {
    let postgres = postgres();
    let url = postgres.url("postgres");
    let kafka = format!("127.0.0.1:{}", walpost_local::free_port().unwrap());
    let check = |args: &[&str]| {
        walpost(&[&["check", "--postgres", &url, "--kafka", &kafka], args].concat(), &[])
    };
    let output = check(&[]);
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(3), "{text}");
    assert!(text.contains("FAIL  PostgreSQL  walpost's tables"), "{text}");
    assert!(text.contains("FAIL  Kafka       brokers"), "{text}");
    assert!(text.contains("next step (brokers)"), "{text}");

    assert!(walpost(&["migrate", "--postgres", &url], &[]).status.success());
    let output = check(&["--json"]);
    assert_eq!(output.status.code(), Some(4), "{}", stdout(&output));
    assert!(stdout(&output).contains(r#""ok":false"#), "{}", stdout(&output));
}

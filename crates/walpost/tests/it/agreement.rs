//! `check`, `migrate` and `run` agree on what is missing and who creates it.

use serde_json::Value;
use walpost_local::Postgres;

use crate::{
    cli::{stderr, stdout, walpost},
    mistakes::server,
};

const EVENTS: &str = "create table public.events (id uuid, aggregatetype text, aggregateid text, \
                      type text, payload jsonb)";
const OF_EVENTS: [&str; 2] = ["--set", "pipeline.tables=public.events"];

fn run(command: &str, url: &str, set: &[&str]) -> (Option<i32>, String) {
    let common = [command, "--postgres", url];
    let output = walpost(&[&common[..], set].concat(), &[]);
    (output.status.code(), stdout(&output) + &stderr(&output))
}

fn migrate(url: &str, set: &[&str]) -> String {
    let (code, text) = run("migrate", url, set);
    assert_eq!(code, Some(0), "{text}");
    text
}

/// What `check` finds of one name in PostgreSQL: its outcome, detail and next step.
fn checked(url: &str, set: &[&str], name: &str) -> [String; 3] {
    let more = ["--kafka", "127.0.0.1:1", "--set", "http.listen=", "--json"];
    let args = [&["check", "--postgres", url], &more[..], set].concat();
    let found: Value = serde_json::from_str(&stdout(&walpost(&args, &[]))).unwrap();
    let checks = found["checks"].as_array().unwrap();
    let check = checks.iter().find(|check| check["name"] == name);
    let check = check.unwrap_or_else(|| panic!("no check {name:?} in {found}"));
    ["outcome", "detail", "next_step"].map(|key| check[key].as_str().unwrap_or("").to_owned())
}

fn published(server: &Postgres, publication: &str) -> String {
    let query = format!(
        "select coalesce(string_agg(tablename, ' ' order by tablename), '') \
         from pg_publication_tables where pubname = '{publication}'"
    );
    server.psql("postgres", &query).unwrap().trim().to_owned()
}

#[test]
fn the_publication_that_check_announces_is_the_one_that_migrate_creates() {
    let server = server();
    let url = server.url("postgres");
    let announced = checked(&url, &OF_EVENTS, "publication");
    assert_eq!(announced[1], "\"walpost\" will be created");
    // A table that is to come: migrate and check name the same statement.
    let statement = "`alter publication \"walpost\" add table \"public\".\"events\"`";
    let text = migrate(&url, &OF_EVENTS);
    assert!(text.contains("public.events is in no publication yet: it does not exist"), "{text}");
    assert!(text.contains(statement), "{text}");
    server.psql("postgres", EVENTS).unwrap();
    let [outcome, _, next_step] = checked(&url, &OF_EVENTS, "publication");
    assert_eq!((outcome.as_str(), next_step.contains(statement)), ("fail", true), "{next_step}");
    let text = migrate(&url, &OF_EVENTS);
    assert!(text.contains("added public.events to the publication"), "{text}");
    assert_eq!(checked(&url, &OF_EVENTS, "publication")[0], "ok");
    assert_eq!(published(&server, "walpost"), "events outbox");
    assert!(!migrate(&url, &OF_EVENTS).contains("publication"), "there is nothing to add");
}

#[test]
fn a_publication_of_another_name_is_left_to_the_first_start() {
    let server = server();
    let url = server.url("postgres");
    server.psql("postgres", EVENTS).unwrap();
    let named = [&OF_EVENTS[..], &["--set", "pipeline.publication=mine"]].concat();
    let will_be = ["ok", "\"mine\" will be created", ""].map(str::to_owned);
    assert_eq!(checked(&url, &named, "publication"), will_be);
    migrate(&url, &named);
    assert_eq!(published(&server, "mine"), "", "migrate has not created it");
    assert_eq!(checked(&url, &named, "publication"), will_be);
    // One that exists already is in nobody's way.
    server.psql("postgres", "create publication mine for table public.events").unwrap();
    assert_eq!(checked(&url, &named, "publication")[0], "ok");
    migrate(&url, &named);
    assert_eq!(published(&server, "mine"), "events");
}

/// Settings that are refused before anything is connected: each with the others that
/// it does not go with.
const REFUSED: &[&[&str]] = &[
    &["log.level=verbose"],
    &["log.format=xml"],
    &["http.listen=nowhere"],
    &["postgres.password_file=/nowhere"],
    &["postgres.url_file=/nowhere"],
    &["pipeline.slot=Bad-Slot"],
    &["pipeline.name="],
    &["pipeline.tables=a.b.c"],
    &["pipeline.tables=", "pipeline.message_prefixes="],
    &["pipeline.source=triggers"],
    &["pipeline.initial=all"],
    &["pipeline.on_lost_slot=ignore"],
    &["pipeline.park=topic"],
    &["pipeline.max_event_bytes=1"],
    &["pipeline.message_prefixes=walpost-move"],
    &["pipeline.dead_letter_topic=a b"],
    &["pipeline.dead_letter_topic=outbox.event.order"],
    &["pipeline.source=polling", "pipeline.row_filter=true"],
    &["pipeline.source=polling", "pipeline.tables=a,b"],
    &["pipeline.source=polling", "pipeline.mark_published=true"],
    &["pipeline.source=polling", "pipeline.dead_letter_topic=letters"],
    &["pipeline.source=polling", "sink.publish=transactional"],
    &["pipeline.source=polling", "retention.enabled=true"],
    &["pipeline.source=polling", "polling.claim_timeout_ms=1"],
    &["pipeline.source=polling", "polling.pending_value=PUBLISHED"],
    &["pipeline.source=polling", "polling.id_column="],
    &["pipeline.source=polling", "polling.retry_delays=5"],
    &["pipeline.source=polling", "polling.max_attempts_applies_to=none"],
    &["router.topic_regex=("],
    &["router.additional_placement=type:footer"],
    &["router.additional_missing=warn"],
    &["router.null_header=null"],
    &["router.invalid_operation=halt"],
    &["encode.key=xml"],
    &["encode.value=xml"],
    &["encode.json_payload=raw"],
    &["encode.null_key=empty"],
    &["kafka.acks=1"],
    &["kafka.transactional.id=mine"],
    &["kafka.no.such.key=1"],
    &["sink.kind=mqtt"],
    &["sink.publish=twice"],
    &["sink.transactional_id=mine"],
    &["sink.publish=transactional", "sink.transaction_interval_ms=3600000"],
    &["sink.sasl_password_file=/nowhere"],
    &["retention.enabled=true", "retention.keep_days=1"],
    &["webhook.prune=true"],
    &["inbox.prune=true", "inbox.url=postgres://h:port/"],
    &["idempotency.prune=true", "idempotency.url=postgres://h:port/"],
    &["sink.kind=webhook"],
    &["sink.kind=webhook", "destination.a.url=http://a.example/"],
    &["sink.kind=webhook", "destination.a.url=https://10.0.0.1/"],
    &["sink.kind=webhook", "destination.a.url=https://a.example/", "destination.a.order=any"],
    &["sink.kind=webhook", "destination.a.url=https://a.example/", "webhook.alert_destination=b"],
    &["sink.kind=webhook", "destination.a.url=https://a.example/", "sink.publish=transactional"],
];

#[test]
#[ignore = "deep: a hundred processes"]
fn what_run_refuses_of_a_configuration_check_refuses_with_the_same_words() {
    let url = crate::cli::nowhere();
    let error = |text: &str| {
        let line = text.lines().find(|line| line.starts_with("error: "));
        line.unwrap_or_else(|| panic!("no error in {text}")).to_owned()
    };
    for refused in REFUSED {
        let set = refused.iter().flat_map(|set| ["--set", *set]);
        let patience = ["--kafka", "127.0.0.1:1", "--set", "pipeline.start_timeout_ms=1"];
        let set: Vec<&str> = set.chain(patience).collect();
        let (code, text) = run("run", &url, &set);
        assert_eq!(code, Some(2), "{refused:?}: {text}");
        let told = error(&text);
        let (code, text) = run("check", &url, &set);
        assert_eq!(code, Some(2), "{refused:?}: {text}");
        assert_eq!(error(&text), told, "{refused:?}");
    }
}

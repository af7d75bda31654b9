//! Parked events and their rows find each other by the id as the server prints
//! it, whatever its type, and nothing leaves where they do not.

use walpost_relay::{
    Outcome, RelayError, ReplayFilter, Replayer, check_retention, prunable, prunable_parked, prune,
    prune_parked,
};
use walpost_router::RouterConfig;
use walpost_testkit::until;

use crate::{
    proven::proven,
    retention::{pruned, retention, run},
    rig::{Rig, SOON, raw, stop},
};

const MONTHS_AGO: &str = "update walpost.parked set updated_at = now() - interval '90 days'";
const OPEN: &str = "select count(*) from walpost.parked where state = 'open'";
const OUTBOX: &str = "select count(*) from walpost.outbox";

/// An outbox whose ids have another type.
async fn with_ids(kind: &str) -> Rig {
    let mut rig = Rig::new().await;
    rig.config.max_event_bytes = 20_000;
    let change = format!(
        "create type kind as enum ('big', 'other', 'last'); alter table walpost.outbox \
         alter id drop default, alter id type {kind} using null::{kind}"
    );
    run(&rig, &change).await;
    // Sessions print the ids as the WAL does, whatever the database says.
    let elsewhere = "do $$ begin execute format('alter database %I set timezone = ''Asia/Tokyo''', \
                     current_database()); end $$";
    run(&rig, elsewhere).await;
    rig
}

/// An event of a month ago.
async fn insert(rig: &Rig, column: &str, id: &str, payload: &str) {
    let sql = format!(
        "insert into walpost.outbox ({column}, aggregatetype, aggregateid, type, payload, \
         created_at) values ('{id}', 'order', '{id}', 'Placed', '{payload}', \
         now() - interval '30 days')"
    );
    run(rig, &sql).await;
}

fn large() -> String {
    format!("\"{}\"", "x".repeat(30_000))
}

async fn discard(rig: &Rig, condition: &str) {
    let before = rig.count(OPEN).await;
    run(rig, &format!("update walpost.parked set requested = 'discard' where {condition}")).await;
    until(SOON, "it is discarded", async || rig.count(OPEN).await < before).await;
}

#[tokio::test]
async fn rows_of_parked_events_are_known_by_ids_with_blanks_behind_them() {
    let mut rig = with_ids("char(12)").await;
    rig.config.mark_published = true;
    run(
        &rig,
        "alter table walpost.outbox add column status text, add column published_at timestamptz; \
         create index on walpost.outbox (seq) where published_at is null",
    )
    .await;
    let relay = rig.streaming().await;
    insert(&rig, "id", "big", &large()).await;
    rig.world.never("2");
    insert(&rig, "id", "two", "2").await;
    insert(&rig, "id", "three", "3").await;
    proven(&rig, 3).await;
    let marked = "select count(*) from walpost.outbox where published_at is not null";
    until(SOON, "a row is marked", async || rig.count(marked).await > 0).await;
    assert_eq!(rig.count(marked).await, 1, "parked ones are not marked");
    discard(&rig, "event_id like 'two%'").await;

    let (config, router) = (rig.config.clone(), RouterConfig::walpost());
    let replayer = Replayer::open(&rig.database, config, router, raw()).await.unwrap();
    let survey = replayer.find(None, ReplayFilter::default(), None).await.unwrap().survey;
    assert_eq!((survey.events, survey.parked), (1, 2), "what was discarded is not published");

    run(&rig, MONTHS_AGO).await;
    let settled = prune_parked(&rig.database, &rig.config, "id", &retention()).await.unwrap();
    assert_eq!(settled, 0, "its row is in the outbox");
    let found = prunable(&rig.database, &rig.config, "id", &retention()).await.unwrap();
    assert_eq!((found[0].rows, found[0].parked), (2, 1), "{found:?}");
    assert_eq!(pruned(&rig, &retention()).await.rows, 2);
    assert_eq!(rig.count(OUTBOX).await, 1, "nothing else has the contents of the open one");
    let settled = prune_parked(&rig.database, &rig.config, "id", &retention()).await.unwrap();
    assert_eq!(settled, 1);
    stop(relay).await;
}

#[tokio::test]
#[ignore = "deep: takes long"]
async fn ids_of_any_type_keep_the_row_of_an_open_event() {
    for (kind, id) in [
        ("uuid", "AAAAAAAA-0000-0000-0000-00000000000b"),
        ("bigint", "0042"),
        ("varchar(12)", "big "),
        ("kind", "big"),
        ("numeric(6, 2)", "7"),
        ("timestamptz", "2026-01-02 03:04:05+02"),
        ("boolean", "true"),
    ] {
        let rig = with_ids(kind).await;
        let relay = rig.streaming().await;
        insert(&rig, "id", id, &large()).await;
        proven(&rig, 1).await;
        assert_eq!(rig.count(OPEN).await, 1);
        assert_eq!(pruned(&rig, &retention()).await.rows, 0, "{kind}");
        discard(&rig, "true").await;
        run(&rig, MONTHS_AGO).await;
        let settled = async || {
            let counted = prunable_parked(&rig.database, &rig.config, "id", &retention()).await;
            counted.unwrap()
        };
        assert_eq!(settled().await, 0, "{kind}");
        assert_eq!(pruned(&rig, &retention()).await.rows, 1, "{kind}");
        assert_eq!(settled().await, 1, "{kind}");
        stop(relay).await;
    }
}

/// What was parked under another column than is configured now.
#[tokio::test]
async fn after_a_change_of_the_id_column_no_row_leaves_until_open_events_are_settled() {
    let mut rig = Rig::new().await;
    rig.config.max_event_bytes = 20_000;
    rig.router.event_id = "key".to_owned();
    run(&rig, "alter table walpost.outbox add column key text").await;
    let relay = rig.streaming().await;
    insert(&rig, "key", "big", &large()).await;
    rig.world.never("2");
    insert(&rig, "key", "two", "2").await;
    proven(&rig, 2).await;
    discard(&rig, "event_id = 'two'").await;
    run(&rig, MONTHS_AGO).await;
    assert_eq!(prunable_parked(&rig.database, &rig.config, "key", &retention()).await.unwrap(), 0);
    // The type of the other column takes none of the ids.
    let settled = prune_parked(&rig.database, &rig.config, "id", &retention()).await.unwrap();
    assert_eq!((settled, rig.count(OPEN).await), (1, 1));
    let refused = prune(&rig.database, &rig.config, "id", &retention(), |_| {}).await;
    let error = refused.unwrap_err();
    let RelayError::Prerequisite { problem, remedy } = error else { panic!("{error:?}") };
    assert!(problem.contains("no row of table walpost.outbox has its id in column \"id\""));
    assert!(remedy.contains("set router.event_id back"), "{remedy}");
    let checked = check_retention(&rig.database, &rig.config, "id", &retention()).await;
    assert_eq!((checked.outcome, checked.detail), (Outcome::Warn, problem));
    assert_eq!(rig.count(OUTBOX).await, 2);
    // Under the old column the others leave.
    let done = prune(&rig.database, &rig.config, "key", &retention(), |_| {}).await.unwrap();
    assert_eq!(done[0].rows, 1);
    discard(&rig, "event_id = 'big'").await;
    assert_eq!(pruned(&rig, &retention()).await.rows, 1);
    stop(relay).await;
}

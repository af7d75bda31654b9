//! A row is one event, whichever program publishes it, and equal ids of two
//! tables are two: effects exactly once, or a refusal before anything is published.

mod cell;

use cell::Cell;
use walpost_testkit::{Process, until};
use walpost_tests::LIMIT;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ids {
    Uuid,
    Ulid,
    Bigint,
    Text,
}

impl Ids {
    const ALL: [Self; 4] = [Self::Uuid, Self::Ulid, Self::Bigint, Self::Text];

    fn are_unique(self) -> bool {
        matches!(self, Self::Uuid | Self::Ulid)
    }

    fn column(self) -> &'static str {
        match self {
            Self::Uuid => "uuid primary key default gen_random_uuid()",
            // Hexadecimal digits are some of Crockford's.
            Self::Ulid => {
                "text primary key default \
                 '01' || upper(substr(replace(gen_random_uuid()::text, '-', ''), 1, 24))"
            }
            Self::Bigint => "bigint generated always as identity primary key",
            Self::Text => "text primary key",
        }
    }
}

/// Who publishes rows, at least for a second time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    /// Relays that read the WAL and are killed.
    Wal,
    /// Relays that poll and are killed.
    Polling,
    Replay,
    /// Records as Debezium writes them, and then Walpost.
    Debezium,
    /// Another pipeline that publishes all rows again.
    OtherPipeline,
    /// A pipeline on a database that was restored.
    Restored,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    OneService,
    TwoServices,
    TwoTables,
}

impl Shape {
    const ALL: [Self; 3] = [Self::OneService, Self::TwoServices, Self::TwoTables];
}

fn kill(relays: Vec<Process>) {
    for relay in relays {
        relay.kill();
    }
}

/// Rows that relays publish which are killed half-way.
async fn published_by(cell: &Cell, by: By) {
    let initial = [("WALPOST_PIPELINE_INITIAL", "publish")];
    cell.insert(0).await;
    let relays = cell.relays("main", by, &initial);
    cell.records_reach(cell.rows(1)).await;
    kill(relays);
    cell.insert(1).await;
    let relays = cell.relays("main", by, &initial);
    cell.records_reach(cell.rows(2)).await;
    cell.each_row_has_one_effect(2, "after a kill").await;
    kill(relays);
}

async fn replayed(cell: &Cell) {
    let relays = cell.relays("main", By::Wal, &[]);
    until(LIMIT, "slots", async || cell.has_slots().await).await;
    cell.insert(0).await;
    cell.records_reach(cell.rows(1)).await;
    cell.each_row_has_one_effect(1, "before the replay").await;
    for (code, text) in cell.replay(&[]) {
        assert_eq!(code, Some(0), "{text}");
    }
    cell.records_reach(2 * cell.rows(1)).await;
    cell.each_row_has_one_effect(1, "after the replay").await;
    kill(relays);
}

/// Rows that Debezium has published, which are then replayed by a pipeline that has
/// left them out. Without the header of the source all of it may be published again.
async fn taken_from_debezium(cell: &Cell, source_header: bool) {
    let more = [
        ("WALPOST_PIPELINE_INITIAL", "skip"),
        ("WALPOST_PIPELINE_SOURCE_HEADER", if source_header { "true" } else { "false" }),
    ];
    cell.insert(0).await;
    cell.debezium().await;
    cell.each_row_has_one_effect(1, "of Debezium").await;
    let relays = cell.relays("main", By::Wal, &more);
    until(LIMIT, "slots", async || cell.has_slots().await).await;
    cell.insert(1).await;
    cell.records_reach(cell.rows(2)).await;
    let is_refused = source_header && !cell.ids.are_unique();
    for (code, text) in cell.replay(&more) {
        assert_eq!(code == Some(2), is_refused, "{code:?} {text}");
        assert_eq!(text.contains("under another source"), is_refused, "{text}");
    }
    let published = if is_refused { 2 } else { 4 };
    cell.records_reach(cell.rows(published)).await;
    assert_eq!(cell.records().await, cell.rows(published));
    cell.each_row_has_one_effect(2, "after Debezium").await;
    kill(relays);
}

/// Another pipeline publishes every row again, here or where the tables were restored.
async fn published_again(cell: &mut Cell, by: By) {
    let relays = cell.relays("main", By::Wal, &[]);
    until(LIMIT, "slots", async || cell.has_slots().await).await;
    cell.insert(0).await;
    cell.records_reach(cell.rows(1)).await;
    cell.each_row_has_one_effect(1, "before").await;
    kill(relays);
    cell.forget_pipelines().await;
    if by == By::Restored {
        cell.restore().await;
    }
    cell.insert(1).await;
    let relays = cell.relays("other", By::Wal, &[("WALPOST_PIPELINE_INITIAL", "publish")]);
    cell.records_reach(cell.rows(3)).await;
    cell.each_row_has_one_effect(2, "once all is published again").await;
    kill(relays);
}

async fn run(ids: Ids, by: By, shape: Shape) {
    let mut cell = Cell::open(ids, by, shape).await;
    match by {
        By::Wal | By::Polling => published_by(&cell, by).await,
        By::Replay => replayed(&cell).await,
        By::Debezium => {
            taken_from_debezium(&cell, true).await;
            let cell = Cell::open(ids, by, shape).await;
            taken_from_debezium(&cell, false).await;
        }
        By::OtherPipeline | By::Restored => published_again(&mut cell, by).await,
    }
}

#[tokio::test]
async fn two_services_with_equal_ids_in_one_topic_have_each_effect_once() {
    run(Ids::Bigint, By::Wal, Shape::TwoServices).await;
}

#[tokio::test]
async fn two_tables_that_another_pipeline_publishes_again_have_each_effect_once() {
    run(Ids::Bigint, By::OtherPipeline, Shape::TwoTables).await;
}

async fn all_cells(by: By) {
    for ids in Ids::ALL {
        for shape in Shape::ALL {
            println!("{ids:?} {by:?} {shape:?}");
            run(ids, by, shape).await;
        }
    }
}

#[tokio::test]
#[ignore = "deep: 60 combinations"]
async fn each_event_has_one_effect_whatever_its_id_and_whoever_publishes_it() {
    for by in [By::Wal, By::Polling, By::Replay, By::Debezium, By::OtherPipeline] {
        all_cells(by).await;
    }
}

#[tokio::test]
#[ignore = "deep: pg_dump and pg_restore of a PostgreSQL 15"]
async fn each_event_has_one_effect_when_a_restored_database_publishes_it_again() {
    all_cells(By::Restored).await;
}

/// Two databases whose pipelines have one name do not fence each other off.
#[tokio::test]
async fn transactional_pipelines_of_one_name_in_two_databases_have_two_ids() {
    let cell = Cell::open(Ids::Bigint, By::Wal, Shape::TwoServices).await;
    let relays = cell.relays("main", By::Wal, &[("WALPOST_SINK_PUBLISH", "transactional")]);
    until(LIMIT, "slots", async || cell.has_slots().await).await;
    for half in 0..2 {
        cell.insert(half).await;
        cell.each_row_is_committed(half + 1).await;
    }
    let mut ids = Vec::new();
    for service in &cell.services {
        let fence = "select fence from walpost.checkpoint";
        ids.push(service.connect().await.query_one(fence, &[]).await.unwrap().get::<_, String>(0));
    }
    assert!(ids.iter().all(|id| id.starts_with("walpost-main-")), "{ids:?}");
    assert_ne!(ids[0], ids[1]);
    for relay in &relays {
        assert!(!relay.log().contains("fenced"), "{}", relay.log());
    }
    kill(relays);
}

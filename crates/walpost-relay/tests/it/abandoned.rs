//! A timeline that was left, and what was published of it.

use std::{
    io::Write,
    sync::{Arc, LazyLock, Mutex},
};

use tracing_subscriber::fmt::MakeWriter;
use walpost_event::Lsn;
use walpost_postgres::Database;
use walpost_relay::{Initial, POSITION_HEADER};
use walpost_testkit::{
    Signal,
    local::{Postgres, send_signal},
    until,
};

use crate::{
    rig::{Rig, SOON, interrupt, stop},
    sink::World,
};

const WAL: &str = "select pg_current_wal_insert_lsn()::text";
const SEGMENT_BYTES: u64 = 16 << 20;

/// What all relays of this binary say of records that they read back.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn of_this_binary() -> &'static Self {
        static LOG: LazyLock<Log> = LazyLock::new(|| {
            let log = Log::default();
            let lines = tracing_subscriber::fmt().with_ansi(false);
            lines.with_env_filter("off,walpost_relay::resume=warn").with_writer(log.clone()).init();
            log
        });
        &LOG
    }

    fn line_with(&self, parts: &[&str]) -> Option<String> {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        let line = text.lines().find(|line| parts.iter().all(|part| line.contains(part)));
        line.map(str::to_owned)
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Log {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

/// Nothing writes WAL but the test and its relays.
fn quiet() -> walpost_testkit::local::PostgresBuilder {
    Postgres::builder().throwaway().setting("autovacuum", "off").setting("checkpoint_timeout", "1h")
}

/// Goes to where the next segment of the WAL begins.
const NEXT_SEGMENT: &str =
    "select pg_logical_emit_message(false, 'other', 'x'); select pg_switch_wal()";

/// Goes to where segment `number` of the WAL begins.
async fn pad_to(rig: &Rig, number: u64) {
    while u64::from(rig.lsn(WAL).await) / SEGMENT_BYTES < number {
        rig.client.batch_execute(NEXT_SEGMENT).await.unwrap();
    }
}

/// Inserts a row at the beginning of a segment; its id is drawn.
async fn insert_at(rig: &Rig, segment: u64, value: &str) {
    pad_to(rig, segment.saturating_sub(1)).await;
    let insert = format!("insert into ob values (default, 'order', 'x', 't', '{value}')");
    let is_there = u64::from(rig.lsn(WAL).await) / SEGMENT_BYTES >= segment;
    // In one message: the server writes something by itself every 15 s.
    let last = match is_there {
        true => insert,
        false => format!("{NEXT_SEGMENT}; {insert}"),
    };
    rig.client.batch_execute(&last).await.unwrap();
}

/// Waits until no other session of the server does anything.
async fn alone(rig: &Rig) {
    let others = "select count(*) from pg_stat_activity where state = 'active' \
                  and pid <> pg_backend_pid() and backend_type in ('client backend', 'walsender')";
    let is_alone = async || rig.client.query_one(others, &[]).await.unwrap().get::<_, i64>(0) == 0;
    until(SOON, "the end of the other sessions", is_alone).await;
}

async fn background_writer(rig: &Rig) -> u32 {
    let pid = "select pid::int8 from pg_stat_activity where backend_type = 'background writer'";
    rig.count(pid).await.try_into().unwrap()
}

/// Id, and position without the generation, of the message with this value.
fn mark(world: &World, value: &str) -> (String, String) {
    let landed = world.landed();
    let message = landed.iter().find(|message| crate::sink::value(message) == value).unwrap();
    let header = |name: &str| {
        let header = message.headers.iter().find(|header| &*header.name == name).unwrap();
        String::from_utf8(header.value.clone().unwrap().to_vec()).unwrap()
    };
    let position = header(POSITION_HEADER);
    (header("id"), position.split_once(':').unwrap().1.to_owned())
}

/// A server with an outbox whose ids are numbers, its first event published and
/// everything stopped; and the same restored, on the next timeline.
async fn parted(position_header: bool) -> (Rig, &'static Postgres, Postgres) {
    let server: &Postgres = Box::leak(Box::new(quiet().start().unwrap()));
    let mut rig = Rig::on_local(server).await;
    rig.config.position_header = position_header;
    rig.config.settle_ms = 0;
    rig.config.checkpoint_interval_ms = 60_000;
    rig.config.tables = vec!["public.ob".parse().unwrap()];
    rig.config.publication = "ob".into();
    let table = "create table ob (id bigint generated always as identity primary key, \
                 aggregatetype text, aggregateid text, type text, payload jsonb); \
                 create publication ob for table ob with (publish = 'insert')";
    rig.client.batch_execute(table).await.unwrap();
    let relay = rig.streaming().await;
    insert_at(&rig, 0, "1").await;
    rig.landed(1).await;
    stop(relay).await;
    server.stop_fast().unwrap();
    let restored = quiet().restore_of(server).start().unwrap();
    server.start().unwrap();
    (rig.reconnected().await, server, restored)
}

/// The same pipeline, with the same topics, on the restored server.
async fn on(restored: &Postgres, rig: &Rig) -> Rig {
    let url = restored.url("postgres");
    let client = Database::parse(&url).unwrap().connect().await.unwrap();
    until(SOON, "the end of the recovery", async || {
        let row = client.query_one("select not pg_is_in_recovery()", &[]).await;
        row.unwrap().get(0)
    })
    .await;
    let mut other = Rig::at(&url).await;
    other.config = rig.config.clone();
    other.world = rig.world.clone();
    other
}

#[tokio::test]
async fn an_event_at_the_place_of_an_abandoned_one_with_its_id_is_published() {
    let log = Log::of_this_binary();
    let (rig, _server, restored) = parted(true).await;
    let mut after = on(&restored, &rig).await;
    // Tells where the events of the restored server stand.
    let mut witness = Rig::at(&restored.url("postgres")).await;
    witness.config = rig.config.clone();
    witness.config.pipeline = "witness".into();
    witness.config.slot = "witness".into();
    witness.config.allow_overlap = true;
    witness.config.initial = Some(Initial::Skip);
    let (relay, watching) = (rig.streaming().await, witness.streaming().await);
    insert_at(&rig, 0, "2").await;
    rig.landed(2).await;
    insert_at(&after, 0, "4").await;
    witness.landed(1).await;
    stop(relay).await;
    stop(watching).await;
    // Even a session that only reads may write, where it prunes a page.
    alone(&rig).await;
    alone(&after).await;
    // And the server notes what runs every 15 s.
    let writers = [background_writer(&rig).await, background_writer(&after).await];
    writers.iter().for_each(|pid| send_signal(*pid, Signal::Stop).unwrap());
    let segment = |lsn: Lsn| u64::from(lsn) / SEGMENT_BYTES;
    let segment = segment(rig.lsn(WAL).await).max(segment(after.lsn(WAL).await)) + 1;
    insert_at(&rig, segment, "3").await;
    insert_at(&after, segment, "5").await;
    writers.iter().for_each(|pid| send_signal(*pid, Signal::Continue).unwrap());
    let (relay, watching) = (rig.streaming().await, witness.streaming().await);
    rig.landed(3).await;
    witness.landed(2).await;
    stop(relay).await;
    stop(watching).await;
    assert_eq!(mark(&rig.world, "3"), mark(&witness.world, "5"), "the case that is meant");

    after.config.checkpoint_interval_ms = 50;
    let relay = after.streaming().await;
    assert_eq!(after.landed(5).await, ["1", "2", "3", "4", "5"]);
    let [first, last] = ["2", "3"].map(|value| mark(&rig.world, value).1);
    let (first, last) = (format!(":{first}\" last="), format!(":{last}\""));
    let told = ["phantom events", "records=2 ", &first, &last, "walpost-position"];
    assert!(log.line_with(&told).is_some(), "{:?}", log.line_with(&["phantom"]));
    // Once a checkpoint stands behind the switch, what the new timeline brings
    // counts again, and what was abandoned is not even read.
    let behind = after.lsn(WAL).await;
    until(SOON, "the slot follows", async || after.slot_position().await >= behind).await;
    insert_at(&after, 0, "6").await;
    after.landed(6).await;
    interrupt(&after, &relay).await;
    insert_at(&after, 0, "7").await;
    assert_eq!(after.landed(7).await, ["1", "2", "3", "4", "5", "6", "7"]);
    stop(relay).await;
}

#[tokio::test]
async fn without_positions_an_abandoned_id_hides_no_event_either() {
    let (rig, _server, restored) = parted(false).await;
    let relay = rig.streaming().await;
    insert_at(&rig, 0, "2").await;
    rig.landed(2).await;
    stop(relay).await;
    let after = on(&restored, &rig).await;
    let relay = after.streaming().await;
    insert_at(&after, 0, "3").await;
    assert_eq!(after.landed(3).await, ["1", "2", "3"]);
    // No checkpoint has passed the switch yet; what this timeline has brought
    // may come again, and nothing of it is hidden.
    interrupt(&after, &relay).await;
    insert_at(&after, 0, "4").await;
    let fourth = async || after.world.values().contains(&"4".to_owned());
    until(SOON, "the event behind the end of the session", fourth).await;
    stop(relay).await;
}

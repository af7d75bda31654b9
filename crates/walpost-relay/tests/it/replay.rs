//! Rows that are published once more: which, how fast, and how marked.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use tokio::sync::watch;
use walpost_event::Message;
use walpost_relay::{
    Replay, ReplayFilter, ReplayFound, ReplayOrder, ReplayState, Replayed, Replayer,
};
use walpost_router::RouterConfig;
use walpost_testkit::until;

use crate::{
    parking::{allow_no_type, parked},
    rig::{Rig, SOON, interrupt, stop},
    sink::{MemorySink, World, value},
};

fn by_type(event_type: &str) -> ReplayFilter {
    ReplayFilter { event_types: vec![event_type.to_owned()], ..ReplayFilter::default() }
}

pub(crate) fn order(rate_per_s: u32, wait: Duration) -> ReplayOrder {
    ReplayOrder { to_topic: None, rate_per_s, wait, asked_from: Some("tester@here".to_owned()) }
}

pub(crate) async fn replayer(rig: &Rig) -> Replayer {
    let (database, encoding) = (rig.database.clone(), crate::rig::raw());
    Replayer::open(&database, rig.config.clone(), RouterConfig::walpost(), encoding).await.unwrap()
}

async fn found(rig: &Rig, filter: ReplayFilter) -> ReplayFound {
    replayer(rig).await.find(None, filter, None).await.unwrap()
}

async fn events(rig: &Rig, filter: ReplayFilter) -> u64 {
    found(rig, filter).await.survey.events
}

/// Of the replays of a pipeline.
pub(crate) const LOCK: &str = "walpost replay";

pub(crate) async fn begin(
    rig: &Rig,
    filter: ReplayFilter,
    rate_per_s: u32,
    to: &World,
) -> Replay<MemorySink> {
    rig.unlocked(LOCK).await;
    let replayer = replayer(rig).await;
    let found = replayer.find(None, filter, None).await.unwrap();
    let sink = to.connect().await.unwrap();
    replayer.begin(found, order(rate_per_s, SOON), sink).await.unwrap()
}

pub(crate) async fn run(replay: Replay<MemorySink>) -> Replayed {
    let (_stop, stopped) = watch::channel(false);
    tokio::time::timeout(3 * SOON, replay.run(stopped, |_| {})).await.expect("it comes to its end")
}

/// Everything that matches, as fast as it goes.
async fn all_of(rig: &Rig, filter: ReplayFilter, to: &World) -> Replayed {
    let replayed = run(begin(rig, filter, 1_000_000, to).await).await;
    assert_eq!((replayed.state, replayed.error.is_none()), (ReplayState::Done, true));
    replayed
}

fn header(message: &Message, name: &str) -> Option<String> {
    let header = message.headers.iter().find(|header| &*header.name == name)?;
    Some(String::from_utf8(header.value.clone()?.to_vec()).unwrap())
}

/// `count` events of eight aggregates and three types, a minute apart, each in
/// a transaction of ten.
pub(crate) async fn history(rig: &Rig, count: i32) {
    let insert = "insert into walpost.outbox (aggregatetype, aggregateid, type, payload, created_at) \
                  select case when n % 2 = 0 then 'order' else 'bill' end, (n % 8)::text, \
                  (array['Placed', 'Paid', 'Sent'])[1 + n % 3], to_jsonb(n), \
                  timestamptz '2026-01-01 00:00Z' + n * interval '1 minute' \
                  from generate_series($1::int, $2::int) n";
    for first in (0..count).step_by(10) {
        let last = (first + 10).min(count) - 1;
        rig.client.execute(insert, &[&first, &last]).await.unwrap();
    }
}

#[tokio::test]
async fn each_filter_finds_exactly_its_rows() {
    let rig = Rig::new().await;
    history(&rig, 240).await;
    let none = ReplayFilter::default;
    let text = |text: &str| Some(text.to_owned());
    assert_eq!(events(&rig, none()).await, 240);
    assert_eq!(events(&rig, by_type("Paid")).await, 80);
    let two = vec!["Paid".to_owned(), "Sent".to_owned()];
    assert_eq!(events(&rig, ReplayFilter { event_types: two, ..none() }).await, 160);
    let orders = ReplayFilter { aggregate_type: text("order"), ..none() };
    assert_eq!(events(&rig, orders.clone()).await, 120);
    assert_eq!(events(&rig, ReplayFilter { aggregate_id: text("6"), ..orders.clone() }).await, 30);
    assert_eq!(events(&rig, ReplayFilter { aggregate_id: text("7"), ..orders }).await, 0);
    let hour = ReplayFilter {
        from: text("2026-01-01T01:00Z"),
        until: text("2026-01-01 03:00+01"),
        ..none()
    };
    assert_eq!(events(&rig, hour.clone()).await, 60);
    let paid = ReplayFilter { event_types: vec!["Paid".to_owned()], ..hour };
    assert_eq!(events(&rig, paid).await, 20);
    let seqs = ReplayFilter { seq_from: Some(11), seq_until: Some(20), ..none() };
    assert_eq!(events(&rig, seqs).await, 10);

    let ids = "select id::text from walpost.outbox order by seq limit 3";
    let mut ids: Vec<String> =
        rig.client.query(ids, &[]).await.unwrap().iter().map(|row| row.get(0)).collect();
    ids.push("00000000-0000-0000-0000-000000000000".to_owned());
    let survey = found(&rig, ReplayFilter { ids, ..none() }).await.survey;
    assert_eq!((survey.events, survey.ids_missing), (3, 1));

    let survey = found(&rig, none()).await.survey;
    let (oldest, newest) = survey.span.unwrap();
    assert_eq!((&*oldest, &*newest), ("2026-01-01 00:00:00+00", "2026-01-01 03:59:00+00"));
    let types: Vec<(&str, u64)> =
        survey.types.iter().map(|one| (one.event_type.as_deref().unwrap(), one.events)).collect();
    assert_eq!(types, [("Paid", 80), ("Placed", 80), ("Sent", 80)]);
    let replayer = replayer(&rig).await;
    let old = replayer.find(None, by_type("Paid"), Some(1)).await.unwrap().survey;
    assert_eq!(old.beyond_window, 80);
    let young = replayer.find(None, by_type("Paid"), Some(876_000)).await.unwrap().survey;
    assert_eq!(young.beyond_window, 0);
}

#[tokio::test]
async fn what_cannot_be_meant_is_refused_without_a_word_of_the_values() {
    let mut rig = Rig::new().await;
    let refused = async |rig: &Rig, filter: ReplayFilter| {
        let error = replayer(rig).await.find(None, filter, None).await.unwrap_err();
        walpost_event::error_chain(&error)
    };
    let no_id = ReplayFilter { ids: vec!["hunter2".into()], ..ReplayFilter::default() };
    let text = refused(&rig, no_id).await;
    assert!(text.contains("22P02") && !text.contains("hunter2"), "{text}");
    let no_time = ReplayFilter { from: Some("soon".into()), ..ReplayFilter::default() };
    let text = refused(&rig, no_time).await;
    assert!(text.contains("\"soon\" is no time"), "{text}");

    rig.client.batch_execute("create table box (id int, type text, seq bigint)").await.unwrap();
    rig.config.tables.push("public.box".parse().unwrap());
    let text = refused(&rig, ReplayFilter::default()).await;
    assert!(text.contains("walpost.outbox, public.box: name one"), "{text}");
    let replayer = replayer(&rig).await;
    let table = "public.box".parse().unwrap();
    let error = replayer.find(Some(&table), ReplayFilter::default(), None).await.unwrap_err();
    assert!(error.to_string().contains("no column \"xid\" of type xid8"), "{error}");
    let table = "public.other".parse().unwrap();
    let error = replayer.find(Some(&table), ReplayFilter::default(), None).await.unwrap_err();
    assert!(error.to_string().contains("no outbox table of the pipeline"), "{error}");
}

#[tokio::test]
async fn rows_of_another_cluster_are_refused_since_nobody_knows_whether_they_were_published() {
    let rig = Rig::new().await;
    let foreign = "insert into walpost.outbox (aggregatetype, aggregateid, type, xid) \
                   values ('order', 'a', 'Placed', '4000000000')";
    rig.client.batch_execute(foreign).await.unwrap();
    let find = replayer(&rig).await.find(None, ReplayFilter::default(), None).await;
    let error = find.unwrap_err().to_string();
    assert!(error.contains("transaction ids of another cluster"), "{error}");
}

#[tokio::test]
async fn records_are_marked_carry_their_ids_and_keep_the_order_of_each_aggregate() {
    let rig = Rig::new().await;
    let relay = rig.streaming().await;
    history(&rig, 300).await;
    rig.landed(300).await;
    let to = World::default();
    let replayed = all_of(&rig, by_type("Placed"), &to).await;
    let progress = replayed.progress;
    assert_eq!((progress.selected, progress.sent, progress.unsendable), (100, 100, 0));

    let mut first: HashMap<String, Message> = HashMap::new();
    for message in rig.world.landed() {
        first.insert(header(&message, "id").unwrap(), message);
    }
    let mut last: HashMap<String, u32> = HashMap::new();
    let again = to.landed();
    assert_eq!(again.len(), 100);
    for message in &again {
        let original = &first[&header(message, "id").unwrap()];
        assert_eq!(
            (&message.topic, &message.key, &message.value),
            (&original.topic, &original.key, &original.value)
        );
        assert_eq!(header(message, "walpost-replay").unwrap(), format!("replay:{}", replayed.id));
        assert_eq!(header(message, "walpost-source"), header(original, "walpost-source"));
        assert_eq!(header(message, "walpost-source").unwrap().len(), 36, "an id space");
        assert!(header(message, "walpost-position").is_none());
        assert!(header(original, "walpost-replay").is_none());
        let key = String::from_utf8(message.key.clone().unwrap().to_vec()).unwrap();
        let number: u32 = value(message).parse().unwrap();
        let before = last.insert(format!("{}/{key}", message.topic), number);
        assert!(before.is_none_or(|before| before < number), "{key}: {before:?}, {number}");
    }
    stop(relay).await;
}

#[tokio::test]
async fn only_what_was_published_is_sent_and_the_refusal_says_what_to_do() {
    let rig = Rig::new().await;
    rig.world.hold(true);
    let relay = rig.streaming().await;
    rig.insert("a", &["1", "2"]).await;
    until(SOON, "both on their way", async || rig.world.queued() == 2).await;
    let to = World::default();
    let refused = async || {
        rig.unlocked(LOCK).await;
        let replayer = replayer(&rig).await;
        let found = replayer.find(None, ReplayFilter::default(), None).await.unwrap();
        let sink = to.connect().await.unwrap();
        let wait = order(100, Duration::from_millis(300));
        replayer.begin(found, wait, sink).await.unwrap_err().to_string()
    };
    let text = refused().await;
    assert!(text.contains("not known yet") && text.contains("--wait-seconds"), "{text}");
    assert_eq!(to.queued(), 0);
    let row = &replayer(&rig).await.list().await.unwrap()[0];
    assert_eq!((row.state, row.selected, row.sent), (ReplayState::Failed, 2, 0));
    assert!(row.detail.as_deref().unwrap().contains("not known yet"), "{row:?}");
    assert!(row.asked_by.contains("(tester@here)"), "{row:?}");

    rig.world.hold(false);
    rig.landed(2).await;
    all_of(&rig, ReplayFilter::default(), &to).await;
    assert_eq!(to.values(), ["1", "2"]);
    stop(relay).await;
    // Nobody moves the position any more.
    rig.insert("a", &["3"]).await;
    assert!(refused().await.contains("not known yet"));
}

#[tokio::test]
async fn rows_that_are_committed_later_are_not_among_those_that_were_found() {
    let rig = Rig::new().await;
    let relay = rig.streaming().await;
    let other = rig.database.connect().await.unwrap();
    let insert = "insert into walpost.outbox (aggregatetype, aggregateid, type, payload) \
                  values ('order', 'z', 'Placed', '0')";
    // It has the lowest number, and is committed last.
    other.batch_execute(&format!("begin; {insert}")).await.unwrap();
    rig.insert("a", &["1", "2"]).await;
    let replayer = replayer(&rig).await;
    let found = replayer.find(None, ReplayFilter::default(), None).await.unwrap();
    assert_eq!(found.survey.events, 2);
    other.batch_execute("commit").await.unwrap();
    rig.insert("a", &["3"]).await;
    rig.landed(4).await;
    let to = World::default();
    let replay = replayer.begin(found, order(100_000, SOON), to.connect().await.unwrap()).await;
    assert_eq!(run(replay.unwrap()).await.progress.sent, 2);
    assert_eq!(to.values(), ["1", "2"]);
    stop(relay).await;
}

#[tokio::test]
async fn what_is_parked_or_was_discarded_is_left_out_and_counted() {
    let rig = Rig::new().await;
    allow_no_type(&rig).await;
    let relay = rig.streaming().await;
    rig.insert("a", &["1"]).await;
    rig.landed(1).await;
    rig.world.never("2");
    rig.insert("a", &["2", "3"]).await;
    rig.insert("b", &["4"]).await;
    rig.landed(2).await;
    parked(&rig, "rejected behind").await;
    let survey = found(&rig, ReplayFilter::default()).await.survey;
    assert_eq!((survey.events, survey.parked), (2, 2));
    let to = World::default();
    all_of(&rig, ReplayFilter::default(), &to).await;
    assert_eq!(to.values(), ["1", "4"]);

    // The one behind it is sent on then, whenever the relay looks, and stays.
    rig.world.never("3");
    let discard = "update walpost.parked set state = 'discarded' where reason = 'rejected'";
    rig.client.batch_execute(discard).await.unwrap();
    let survey = found(&rig, ReplayFilter::default()).await.survey;
    assert_eq!((survey.events, survey.parked), (2, 2));
    let done = "update walpost.parked set state = 'done', sending_floor = null";
    rig.client.batch_execute(done).await.unwrap();
    assert_eq!(events(&rig, ReplayFilter::default()).await, 4);
    stop(relay).await;
}

#[tokio::test]
async fn a_row_that_becomes_no_record_is_counted_and_the_others_are_sent() {
    let mut rig = Rig::new().await;
    let relay = rig.streaming().await;
    rig.insert("a", &["1", "2", "3"]).await;
    rig.landed(3).await;
    let to = World::default();
    to.never("2");
    let replayed = run(begin(&rig, ReplayFilter::default(), 1_000, &to).await).await;
    assert_eq!(replayed.state, ReplayState::Done);
    assert_eq!((replayed.progress.sent, replayed.progress.unsendable), (2, 1));
    assert_eq!((replayed.unsendable.len(), replayed.unsendable[0].seq), (1, 2));
    assert!(replayed.unsendable[0].reason.contains("too large"));

    let large = format!("\"{}\"", "x".repeat(4_000));
    rig.insert("b", &[&large]).await;
    rig.landed(4).await;
    rig.config.max_event_bytes = 2_000;
    let to = World::default();
    let replayed = run(begin(&rig, ReplayFilter::default(), 1_000, &to).await).await;
    assert_eq!((replayed.progress.sent, replayed.progress.unsendable), (3, 1));
    assert!(replayed.unsendable[0].reason.contains("max_event_bytes"));
    stop(relay).await;
}

#[tokio::test]
async fn events_go_at_the_rate_that_was_asked_for() {
    let rig = Rig::new().await;
    let relay = rig.streaming().await;
    history(&rig, 150).await;
    rig.landed(150).await;
    let to = World::default();
    let start = Instant::now();
    let replayed = run(begin(&rig, ReplayFilter::default(), 50, &to).await).await;
    assert_eq!(replayed.progress.sent, 150);
    let took = start.elapsed();
    assert!(took >= Duration::from_millis(2_900), "{took:?}");
    let rate = replayed.progress.rate_per_s();
    assert!((150.0 / took.as_secs_f64()..=52.0).contains(&rate), "{rate}");
    stop(relay).await;
}

#[tokio::test]
async fn after_a_replay_into_its_topics_a_relay_that_is_killed_publishes_nothing_twice() {
    for position_header in [true, false] {
        let mut rig = Rig::new().await;
        rig.config.position_header = position_header;
        let relay = rig.streaming().await;
        rig.insert("a", &["1", "2", "3"]).await;
        rig.landed(3).await;
        // Everything that comes is acknowledged, and nothing of it confirmed.
        let world = rig.world.clone();
        all_of(&rig, ReplayFilter::default(), &world).await;
        let lock = rig.database.connect().await.unwrap();
        lock.batch_execute("begin; select from walpost.checkpoint for update").await.unwrap();
        rig.insert("a", &["4", "5"]).await;
        rig.landed(8).await;
        interrupt(&rig, &relay).await;
        lock.batch_execute("commit").await.unwrap();
        rig.insert("a", &["6"]).await;
        rig.landed(9).await;
        let first: Vec<String> = rig
            .world
            .landed()
            .iter()
            .filter(|message| header(message, "walpost-replay").is_none())
            .map(value)
            .collect();
        assert_eq!(first, ["1", "2", "3", "4", "5", "6"], "{position_header}");
        stop(relay).await;
    }
}

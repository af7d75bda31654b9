//! Which rows from before the stream are published, and what comes behind them.

use tokio::task::JoinHandle;
use walpost_relay::{
    Initial, Outcome, REPLAY_HEADER, RunningRelay, SelectOverride, SnapshotAgain, TableName,
};
use walpost_router::Pattern;
use walpost_testkit::until;

use crate::{
    parking::allow_no_type,
    rig::{Rig, SLOTS, SOON, interrupt, phase, raw, stop},
    sink::{World, value},
};

async fn rig() -> Rig {
    let mut rig = Rig::new().await;
    rig.config.initial = Some(Initial::Publish);
    rig
}

async fn ends(mut relay: RunningRelay) {
    tokio::time::timeout(SOON, relay.finished()).await.expect("it ends by itself").unwrap();
}

#[tokio::test]
async fn a_check_says_how_many_rows_of_which_table_are_published_first() {
    let mut rig = rig().await;
    rig.insert("a", &["1", "2"]).await;
    let said = rig.checked("first start").await;
    let text = "rows in the table are published first: 2 of walpost.outbox".to_owned();
    assert_eq!(said, (Outcome::Ok, text));
    rig.config.snapshot.tables = Some(vec![Pattern::ignoring_case("shop\\..*").unwrap()]);
    let (outcome, said) = rig.checked("first start").await;
    assert!(outcome == Outcome::Ok && said.contains("no rows are published first"), "{said}");
    // They are left as by skipping, and the stream begins behind them.
    let relay = rig.streaming().await;
    rig.insert("a", &["3"]).await;
    assert_eq!(rig.landed(1).await, ["3"]);
    stop(relay).await;
}

#[tokio::test]
async fn without_a_stream_a_start_publishes_the_rows_and_ends_and_a_later_one_at_once() {
    let mut rig = rig().await;
    rig.config.snapshot.stream = false;
    rig.insert("a", &["1", "2"]).await;
    ends(rig.start()).await;
    assert_eq!(rig.world.values(), ["1", "2"]);
    assert_eq!(rig.count(SLOTS).await, 0, "nothing keeps WAL for nobody");
    rig.insert("a", &["3"]).await;
    assert_eq!(rig.checked("first start").await.0, Outcome::Ok);
    ends(rig.start()).await;
    assert_eq!(rig.world.values(), ["1", "2"]);
    // Who streams then is told that the slot is gone, and can have what came since.
    rig.config.snapshot.stream = true;
    assert!(rig.refusal().await.contains("is gone"));
    rig.config.on_lost_slot = walpost_relay::LostSlot::Recover;
    let relay = rig.streaming().await;
    assert_eq!(rig.landed(3).await, ["1", "2", "3"]);
    stop(relay).await;
}

#[tokio::test]
async fn without_a_stream_an_interrupted_start_goes_on_with_the_rows() {
    let mut rig = rig().await;
    rig.config.snapshot.stream = false;
    rig.config.drain_timeout_ms = 200;
    let values: Vec<String> = (0..500).map(|n| n.to_string()).collect();
    rig.insert("a", &values.iter().map(String::as_str).collect::<Vec<_>>()).await;
    rig.world.hold_after(100);
    let relay = rig.start();
    until(SOON, "some of the rows", async || rig.world.count() >= 100).await;
    stop(relay).await;
    let before = rig.world.count();
    assert!(before < 500, "{before} rows landed");
    rig.world.hold(false);
    ends(rig.start()).await;
    assert_eq!(rig.world.values(), values);
    assert_eq!(rig.count(SLOTS).await, 0);
}

fn select(statement: &str) -> Vec<SelectOverride> {
    let table = TableName { schema: "walpost".to_owned(), name: "outbox".to_owned() };
    vec![SelectOverride { table, statement: statement.to_owned() }]
}

#[tokio::test]
async fn rows_that_take_long_to_count_are_no_refusal() {
    let mut rig = rig().await;
    rig.insert("a", &["1"]).await;
    rig.config.statement_timeout_ms = 2_000;
    let slow = "select o.* from walpost.outbox o, (select pg_sleep(1.5)) slow";
    rig.config.snapshot.overrides = select(slow);
    let (outcome, said) = rig.checked("first start").await;
    assert!(outcome == Outcome::Ok && said.contains("more than can be counted"), "{said}");
    let relay = rig.streaming().await;
    assert_eq!(rig.landed(1).await, ["1"]);
    stop(relay).await;
}

#[tokio::test]
async fn a_select_takes_the_place_of_all_rows_and_one_that_does_not_fit_is_refused() {
    let mut rig = rig().await;
    rig.insert("a", &["1"]).await;
    rig.insert("b", &["2"]).await;
    for (statement, part) in [
        ("select id, payload from walpost.outbox", "lacks column \"aggregate"),
        ("select * from nowhere", "is refused by the server"),
        ("delete from walpost.outbox", "is refused by the server"),
        (
            "select id::text, aggregatetype, aggregateid, type, payload from walpost.outbox",
            "selects \"id\" as another type",
        ),
    ] {
        rig.config.snapshot.overrides = select(statement);
        let (outcome, said) = rig.checked("snapshot").await;
        assert!(outcome == Outcome::Fail && said.contains(part), "{statement}: {said}");
        assert!(rig.refusal().await.contains(part), "{statement}");
        assert_eq!(rig.count(SLOTS).await, 0, "a refusal leaves no slot behind");
    }
    rig.config.snapshot.overrides = select(
        "select type, id, aggregatetype, aggregateid, payload from walpost.outbox \
         where aggregateid = 'b' -- the rest is old\n;",
    );
    assert_eq!(rig.checked("snapshot").await.0, Outcome::Ok);
    let (_, said) = rig.checked("first start").await;
    assert!(said.ends_with("1 of walpost.outbox"), "{said}");
    let relay = rig.streaming().await;
    rig.insert("a", &["3"]).await;
    assert_eq!(rig.landed(2).await, ["2", "3"]);
    stop(relay).await;
}

#[tokio::test]
async fn a_select_of_other_rows_is_published_where_the_table_is_empty() {
    let mut rig = rig().await;
    rig.insert("a", &["1"]).await;
    let moved = "create table walpost.old as table walpost.outbox; delete from walpost.outbox";
    rig.client.batch_execute(moved).await.unwrap();
    rig.config.snapshot.overrides = select("select * from walpost.old");
    let relay = rig.streaming().await;
    rig.insert("a", &["2"]).await;
    assert_eq!(rig.landed(2).await, ["1", "2"]);
    stop(relay).await;
}

/// Has the rows of this start come to a world.
fn again(rig: &Rig, relay: &RunningRelay, world: &World) -> JoinHandle<()> {
    let again = SnapshotAgain::new(&rig.database, &rig.config, &rig.router, raw()).unwrap();
    let world = world.clone();
    let connect = move || {
        let world = world.clone();
        async move { world.connect().await }
    };
    tokio::spawn(again.unwrap().run(relay.status(), connect))
}

#[tokio::test]
async fn a_first_start_without_rows_publishes_none_once_more() {
    let mut rig = rig().await;
    rig.config.snapshot.each_start = true;
    let relay = rig.streaming().await;
    rig.insert("a", &["1"]).await;
    rig.landed(1).await;
    let task = again(&rig, &relay, &rig.world);
    tokio::time::timeout(SOON, task).await.expect("nothing to do").unwrap();
    assert_eq!(rig.world.values(), ["1"]);
    stop(relay).await;
}

#[tokio::test]
async fn each_start_but_the_first_publishes_all_rows_once_more_and_marks_them() {
    let mut rig = rig().await;
    rig.config.snapshot.each_start = true;
    rig.insert("a", &["1", "2"]).await;
    let relay = rig.streaming().await;
    let task = again(&rig, &relay, &rig.world);
    tokio::time::timeout(SOON, task).await.expect("nothing to do").unwrap();
    assert_eq!(rig.landed(2).await, ["1", "2"]);
    stop(relay).await;

    // Written while the relay is down: published first, and then once more.
    rig.insert("a", &["3"]).await;
    let relay = rig.streaming().await;
    let task = again(&rig, &relay, &rig.world);
    tokio::time::timeout(SOON, task).await.expect("it comes to its end").unwrap();
    assert_eq!(rig.world.values(), ["1", "2", "3", "1", "2", "3"]);
    let marked = |message: &walpost_event::Message| {
        message.headers.iter().any(|header| &*header.name == REPLAY_HEADER)
    };
    let marks: Vec<bool> = rig.world.landed().iter().map(marked).collect();
    assert_eq!(marks, [false, false, false, true, true, true]);

    // They hide nothing from a session that reads its topics back.
    rig.insert("a", &["4"]).await;
    interrupt(&rig, &relay).await;
    phase(&relay, &walpost_relay::Phase::Streaming).await;
    rig.insert("a", &["5"]).await;
    until(SOON, "the last event", async || rig.world.values().contains(&"5".to_owned())).await;
    assert_eq!(&rig.world.values()[6..], ["4", "5"]);
    stop(relay).await;
}

#[tokio::test]
async fn rows_that_are_parked_are_not_published_once_more_and_an_error_begins_anew() {
    let mut rig = rig().await;
    rig.config.snapshot.each_start = true;
    allow_no_type(&rig).await;
    rig.world.never("1");
    let relay = rig.streaming().await;
    rig.insert("a", &["1"]).await;
    rig.insert("b", &["2"]).await;
    let parked = "select count(*) from walpost.parked";
    until(SOON, "the parked row", async || rig.count(parked).await == 1).await;
    rig.landed(1).await;
    stop(relay).await;
    let (relay, world) = (rig.streaming().await, World::default());
    world.remove_topic("outbox.event.order");
    let task = again(&rig, &relay, &world);
    until(SOON, "an attempt", async || world.sessions() >= 1).await;
    world.create_topic("outbox.event.order");
    tokio::time::timeout(SOON, task).await.expect("it comes to its end").unwrap();
    assert_eq!(world.landed().iter().map(value).collect::<Vec<_>>(), ["2"]);
    stop(relay).await;
}

#[tokio::test]
async fn what_the_sink_takes_by_no_means_is_left_out_and_nothing_comes_without_end() {
    let mut rig = rig().await;
    rig.config.snapshot.each_start = true;
    rig.config.missing_topic_timeout_ms = 200;
    let relay = rig.streaming().await;
    rig.insert("a", &["1", "2", "3"]).await;
    let gone = "insert into walpost.outbox (aggregatetype, aggregateid, type, payload) \
                values ('gone', 'b', 'Placed', '4')";
    rig.client.batch_execute(gone).await.unwrap();
    rig.insert("a", &["5"]).await;
    rig.landed(5).await;
    stop(relay).await;
    // As by a broker with another bound, and an operator who has deleted a topic.
    let (relay, world) = (rig.streaming().await, World::default());
    world.reject("2");
    world.remove_topic("outbox.event.gone");
    let task = again(&rig, &relay, &world);
    tokio::time::timeout(SOON, task).await.expect("it comes to its end").unwrap();
    let landed: Vec<_> = world.landed().iter().map(value).collect();
    let end = &landed[landed.len() - 3..];
    assert!(end == ["1", "3", "5"] && landed.len() <= 6, "{landed:?}");
    stop(relay).await;
}

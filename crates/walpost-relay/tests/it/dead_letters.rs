//! Dead letters of parked events: each is written, noted in its row, and in
//! nobody's way.

use std::time::Duration;

use tokio::task::JoinHandle;
use walpost_event::Message;
use walpost_relay::{
    DEAD_LETTER_HEADER, DeadLetters, PollingConfig, PollingRelay, RelayError, RunningRelay,
};
use walpost_testkit::until;

use crate::{
    parking::{allow_no_type, parked},
    rig::{Rig, SOON, raw, stop},
    sink::{World, value},
};

/// Longer than the wait after something went wrong.
const LIMIT: Duration = Duration::from_secs(60);

const WRITTEN: &str = "select count(*) from walpost.parked \
                       where dead_letter_at is not null and dead_letter_error is null";

async fn rig() -> Rig {
    let mut rig = Rig::new().await;
    rig.config.dead_letter_topic = Some("dead".to_owned());
    rig
}

/// Writes the dead letters of a relay to a world of their own.
fn write(rig: &Rig, relay: &RunningRelay, world: &World) -> JoinHandle<()> {
    let letters = DeadLetters::new(&rig.database, &rig.config, &rig.router).unwrap();
    let world = world.clone();
    let connect = move || {
        let world = world.clone();
        async move { world.connect().await }
    };
    tokio::spawn(letters.run(relay.status(), connect))
}

fn says(message: &Message, name: &str) -> Option<String> {
    let header = message.headers.iter().find(|header| &*header.name == name)?;
    Some(String::from_utf8(header.value.clone().unwrap().to_vec()).unwrap())
}

fn reason(message: &Message) -> String {
    says(message, "walpost-dead-letter-reason").unwrap()
}

async fn written(rig: &Rig, count: i64) {
    until(LIMIT, &format!("{count} letters that are noted"), async || {
        rig.count(WRITTEN).await == count
    })
    .await;
}

/// Has `1` of aggregate `a` parked as refused, and `2` behind it.
async fn two_parked(rig: &Rig) {
    rig.insert("a", &["1", "2"]).await;
    parked(rig, "rejected behind").await;
}

#[tokio::test]
async fn each_parked_event_has_one_letter_and_is_sent_on_as_without() {
    let (rig, dead) = (rig().await, World::default());
    allow_no_type(&rig).await;
    rig.world.never("1");
    let relay = rig.streaming().await;
    let letters = write(&rig, &relay, &dead);
    two_parked(&rig).await;
    let lost_route = "insert into walpost.outbox (aggregateid, type, payload) \
                      values ('c', 'Placed', '3')";
    rig.client.batch_execute(lost_route).await.unwrap();
    written(&rig, 3).await;

    let landed = dead.landed();
    assert_eq!(landed.iter().map(value).collect::<Vec<_>>(), ["1", "2", "3"]);
    assert_eq!(landed.iter().map(reason).collect::<Vec<_>>(), ["rejected", "behind", "unroutable"]);
    assert!(landed.iter().all(|one| &*one.topic == "dead" && one.partition.is_none()));
    let keys: Vec<&[u8]> = landed.iter().map(|one| one.key.as_deref().unwrap()).collect();
    assert_eq!(keys, [b"a", b"a", b"c"]);
    let first = &landed[0];
    let says_row = says(first, DEAD_LETTER_HEADER).unwrap();
    assert!(says_row.starts_with("parked:1:") && says_row.ends_with(":0"), "{says_row}");
    assert_eq!(says(first, "__connect.errors.topic").unwrap(), "outbox.event.order");
    let detail = says(first, "__connect.errors.exception.message").unwrap();
    assert_eq!(detail, "outbox.event.order: too large");
    assert_eq!(says(first, "walpost-position"), None, "it is not the event's record");
    let ids = "select string_agg(event_id, ' ' order by id) from walpost.parked";
    let ids: String = rig.client.query_one(ids, &[]).await.unwrap().get(0);
    let told: Vec<String> = landed.iter().map(|one| says(one, "id").unwrap()).collect();
    assert_eq!(told.join(" "), ids);

    rig.world.mend();
    let retry = "update walpost.parked set requested = 'retry' where reason = 'rejected'";
    rig.client.batch_execute(retry).await.unwrap();
    assert_eq!(rig.landed(2).await, ["1", "2"]);
    let done = "select count(*) from walpost.parked where state = 'done'";
    until(SOON, "both done", async || rig.count(done).await == 2).await;
    stop(relay).await;
    letters.await.unwrap();
    assert_eq!((dead.count(), dead.sessions(), rig.world.sessions()), (3, 1, 1));
}

#[tokio::test]
async fn whoever_dies_before_the_note_writes_no_letter_less() {
    let (rig, dead) = (rig().await, World::default());
    rig.world.never("1");
    let relay = rig.streaming().await;
    two_parked(&rig).await;
    dead.hold(true);
    let letters = write(&rig, &relay, &dead);
    until(SOON, "both on their way", async || dead.queued() == 2).await;
    letters.abort();
    assert!(letters.await.unwrap_err().is_cancelled());
    assert_eq!(rig.count(WRITTEN).await, 0);
    dead.hold(false);

    // This time they land, and the note cannot be made.
    let lock = rig.database.connect().await.unwrap();
    lock.batch_execute("begin; select from walpost.parked for update").await.unwrap();
    let letters = write(&rig, &relay, &dead);
    until(SOON, "both letters", async || dead.count() == 2).await;
    // Whoever wrote them knows that, and writes others meanwhile.
    rig.insert("a", &["3"]).await;
    written(&rig, 1).await;
    assert_eq!(dead.values(), ["1", "2", "3"]);
    letters.abort();
    assert!(letters.await.unwrap_err().is_cancelled());
    lock.batch_execute("commit").await.unwrap();
    let letters = write(&rig, &relay, &dead);
    written(&rig, 3).await;
    assert_eq!(dead.values(), ["1", "2", "3", "1", "2"], "at least once");
    stop(relay).await;
    letters.await.unwrap();
}

#[tokio::test]
async fn a_letter_whose_row_is_locked_is_noted_later_and_written_once() {
    let (rig, dead) = (rig().await, World::default());
    rig.world.never("1");
    let relay = rig.streaming().await;
    two_parked(&rig).await;
    dead.hold(true);
    let letters = write(&rig, &relay, &dead);
    until(SOON, "both on their way", async || dead.queued() == 2).await;
    let lock = rig.database.connect().await.unwrap();
    lock.batch_execute("begin; select from walpost.parked for update").await.unwrap();
    dead.hold(false);
    until(SOON, "both letters", async || dead.count() == 2).await;
    rig.insert("a", &["3"]).await;
    written(&rig, 1).await;
    lock.batch_execute("commit").await.unwrap();
    written(&rig, 3).await;
    assert_eq!(dead.values(), ["1", "2", "3"]);
    stop(relay).await;
    letters.await.unwrap();
}

#[tokio::test]
async fn what_the_topic_refuses_goes_without_its_contents_or_is_told_and_tried_again() {
    let (rig, dead) = (rig().await, World::default());
    rig.world.never("1");
    dead.reject("2");
    let relay = rig.streaming().await;
    dead.hold(true);
    rig.insert("a", &["1", "2", "3"]).await;
    parked(&rig, "rejected behind behind").await;
    let letters = write(&rig, &relay, &dead);
    until(SOON, "all on their way together", async || dead.queued() == 3).await;
    dead.hold(false);
    written(&rig, 3).await;
    let mut landed = dead.landed();
    landed.sort_by_key(|one| says(one, DEAD_LETTER_HEADER));
    assert_eq!(landed.iter().map(value).collect::<Vec<_>>(), ["1", "<null>", "3"]);
    assert_eq!(landed[1].key.as_deref(), Some(&b"a"[..]));
    let left_out = says(&landed[1], "walpost-dead-letter-left-out").unwrap();
    assert_eq!(left_out, "the topic refuses the whole event: as the test has it");

    // Known beforehand, and not even the rest is taken.
    dead.never("4");
    dead.reject("<null>");
    rig.insert("a", &["4", "5"]).await;
    written(&rig, 4).await;
    let refused = "select count(*) from walpost.parked where dead_letter_topic = 'dead' \
                   and dead_letter_error = 'as the test has it'";
    until(SOON, "one that is refused", async || rig.count(refused).await == 1).await;
    assert_eq!(dead.values().last().map(String::as_str), Some("5"));
    let count = dead.count();
    letters.abort();
    assert!(letters.await.unwrap_err().is_cancelled());
    dead.mend();
    let letters = write(&rig, &relay, &dead);
    written(&rig, 5).await;
    assert_eq!(&dead.values()[count..], ["4"]);
    stop(relay).await;
    letters.await.unwrap();
}

#[tokio::test]
async fn without_their_topic_they_wait_and_what_is_settled_meanwhile_needs_none() {
    let (rig, dead) = (rig().await, World::default());
    dead.remove_topic("dead");
    rig.world.never("1");
    let relay = rig.streaming().await;
    let letters = write(&rig, &relay, &dead);
    two_parked(&rig).await;
    until(SOON, "a sink that knows it", async || dead.sessions() == 1).await;
    rig.insert("b", &["10", "11"]).await;
    assert_eq!(rig.landed(2).await, ["10", "11"]);
    rig.world.mend();
    rig.client.batch_execute("update walpost.parked set requested = 'retry'").await.unwrap();
    assert_eq!(rig.landed(4).await, ["10", "11", "1", "2"]);
    let open = "select count(*) from walpost.parked where state <> 'done'";
    until(SOON, "both done", async || rig.count(open).await == 0).await;
    rig.world.never("20");
    rig.insert("c", &["20"]).await;
    dead.create_topic("dead");
    written(&rig, 1).await;
    assert_eq!(dead.values(), ["20"]);
    stop(relay).await;
    letters.await.unwrap();
}

#[tokio::test]
async fn no_event_has_the_topic_of_the_letters_for_its_own() {
    let mut rig = rig().await;
    rig.router.topic_replacement = "${routedByValue}".to_owned();
    let relay = rig.streaming().await;
    let to_letters = "insert into walpost.outbox (aggregatetype, aggregateid, type, payload) \
                      values ('dead', 'a', 'Placed', '1'), ('order', 'a', 'Placed', '2')";
    rig.client.batch_execute(to_letters).await.unwrap();
    assert_eq!(rig.landed(1).await, ["2"]);
    parked(&rig, "unroutable").await;
    let detail = "select detail from walpost.parked";
    let detail: String = rig.client.query_one(detail, &[]).await.unwrap().get(0);
    assert_eq!(detail, "its topic is \"dead\", that of the dead letters");
    stop(relay).await;

    rig.router.topic_replacement = "dea${routedByValue}".to_owned();
    let Err(RelayError::Config(problem)) = rig.relay() else { panic!("it is taken") };
    assert!(problem.starts_with("dead_letter_topic is \"dead\", which events"), "{problem}");
    let (found, detail) = rig.checked("configuration").await;
    assert_eq!((found, detail), (walpost_relay::Outcome::Fail, problem));

    let (database, router) = (rig.database.clone(), rig.router.clone());
    let polling = PollingConfig::default();
    let poller = PollingRelay::new(database, rig.config.clone(), polling, router, raw());
    let Err(RelayError::Config(problem)) = poller else { panic!("it is taken") };
    assert!(problem.starts_with("dead_letter_topic is set"), "{problem}");
}

#[tokio::test]
async fn tables_of_an_earlier_version_are_refused_with_the_way_on() {
    let rig = rig().await;
    let before = "alter table walpost.parked drop column dead_letter_topic, \
                  drop column dead_letter_at, drop column dead_letter_error";
    rig.client.batch_execute(before).await.unwrap();
    let refusal = rig.refusal().await;
    assert!(refusal.contains("walpost.parked is of an earlier version"), "{refusal}");
}

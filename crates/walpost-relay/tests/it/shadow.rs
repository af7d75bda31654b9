//! What a pipeline would publish, from a slot that goes with its session.

use std::time::Duration;

use walpost_event::{Lsn, Message};
use walpost_relay::{RelayError, Shadow, ShadowEvent, ShadowMade};
use walpost_testkit::{postgres_of, until};

use crate::rig::{Rig, SOON, raw, stop};

impl Rig {
    async fn shadow(&self) -> Result<Shadow, RelayError> {
        let (config, router) = (self.config.clone(), self.router.clone());
        Shadow::open(&self.database, config, router, raw().into()).await
    }

    async fn shadows(&self) -> i64 {
        // The server is shared with other tests.
        self.count(
            "select count(*) from pg_replication_slots \
             where slot_name like '%\\_shadow\\_%' and database = current_database()",
        )
        .await
    }

    async fn slot_of(&self, shadow: &Shadow) -> Lsn {
        let sql = "select confirmed_flush_lsn::text from pg_replication_slots where slot_name = '";
        self.lsn(&format!("{sql}{}'", shadow.slot())).await
    }
}

/// Reads so many events.
async fn events(shadow: &mut Shadow, count: usize) -> Vec<ShadowEvent> {
    events_within(SOON, shadow, count, || {}).await
}

/// The same, with something to do behind each reading.
pub(crate) async fn events_within(
    limit: Duration,
    shadow: &mut Shadow,
    count: usize,
    mut meanwhile: impl FnMut(),
) -> Vec<ShadowEvent> {
    let mut all = Vec::new();
    let read = async {
        while all.len() < count {
            all.extend(shadow.next().await.unwrap());
            meanwhile();
        }
    };
    tokio::time::timeout(limit, read).await.expect("the events come");
    assert_eq!(all.len(), count);
    all
}

/// Without Walpost's own headers, and what they say of the position.
fn without_own(mut message: Message) -> (Message, String) {
    let own = message.headers.iter().find(|header| &*header.name == "walpost-position");
    let value = own.and_then(|header| header.value.clone()).unwrap_or_default();
    let text = String::from_utf8(value.to_vec()).unwrap();
    message.headers.retain(|header| !header.name.starts_with("walpost-"));
    (message, text)
}

async fn makes_what_a_relay_publishes(rig: Rig) {
    let relay = rig.streaming().await;
    rig.insert("a", &["0"]).await;
    let mut shadow = rig.shadow().await.unwrap();
    rig.insert("a", &["1", "2"]).await;
    let rolled_back = "begin; insert into walpost.outbox (aggregatetype, aggregateid, type, \
                       payload) values ('order', 'a', 'Placed', '9'); rollback";
    rig.client.batch_execute(rolled_back).await.unwrap();
    let content = r#"{"id": "m1", "aggregatetype": "order", "aggregateid": "b", "type": "Placed", "payload": 3}"#;
    let emit = "select pg_logical_emit_message(true, 'walpost', $1)";
    rig.client.query(emit, &[&content]).await.unwrap();
    rig.insert("a", &["4"]).await;
    let landed = rig.landed(5).await;
    assert_eq!(landed, ["0", "1", "2", "3", "4"]);
    let made = events(&mut shadow, 4).await;
    for (event, landed) in made.into_iter().zip(rig.world.landed().into_iter().skip(1)) {
        let ShadowMade::Message(message) = event.made else { panic!("{event:?}") };
        let (landed, position) = without_own(landed);
        assert_eq!(*message, landed);
        assert_eq!(position.split_once(':').unwrap().1, event.position.to_string());
    }
    shadow.close().await.unwrap();
    assert_eq!(rig.shadows().await, 0);
    stop(relay).await;
}

#[tokio::test]
#[ignore = "deep: an older PostgreSQL"]
async fn a_shadow_makes_what_a_relay_publishes_on_the_oldest_server() {
    makes_what_a_relay_publishes(Rig::on(postgres_of(14)).await).await;
}

#[tokio::test]
async fn a_shadow_makes_what_a_relay_publishes_on_the_newest_server() {
    makes_what_a_relay_publishes(Rig::on(postgres_of(18)).await).await;
}

#[tokio::test]
async fn a_shadow_needs_no_table_of_walposts_and_says_what_would_be_parked() {
    let mut rig = Rig::new().await;
    let of_walpost = "drop table walpost.checkpoint, walpost.parked, walpost.move cascade; \
                      alter table walpost.outbox alter aggregatetype drop not null";
    rig.client.batch_execute(of_walpost).await.unwrap();
    rig.config.max_event_bytes = 10_000;
    let mut shadow = rig.shadow().await.unwrap();
    rig.insert("a", &["1"]).await;
    let unroutable =
        "insert into walpost.outbox (aggregateid, type, payload) values ('a', 'P', '{}')";
    rig.client.batch_execute(unroutable).await.unwrap();
    rig.insert("a", &[&"1".repeat(20_000)]).await;
    let made = events(&mut shadow, 3).await;
    assert!(matches!(made[0].made, ShadowMade::Message(_)));
    for (event, expected) in made[1..].iter().zip(["unroutable", "oversize"]) {
        let ShadowMade::Parked { id, reason, detail } = &event.made else { panic!("{event:?}") };
        assert_eq!((*reason, detail.is_empty()), (expected, false));
        let id = std::str::from_utf8(id.as_ref().unwrap()).unwrap();
        let known = format!("select count(*) from walpost.outbox where id = '{id}'");
        assert_eq!(rig.count(&known).await, 1);
    }
    assert!(made.windows(2).all(|pair| pair[0].position < pair[1].position));
}

#[tokio::test]
async fn the_slot_of_a_shadow_keeps_no_wal_and_goes_with_its_session() {
    let rig = Rig::new().await;
    let mut shadow = rig.shadow().await.unwrap();
    assert_eq!(rig.shadows().await, 1);
    rig.insert("a", &["1"]).await;
    events(&mut shadow, 1).await;
    // Of others too: nothing of the stream is kept.
    rig.client.batch_execute("create table other (); drop table other").await.unwrap();
    let now = rig.lsn("select pg_current_wal_insert_lsn()::text").await;
    let read = async {
        while rig.slot_of(&shadow).await < now {
            let next = tokio::time::timeout(Duration::from_millis(100), shadow.next());
            if let Ok(events) = next.await {
                assert!(events.unwrap().is_empty());
            }
        }
    };
    tokio::time::timeout(SOON, read).await.expect("the slot moves");
    drop(shadow);
    until(SOON, "the slot's end", async || rig.shadows().await == 0).await;
}

#[tokio::test]
async fn a_shadow_makes_no_publication_and_says_whose_slot_has_passed_its_start() {
    let mut rig = Rig::new().await;
    let shadow = rig.shadow().await.unwrap();
    assert!(!shadow.is_behind_start().await.unwrap(), "there is no slot of the pipeline");
    assert_eq!(shadow.is_read_elsewhere().await.unwrap(), None);
    shadow.close().await.unwrap();
    let relay = rig.streaming().await;
    let shadow = rig.shadow().await.unwrap();
    rig.insert("a", &["1"]).await;
    until(SOON, "the pipeline's slot", async || shadow.is_behind_start().await.unwrap()).await;
    assert_eq!(shadow.is_read_elsewhere().await.unwrap(), Some(true));
    stop(relay).await;
    rig.released().await;
    assert_eq!(shadow.is_read_elsewhere().await.unwrap(), Some(false));
    shadow.close().await.unwrap();
    rig.config.publication = "nobodys".to_owned();
    let refusal = rig.shadow().await.unwrap_err().to_string();
    assert!(refusal.contains("publication \"nobodys\" does not exist"), "{refusal}");
    let made = "select count(*) from pg_publication where pubname = 'nobodys'";
    assert_eq!((rig.count(made).await, rig.shadows().await), (0, 0));
}

#[tokio::test]
async fn a_shadow_knows_when_it_has_returned_all_that_was_committed() {
    let rig = Rig::new().await;
    let mut shadow = rig.shadow().await.unwrap();
    rig.insert("a", &["1"]).await;
    // Of others too.
    rig.client.batch_execute("create table other (); drop table other").await.unwrap();
    let flushed = shadow.flushed().await.unwrap();
    let mut count = 0;
    let read = async {
        while !shadow.has_returned(flushed) {
            let next = tokio::time::timeout(Duration::from_millis(100), shadow.next());
            if let Ok(events) = next.await {
                count += events.unwrap().len();
            }
        }
    };
    tokio::time::timeout(SOON, read).await.expect("it is read");
    assert_eq!(count, 1);
    shadow.close().await.unwrap();
}

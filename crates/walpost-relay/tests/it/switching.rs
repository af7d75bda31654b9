//! A pipeline goes from the WAL to polling and back, under load, and the switch
//! dies between every two of its steps.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use tokio::{sync::Notify, task::JoinHandle};
use tokio_postgres::Client;
use walpost_relay::{RelayError, SourceSwitch, SwitchStep, SwitchTo, Switched};
use walpost_testkit::{postgres_of, until};

use crate::{
    polling_rig::Polled,
    proven::open_transaction,
    rig::{Rig, SOON, raw, stop},
    sink::value,
};

pub(crate) fn switch_of(polled: &Polled) -> SourceSwitch {
    let Rig { database, config, router, .. } = &polled.rig;
    let (polling, encoding) = (polled.polling.clone(), raw());
    SourceSwitch::new(database.clone(), config.clone(), polling, router.clone(), encoding).unwrap()
}

/// Switches; as far as the step that is the last one, if there is such.
async fn run_until(
    polled: &Polled,
    to: SwitchTo,
    last: &dyn Fn(&SwitchStep) -> bool,
) -> Option<Result<Switched, RelayError>> {
    let world = polled.rig.world.clone();
    let connect = async || world.connect().await;
    let reached = Notify::new();
    let tell = async |step: SwitchStep| {
        if last(&step) {
            reached.notify_one();
            std::future::pending::<()>().await;
        }
    };
    let switching = switch_of(polled);
    let ended = async {
        tokio::select! {
            ended = switching.run(to, connect, tell) => Some(ended),
            () = reached.notified() => None,
        }
    };
    let ended = tokio::time::timeout(3 * SOON, ended).await;
    ended.expect("it comes so far, or to its end")
}

pub(crate) async fn switch(polled: &Polled, to: SwitchTo) -> Result<Switched, RelayError> {
    run_until(polled, to, &|_| false).await.expect("it has no last step")
}

/// Switches as far as a step, and dies when it is done.
pub(crate) async fn die_at(polled: &Polled, to: SwitchTo, last: &dyn Fn(&SwitchStep) -> bool) {
    if let Some(ended) = run_until(polled, to, last).await {
        panic!("it came to its end: {ended:?}");
    }
}

/// Writes rows in short transactions, those of an aggregate one after another.
struct Load {
    stop: Arc<AtomicBool>,
    task: JoinHandle<()>,
}

impl Load {
    async fn start(rig: &Rig, writer: usize) -> Self {
        let client = rig.database.connect().await.unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let task = tokio::spawn(async move {
            for n in 0.. {
                if stopped.load(Ordering::Relaxed) {
                    break;
                }
                let sql = format!(
                    "begin; insert into walpost.outbox (aggregatetype, aggregateid, type, payload) \
                     values ('order', 'w{writer}-{}', 'Placed', '\"w{writer}-{n}\"'); \
                     select pg_sleep(0.004); commit",
                    n % 5
                );
                client.batch_execute(&sql).await.unwrap();
            }
        });
        Self { stop, task }
    }

    async fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.task.await.unwrap();
    }
}

/// Whoever makes a slot waits for this transaction.
async fn is_waited_for(rig: &Rig, open: &Client) {
    let xid: String =
        open.query_one("select pg_current_xact_id()::xid::text", &[]).await.unwrap().get(0);
    let waits = format!(
        "select count(*) from pg_locks l join pg_stat_activity a on a.pid = l.pid \
         where l.locktype = 'transactionid' and not l.granted and l.transactionid = '{xid}' \
         and a.datname = current_database()"
    );
    until(3 * SOON, "the slot waits", async || rig.count(&waits).await > 0).await;
}

/// Of the two transactions that a slot waits for, one after the other, and that
/// it does not bring, and of one that is open when it is ready, which it does.
async fn open_over_the_cut(rig: &Rig, first: Client, name: &str) -> Client {
    is_waited_for(rig, &first).await;
    let second = open_transaction(rig, &format!("{name}-2"), &format!("\"{name}-2\"")).await;
    first.batch_execute("commit").await.unwrap();
    is_waited_for(rig, &second).await;
    let third = open_transaction(rig, &format!("{name}-3"), &format!("\"{name}-3\"")).await;
    second.batch_execute("commit").await.unwrap();
    third
}

/// The same while a switch goes as far as a step and dies there.
async fn die_with_open(
    polled: &Polled,
    to: SwitchTo,
    name: &str,
    last: &dyn Fn(&SwitchStep) -> bool,
) -> Client {
    let first = open_transaction(&polled.rig, &format!("{name}-1"), &format!("\"{name}-1\"")).await;
    let (third, ()) =
        tokio::join!(open_over_the_cut(&polled.rig, first, name), die_at(polled, to, last));
    third
}

/// Every row landed once, those of an aggregate in the order of their insert.
async fn assert_each_once_and_in_order(rig: &Rig) {
    let rows = rig.count("select count(*) from walpost.outbox").await;
    until(3 * SOON, "every row", async || rig.world.count() as i64 >= rows).await;
    let query = "select aggregateid, payload::text from walpost.outbox order by aggregateid, seq";
    let committed: Vec<(String, String)> = rig
        .client
        .query(query, &[])
        .await
        .unwrap()
        .iter()
        .map(|row| (row.get(0), row.get(1)))
        .collect();
    let key = |key: &Option<_>| -> String {
        let key: &Option<bytes::Bytes> = key;
        String::from_utf8(key.as_ref().unwrap().to_vec()).unwrap()
    };
    let mut landed: Vec<(String, String)> =
        rig.world.landed().iter().map(|message| (key(&message.key), value(message))).collect();
    // Stable: what came first of an aggregate stays first.
    landed.sort_by(|one, other| one.0.cmp(&other.0));
    assert_eq!(landed.len(), committed.len(), "none is missing, none came twice");
    assert_eq!(landed, committed);
}

/// What the start of a relay of either kind is refused with.
async fn refusal_of_poller(polled: &Polled) -> String {
    let mut relay = polled.start();
    let ended = tokio::time::timeout(SOON, relay.finished()).await;
    ended.expect("the relay refuses to start").unwrap_err().to_string()
}

async fn to_polling_and_back(version: u32) {
    let polled = Polled::on(Rig::on(postgres_of(version)).await).await;
    let rig = &polled.rig;
    let relay = rig.streaming().await;
    let writers = [Load::start(rig, 0).await, Load::start(rig, 1).await];
    rig.landed(50).await;
    stop(relay).await;
    let to = SwitchTo::Polling;
    let is = |wanted: SwitchStep| {
        move |step: &SwitchStep| std::mem::discriminant(step) == std::mem::discriminant(&wanted)
    };
    let late_1 = die_with_open(&polled, to, "cut", &is(SwitchStep::CutMade)).await;
    let refused = refusal_of_poller(&polled).await;
    assert!(refused.contains("reads the WAL") && refused.contains("--to polling"), "{refused}");
    late_1.batch_execute("commit").await.unwrap();
    let late_2 = die_with_open(&polled, to, "left", &is(SwitchStep::WalLeft)).await;
    for step in [SwitchStep::RowsMarked(0), SwitchStep::SlotDropped] {
        let refused = [refusal_of_poller(&polled).await, rig.refusal().await];
        assert!(refused.iter().all(|text| text.contains("finish it with")), "{refused:?}");
        die_at(&polled, to, &is(step)).await;
    }
    assert!(!switch(&polled, to).await.unwrap().is_already);
    assert!(switch(&polled, to).await.unwrap().is_already);
    let refused = rig.refusal().await;
    assert!(refused.contains("polls its outbox table"), "{refused}");
    let before = rig.world.count();
    let pollers = [polled.polling().await, polled.polling().await];
    late_2.batch_execute("commit").await.unwrap();
    until(SOON, "polled rows", async || rig.world.count() >= before + 50).await;
    for poller in pollers {
        stop(poller).await;
    }
    let to = SwitchTo::Wal;
    die_at(&polled, to, &is(SwitchStep::PollingLeft)).await;
    let late_3 = die_with_open(&polled, to, "made", &is(SwitchStep::SlotMade)).await;
    late_3.batch_execute("commit").await.unwrap();
    let late_4 = die_with_open(&polled, to, "noted", &is(SwitchStep::CutNoted)).await;
    let refused = [refusal_of_poller(&polled).await, rig.refusal().await];
    assert!(refused.iter().all(|text| text.contains("finish it with")), "{refused:?}");
    die_at(&polled, to, &is(SwitchStep::RowsPolled(0))).await;
    assert!(!switch(&polled, to).await.unwrap().is_already);
    assert!(switch(&polled, to).await.unwrap().is_already);
    assert!(refusal_of_poller(&polled).await.contains("reads the WAL"));
    let relay = rig.streaming().await;
    late_4.batch_execute("commit").await.unwrap();
    for writer in writers {
        writer.stop().await;
    }
    assert_each_once_and_in_order(rig).await;
    stop(relay).await;
}

#[tokio::test]
#[ignore = "deep: an older PostgreSQL"]
async fn a_switch_that_dies_at_every_step_loses_and_repeats_nothing_on_postgres_15() {
    to_polling_and_back(15).await;
}

#[tokio::test]
async fn a_switch_that_dies_at_every_step_loses_and_repeats_nothing_on_postgres_18() {
    to_polling_and_back(18).await;
}

#[tokio::test]
async fn a_pipeline_that_has_only_polled_goes_to_the_wal_with_what_it_has_not_published() {
    let polled = Polled::new().await;
    let rig = &polled.rig;
    let poller = polled.polling().await;
    rig.insert("a", &["1", "2"]).await;
    polled.reaches("PUBLISHED", 2).await;
    stop(poller).await;
    rig.insert("a", &["3"]).await;
    assert!(!switch(&polled, SwitchTo::Wal).await.unwrap().is_already);
    assert_eq!(rig.world.values(), ["1", "2", "3"]);
    rig.insert("a", &["4"]).await;
    let relay = rig.streaming().await;
    assert_eq!(rig.landed(4).await, ["1", "2", "3", "4"]);
    stop(relay).await;
}

/// While the switch waits, claims end, and no other begins.
#[tokio::test]
async fn pollers_that_run_end_when_their_pipeline_leaves_polling() {
    let polled = Polled::new().await;
    let rig = &polled.rig;
    let mut pollers = [polled.polling().await, polled.polling().await];
    rig.insert("a", &["1"]).await;
    rig.world.hold(true);
    rig.insert("b", &["2"]).await;
    until(SOON, "a claim", async || rig.world.queued() >= 2).await;
    let free = async {
        let waits = "select count(*) from pg_locks join pg_database d on d.oid = database \
                     where datname = current_database() and locktype = 'advisory' \
                     and not granted and mode = 'ExclusiveLock'";
        until(SOON, "the switch waits for the claim", async || rig.count(waits).await == 1).await;
        rig.world.hold(false);
    };
    let (switched, ()) = tokio::join!(switch(&polled, SwitchTo::Wal), free);
    assert!(!switched.unwrap().is_already);
    for poller in &mut pollers {
        let ended = tokio::time::timeout(SOON, poller.finished()).await.expect("it ends");
        let text = ended.unwrap_err().to_string();
        assert!(text.contains("switched to the WAL") || text.contains("reads the WAL"), "{text}");
    }
    let relay = rig.streaming().await;
    rig.insert("a", &["3"]).await;
    let mut landed = rig.landed(3).await;
    landed.sort();
    assert_eq!(landed, ["1", "2", "3"]);
    stop(relay).await;
}

#[tokio::test]
async fn a_switch_to_the_wal_can_be_given_up_and_its_slot_is_gone() {
    let polled = Polled::new().await;
    let rig = &polled.rig;
    rig.insert("a", &["1"]).await;
    die_at(&polled, SwitchTo::Wal, &|step| *step == SwitchStep::CutNoted).await;
    let given_up = switch(&polled, SwitchTo::Polling).await.unwrap();
    assert!(!given_up.is_already && given_up.position.is_none());
    let slot = format!(
        "select count(*) from pg_replication_slots where slot_name = '{}'",
        rig.config.slot
    );
    assert_eq!(rig.count(&slot).await, 0);
    let poller = polled.polling().await;
    polled.reaches("PUBLISHED", 1).await;
    stop(poller).await;
    assert_eq!(rig.world.values(), ["1"]);
}

/// What was committed before the slot was dropped by somebody is polled too.
#[tokio::test]
async fn a_slot_that_is_gone_before_the_switch_ends_is_made_again() {
    let polled = Polled::new().await;
    let rig = &polled.rig;
    rig.insert("a", &["1"]).await;
    die_at(&polled, SwitchTo::Wal, &|step| matches!(step, SwitchStep::RowsPolled(1))).await;
    rig.insert("a", &["2"]).await;
    let drop = format!("select pg_drop_replication_slot('{}')", rig.config.slot);
    rig.client.batch_execute(&drop).await.unwrap();
    switch(&polled, SwitchTo::Wal).await.unwrap();
    assert_eq!(rig.world.values(), ["1", "2"]);
    let relay = rig.streaming().await;
    rig.insert("a", &["3"]).await;
    assert_eq!(rig.landed(3).await, ["1", "2", "3"]);
    stop(relay).await;
}

//! When a relay is ready, with real slots that stand still, and what must not
//! be taken for one.

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use walpost_relay::{Initial, Phase, Readiness, ReadyWatch, RunningRelay};
use walpost_testkit::{
    Signal,
    local::{Postgres, send_signal},
    until,
};

use crate::rig::{Rig, SOON, phase, status, stop};

/// What the issue asks for.
const RED: Duration = Duration::from_secs(30);

/// Looks as `/ready` does, and remembers what turned red.
struct Watched {
    /// And when that was, by a clock that stands while the machine does.
    now: Arc<Mutex<Option<(Readiness, Instant)>>>,
    red: Arc<Mutex<Vec<String>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Watched {
    fn new(rig: &Rig, relay: &RunningRelay) -> Self {
        let (now, red) = (Arc::<Mutex<Option<_>>>::default(), Arc::default());
        let mut watch = ReadyWatch::new(&rig.config);
        let status = relay.status();
        let (latest, reds) = (Arc::clone(&now), Arc::<Mutex<Vec<String>>>::clone(&red));
        let task = tokio::spawn(async move {
            let mut ticks = tokio::time::interval(Duration::from_millis(100));
            let (mut before, mut now) = (Instant::now(), Instant::now());
            loop {
                ticks.tick().await;
                // A machine that stood still for all of us does not count.
                now += before.elapsed().min(Duration::from_millis(300));
                before = Instant::now();
                let readiness = watch.look(&status.borrow(), now);
                if !readiness.ready {
                    let mut reds = reds.lock().unwrap();
                    if reds.last() != Some(&readiness.reason) {
                        reds.push(readiness.reason.clone());
                    }
                }
                *latest.lock().unwrap() = Some((readiness, now));
            }
        });
        Self { now, red, task }
    }

    fn now(&self) -> (bool, String) {
        let now = self.now.lock().unwrap();
        now.as_ref().map(|(now, _)| (now.ready, now.reason.clone())).unwrap_or_default()
    }

    fn clock(&self) -> Instant {
        self.now.lock().unwrap().as_ref().expect("it has looked").1
    }

    async fn ready(&self) {
        until(SOON, "a ready relay", async || self.now().0).await;
    }

    /// Not ready, for a reason with this text, in time.
    async fn red(&self, text: &str) -> String {
        let begin = self.clock();
        until(3 * RED, &format!("not ready: {text}"), async || {
            let (ready, reason) = self.now();
            !ready && reason.contains(text)
        })
        .await;
        let (took, reason) = (self.clock() - begin, self.now().1);
        println!("red after {took:?}: {reason}");
        assert!(took < RED, "red after {took:?}: {reason}");
        reason
    }

    fn assert_never_red(&self) {
        assert_eq!(*self.red.lock().unwrap(), Vec::<String>::new());
    }

    fn forget(&self) {
        self.red.lock().unwrap().clear();
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Some megabytes of WAL that hold no event.
async fn write_wal(rig: &Rig, rows: u32) {
    let sql = format!(
        "create table if not exists noise (n int, filler text);
         insert into noise select n, repeat('x', 500) from generate_series(1, {rows}) n"
    );
    rig.client.batch_execute(&sql).await.unwrap();
}

async fn walsender(rig: &Rig) -> u32 {
    let sql = format!(
        "select active_pid from pg_replication_slots where slot_name = '{}'",
        rig.config.slot
    );
    let pid: i32 = rig.client.query_one(&sql, &[]).await.unwrap().get(0);
    u32::try_from(pid).unwrap()
}

/// The slot's position passes everything that is written now.
async fn confirmed_all(rig: &Rig) {
    let written = rig.lsn("select pg_current_wal_insert_lsn()::text").await;
    let limit = Duration::from_secs(90);
    until(limit, "the slot follows", async || rig.slot_position().await >= written).await;
}

/// The slot was looked at again, so much later.
async fn looked_for(relay: &RunningRelay, time: Duration) {
    let end = Instant::now() + time;
    let mut status = relay.status();
    let looked = status.wait_for(|status| status.slot.as_ref().is_some_and(|slot| slot.at >= end));
    let looked = tokio::time::timeout(time + SOON, looked).await;
    looked.expect("another look at the slot").unwrap();
}

fn own_server() -> &'static Postgres {
    let server = Postgres::builder().throwaway().setting("autovacuum", "off").start().unwrap();
    Box::leak(Box::new(server))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "deep: waits half a minute"]
async fn a_sink_that_takes_nothing_turns_it_red_within_30_s_and_green_again() {
    let rig = Rig::new().await;
    let relay = rig.streaming().await;
    let watched = Watched::new(&rig, &relay);
    watched.ready().await;
    rig.world.hold(true);
    rig.insert("a", &["1", "2"]).await;
    write_wal(&rig, 2_000).await;
    let reason = watched.red("the sink has not taken an event").await;
    assert!(reason.contains("for memory; 2 events wait"), "{reason}");
    rig.world.hold(false);
    watched.ready().await;
    confirmed_all(&rig).await;
    stop(relay).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "deep: takes long"]
async fn a_walsender_that_is_stopped_turns_it_red_within_30_s_and_green_again() {
    let server = own_server();
    let mut rig = Rig::on_local(server).await;
    rig.config.start_timeout_ms = None;
    let relay = rig.streaming().await;
    let watched = Watched::new(&rig, &relay);
    watched.ready().await;
    let pid = walsender(&rig).await;
    send_signal(pid, Signal::Stop).unwrap();
    write_wal(&rig, 2_000).await;
    // The session is given up first, and its slot is still held.
    watched.red(&format!("process {pid} of the server still holds the slot")).await;
    assert_eq!(relay.status().borrow().phase, Phase::Standby);
    send_signal(pid, Signal::Continue).unwrap();
    phase(&relay, &Phase::Streaming).await;
    watched.ready().await;
    confirmed_all(&rig).await;
    stop(relay).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "deep: waits half a minute"]
async fn the_other_client_sees_a_stopped_walsender_too() {
    let server = own_server();
    let mut rig = Rig::on_local(server).await;
    rig.config.source = walpost_relay::SourceKind::Pgwire;
    let relay = rig.streaming().await;
    let watched = Watched::new(&rig, &relay);
    watched.ready().await;
    let pid = walsender(&rig).await;
    // One that is stopped at work counts as working.
    let waits = format!(
        "select count(*) from pg_stat_activity where pid = {pid} and wait_event is not null"
    );
    until(SOON, "a walsender that is stopped while it waits", async || {
        send_signal(pid, Signal::Stop).unwrap();
        let waits = rig.count(&waits).await == 1;
        if !waits {
            send_signal(pid, Signal::Continue).unwrap();
        }
        waits
    })
    .await;
    write_wal(&rig, 2_000).await;
    let reason = watched.red("the slot stands still").await;
    assert!(reason.contains("the server sends nothing"), "{reason}");
    send_signal(pid, Signal::Continue).unwrap();
    watched.ready().await;
    stop(relay).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "deep: waits half a minute"]
async fn what_is_no_standstill_stays_green() {
    let server = own_server();
    let mut rig = Rig::on_local(server).await;
    // Short, so that what lasts for seconds counts.
    rig.config.ready_stuck_ms = 2_000;
    // Long, so that a busy machine is not taken for a dead one.
    rig.config.wal_sender_timeout_ms = 60_000;
    let relay = rig.streaming().await;
    let watched = Watched::new(&rig, &relay);
    watched.ready().await;

    // A transaction with an event that stays open while others come and go.
    let mut other = rig.database.connect().await.unwrap();
    let open = other.transaction().await.unwrap();
    let event = "insert into walpost.outbox (aggregatetype, aggregateid, type, payload) \
                 values ('order', 'late', 'Placed', '0')";
    open.batch_execute(event).await.unwrap();
    let (began, mut n) = (Instant::now(), 0);
    while n < 20 || began.elapsed() < Duration::from_secs(12) {
        rig.insert("a", &[&n.to_string()]).await;
        write_wal(&rig, 1_000).await;
        n += 1;
        rig.landed(n).await;
        confirmed_all(&rig).await;
    }
    watched.assert_never_red();
    open.commit().await.unwrap();
    rig.landed(n + 1).await;

    // A large transaction, as it is decoded and streamed.
    let many = "insert into walpost.outbox (aggregatetype, aggregateid, type, payload) \
                select 'order', n % 100, 'Placed', to_jsonb(repeat('x', 100)) \
                from generate_series(1, 100000) n";
    rig.client.batch_execute(many).await.unwrap();
    let all = n + 1 + 100_000;
    until(Duration::from_secs(120), "the large transaction", async || rig.world.count() >= all)
        .await;
    confirmed_all(&rig).await;
    watched.assert_never_red();

    // A large transaction of which nothing is an event.
    let numbers = "create table numbers (n int); \
                   insert into numbers select generate_series(1, 1500000)";
    rig.client.batch_execute(numbers).await.unwrap();
    confirmed_all(&rig).await;
    watched.assert_never_red();

    // An idle server: for much longer than the limit nothing happens.
    looked_for(&relay, Duration::from_secs(15)).await;
    watched.assert_never_red();
    // And the first burst after it.
    write_wal(&rig, 20_000).await;
    confirmed_all(&rig).await;
    watched.assert_never_red();
    stop(relay).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "deep: takes long"]
async fn a_load_says_so_and_leaves_nothing_behind() {
    let mut rig = Rig::new().await;
    rig.config.initial = Some(Initial::Publish);
    rig.config.ready_stuck_ms = 2_000;
    rig.insert("a", &["1"]).await;
    rig.world.hold(true);
    let relay = rig.start();
    let watched = Watched::new(&rig, &relay);
    status(&relay, "the row on its way", |status| status.outstanding == 1).await;
    write_wal(&rig, 2_000).await;
    watched.red("loading").await;
    watched.forget();
    looked_for(&relay, Duration::from_secs(15)).await;
    let reds = watched.red.lock().unwrap().clone();
    assert!(reds.iter().all(|reason| reason.starts_with("loading")), "{reds:?}");
    rig.world.hold(false);
    phase(&relay, &Phase::Streaming).await;
    watched.ready().await;
    confirmed_all(&rig).await;
    watched.ready().await;
    stop(relay).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_relay_is_ready_and_says_who_has_the_slot() {
    let rig = Rig::new().await;
    let first = rig.streaming().await;
    let second = rig.start();
    phase(&second, &Phase::Standby).await;
    let watched = Watched::new(&rig, &second);
    let expected = (true, format!("process {} of the server", walsender(&rig).await));
    until(SOON, "who has the slot", async || {
        let (ready, reason) = watched.now();
        ready == expected.0 && reason.contains(&expected.1)
    })
    .await;
    stop(first).await;
    phase(&second, &Phase::Streaming).await;
    watched.ready().await;
    stop(second).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_that_the_server_gave_up_is_told() {
    let server = Postgres::builder()
        .throwaway()
        .setting("autovacuum", "off")
        .setting("max_slot_wal_keep_size", "1MB")
        .setting("min_wal_size", "32MB")
        .setting("max_wal_size", "32MB")
        .start()
        .unwrap();
    let rig = Rig::on_local(Box::leak(Box::new(server))).await;
    let mut relay = rig.streaming().await;
    let watched = Watched::new(&rig, &relay);
    watched.ready().await;
    rig.world.hold(true);
    rig.insert("a", &["1"]).await;
    for _ in 0..4 {
        write_wal(&rig, 40_000).await;
        rig.client.batch_execute("select pg_switch_wal(); checkpoint").await.unwrap();
    }
    // The server ends the session, and nothing can go on from this slot.
    let ended = tokio::time::timeout(2 * RED, relay.finished()).await.expect("it ends");
    assert!(ended.unwrap_err().to_string().contains("is lost"));
    until(SOON, "not ready", async || !watched.now().0).await;
    rig.world.hold(false);
}

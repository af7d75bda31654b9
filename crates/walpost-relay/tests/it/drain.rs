//! How a session ends while something is slow.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::sync::watch;
use walpost_event::{Message, Position};
use walpost_relay::{
    Delivery, DeliveryError, DeliveryErrorKind, Landed, Lane, NoteMarks, Phase, Place, RelayError,
    Sink, Ticket, TopicFloors, Unsent,
};
use walpost_testkit::until;

use crate::rig::{Rig, SOON, phase, status, stop};

/// Waits until the walsender of the rig's slot has lived on for 13 seconds,
/// of which the server forgives six.
async fn long_for_the_walsender(rig: &Rig) {
    let now: String =
        rig.client.query_one("select clock_timestamp()::text", &[]).await.unwrap().get(0);
    let alive = format!(
        "select count(*) from pg_stat_replication r join pg_replication_slots s \
         on s.active_pid = r.pid where s.slot_name = '{}' and r.backend_start < '{now}' \
         and clock_timestamp() > timestamptz '{now}' + interval '13 s'",
        rig.config.slot
    );
    until(SOON, "13 seconds of the walsender", async || rig.count(&alive).await == 1).await;
}

#[tokio::test]
async fn an_orderly_stop_ends_in_time_also_when_no_checkpoint_can_be_written() {
    let mut rig = Rig::new().await;
    rig.config.drain_timeout_ms = 500;
    rig.config.statement_timeout_ms = 60_000;
    let mut relay = rig.streaming().await;
    // The first event waits until its place is named.
    rig.insert("a", &["0"]).await;
    rig.landed(1).await;
    let blocker = rig.database.connect().await.unwrap();
    blocker.batch_execute("begin; select from walpost.checkpoint for update").await.unwrap();
    rig.insert("a", &["1"]).await;
    rig.landed(2).await;
    relay.stop();
    let finished = tokio::time::timeout(SOON, relay.finished()).await;
    finished.expect("the stop is bounded by drain_timeout_ms").unwrap();
    drop(blocker);
    rig.released().await;

    let relay = rig.streaming().await;
    rig.insert("a", &["2"]).await;
    until(SOON, "the next event", async || rig.world.values().contains(&"2".to_owned())).await;
    stop(relay).await;
}

#[tokio::test]
#[ignore = "deep: takes long"]
async fn a_slow_sink_costs_an_orderly_stop_neither_the_stream_nor_the_position() {
    let mut rig = Rig::new().await;
    rig.config.wal_sender_timeout_ms = 6_000;
    rig.config.drain_timeout_ms = 60_000;
    let relay = rig.streaming().await;
    rig.world.hold(true);
    rig.insert("a", &["1"]).await;
    status(&relay, "the event on its way", |status| status.outstanding == 1).await;
    relay.stop();
    long_for_the_walsender(&rig).await;
    rig.world.hold(false);
    stop(relay).await;
    let position = rig.world.landed()[0].headers[1].value.clone().unwrap();
    let (_, position) = std::str::from_utf8(&position).unwrap().split_once(':').unwrap();
    let position: Position = position.parse().unwrap();
    // Told before the end, and noted by the server a moment later.
    until(SOON, "the position", async || rig.slot_position().await > position.commit_lsn).await;
}

/// A sink that fails its first message, and answers for the others when it is
/// told to.
struct Straggler {
    accepted: Vec<Ticket>,
    places: [Place; 1],
    answering: watch::Receiver<bool>,
    fate: Arc<Mutex<Fate>>,
}

#[derive(Default)]
struct Fate {
    failed: bool,
    landed: usize,
}

impl Sink for Straggler {
    async fn read_back(
        &mut self,
        _: Vec<TopicFloors>,
        _: Option<Duration>,
        _: Box<NoteMarks>,
    ) -> Result<(), RelayError> {
        Ok(())
    }

    fn places(&self) -> &[Place] {
        &self.places
    }

    fn allow(&mut self, _: usize) {}

    fn lane_of(&mut self, _: &Message) -> Result<Option<Lane>, String> {
        Ok(Some(0))
    }

    fn try_send(&mut self, ticket: Ticket, message: Message) -> Result<Lane, Unsent> {
        if self.fate.lock().unwrap().failed && !*self.answering.borrow() {
            return Err(Unsent::Full(Box::new(message)));
        }
        self.accepted.push(ticket);
        Ok(0)
    }

    async fn deliveries(&mut self, deliveries: &mut Vec<Delivery>) {
        let failed = self.fate.lock().unwrap().failed;
        if !failed && self.accepted.len() >= 2 {
            self.fate.lock().unwrap().failed = true;
            let error = DeliveryError {
                kind: DeliveryErrorKind::Unknown,
                topic: "t".into(),
                detail: "as the test has it".into(),
            };
            deliveries.push(Delivery { ticket: self.accepted.remove(0), result: Err(error) });
            return;
        }
        self.answering.wait_for(|answering| *answering).await.unwrap();
        if self.accepted.is_empty() {
            std::future::pending::<()>().await;
        }
        self.fate.lock().unwrap().landed += self.accepted.len();
        let landed = Landed { lane: 0, offset: None };
        deliveries
            .extend(self.accepted.drain(..).map(|ticket| Delivery { ticket, result: Ok(landed) }));
    }

    fn outstanding(&self) -> usize {
        self.accepted.len()
    }

    fn trouble(&self) -> Option<String> {
        None
    }

    async fn close(self) {}
}

#[tokio::test]
#[ignore = "deep: takes long"]
async fn a_failed_delivery_waits_for_the_others_and_keeps_the_stream_meanwhile() {
    let mut rig = Rig::new().await;
    rig.config.wal_sender_timeout_ms = 6_000;
    let (answer, answering) = watch::channel(false);
    let fate = Arc::<Mutex<Fate>>::default();
    let shared = fate.clone();
    let relay = rig.relay().unwrap().start(async move || {
        Ok::<_, RelayError>(Straggler {
            accepted: Vec::new(),
            places: [Place { topic: "t".into(), topic_id: None, partition: 0, start: 0, end: 0 }],
            answering: answering.clone(),
            fate: shared.clone(),
        })
    });
    phase(&relay, &Phase::Streaming).await;
    rig.insert("a", &["1", "2"]).await;
    until(SOON, "the failure", async || fate.lock().unwrap().failed).await;
    long_for_the_walsender(&rig).await;
    assert_eq!(relay.status().borrow().failed_sessions, 0, "the other one is waited for");
    answer.send_replace(true);
    status(&relay, "the end of the session", |status| status.failed_sessions == 1).await;
    // The one that landed comes again with the one that failed.
    until(SOON, "both, after one of them", async || fate.lock().unwrap().landed == 3).await;
    stop(relay).await;
}

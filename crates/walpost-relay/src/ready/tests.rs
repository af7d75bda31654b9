use walpost_event::Position;

use super::*;
use crate::sight::{Oldest, testing::sight};

/// A pipeline that is watched by a clock that is turned by hand. The limits are
/// 20 s and 23 s.
struct Scene {
    watch: ReadyWatch,
    status: PipelineStatus,
    now: Instant,
    wal: u64,
}

const MIB: u64 = 1 << 20;

impl Scene {
    fn new(phase: Phase) -> Self {
        let now = Instant::now();
        let slot = Some(SlotSight { at: now, ..sight(100 * MIB) });
        let at = Lsn::from(100 * MIB);
        let mut status = PipelineStatus::default();
        (status.phase, status.slot) = (phase, slot);
        (status.received, status.done, status.confirmed) = (at, at, at);
        Self { watch: ReadyWatch::new(&RelayConfig::new("shop")), status, now, wal: 100 * MIB }
    }

    fn sight(&mut self) -> &mut SlotSight {
        self.status.slot.as_mut().unwrap()
    }

    /// A second passes, in which the server writes `bytes`; `change` is what
    /// the relay does.
    fn second(&mut self, bytes: u64, mut change: impl FnMut(&mut Self)) -> Readiness {
        self.now += Duration::from_secs(1);
        self.wal += bytes;
        let (now, wal) = (self.now, Lsn::from(self.wal));
        (self.sight().at, self.sight().wal) = (now, wal);
        change(self);
        self.watch.look(&self.status, self.now)
    }

    /// The first second in which it is not ready, of so many, and the reason.
    fn red(
        &mut self,
        seconds: u32,
        bytes: u64,
        mut change: impl FnMut(&mut Self),
    ) -> Option<(u32, String)> {
        (1..=seconds).find_map(|second| {
            let Readiness { ready, reason } = self.second(bytes, &mut change);
            (!ready).then_some((second, reason))
        })
    }

    /// Everything is confirmed.
    fn confirm(&mut self) {
        let at = Lsn::from(self.wal);
        (self.status.received, self.status.done, self.status.confirmed) = (at, at, at);
        self.sight().confirmed = Some(at);
    }
}

/// Which second turns red, with a word of why.
fn assert_red(scene: &mut Scene, word: &str, change: impl FnMut(&mut Scene)) {
    let (second, reason) = scene.red(40, MIB, change).unwrap_or_else(|| panic!("no {word:?}"));
    assert!((21..=25).contains(&second), "{second}: {reason}");
    assert!(reason.contains(word), "{reason}");
}

#[test]
fn each_step_that_stands_still_while_wal_grows_is_told() {
    let streaming = || Scene::new(Phase::Streaming);
    assert_red(&mut streaming(), "the server sends nothing", |_| {});
    assert_red(&mut streaming(), "does not take the confirmations", |scene| {
        let confirmed = scene.sight().confirmed;
        scene.confirm();
        scene.sight().confirmed = confirmed;
    });
    assert_red(&mut streaming(), "no checkpoint", |scene| {
        scene.status.received = Lsn::from(scene.wal);
        scene.status.done = scene.status.received;
        scene.status.flow.is_due = true;
    });
    assert_red(&mut streaming(), "does not reach the last checkpoint", |scene| {
        scene.status.done = Lsn::from(101 * MIB);
        scene.status.received = scene.status.done;
        scene.status.flow.unpassed = Some(Lsn::from(102 * MIB));
    });
    assert_red(&mut streaming(), "the rest of a transaction does not come", |scene| {
        scene.status.flow.open = Some(17);
    });
    let position = Position { commit_lsn: Lsn::from(16), ordinal: 3 };
    assert_red(&mut streaming(), "number 3 of the commit at 0/10, for orders; 2 events", |scene| {
        scene.status.flow.pending = 2;
        scene.status.flow.oldest = Some(Oldest { position, topic: Some("orders".into()) });
    });
}

#[test]
fn what_stood_still_and_moves_again_is_ready_at_once() {
    let mut scene = Scene::new(Phase::Streaming);
    assert!(scene.red(40, MIB, |_| {}).is_some());
    assert!(scene.second(MIB, Scene::confirm).ready);
    assert_eq!(scene.red(20, MIB, |_| {}), None, "the time counts from anew");
}

#[test]
fn an_idle_server_is_no_standstill_and_its_first_burst_neither() {
    let mut scene = Scene::new(Phase::Streaming);
    assert_eq!(scene.red(3_600, 0, |_| {}), None);
    // Our own checkpoints and the server's small change.
    assert_eq!(scene.red(30, 1_000, |_| {}), None);
    assert_eq!(scene.red(5, MIB, |_| {}), None, "it takes a while to confirm");
    assert!(scene.second(MIB, Scene::confirm).ready);
    // A checkpoint of ours that is larger than most, and nothing behind it.
    scene.wal += MIB;
    assert_eq!(
        scene.red(3_600, 0, |scene| {
            scene.status.received = Lsn::from(scene.wal);
            scene.status.done = scene.status.received;
        }),
        None
    );
    assert_eq!(
        scene.red(20, 100, |scene| {
            scene.status.received = Lsn::from(scene.wal);
            scene.status.done = scene.status.received;
            scene.status.flow.is_due = true;
        }),
        None,
        "what follows it takes its time"
    );
    let writing = |scene: &mut Scene| scene.status.flow.is_writing = true;
    assert_eq!(scene.red(60, 100, writing), None, "and has its own bound");
}

#[test]
fn what_goes_on_explains_a_position_that_stays() {
    let streaming = || Scene::new(Phase::Streaming);
    // A large transaction, of which the sink takes all as it comes.
    let large = streaming().red(3_600, MIB, |scene| {
        let flow = &mut scene.status.flow;
        (flow.settled, flow.pending, flow.open) = (flow.settled + 9, 5, Some(flow.settled + 14));
    });
    assert_eq!(large, None);
    // One whose events are all in their topics already.
    let read_back = streaming().red(3_600, MIB, |scene| {
        let flow = &mut scene.status.flow;
        (flow.settled, flow.open) = (flow.settled + 9, Some(flow.settled + 9));
    });
    assert_eq!(read_back, None);
    // Behind a long absence: the last checkpoint is at the head of the WAL.
    let behind = streaming().red(3_600, MIB / 2, |scene| {
        scene.status.flow.unpassed = Some(Lsn::from(1 << 40));
        scene.status.received = scene.status.received.max(Lsn::from(100 * MIB));
        scene.status.received = Lsn::from(u64::from(scene.status.received) + MIB / 4);
        scene.status.done = scene.status.received;
    });
    assert_eq!(behind, None);
    // The server decodes something of which nothing is ours.
    let decoding = streaming().red(500, MIB, |scene| scene.sight().holder.is_working = true);
    assert_eq!(decoding, None);
    let for_ever = streaming().red(1_000, MIB, |scene| scene.sight().holder.is_working = true);
    assert!(for_ever.is_some(), "but not for ever");
    // A long transaction elsewhere keeps WAL, and the position moves.
    let open = streaming().red(3_600, MIB, Scene::confirm);
    assert_eq!(open, None);
}

#[test]
fn a_sink_that_takes_some_and_not_the_oldest_is_told_without_any_wal() {
    let mut scene = Scene::new(Phase::Streaming);
    let (second, reason) = scene
        .red(40, 0, |scene| {
            scene.status.published += 100;
            scene.status.flow.pending = 1_000;
        })
        .unwrap();
    assert!(second >= 21 && reason.contains("the sink has not taken"), "{second}: {reason}");
}

#[test]
fn trouble_of_the_sink_counts_after_five_seconds() {
    let mut scene = Scene::new(Phase::Streaming);
    let trouble = |scene: &mut Scene| scene.status.trouble = Some("no leader".into());
    let (second, reason) = scene.red(40, 0, trouble).unwrap();
    assert_eq!(second, 7);
    assert_eq!(reason, "the sink is in trouble: no leader");
    assert!(scene.second(0, |scene| scene.status.trouble = None).ready);
}

#[test]
fn a_slot_that_is_lost_or_gone_is_told_at_once() {
    let mut scene = Scene::new(Phase::Streaming);
    let told = scene.second(0, |scene| {
        scene.sight().state = SlotState::Lost;
        scene.sight().invalidation = Some("wal_removed".into());
    });
    assert!(!told.ready);
    assert!(told.reason.contains("given up by the server (wal_removed)"), "{}", told.reason);
    let mut scene = Scene::new(Phase::Streaming);
    let told = scene.second(0, |scene| scene.sight().state = SlotState::Missing);
    assert!(!told.ready && told.reason.contains("the slot is gone"), "{}", told.reason);
    let mut scene = Scene::new(Phase::Standby);
    assert!(!scene.second(0, |scene| scene.sight().state = SlotState::Lost).ready);
    assert!(scene.second(0, |scene| scene.sight().state = SlotState::Missing).ready);
}

#[test]
fn who_stands_by_is_ready_and_says_what_it_sees() {
    let mut scene = Scene::new(Phase::Standby);
    let mut clock = 0;
    assert_eq!(
        scene.red(3_600, MIB, |scene| {
            clock += 1;
            scene.sight().holder.reported_us = Some(clock);
        }),
        None
    );
    let told = scene.second(MIB, |_| {});
    assert!(told.reason.contains("another relay has the slot, process 1"), "{}", told.reason);
    assert!(told.reason.contains("stands still"), "{}", told.reason);
}

#[test]
fn who_waits_for_a_process_that_nobody_talks_to_is_not_ready() {
    let mut scene = Scene::new(Phase::Standby);
    assert_red(&mut scene, "pg_terminate_backend(1)", |scene| {
        scene.sight().holder.reported_us = Some(5);
    });
    // What is left of our own last session: we are no second relay.
    let mut scene = Scene::new(Phase::Standby);
    let told = scene.second(0, |scene| scene.status.walsender = Some(1));
    assert!(!told.ready && told.reason.contains("has lost"), "{}", told.reason);
    assert!(scene.second(0, |scene| scene.sight().active_pid = Some(2)).ready);
    // Of another relay, whose signs of life our role may not see.
    assert_eq!(Scene::new(Phase::Standby).red(3_600, MIB, |_| {}), None);
}

#[test]
fn a_standby_that_takes_over_blames_no_other_process() {
    let mut scene = Scene::new(Phase::Standby);
    scene.sight().holder.reported_us = Some(5);
    // The process of the session at hand, which is about to publish.
    scene.status.own_walsender = Some(1);
    for holder in [None, Some(1)] {
        scene.status.walsender = holder;
        let told = scene.second(MIB, |_| {});
        assert!(told.ready && told.reason.starts_with("taking over"), "{}", told.reason);
    }
    let (second, reason) = scene.red(40, MIB, |_| {}).unwrap();
    assert!((18..=24).contains(&second) && reason.starts_with("taking over"), "{second} {reason}");
    assert!(!reason.contains("pg_terminate_backend"), "{reason}");
    // The slot is not ours yet.
    scene.sight().active_pid = Some(7);
    let told = scene.second(0, |_| {});
    assert!(told.reason.contains("another relay has the slot, process 7"), "{}", told.reason);
}

#[test]
fn who_begins_loads_or_waits_is_not_ready_and_says_so() {
    for (phase, word) in [
        (Phase::Starting, "starting"),
        (Phase::Loading, "loading: publishes the rows from before the slot, 7 read so far"),
        (Phase::Waiting { error: "no route".into() }, "waiting to try again: no route"),
        (Phase::Stopped, "stopped"),
    ] {
        let mut scene = Scene::new(phase);
        scene.status.loaded = 7;
        for _ in 0..60 {
            let told = scene.second(MIB, |_| {});
            assert!(!told.ready && told.reason.starts_with(word), "{}", told.reason);
        }
    }
    // A load moves no position, and that does not count afterwards.
    let mut scene = Scene::new(Phase::Loading);
    assert!(scene.red(60, MIB, |_| {}).is_some());
    scene.status.phase = Phase::Streaming;
    assert_eq!(scene.red(20, MIB, |_| {}), None);
}

#[test]
fn while_nobody_looks_at_the_slot_the_pipeline_is_believed() {
    let mut scene = Scene::new(Phase::Streaming);
    for second in 0..600 {
        scene.now += Duration::from_secs(1);
        let at = Lsn::from(100 * MIB + second * MIB);
        (scene.status.received, scene.status.done, scene.status.confirmed) = (at, at, at);
        let told = scene.watch.look(&scene.status, scene.now);
        assert!(told.ready, "{second}: {}", told.reason);
    }
}

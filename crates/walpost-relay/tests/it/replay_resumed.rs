//! Replays that do not come to their end, and go on: where, and with which rows.

use tokio::sync::watch;
use walpost_relay::{RelayError, Replay, ReplayFilter, ReplayProgress, ReplayState};
use walpost_testkit::until;

use crate::{
    replay::{LOCK, begin, history, order, replayer, run},
    rig::{Rig, SOON, stop},
    sink::{MemorySink, World},
};

/// Ends the replay once `sent` are acknowledged and noted, as a death would.
async fn killed_at(rig: &Rig, replay: Replay<MemorySink>, sent: i64) {
    let (_stop, stopped) = watch::channel(false);
    let replaying = tokio::spawn(async move { replay.run(stopped, |_| {}).await });
    let noted = "select coalesce(max(sent), 0) from walpost.replay";
    until(SOON, "progress", async || rig.count(noted).await >= sent).await;
    replaying.abort();
    assert!(replaying.await.unwrap_err().is_cancelled());
}

/// Goes on with a replay whose session is over.
async fn resume(
    rig: &Rig,
    id: i64,
    rate_per_s: u32,
    to: &World,
) -> Result<Replay<MemorySink>, RelayError> {
    rig.unlocked(LOCK).await;
    let sink = to.connect().await.unwrap();
    replayer(rig).await.resume(id, Some(rate_per_s), SOON, sink).await
}

#[tokio::test]
async fn a_replay_that_was_killed_shows_as_unfinished_and_is_gone_on_with() {
    let rig = Rig::new().await;
    let relay = rig.streaming().await;
    history(&rig, 400).await;
    rig.landed(400).await;
    let to = World::default();
    let replay = begin(&rig, ReplayFilter::default(), 50, &to).await;
    let id = replay.id();
    let state = async || replayer(&rig).await.list().await.unwrap()[0].state;
    assert_eq!(state().await, ReplayState::Running);
    let second = replayer(&rig).await;
    let found = second.find(None, ReplayFilter::default(), None).await.unwrap();
    let sink = World::default().connect().await.unwrap();
    let error = second.begin(found, order(1, SOON), sink).await.unwrap_err().to_string();
    assert!(error.contains("another replay of pipeline \"shop\" is running"), "{error}");

    killed_at(&rig, replay, 100).await;
    until(SOON, "it is seen", async || state().await == ReplayState::Unfinished).await;
    let resumed = resume(&rig, id, 100_000, &to).await.unwrap();
    let replayed = run(resumed).await;
    assert_eq!((replayed.id, replayed.state), (id, ReplayState::Done));
    let mut values: Vec<u32> = to.values().iter().map(|value| value.parse().unwrap()).collect();
    let twice = values.len() - 400;
    assert!(twice <= 200, "no more than was not noted: {twice}");
    values.sort_unstable();
    values.dedup();
    assert_eq!(values.len(), 400, "none is missing");
    let row = &replayer(&rig).await.list().await.unwrap()[0];
    assert_eq!((row.state, row.selected), (ReplayState::Done, 400));

    let error = resume(&rig, id, 1, &to).await.unwrap_err().to_string();
    assert!(error.contains(&format!("no unfinished replay {id}")), "{error}");
    stop(relay).await;
}

#[tokio::test]
async fn a_replay_that_is_stopped_or_refused_says_how_far_it_is_and_goes_on_there() {
    let rig = Rig::new().await;
    let relay = rig.streaming().await;
    history(&rig, 200).await;
    rig.landed(200).await;
    let to = World::default();
    let replay = begin(&rig, ReplayFilter::default(), 100, &to).await;
    let (stop_it, stopped) = watch::channel(false);
    let replayed = replay
        .run(stopped, |now: ReplayProgress| {
            if now.sent >= 50 {
                stop_it.send_replace(true);
            }
        })
        .await;
    assert_eq!(replayed.state, ReplayState::Stopped);
    let sent = to.count();
    assert!((50..200).contains(&sent), "{sent}");
    assert_eq!(replayed.progress.sent, sent as u64);

    to.reject("150");
    let refused = run(resume(&rig, replayed.id, 500, &to).await.unwrap()).await;
    assert_eq!(refused.state, ReplayState::Failed);
    assert!(refused.error.unwrap().to_string().contains("as the test has it"));
    to.mend();
    let resumed = resume(&rig, replayed.id, 100_000, &to).await.unwrap();
    assert_eq!(run(resumed).await.state, ReplayState::Done);
    let values: Vec<String> = to.values();
    let expected: Vec<String> = (0..200).map(|n| n.to_string()).collect();
    assert_eq!(values, expected, "an orderly end repeats nothing, and a refusal neither here");
    stop(relay).await;
}

#[tokio::test]
async fn rows_that_have_gone_before_a_replay_is_gone_on_with_are_counted() {
    let rig = Rig::new().await;
    let relay = rig.streaming().await;
    history(&rig, 400).await;
    rig.landed(400).await;
    let to = World::default();
    let replay = begin(&rig, ReplayFilter::default(), 50, &to).await;
    let id = replay.id();
    killed_at(&rig, replay, 100).await;
    let unfinished =
        async || replayer(&rig).await.list().await.unwrap()[0].state == ReplayState::Unfinished;
    until(SOON, "it is seen", unfinished).await;
    // Of those that were dealt with none is missing.
    let pruned = "delete from walpost.outbox where seq <= 50 or seq > 330";
    assert_eq!(rig.client.execute(pruned, &[]).await.unwrap(), 120);
    let resumed = resume(&rig, id, 100_000, &to).await.unwrap();
    let replayed = run(resumed).await;
    assert_eq!((replayed.state, replayed.gone), (ReplayState::Done, 70));
    assert_eq!((replayed.progress.selected, replayed.progress.sent), (400, 330));
    let row = &replayer(&rig).await.list().await.unwrap()[0];
    assert_eq!((row.sent, row.selected), (330, 400));
    assert!(row.detail.as_ref().unwrap().contains("70 of 400"), "{row:?}");
    stop(relay).await;
}

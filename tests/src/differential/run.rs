//! All cases of a run, several at a time.

use std::{
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::{
    sync::Semaphore,
    task::{JoinSet, LocalSet, spawn_local},
};

use super::{
    case::{Case, Group},
    compare::Tally,
    engine::Engine,
    play::play,
    stage::Stage,
};
use crate::chaos::off;

/// What Debezium's task fails with where Walpost registers the same schema at the
/// same moment.
const RACED: &str = "VersionAlreadyExistsException";

/// What one run is made of.
#[derive(Clone, Debug)]
pub struct Setting {
    /// Who is compared with Debezium.
    pub other: Engine,
    /// How many cases at a time.
    pub jobs: usize,
    /// For logs and the files of connectors; emptied first.
    pub folder: PathBuf,
    /// Whether the logs stay also when everything is explained.
    pub keep: bool,
    /// Whether to say on stderr how far it is.
    pub progress: bool,
}

/// What came of a case.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What it is about.
    pub group: Group,
    /// What it is called.
    pub name: String,
    /// What was found.
    pub tally: Tally,
    /// How long it took.
    pub took: Duration,
}

/// Plays all cases and returns what came of them, in their order.
///
/// # Panics
/// When the servers cannot be started.
pub async fn differential(setting: Setting, cases: Vec<Case>) -> Vec<Outcome> {
    let with_registry = cases.iter().any(Case::has_registry);
    let stage = Stage::set(setting.other.clone(), &setting.folder, with_registry);
    let stage = Arc::new(Box::pin(stage).await);
    // One thread plays them all: they wait nearly always.
    let local = LocalSet::new();
    let outcomes = local.run_until(play_all(&setting, &stage, cases)).await;
    if setting.keep || outcomes.iter().any(|outcome| !outcome.tally.unexplained.is_empty()) {
        stage.keep_logs();
        eprintln!("debezium: logs are in {}", stage.folder.display());
    }
    // The servers are ended by what blocks.
    off(move || drop(stage)).await;
    outcomes
}

async fn play_all(setting: &Setting, stage: &Arc<Stage>, cases: Vec<Case>) -> Vec<Outcome> {
    let permits = Arc::new(Semaphore::new(setting.jobs));
    let all = cases.len();
    let mut running = JoinSet::new();
    for (index, case) in cases.into_iter().enumerate() {
        let (stage, permits) = (stage.clone(), permits.clone());
        running.spawn_local(async move {
            let permit = permits.acquire().await.expect("it is never closed");
            let start = Instant::now();
            let mut tally = play_guarded(&stage, &case, format!("z{index:04}z")).await;
            if tally.unexplained.iter().any(|text| text.contains(RACED)) {
                tally = play_guarded(&stage, &case, format!("z{index:04}y")).await;
            }
            drop(permit);
            let (group, name, took) = (case.group, case.name, start.elapsed());
            (index, Outcome { group, name, tally, took })
        });
    }
    let mut outcomes: Vec<Option<Outcome>> = Vec::new();
    outcomes.resize_with(all, || None);
    let mut done = 0;
    while let Some(played) = running.join_next().await {
        let (index, outcome) = played.expect("what a case panics with is caught");
        done += 1;
        if setting.progress {
            say(&outcome, done, all);
        }
        outcomes[index] = Some(outcome);
    }
    outcomes.into_iter().flatten().collect()
}

/// What comes of a case, also where it panics.
async fn play_guarded(stage: &Arc<Stage>, case: &Case, token: String) -> Tally {
    let (stage, own) = (stage.clone(), case.with_token(&token));
    let played = spawn_local(async move { Box::pin(play(&stage, &own, &token)).await });
    played.await.unwrap_or_else(|error| {
        let mut tally = Tally::default();
        tally.unexplained(format!("the case was given up: {error}"));
        tally
    })
}

fn say(outcome: &Outcome, done: usize, all: usize) {
    let Outcome { group, name, tally, took } = outcome;
    let verdict = match (tally.unexplained.len(), tally.documented()) {
        (0, 0) => format!("{} equal", tally.equal),
        (0, documented) => format!("{} equal, {documented} documented", tally.equal),
        (unexplained, _) => format!("{} equal, {unexplained} UNEXPLAINED", tally.equal),
    };
    let seconds = took.as_secs_f32();
    eprintln!("debezium: {done:>4}/{all} {group:<11} {name:<44} {verdict} ({seconds:.1} s)");
    for text in &tally.unexplained {
        eprintln!("{text}");
    }
}

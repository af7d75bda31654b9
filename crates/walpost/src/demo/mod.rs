//! `walpost demo`: the whole chain at work, its processes killed half-way, and
//! everything counted at the end from what the databases and the broker hold.
//!
//! [`stage`] sets up and removes the surroundings, [`shop`] writes, [`child`]
//! runs and kills relay and consumer, [`play`] directs them, [`replay`] resets
//! the offsets, [`oracle`] judges, [`figures`] prints.

mod broker;
mod child;
mod figures;
mod oracle;
mod play;
mod progress;
mod replay;
mod shop;
mod stage;
mod topic;

use std::{collections::BTreeMap, path::PathBuf};

use crate::{
    failure::{Exit, Failure},
    signals::Signals,
};

pub(crate) use self::figures::Figures;
use self::stage::Stage;

/// What to show.
#[derive(Debug)]
pub(crate) struct Options {
    /// Events that the shop writes.
    pub(crate) events: u64,
    /// How often relay and consumer are killed each.
    pub(crate) kills: u32,
    /// Server to work on; without it a private one.
    pub(crate) postgres: Option<String>,
    /// Settings of Kafka clients; without them the mock.
    pub(crate) kafka: Option<BTreeMap<String, String>>,
    /// Leave files, database and topic where they are.
    pub(crate) keep: bool,
    /// The file of this program.
    pub(crate) program: PathBuf,
}

/// Runs the demo. Removes what it made, also after a failure or a signal.
pub(crate) async fn run(options: Options) -> Result<Figures, Failure> {
    broker::check_size(&options)?;
    let mut signals = Signals::listen()?;
    let mut stage = Stage::new(options)?;
    let outcome = tokio::select! {
        outcome = play::play(&mut stage) => outcome,
        signal = signals.next() => {
            Err(Failure::found(Exit::Running, &format!("{signal}: the demo was interrupted")))
        }
    };
    stage.strike().await;
    outcome
}

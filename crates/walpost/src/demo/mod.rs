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

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::{
    failure::{Exit, Failure},
    output,
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

/// Runs the demo. Removes what it made, also after a failure or a signal; a
/// second signal ends that.
pub(crate) async fn run(options: Options) -> Result<Figures, Failure> {
    broker::check_size(&options)?;
    let mut signals = Signals::listen()?;
    let mut hangup = signal(SignalKind::hangup()).map_err(Failure::running)?;
    let mut stage = Stage::new(options)?;
    let name = stage.name.clone();
    let outcome = tokio::select! {
        outcome = play::play(&mut stage) => outcome,
        signal = next(&mut signals, &mut hangup) => {
            output::note(format_args!("{signal}: removing what the demo has made"));
            Err(Failure::found(Exit::Running, &format!("the demo was interrupted by {signal}")))
        }
    };
    tokio::select! {
        () = stage.strike() => {}
        signal = next(&mut signals, &mut hangup) => {
            output::note(format_args!(
                "{signal}: ending at once; slot, database, topic and group {name} may be left"
            ));
        }
    }
    outcome
}

/// Also when the terminal is closed: a slot that is left behind keeps WAL.
async fn next(signals: &mut Signals, hangup: &mut Signal) -> &'static str {
    tokio::select! {
        signal = signals.next() => signal,
        _ = hangup.recv() => "SIGHUP",
    }
}

//! A connector whose `initial_state` is not RUNNING: nobody but its file can change
//! that here.

use tokio::sync::watch;
use walpost_connector::InitialState;
use walpost_relay::{Phase, PipelineStatus, RelayConfig};

use crate::{
    command::run::{record_metrics, upkeep},
    config::Config,
    failure::Failure,
    http,
    signals::Signals,
};

/// Whether nothing is to be run, told what to do about it: STOPPED ends at once,
/// PAUSED once it is told to stop, as Kafka Connect has no task of the one and an
/// idle task of the other.
pub(super) async fn is_held(config: &Config) -> Result<bool, Failure> {
    let state = config.connector().map(|connector| connector.initial_state);
    let Some(state @ (InitialState::Paused | InitialState::Stopped)) = state else {
        return Ok(false);
    };
    // What is wrong in itself is told all the same.
    config.check_pipeline()?;
    match state {
        InitialState::Paused => idle(config).await?,
        InitialState::Running | InitialState::Stopped => say("STOPPED"),
    }
    Ok(true)
}

fn say(initial_state: &str) {
    tracing::warn!(
        initial_state,
        "nothing is read or published; write RUNNING to the connector's file, or take \
         initial_state out of it, and start again"
    );
}

/// Answers requests until it is told to stop.
async fn idle(config: &Config) -> Result<(), Failure> {
    let mut signals = Signals::listen()?;
    let metrics = record_metrics(None)?;
    let upkeep = tokio::spawn(upkeep(metrics.clone()));
    let mut status = PipelineStatus::default();
    status.phase = Phase::Paused;
    let (_still, status) = watch::channel(status);
    let watched = http::Watched::new(status, &RelayConfig::new(&config.settings.pipeline.name));
    let server = match config.listen()? {
        Some(address) => {
            Some(tokio::spawn(http::serve(http::bind(address).await?, watched, metrics)))
        }
        None => None,
    };
    say("PAUSED");
    let signal = signals.next().await;
    tracing::info!(signal, "stopping");
    for task in [Some(upkeep), server].into_iter().flatten() {
        task.abort();
    }
    Ok(())
}

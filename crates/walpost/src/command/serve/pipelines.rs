//! What a connector is here: a configuration of its own, and a pipeline.

use std::{
    collections::BTreeMap,
    panic::resume_unwind,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tracing::{Instrument, info_span};
use walpost_connect::{Assignment, Blocking, Panicked, Problem, Report, RunFailure, Turn};
use walpost_connector::{Connector, Properties, SnapshotMode};
use walpost_event::error_chain;
use walpost_postgres::{ConnectError, Database};
use walpost_relay::Phase;

use crate::{
    command::{
        connector::{choose_tables, reach_patiently},
        run::{Prepared, Running},
    },
    config::{Config, ConfigError, connector::Reading},
    failure::Failure,
    http::Watched,
};

const STANDBY: &str = "stands by: another process has the slot, and this one goes on when that \
                       lets it go";

const EACH_START: &str = "refused because a pause and a run that is tried again begin a run here, \
                          and each would publish all rows again; write initial, or use `walpost \
                          run`";

const NO_SLOT: &str = "refused because a pause, a restart and another configuration end a run here, \
                       and with the slot what commits until the next one would be lost; write false";

/// What all connectors share, and those pipelines that run now.
#[derive(Debug)]
pub(super) struct Pipelines {
    /// Of this process; see [`Config::of_connector`].
    config: Config,
    reading: Reading,
    watched: Mutex<BTreeMap<String, Watched>>,
    starts: Blocking,
    /// Of their own, so that who asks holds up no start.
    pub(super) looks: Blocking,
}

/// A pipeline that may start now.
struct Ready {
    config: Config,
    login: Database,
    prepared: Prepared,
    turn: Turn,
}

/// A pipeline among those that run, for as long as this is there.
struct Listed<'a> {
    pipelines: &'a Pipelines,
    name: String,
}

impl Pipelines {
    pub(super) fn new(config: Config, reading: Reading) -> Self {
        let (starts, looks) = (Blocking::default(), Blocking::default());
        Self { config, reading, watched: Mutex::default(), starts, looks }
    }

    /// The pipelines that run now, by the names of their connectors.
    pub(super) fn watched(&self) -> MutexGuard<'_, BTreeMap<String, Watched>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What holds for a connector. Blocks: it compiles patterns.
    pub(super) fn config_of(&self, connector: &Properties) -> Result<Config, ConfigError> {
        self.config.of_connector(self.reading.read(connector))
    }

    /// Why a pipeline cannot be made of properties, as far as that shows without a
    /// look at any server. Blocks.
    pub(super) fn problems(&self, connector: &Properties) -> Vec<Problem> {
        let file = self.reading.read(connector);
        let refused: Vec<Problem> = file
            .verdicts()
            .refused()
            .map(|row| Problem { property: row.property.clone(), text: row.note.clone() })
            .collect();
        if !refused.is_empty() {
            return refused;
        }
        let refused_here = file.connector().and_then(of_each_run);
        if let Some((property, text)) = refused_here {
            return vec![Problem { property: property.to_owned(), text: text.to_owned() }];
        }
        let checked = self.config.of_connector(file).map_err(Failure::from);
        match checked.and_then(check) {
            Ok(()) => Vec::new(),
            Err(failure) => {
                vec![Problem { property: "name".to_owned(), text: failure.in_one_line() }]
            }
        }
    }

    /// One run of a connector.
    pub(super) async fn run(self: Arc<Self>, assignment: Assignment) -> Result<(), RunFailure> {
        let span = info_span!("connector", name = assignment.name);
        self.publish(&assignment).instrument(span).await.map_err(run_failure)
    }

    async fn publish(self: &Arc<Self>, assignment: &Assignment) -> Result<(), Failure> {
        let ready = tokio::select! {
            biased;
            ready = self.prepare(assignment) => ready?,
            () = assignment.stopped() => return Ok(()),
        };
        let Ready { config, login, prepared, turn } = ready;
        let told = |failure| told(failure, &login, &config);
        // What has started is ended in order, and so this is not left halfway.
        let running = done(turn.run(move || prepared.start()).await).map_err(told)?;
        let listed = self.list(&assignment.name, running.watched.clone());
        follow(running, assignment).await.map_err(told)?;
        drop(listed);
        // Without a stream it ends behind its rows, where a task of Kafka Connect stays.
        assignment.report(Report::Working);
        assignment.stopped().await;
        Ok(())
    }

    async fn prepare(self: &Arc<Self>, assignment: &Assignment) -> Result<Ready, Failure> {
        let (judge, properties) = (self.clone(), assignment.properties.clone());
        let judged = move || {
            let config = judge.config_of(&properties)?;
            let checked = config.check_pipeline();
            Ok::<_, ConfigError>((config, checked))
        };
        let (mut config, checked) = done(self.starts.run(judged).await)?;
        let login = config.database()?;
        // What is wrong in itself is told before anything is waited for.
        checked.map_err(|error| told(error.into(), &login, &config))?;
        let waits = |error: &ConnectError| assignment.report(Report::Waiting(error_chain(error)));
        let reach = reach_patiently(&mut config, waits).await;
        let reach = reach.map_err(|failure| told(failure, &login, &config))?;
        let prepare = move || {
            let found = reach.map_or(Ok(()), |reach| choose_tables(&mut config, reach));
            let prepared = found.and_then(|()| Prepared::new(&config));
            (config, prepared)
        };
        let (config, prepared) = done(self.starts.run(prepare).await);
        let prepared = prepared.map_err(|failure| told(failure, &login, &config))?;
        prepared.tell(&config);
        Ok(Ready { config, login, prepared, turn: self.starts.turn().await })
    }

    fn list(&self, name: &str, watched: Watched) -> Listed<'_> {
        self.watched().insert(name.to_owned(), watched);
        Listed { pipelines: self, name: name.to_owned() }
    }
}

impl Drop for Listed<'_> {
    fn drop(&mut self) {
        self.pipelines.watched().remove(&self.name);
    }
}

/// The property by which each start or end would do what is to be done once, and
/// why it is refused.
fn of_each_run(connector: &Connector) -> Option<(&'static str, &'static str)> {
    let repeats = connector.snapshot.mode == SnapshotMode::Always;
    let slot = connector.slot.drop_on_stop.then_some(("slot.drop.on.stop", NO_SLOT));
    slot.or(repeats.then_some(("snapshot.mode", EACH_START)))
}

/// Fails as a start would that finds the tables, and connects to nothing.
fn check(mut config: Config) -> Result<(), Failure> {
    config.suppose_tables();
    Prepared::new(&config).map(drop)
}

/// A panic on another thread is one of the run, which is tried again.
fn done<T>(done: Result<T, Panicked>) -> T {
    done.unwrap_or_else(|panicked| resume_unwind(Box::new(panicked)))
}

fn told(failure: Failure, login: &Database, config: &Config) -> Failure {
    failure.for_role(login).in_properties(config)
}

/// Says how the pipeline does until it has ended, by itself or as it was told.
async fn follow(mut running: Running, assignment: &Assignment) -> Result<(), Failure> {
    let mut status = running.status();
    let mut stopped = pin!(assignment.stopped());
    let mut stopping = false;
    let done = loop {
        tokio::select! {
            done = running.finished() => break done,
            () = stopped.as_mut(), if !stopping => {
                stopping = true;
                running.stop();
            }
            Ok(()) = status.changed() => {
                if let Some(report) = report(&status.borrow_and_update().phase) {
                    assignment.report(report);
                }
            }
        }
    };
    running.end(done).await
}

/// What a phase is in Kafka Connect's terms; `None` of an end, which is told by
/// how it ended.
fn report(phase: &Phase) -> Option<Report> {
    Some(match phase {
        Phase::Starting => Report::Starting,
        Phase::Standby => Report::Standby(STANDBY.to_owned()),
        Phase::Loading | Phase::Streaming => Report::Working,
        Phase::Waiting { error } => Report::Waiting(error.clone()),
        // Of a file that asks for it, which none is here.
        Phase::Paused | Phase::Stopped => return None,
    })
}

fn run_failure(failure: Failure) -> RunFailure {
    RunFailure {
        text: failure.in_one_line(),
        before_start: failure.is_of_configuration(),
        may_heal: failure.may_heal(),
    }
}

#[cfg(test)]
mod tests {
    use walpost_relay::RelayError;

    use super::*;
    use crate::failure::Exit;

    #[test]
    fn phases_are_states_of_kafka_connect() {
        let waiting = Phase::Waiting { error: "e".to_owned() };
        for (phase, said) in [
            (Phase::Starting, Some(Report::Starting)),
            (Phase::Standby, Some(Report::Standby(STANDBY.to_owned()))),
            (Phase::Loading, Some(Report::Working)),
            (Phase::Streaming, Some(Report::Working)),
            (waiting, Some(Report::Waiting("e".to_owned()))),
            (Phase::Stopped, None),
        ] {
            assert_eq!(report(&phase), said, "{phase:?}");
        }
    }

    #[test]
    fn what_is_wrong_in_itself_leaves_no_task_and_does_not_heal() {
        let failure = Failure::found(Exit::Configuration, "p").next_step("n");
        let told = run_failure(failure);
        assert_eq!(told.text, "p; next step: n");
        assert!(told.before_start && !told.may_heal);
        let away = RelayError::Sink { detail: "d".to_owned(), transient: true };
        let told = run_failure(Failure::of_relay(away, false));
        assert!(!told.before_start && told.may_heal);
    }
}

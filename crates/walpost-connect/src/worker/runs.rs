use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures_util::FutureExt;
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
};

use crate::{
    blocking::Blocking,
    config::Config,
    error::ApiError,
    plugin::Plugin,
    runner::{Assignment, Runner},
    state::{Event, Report, RunFailure},
};

/// Words of runs that nobody has taken yet; a run then waits with the next one.
const WORDS_MAX: usize = 64;

/// The runs of all connectors, and the waits before others.
#[derive(Debug)]
pub(super) struct Runs {
    plugin: Arc<Plugin>,
    runner: Arc<Runner>,
    /// Beginnings, of which one that takes long holds up others alone.
    starts: Blocking,
    tasks: JoinSet<(String, Event)>,
    say: mpsc::Sender<(String, Event)>,
    said: mpsc::Receiver<(String, Event)>,
}

impl Runs {
    pub(super) fn new(plugin: Arc<Plugin>, runner: Arc<Runner>) -> Self {
        let (say, said) = mpsc::channel(WORDS_MAX);
        let (starts, tasks) = (Blocking::default(), JoinSet::new());
        Self { plugin, runner, starts, tasks, say, said }
    }

    /// Begins a run; what ends it.
    pub(super) fn start(
        &mut self,
        name: &str,
        number: u64,
        config: &Arc<Config>,
    ) -> watch::Sender<bool> {
        let (stop, stopped) = watch::channel(false);
        let (report, mut reports) = watch::channel(Report::Starting);
        let (name, say, runner) = (name.to_owned(), self.say.clone(), self.runner.clone());
        let (plugin, starts, config) = (self.plugin.clone(), self.starts.clone(), config.clone());
        let connector = name.clone();
        self.tasks.spawn(async move {
            let run = async move {
                let mut told = stopped.clone();
                let properties = tokio::select! {
                    biased;
                    // Without a sender nobody waits for it any more.
                    _ = told.wait_for(|stop| *stop) => return Ok(()),
                    resolved = starts.run(move || plugin.resolve(&config)) => resolved,
                };
                let properties = properties.map_err(ApiError::from).and_then(|done| done);
                let properties = properties.map_err(not_begun)?;
                let assignment = Assignment { name: connector, properties, stop: stopped, report };
                let run = AssertUnwindSafe((runner.run)(assignment)).catch_unwind();
                run.await.unwrap_or_else(|_| Err(panicked()))
            };
            let mut run = std::pin::pin!(run);
            loop {
                tokio::select! {
                    biased;
                    ended = &mut run => return (name, Event::Ended(number, ended)),
                    Ok(()) = reports.changed() => {
                        let report = reports.borrow_and_update().clone();
                        // Who listens outlives its runs.
                        let _ = say.send((name.clone(), Event::Reported(number, report))).await;
                    }
                }
            }
        });
        stop
    }

    /// Says after a wait that it is over.
    pub(super) fn wait(&mut self, name: &str, number: u64, wait: Duration) {
        let name = name.to_owned();
        self.tasks.spawn(async move {
            tokio::time::sleep(wait).await;
            (name, Event::RetryDue(number))
        });
    }

    /// What comes next of any of them; waits for ever where there is none. Safe
    /// to cancel.
    pub(super) async fn next(&mut self) -> (String, Event) {
        loop {
            tokio::select! {
                // What a run has said comes before its end.
                biased;
                Some(said) = self.said.recv() => return said,
                Some(ended) = self.tasks.join_next(), if !self.tasks.is_empty() => match ended {
                    Ok(ended) => return ended,
                    // Panics of runs are caught, so that this is one of ours.
                    Err(error) => tracing::error!(%error, "a run is lost"),
                },
            }
        }
    }
}

fn not_begun(error: ApiError) -> RunFailure {
    RunFailure { text: error.message, before_start: true, may_heal: true }
}

fn panicked() -> RunFailure {
    RunFailure {
        text: "its run has panicked, which is an error of walpost; the log has more".to_owned(),
        before_start: false,
        may_heal: true,
    }
}

#[cfg(test)]
mod tests {
    use walpost_connector::{Allowed, Providers};

    use super::*;

    fn runs(runner: Runner) -> Runs {
        let plugin = Plugin::new(Providers::new(Allowed::nothing()));
        Runs::new(Arc::new(plugin), Arc::new(runner))
    }

    #[tokio::test]
    async fn what_waits_for_its_turn_ends_when_it_is_told_to() {
        let mut runs = runs(Runner::new(async |_| unreachable!("it does not begin")));
        let turn = runs.starts.turn().await;
        let stop = runs.start("orders", 7, &Arc::default());
        stop.send_replace(true);
        assert_eq!(runs.next().await, ("orders".to_owned(), Event::Ended(7, Ok(()))));
        drop(turn);
    }

    #[tokio::test]
    async fn a_placeholder_that_leads_nowhere_fails_before_the_start() {
        let mut runs = runs(Runner::new(async |_| unreachable!("it does not begin")));
        let password = ("database.password".to_owned(), "${file:/nowhere:x}".to_owned());
        let _stop = runs.start("orders", 1, &Arc::new(Config::from([password])));
        let (_, Event::Ended(1, Err(failure))) = runs.next().await else { panic!("it goes on") };
        assert!(failure.before_start && failure.may_heal, "{failure:?}");
        assert!(failure.text.contains("database.password: "), "{failure:?}");
    }
}

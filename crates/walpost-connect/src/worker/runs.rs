use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures_util::FutureExt;
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
};

use crate::{
    config::Config,
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
    tasks: JoinSet<(String, Event)>,
    say: mpsc::Sender<(String, Event)>,
    said: mpsc::Receiver<(String, Event)>,
}

impl Runs {
    pub(super) fn new(plugin: Arc<Plugin>, runner: Arc<Runner>) -> Self {
        let (say, said) = mpsc::channel(WORDS_MAX);
        Self { plugin, runner, tasks: JoinSet::new(), say, said }
    }

    /// Begins a run; what ends it.
    pub(super) fn start(
        &mut self,
        name: &str,
        number: u64,
        config: &Config,
    ) -> watch::Sender<bool> {
        let (stop, stopped) = watch::channel(false);
        let (report, mut reports) = watch::channel(Report::Starting);
        let (name, say, runner) = (name.to_owned(), self.say.clone(), self.runner.clone());
        let properties = self.plugin.resolve(config);
        let connector = name.clone();
        self.tasks.spawn(async move {
            let run = async move {
                let properties = properties.map_err(|error| RunFailure {
                    text: error.message,
                    before_start: true,
                    may_heal: true,
                })?;
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

fn panicked() -> RunFailure {
    RunFailure {
        text: "its run has panicked, which is an error of walpost; the log has more".to_owned(),
        before_start: false,
        may_heal: true,
    }
}

//! What the crate is given: who runs one connector, and who looks at what it
//! has stored.

use std::fmt;

use futures_util::future::BoxFuture;
use serde_json::{Map, Value};
use tokio::sync::watch;
use walpost_connector::Properties;

use crate::{
    error::ApiError,
    state::{Report, RunFailure},
};

type Run = dyn Fn(Assignment) -> BoxFuture<'static, Result<(), RunFailure>> + Send + Sync;
type Check = dyn Fn(&Properties) -> Vec<Problem> + Send + Sync;
type Look = dyn Fn(Properties) -> BoxFuture<'static, Result<Sight, ApiError>> + Send + Sync;

/// Who runs connectors.
pub struct Runner {
    pub(crate) run: Box<Run>,
    pub(crate) check: Box<Check>,
    pub(crate) look: Box<Look>,
}

/// One run of one connector.
///
/// It ends with `Ok` once [`stopped`](Self::stopped) has returned and everything
/// that was on its way is settled; with an error where it cannot go on by itself.
#[derive(Debug)]
pub struct Assignment {
    /// The connector, and so its pipeline.
    pub name: String,
    /// Its properties, placeholders replaced.
    pub properties: Properties,
    pub(crate) stop: watch::Receiver<bool>,
    pub(crate) report: watch::Sender<Report>,
}

/// Why a configuration is no connector's, beyond the verdicts on its properties.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Whose problem it is; of the connector as a whole its `name`.
    pub property: String,
    /// What is wrong, and what to do; no secret.
    pub text: String,
}

/// What a connector has stored, and where it has published to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sight {
    /// Topics.
    pub topics: Vec<String>,
    /// The partition and the offset of it, as the connector writes them.
    pub offset: Option<(Map<String, Value>, Map<String, Value>)>,
}

impl Runner {
    /// Runs connectors by `run`, which is called for each run anew. What it does before
    /// it first waits holds the runtime up, unless [`Blocking`](crate::Blocking) does it.
    pub fn new<F>(run: impl Fn(Assignment) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<(), RunFailure>> + Send + 'static,
    {
        Self {
            run: Box::new(move |assignment| Box::pin(run(assignment))),
            check: Box::new(|_| Vec::new()),
            look: Box::new(|_| Box::pin(async { Ok(Sight::default()) })),
        }
    }

    /// The same, where `check` says of properties, placeholders replaced, why
    /// they are no connector's beyond their own verdicts; nothing where they are. It
    /// may block.
    #[must_use]
    pub fn checking(
        self,
        check: impl Fn(&Properties) -> Vec<Problem> + Send + Sync + 'static,
    ) -> Self {
        Self { check: Box::new(check), ..self }
    }

    /// The same, where `look` finds what a connector has stored; it may not block.
    #[must_use]
    pub fn looking<F>(self, look: impl Fn(Properties) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<Sight, ApiError>> + Send + 'static,
    {
        Self { look: Box::new(move |properties| Box::pin(look(properties))), ..self }
    }
}

impl Assignment {
    /// Waits until the run is to end. Safe to cancel.
    pub fn stopped(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut stop = self.stop.clone();
        async move {
            // Without a sender nobody waits for it any more.
            let _ = stop.wait_for(|stop| *stop).await;
        }
    }

    /// Says how it goes; what was said before is of the past.
    pub fn report(&self, report: Report) {
        self.report.send_if_modified(|said| {
            let is_new = *said != report;
            *said = report;
            is_new
        });
    }
}

impl fmt::Debug for Runner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runner").finish_non_exhaustive()
    }
}

use std::{env, time::Duration};

use stand::number;

use crate::Failed;

/// How long things take. Short, since one looks on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    /// How long a call to somebody else may take.
    pub(crate) call_timeout: Duration,
    /// How often the provider is asked what has changed. Let it be an hour where
    /// webhooks come.
    pub(crate) reconcile_every: Duration,
}

impl Settings {
    pub(crate) fn from_environment() -> Result<Self, Failed> {
        let millis = |name, unless_set| number(name, unless_set).map(Duration::from_millis);
        Ok(Self {
            call_timeout: millis("CALL_TIMEOUT_MS", 1_000)?,
            reconcile_every: millis("RECONCILE_EVERY_MS", 3_000)?,
        })
    }
}

/// A variable that is a URL.
pub(crate) fn url(name: &str) -> Result<String, Failed> {
    env::var(name).map_err(|_| format!("{name} is not set; it is a URL").into())
}

use std::time::Duration;

use stand::number;

use crate::Failed;

/// How long things take. Short, since one looks on: let `lease` be a minute and
/// `abandoned_after` several where nobody does.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    /// How long the claim of a request outlives a process that is killed.
    pub(crate) lease: Duration,
    /// After so long without a step somebody else goes on with a checkout.
    pub(crate) abandoned_after: Duration,
    /// How long a call to somebody outside may take.
    pub(crate) call_timeout: Duration,
    /// For how long a charge may be asked for again under its key: shorter than
    /// the provider remembers keys. Zero for a provider that knows none.
    pub(crate) keys_last: Duration,
    /// What the provider has not done so long after it was asked, it never does.
    pub(crate) settled_after: Duration,
}

impl Settings {
    pub(crate) fn from_environment() -> Result<Self, Failed> {
        Ok(Self {
            lease: millis("LEASE_MS", 3_000)?,
            abandoned_after: millis("ABANDONED_AFTER_MS", 5_000)?,
            call_timeout: millis("CALL_TIMEOUT_MS", 1_000)?,
            keys_last: millis("KEYS_LAST_MS", 12 * 3_600_000)?,
            settled_after: millis("SETTLED_AFTER_MS", 5_000)?,
        })
    }
}

fn millis(name: &str, unless_set: u64) -> Result<Duration, Failed> {
    Ok(Duration::from_millis(number(name, unless_set)?))
}

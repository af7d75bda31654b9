//! Points at which a test ends the process, as a kill does. Compiled to nothing
//! without the feature `failpoints`, and not to be copied.
//!
//! `SUBSCRIPTION_FAILPOINT=name@count` acts when the point is reached for the
//! `count`-th time.

/// Where the process can end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failpoint {
    /// News of a subscription is at hand, and nothing is written.
    Settling,
    /// What the news change is written, and not committed.
    Settled,
    /// At the provider: a subscription and its webhook are committed, and nobody
    /// is told.
    Subscribed,
    /// At the provider: a webhook is about to be sent.
    Telling,
    /// At the provider: a webhook was answered, and nothing says so.
    Told,
}

/// The names of all of them, for tests.
#[cfg(feature = "failpoints")]
pub fn failpoints() -> impl Iterator<Item = &'static str> {
    [
        Failpoint::Settling,
        Failpoint::Settled,
        Failpoint::Subscribed,
        Failpoint::Telling,
        Failpoint::Told,
    ]
    .into_iter()
    .map(Failpoint::name)
}

impl Failpoint {
    #[cfg(feature = "failpoints")]
    fn name(self) -> &'static str {
        match self {
            Self::Settling => "before_settling",
            Self::Settled => "before_settled_commit",
            Self::Subscribed => "behind_subscribed_commit",
            Self::Telling => "before_telling",
            Self::Told => "behind_telling",
        }
    }

    pub(crate) fn reached(self) {
        #[cfg(feature = "failpoints")]
        self.end_if_armed();
        #[cfg(not(feature = "failpoints"))]
        let _ = self;
    }

    #[cfg(feature = "failpoints")]
    fn end_if_armed(self) {
        use std::sync::{
            OnceLock,
            atomic::{AtomicU64, Ordering},
        };

        static ARMED: OnceLock<Option<(String, u64)>> = OnceLock::new();
        static COUNT: AtomicU64 = AtomicU64::new(0);

        let armed = ARMED.get_or_init(|| {
            let text = std::env::var("SUBSCRIPTION_FAILPOINT").ok()?;
            let (name, count) = text.split_once('@').expect("a test names point and count");
            assert!(failpoints().any(|known| known == name), "{name} is no failpoint");
            Some((name.to_owned(), count.parse().expect("a count is a number")))
        });
        let Some((name, count)) = armed else { return };
        if name == self.name() && COUNT.fetch_add(1, Ordering::SeqCst) + 1 == *count {
            tracing::warn!(name, "failpoint");
            std::process::abort();
        }
    }
}

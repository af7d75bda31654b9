//! Points at which a test ends the process, as a kill does. Compiled to nothing
//! without the feature `failpoints`, and not to be copied.
//!
//! `CHECKOUT_FAILPOINT=name@count` acts when the point is reached for the
//! `count`-th time.

/// Where the process can end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failpoint {
    /// Somebody outside is about to be asked.
    Asking,
    /// The answer has come, and nothing says so.
    Answered,
    /// A step is written, and not committed.
    Written,
    /// A step is committed.
    Committed,
}

/// The names of all of them, for tests.
#[cfg(feature = "failpoints")]
pub fn failpoints() -> impl Iterator<Item = &'static str> {
    [Failpoint::Asking, Failpoint::Answered, Failpoint::Written, Failpoint::Committed]
        .into_iter()
        .map(Failpoint::name)
}

impl Failpoint {
    #[cfg(feature = "failpoints")]
    fn name(self) -> &'static str {
        match self {
            Self::Asking => "before_call",
            Self::Answered => "after_call",
            Self::Written => "before_step_commit",
            Self::Committed => "after_step_commit",
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
            let text = std::env::var("CHECKOUT_FAILPOINT").ok()?;
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

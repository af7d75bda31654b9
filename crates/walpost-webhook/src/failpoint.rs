//! Points at which a test kills or stops the process. Compiled to nothing without
//! the feature `failpoints`.
//!
//! `WALPOST_FAILPOINT=webhook/name[@count]:kill|stop` arms one: see
//! `walpost_failpoint`.

/// Where a process can be ended.
#[cfg_attr(
    not(all(feature = "delivery", feature = "receive")),
    allow(dead_code, reason = "each feature has its own")
)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failpoint {
    /// A claim is committed, nothing is sent.
    Claimed,
    /// Bytes of a request are about to go out.
    Sending,
    /// The receiver has answered, nothing says so.
    Answered,
    /// The end of an attempt is committed.
    Finished,
    /// What was received is written, with its effect where that is made at once,
    /// and not committed.
    Written,
    /// The same is committed, nothing is answered.
    Committed,
}

impl Failpoint {
    #[cfg(feature = "failpoints")]
    pub(crate) const ALL: [Self; 6] = [
        Self::Claimed,
        Self::Sending,
        Self::Answered,
        Self::Finished,
        Self::Written,
        Self::Committed,
    ];

    /// The name in the environment variable.
    #[cfg(feature = "failpoints")]
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Claimed => "after_claim",
            Self::Sending => "before_bytes",
            Self::Answered => "after_answer",
            Self::Finished => "after_finish",
            Self::Written => "before_receipt",
            Self::Committed => "after_receipt",
        }
    }

    pub(crate) fn reached(self) {
        #[cfg(feature = "failpoints")]
        walpost_failpoint::reached("webhook", &Self::ALL.map(Self::name), self.name());
        #[cfg(not(feature = "failpoints"))]
        let _ = self;
    }
}

//! Points at which a test kills or stops the process. Compiled to nothing without
//! the feature `failpoints`.
//!
//! `WALPOST_FAILPOINT=idempotency/name[@count]:kill|stop` arms one: see
//! `walpost_failpoint`.

/// Where a process can be stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failpoint {
    /// Between the claim and the handler.
    AfterClaim,
    /// Between the handler and the response with COMMIT.
    BeforeCommit,
    /// After COMMIT, before the answer.
    AfterCommit,
    /// Between the committed claim of a lease and the handler.
    AfterLease,
    /// After a recovery point has been committed.
    AfterPhase,
    /// Between the handler and the end of the lease.
    BeforeFinish,
    /// After the end of the lease, before the answer.
    AfterFinish,
}

impl Failpoint {
    #[cfg(feature = "failpoints")]
    pub(crate) const ALL: [Self; 7] = [
        Self::AfterClaim,
        Self::BeforeCommit,
        Self::AfterCommit,
        Self::AfterLease,
        Self::AfterPhase,
        Self::BeforeFinish,
        Self::AfterFinish,
    ];

    /// The name in the environment variable.
    #[cfg(feature = "failpoints")]
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::AfterClaim => "after_claim",
            Self::BeforeCommit => "before_commit",
            Self::AfterCommit => "after_commit",
            Self::AfterLease => "after_lease",
            Self::AfterPhase => "after_phase",
            Self::BeforeFinish => "before_finish",
            Self::AfterFinish => "after_finish",
        }
    }

    pub(crate) fn reached(self) {
        #[cfg(feature = "failpoints")]
        walpost_failpoint::reached("idempotency", &Self::ALL.map(Self::name), self.name());
        #[cfg(not(feature = "failpoints"))]
        let _ = self;
    }
}

//! Points at which a test kills or stops the process. Compiled to nothing without
//! the feature `failpoints`.
//!
//! `WALPOST_FAILPOINT=consumer/name[@count]:kill|stop` arms one: see
//! `walpost_failpoint`.

/// Where a process can be stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failpoint {
    /// Between the compare-and-set of the offset and the handler.
    AfterBegin,
    /// Between the handler and COMMIT.
    BeforeCommit,
    /// The same in a lane.
    BeforeLaneCommit,
    /// The same for a parked event.
    BeforeUnparkCommit,
    /// After COMMIT, before the keys of a guard outside of it say so.
    BeforeSettle,
    /// After COMMIT.
    AfterCommit,
    /// The same in a lane.
    AfterLaneCommit,
    /// After Kafka has acknowledged dead letters, before their rows say so.
    AfterDeadLetter,
    /// Before the offset moves behind what the lanes have done.
    BeforeLaneOffset,
    /// Before an offset is sent to Kafka.
    BeforeKafkaCommit,
    /// Partitions that the group takes away are done with, and not yet given back.
    BeforeRelease,
    /// A reset is in Kafka, not yet in the database.
    ResetAfterKafkaCommit,
    /// A reset is in the database, none of its effects.
    ResetAfterRewind,
}

impl Failpoint {
    #[cfg(feature = "failpoints")]
    const ALL: [Self; 13] = [
        Self::AfterBegin,
        Self::BeforeCommit,
        Self::BeforeLaneCommit,
        Self::BeforeUnparkCommit,
        Self::BeforeSettle,
        Self::AfterCommit,
        Self::AfterLaneCommit,
        Self::AfterDeadLetter,
        Self::BeforeLaneOffset,
        Self::BeforeKafkaCommit,
        Self::BeforeRelease,
        Self::ResetAfterKafkaCommit,
        Self::ResetAfterRewind,
    ];

    /// The name in the environment variable.
    #[cfg(feature = "failpoints")]
    fn name(self) -> &'static str {
        match self {
            Self::AfterBegin => "after_begin",
            Self::BeforeCommit => "before_commit",
            Self::BeforeLaneCommit => "before_lane_commit",
            Self::BeforeUnparkCommit => "before_unpark_commit",
            Self::BeforeSettle => "before_settle",
            Self::AfterCommit => "after_commit",
            Self::AfterLaneCommit => "after_lane_commit",
            Self::AfterDeadLetter => "after_dead_letter",
            Self::BeforeLaneOffset => "before_lane_offset",
            Self::BeforeKafkaCommit => "before_kafka_commit",
            Self::BeforeRelease => "before_release",
            Self::ResetAfterKafkaCommit => "reset_after_kafka_commit",
            Self::ResetAfterRewind => "reset_after_rewind",
        }
    }

    pub(crate) fn reached(self) {
        #[cfg(feature = "failpoints")]
        walpost_failpoint::reached("consumer", &Self::ALL.map(Self::name), self.name());
        #[cfg(not(feature = "failpoints"))]
        let _ = self;
    }
}

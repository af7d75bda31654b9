//! Points at which a test stops or kills the process. Compiled to nothing
//! without the feature `failpoints`.
//!
//! `WALPOST_FAILPOINT=name[@count]:stop|kill|abort` acts when the point is
//! reached for the `count`-th time (1 unless given): SIGSTOP, SIGKILL, or
//! `abort()`.

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
    /// A reset is in Kafka, not yet in the database.
    ResetAfterKafkaCommit,
    /// A reset is in the database, none of its effects.
    ResetAfterRewind,
}

impl Failpoint {
    /// The name in the environment variable.
    #[cfg(any(feature = "failpoints", test))]
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
            Self::ResetAfterKafkaCommit => "reset_after_kafka_commit",
            Self::ResetAfterRewind => "reset_after_rewind",
        }
    }

    pub(crate) fn reached(self) {
        #[cfg(feature = "failpoints")]
        self.act_if_armed();
        #[cfg(not(feature = "failpoints"))]
        let _ = self;
    }

    #[cfg(feature = "failpoints")]
    fn act_if_armed(self) {
        use std::sync::{
            OnceLock,
            atomic::{AtomicU64, Ordering},
        };

        static ARMED: OnceLock<Option<(String, u64, Action)>> = OnceLock::new();
        static COUNT: AtomicU64 = AtomicU64::new(0);

        let armed = ARMED.get_or_init(|| {
            let text = std::env::var("WALPOST_FAILPOINT").ok()?;
            Some(parse(&text).unwrap_or_else(|| panic!("WALPOST_FAILPOINT={text} is no failpoint")))
        });
        let Some((name, count, action)) = armed else { return };
        if name == self.name() && COUNT.fetch_add(1, Ordering::SeqCst) + 1 == *count {
            act(*action);
        }
    }
}

#[cfg(any(feature = "failpoints", test))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Stop,
    Kill,
    Abort,
}

#[cfg(any(feature = "failpoints", test))]
fn parse(text: &str) -> Option<(String, u64, Action)> {
    let (point, action) = text.split_once(':')?;
    let action = match action {
        "stop" => Action::Stop,
        "kill" => Action::Kill,
        "abort" => Action::Abort,
        _ => return None,
    };
    let (name, count) = match point.split_once('@') {
        Some((name, count)) => (name, count.parse().ok().filter(|count| *count > 0)?),
        None => (point, 1),
    };
    let known: &[Failpoint] = &[
        Failpoint::AfterBegin,
        Failpoint::BeforeCommit,
        Failpoint::BeforeLaneCommit,
        Failpoint::BeforeUnparkCommit,
        Failpoint::BeforeSettle,
        Failpoint::AfterCommit,
        Failpoint::AfterLaneCommit,
        Failpoint::AfterDeadLetter,
        Failpoint::BeforeLaneOffset,
        Failpoint::BeforeKafkaCommit,
        Failpoint::ResetAfterKafkaCommit,
        Failpoint::ResetAfterRewind,
    ];
    known.iter().any(|point| point.name() == name).then(|| (name.to_owned(), count, action))
}

#[cfg(feature = "failpoints")]
fn act(action: Action) {
    use rustix::process::{Signal, getpid, kill_process};

    tracing::warn!(?action, "failpoint");
    let signal = match action {
        Action::Stop => Signal::STOP,
        Action::Kill => Signal::KILL,
        Action::Abort => std::process::abort(),
    };
    kill_process(getpid(), signal).expect("a process may signal itself");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_name_count_and_action() {
        assert_eq!(parse("after_begin:stop"), Some(("after_begin".into(), 1, Action::Stop)));
        assert_eq!(parse("after_commit@7:kill"), Some(("after_commit".into(), 7, Action::Kill)));
        for text in ["", "after_begin", "nowhere:kill", "after_begin@0:kill", "after_begin:halt"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}

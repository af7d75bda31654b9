//! Points at which a test kills the process. Compiled to nothing without the
//! feature `failpoints`.
//!
//! `WALPOST_FAILPOINT=name[@count]:stop|kill` acts when the point is reached for
//! the `count`-th time (1 unless given): SIGSTOP or SIGKILL.
//! `idempotency/name…` is for this crate alone, and for none other that the process has.

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
    #[cfg(any(feature = "failpoints", test))]
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
    #[cfg(any(feature = "failpoints", test))]
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
            let ours = of_this_crate(&text)?;
            Some(parse(ours).unwrap_or_else(|| panic!("WALPOST_FAILPOINT={text} is no failpoint")))
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
}

/// Without the name of a crate before it, a point is that of every crate.
#[cfg(any(feature = "failpoints", test))]
fn of_this_crate(text: &str) -> Option<&str> {
    match text.split_once('/') {
        Some((name, point)) => (name == "idempotency").then_some(point),
        None => Some(text),
    }
}

#[cfg(any(feature = "failpoints", test))]
fn parse(text: &str) -> Option<(String, u64, Action)> {
    let (point, action) = text.split_once(':')?;
    let action = match action {
        "stop" => Action::Stop,
        "kill" => Action::Kill,
        _ => return None,
    };
    let (name, count) = match point.split_once('@') {
        Some((name, count)) => (name, count.parse().ok().filter(|count| *count > 0)?),
        None => (point, 1),
    };
    let mut known = Failpoint::ALL.iter();
    known.any(|point| point.name() == name).then(|| (name.to_owned(), count, action))
}

#[cfg(feature = "failpoints")]
fn act(action: Action) {
    use rustix::process::{Signal, getpid, kill_process};

    tracing::warn!(?action, "failpoint");
    let signal = match action {
        Action::Stop => Signal::STOP,
        Action::Kill => Signal::KILL,
    };
    kill_process(getpid(), signal).expect("a process may signal itself");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_of_another_crate_is_none_here() {
        assert_eq!(of_this_crate("after_claim:stop"), Some("after_claim:stop"));
        assert_eq!(of_this_crate("idempotency/after_claim:stop"), Some("after_claim:stop"));
        assert_eq!(of_this_crate("webhook/after_claim:stop"), None);
    }

    #[test]
    fn reads_name_count_and_action() {
        assert_eq!(parse("after_claim:stop"), Some(("after_claim".into(), 1, Action::Stop)));
        assert_eq!(parse("after_commit@7:kill"), Some(("after_commit".into(), 7, Action::Kill)));
        for text in ["", "after_claim", "nowhere:kill", "after_claim@0:kill", "after_claim:halt"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}

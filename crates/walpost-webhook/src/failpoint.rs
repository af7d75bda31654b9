//! Points at which a test kills or stops the process. Compiled to nothing without
//! the feature `failpoints`.
//!
//! `WALPOST_FAILPOINT=name[@count]:kill|stop` acts when the point is reached for
//! the `count`-th time (1 unless given): SIGKILL or SIGSTOP.
//! `webhook/name…` is for this crate alone, and for none other that the process has.

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
    #[cfg(any(feature = "failpoints", test))]
    pub(crate) const ALL: [Self; 6] = [
        Self::Claimed,
        Self::Sending,
        Self::Answered,
        Self::Finished,
        Self::Written,
        Self::Committed,
    ];

    /// The name in the environment variable.
    #[cfg(any(feature = "failpoints", test))]
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
    Kill,
    Stop,
}

/// Without the name of a crate before it, a point is that of every crate.
#[cfg(any(feature = "failpoints", test))]
fn of_this_crate(text: &str) -> Option<&str> {
    match text.split_once('/') {
        Some((name, point)) => (name == "webhook").then_some(point),
        None => Some(text),
    }
}

#[cfg(any(feature = "failpoints", test))]
fn parse(text: &str) -> Option<(String, u64, Action)> {
    let (point, action) = text.split_once(':')?;
    let action = match action {
        "kill" => Action::Kill,
        "stop" => Action::Stop,
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
        Action::Kill => Signal::KILL,
        Action::Stop => Signal::STOP,
    };
    kill_process(getpid(), signal).expect("a process may signal itself");
    // Any of its threads may be the one that takes the signal; this one goes no
    // further before that.
    std::thread::sleep(std::time::Duration::from_millis(200));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_of_another_crate_is_none_here() {
        assert_eq!(of_this_crate("after_claim:stop"), Some("after_claim:stop"));
        assert_eq!(of_this_crate("webhook/after_claim:stop"), Some("after_claim:stop"));
        assert_eq!(of_this_crate("idempotency/after_claim:stop"), None);
    }

    #[test]
    fn reads_name_count_and_action() {
        assert_eq!(parse("after_claim:stop"), Some(("after_claim".into(), 1, Action::Stop)));
        assert_eq!(parse("after_answer@7:kill"), Some(("after_answer".into(), 7, Action::Kill)));
        for text in ["", "after_claim", "nowhere:kill", "after_claim@0:kill", "after_claim:halt"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}

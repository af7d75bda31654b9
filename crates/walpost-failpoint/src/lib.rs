//! Named points of a program at which a test kills or stops it.
//!
//! For the tests of Walpost's own crates and examples. Each of them has its names,
//! and this behind a feature `failpoints`, without which nothing of it is there.
//!
//! `WALPOST_FAILPOINT=[whose/]name[@count]:kill|stop|abort` acts when the point of
//! that name is reached for the `count`-th time (1 unless given): SIGKILL, SIGSTOP,
//! or `abort()`. `whose` is the crate that the point belongs to; without it the point
//! is that of each crate that has one of the name, and they are counted together.
//! Of a name that no crate has nothing comes: a test has to see the signal.

use std::{
    env,
    sync::{
        LazyLock,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use rustix::process::{Signal, getpid, kill_process};

const VARIABLE: &str = "WALPOST_FAILPOINT";
/// Longer than a signal takes until all threads of a process have stopped.
const STOP_LIMIT: Duration = Duration::from_millis(200);

/// What the variable asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Armed {
    whose: Option<String>,
    name: String,
    count: u64,
    action: Action,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Kill,
    Stop,
    Abort,
}

/// The point `name` of the crate `whose` is reached: acts where it is armed, as the
/// [crate's documentation](self) says. Returns where it is not, and once the process
/// goes on behind a SIGSTOP.
///
/// ```
/// // In a crate of ours, behind its feature `failpoints`.
/// walpost_failpoint::reached("webhook", "after_claim");
/// ```
///
/// # Panics
/// When the variable is set, and to nothing of this form.
pub fn reached(whose: &str, name: &str) {
    static ARMED: LazyLock<Option<Armed>> = LazyLock::new(|| {
        let text = env::var(VARIABLE).ok()?;
        Some(parse(&text).unwrap_or_else(|| panic!("{VARIABLE}={text} is no failpoint")))
    });
    static COUNT: AtomicU64 = AtomicU64::new(0);

    let Some(armed) = &*ARMED else { return };
    if armed.is(whose, name) && COUNT.fetch_add(1, Ordering::SeqCst) + 1 == armed.count {
        tracing::warn!(whose, name, action = ?armed.action, "failpoint");
        act(armed.action);
    }
}

impl Armed {
    fn is(&self, whose: &str, name: &str) -> bool {
        self.name == name && self.whose.as_ref().is_none_or(|armed| armed == whose)
    }
}

fn parse(text: &str) -> Option<Armed> {
    let (point, action) = text.split_once(':')?;
    let action = match action {
        "kill" => Action::Kill,
        "stop" => Action::Stop,
        "abort" => Action::Abort,
        _ => return None,
    };
    let (whose, point) = match point.split_once('/') {
        Some((whose, point)) => (Some(whose), point),
        None => (None, point),
    };
    let (name, count) = match point.split_once('@') {
        Some((name, count)) => (name, count.parse().ok()?),
        None => (point, 1),
    };
    let is_named = !name.is_empty() && whose.is_none_or(|whose| !whose.is_empty());
    let whose = whose.map(str::to_owned);
    (is_named && count > 0).then(|| Armed { whose, name: name.to_owned(), count, action })
}

fn act(action: Action) {
    let signal = match action {
        Action::Kill => Signal::KILL,
        Action::Stop => Signal::STOP,
        Action::Abort => std::process::abort(),
    };
    kill_process(getpid(), signal).expect("a process may signal itself");
    // Any of its threads may be the one that takes the signal; this one goes no
    // further before that.
    thread::sleep(STOP_LIMIT);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn armed(whose: Option<&str>, name: &str, count: u64, action: Action) -> Option<Armed> {
        Some(Armed { whose: whose.map(str::to_owned), name: name.to_owned(), count, action })
    }

    #[test]
    fn reads_whose_it_is_name_count_and_action() {
        assert_eq!(parse("after_a:stop"), armed(None, "after_a", 1, Action::Stop));
        assert_eq!(parse("after_a@7:kill"), armed(None, "after_a", 7, Action::Kill));
        assert_eq!(parse("b/after_a:abort"), armed(Some("b"), "after_a", 1, Action::Abort));
        assert_eq!(parse("b/after_a@2:kill"), armed(Some("b"), "after_a", 2, Action::Kill));
        let none = ["", "after_a", ":kill", "@1:kill", "/a:kill", "b/:kill", "a@:kill"];
        for text in none.into_iter().chain(["a@0:kill", "a@-1:kill", "a:halt", "a:kill "]) {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_point_of_another_crate_is_none_here_and_without_a_crate_it_is_that_of_each() {
        let is = |text: &str| parse(text).unwrap().is("webhook", "after_claim");
        assert!(is("after_claim:stop"));
        assert!(is("webhook/after_claim:stop"));
        assert!(!is("idempotency/after_claim:stop"));
        assert!(!is("webhook/after_answer:stop"));
    }
}

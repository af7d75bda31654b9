//! Named points of a program at which a test kills or stops it.
//!
//! For the tests of Walpost's own crates and examples. Each of them has its names,
//! and this behind a feature `failpoints`, without which nothing of it is there.
//!
//! `WALPOST_FAILPOINT=whose/name[@count]:kill|stop` acts when the point `name` of the
//! crate `whose` is reached for the `count`-th time (1 unless given): SIGKILL or
//! SIGSTOP. Other crates of the process take no notice of it. A crate that has no
//! point of this name ends the process by `abort()` as soon as it reaches any, and
//! each crate does where the variable is nothing of this form: a test that looks for
//! SIGKILL fails, and the reason is in the log.

use std::{
    env,
    process::abort,
    sync::{
        LazyLock,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use rustix::process::{Signal, getpid, kill_process};

const VARIABLE: &str = "WALPOST_FAILPOINT";
/// Longer than a signal takes until all threads of a process have stopped, also on a
/// busy machine.
const STOP_LIMIT: Duration = Duration::from_secs(1);

/// What the variable asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Armed {
    whose: String,
    name: String,
    count: u64,
    action: Action,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Kill,
    Stop,
}

/// What the variable asks of one point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    /// It is about another point, or another crate.
    Nothing,
    /// To act, the `count`-th time.
    Act,
    /// There is no such point in this crate.
    Unknown,
}

/// The point `name` of the crate `whose` is reached, which has these `points`: acts
/// where it is armed, as the [crate's documentation](self) says. Returns where it is
/// not, and once the process goes on behind a SIGSTOP.
///
/// ```
/// // In a crate of ours, behind its feature `failpoints`.
/// const POINTS: [&str; 2] = ["after_claim", "after_answer"];
/// walpost_failpoint::reached("webhook", &POINTS, "after_claim");
/// ```
pub fn reached(whose: &str, points: &[&str], name: &str) {
    static ARMED: LazyLock<Option<Armed>> = LazyLock::new(|| {
        let text = env::var(VARIABLE).ok()?;
        let armed = parse(&text);
        if armed.is_none() {
            refuse(&format!("{VARIABLE}={text} is not of the form whose/name[@count]:kill|stop"));
        }
        armed
    });
    static COUNT: AtomicU64 = AtomicU64::new(0);

    let Some(armed) = &*ARMED else { return };
    match armed.asked(whose, points, name) {
        Asked::Nothing => {}
        Asked::Act => {
            if COUNT.fetch_add(1, Ordering::SeqCst) + 1 == armed.count {
                act(armed);
            }
        }
        Asked::Unknown => {
            let points = points.join(", ");
            refuse(&format!("{VARIABLE}: {whose} has no point {}, it has {points}", armed.name));
        }
    }
}

impl Armed {
    fn asked(&self, whose: &str, points: &[&str], name: &str) -> Asked {
        match (self.whose == whose, self.name == name) {
            (false, _) => Asked::Nothing,
            (true, true) => Asked::Act,
            (true, false) if points.contains(&&*self.name) => Asked::Nothing,
            (true, false) => Asked::Unknown,
        }
    }
}

fn parse(text: &str) -> Option<Armed> {
    let (point, action) = text.split_once(':')?;
    let action = match action {
        "kill" => Action::Kill,
        "stop" => Action::Stop,
        _ => return None,
    };
    let (whose, point) = point.split_once('/')?;
    let (name, count) = match point.split_once('@') {
        Some((name, count)) => (name, count.parse().ok()?),
        None => (point, 1),
    };
    let is_whole = !whose.is_empty() && !name.is_empty() && count > 0;
    is_whole.then(|| Armed { whose: whose.to_owned(), name: name.to_owned(), count, action })
}

fn act(armed: &Armed) {
    let Armed { whose, name, action, .. } = armed;
    eprintln!("failpoint {whose}/{name}: {action:?}");
    let signal = match action {
        Action::Kill => Signal::KILL,
        Action::Stop => Signal::STOP,
    };
    kill_process(getpid(), signal).expect("a process may signal itself");
    // Any of its threads may be the one that takes the signal; this one goes no
    // further before that.
    thread::sleep(STOP_LIMIT);
}

/// No panic, which ends a task and may be caught.
fn refuse(problem: &str) -> ! {
    eprintln!("{problem}");
    abort()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_whose_it_is_name_count_and_action() {
        let armed = |count, action| {
            Some(Armed { whose: "b".to_owned(), name: "after_a".to_owned(), count, action })
        };
        assert_eq!(parse("b/after_a:stop"), armed(1, Action::Stop));
        assert_eq!(parse("b/after_a@7:kill"), armed(7, Action::Kill));
        let none =
            ["", "b/after_a", "after_a:kill", "after_a@7:kill", ":kill", "/:kill", "@1:kill"];
        let more = ["/a:kill", "b/:kill", "b/@1:kill", "b/a@:kill", "b/a@0:kill", "b/a@-1:kill"];
        for text in none.into_iter().chain(more).chain(["b/a:halt", "b/a:abort", "b/a:kill "]) {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_point_is_that_of_the_crate_that_is_named_and_has_to_be_there() {
        let asked = |text: &str| {
            let points = ["after_claim", "after_answer"];
            parse(text).unwrap().asked("webhook", &points, "after_claim")
        };
        assert_eq!(asked("webhook/after_claim:stop"), Asked::Act);
        assert_eq!(asked("webhook/after_answer:stop"), Asked::Nothing);
        assert_eq!(asked("webhook/after_lease:stop"), Asked::Unknown);
        assert_eq!(asked("idempotency/after_claim:stop"), Asked::Nothing);
        assert_eq!(asked("idempotency/nowhere:stop"), Asked::Nothing);
    }
}

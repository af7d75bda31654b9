/// A point of an example at which a test can end it; nothing without the feature
/// `failpoints`.
///
/// `EXAMPLE_FAILPOINT=name[@count]:kill|stop` acts when the point of this name is
/// reached for the `count`-th time (1 unless given): SIGKILL or SIGSTOP.
///
/// # Panics
/// When the variable is none of these.
pub fn reached(name: &str) {
    #[cfg(feature = "failpoints")]
    armed::reached(name);
    #[cfg(not(feature = "failpoints"))]
    let _ = name;
}

#[cfg(feature = "failpoints")]
mod armed {
    use std::{
        env,
        sync::atomic::{AtomicU64, Ordering},
        thread,
        time::Duration,
    };

    use rustix::process::{Signal, getpid, kill_process};

    static COUNT: AtomicU64 = AtomicU64::new(0);

    pub(super) fn reached(name: &str) {
        let Ok(armed) = env::var("EXAMPLE_FAILPOINT") else { return };
        let (point, count, signal) =
            parse(&armed).unwrap_or_else(|| panic!("EXAMPLE_FAILPOINT={armed} is no failpoint"));
        if point != name || COUNT.fetch_add(1, Ordering::SeqCst) + 1 != count {
            return;
        }
        kill_process(getpid(), signal).expect("a process may signal itself");
        // Any of its threads may be the one that takes the signal; this one goes no
        // further before that.
        thread::sleep(Duration::from_millis(200));
    }

    fn parse(armed: &str) -> Option<(&str, u64, Signal)> {
        let (point, action) = armed.split_once(':')?;
        let (name, count) = match point.split_once('@') {
            Some((name, count)) => (name, count.parse().ok()?),
            None => (point, 1),
        };
        let signal = match action {
            "kill" => Signal::KILL,
            "stop" => Signal::STOP,
            _ => return None,
        };
        Some((name, count, signal))
    }
}

//! What somebody has to know, also where nobody listens to `tracing`.

use std::{
    fmt,
    io::Write,
    time::{Duration, Instant},
};

use tracing::{dispatcher, subscriber::NoSubscriber};

/// How often a state that goes on is told again.
const AGAIN_MS: u64 = 30_000;

/// Logs `text` with `fields`, or prints both where no subscriber is set.
macro_rules! tell {
    ($level:ident, { $($name:ident = $value:expr),* }, $text:literal) => {
        if $crate::tell::is_heard() {
            tracing::$level!($($name = %$value,)* $text);
        } else {
            $crate::tell::print(format_args!(
                concat!($text, $(" ", stringify!($name), "={}"),*),
                $($value),*
            ));
        }
    };
}
pub(crate) use tell;

/// Whether a subscriber is set for this thread.
pub(crate) fn is_heard() -> bool {
    dispatcher::get_default(|dispatch| !dispatch.is::<NoSubscriber>())
}

pub(crate) fn print(text: fmt::Arguments<'_>) {
    // Written at once, so that nobody's words come between.
    let line = format!("walpost-consumer: {text}\n");
    // There is nowhere left to tell that this failed.
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// For a field.
pub(crate) fn seconds(duration: Duration) -> String {
    format!("{:.1}s", duration.as_secs_f64())
}

/// When a state that goes on is told: at once, and again after a while.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reminder {
    told: Option<Instant>,
}

impl Reminder {
    /// For what has just been told.
    pub(crate) fn told(now: Instant) -> Self {
        Self { told: Some(now) }
    }

    /// Whether it is to be told now; then that counts as done.
    pub(crate) fn is_due(&mut self, now: Instant) -> bool {
        let pause = Duration::from_millis(AGAIN_MS);
        let due = self.told.is_none_or(|told| now.duration_since(told) >= pause);
        if due {
            self.told = Some(now);
        }
        due
    }

    /// Whether it was told at all.
    pub(crate) fn was_told(self) -> bool {
        self.told.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_told_at_once_and_then_at_a_bounded_rate() {
        let start = Instant::now();
        let mut reminder = Reminder::default();
        assert!(!reminder.was_told());
        let due =
            (0..=600).filter(|tenths| reminder.is_due(start + Duration::from_millis(tenths * 100)));
        assert_eq!(due.collect::<Vec<_>>(), [0, 300, 600]);
        assert!(reminder.was_told());
        let mut later = Reminder::told(start);
        assert!(!later.is_due(start + Duration::from_millis(AGAIN_MS - 1)));
        assert!(later.is_due(start + Duration::from_millis(AGAIN_MS)));
    }
}

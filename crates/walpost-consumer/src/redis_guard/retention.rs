//! Whether the keys outlive the records whose copies they are to find.

use std::time::{Duration, Instant};

use walpost_event::RetrySchedule;
use walpost_librdkafka::{Kept, KeptError};

use super::RedisGuard;
use crate::{
    Error,
    kafka::all_kept,
    settings::Settings,
    tell::{Reminder, tell},
};

/// Waits until the topics' retention is known, and refuses one that is longer
/// than the keys live.
pub(crate) async fn keys_outlive_topics(
    guard: &RedisGuard,
    settings: &Settings,
) -> Result<(), Error> {
    let Some(longest) = guard.longest_retention() else { return Ok(()) };
    let backoff = RetrySchedule::backoff(Duration::from_millis(200), Duration::from_secs(10));
    let (mut reminder, mut failures) = (Reminder::default(), 0);
    loop {
        let asking = settings.clone();
        let asked = tokio::task::spawn_blocking(move || all_kept(&asking)).await;
        let reason = match asked {
            Ok(Ok(topics)) => {
                let kept = topics.into_iter().find(|topic| outlives(topic, longest));
                return kept.map_or(Ok(()), |topic| {
                    let keeps = topic.keeps.map(Duration::from_millis);
                    Err(refused(guard.refusal(&topic.name, keeps)))
                });
            }
            Ok(Err(KeptError::Denied { topic })) => {
                return Err(refused(format!(
                    "how long topic {topic} keeps records may not be asked for: grant \
                     DescribeConfigs on it, or call accept_short_ttl()"
                )));
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => "the question panicked".to_owned(),
        };
        failures += 1;
        if reminder.is_due(Instant::now()) {
            tell!(
                warn,
                { reason = reason },
                "how long the topics keep records is not known, nothing is consumed until it is; \
                 trying again"
            );
        }
        tokio::time::sleep(backoff.delay(failures, 0.0).unwrap_or_default()).await;
    }
}

fn refused(problem: String) -> Error {
    Error::Setting { setting: "guard".to_owned(), problem }
}

fn outlives(topic: &Kept, longest: Duration) -> bool {
    topic.keeps.is_none_or(|keeps_ms| Duration::from_millis(keeps_ms) > longest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn for_ever_outlives_everything_and_a_segment_counts() {
        let day = Duration::from_secs(86_400);
        let topic = |retention: &str| Kept::parse("t", retention, "86400000", "delete");
        assert!(outlives(&topic("-1"), day * 1000));
        assert!(outlives(&topic("86400000"), day));
        assert!(!outlives(&topic("86400000"), day * 2));
    }
}

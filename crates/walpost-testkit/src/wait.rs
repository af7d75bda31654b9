use std::time::{Duration, Instant};

const POLL: Duration = Duration::from_millis(10);

/// Waits until `condition` holds.
///
/// # Panics
///
/// When it does not within `limit`, with `what` in the message.
pub async fn until(limit: Duration, what: &str, mut condition: impl AsyncFnMut() -> bool) {
    until_some(limit, what, async || condition().await.then_some(())).await;
}

/// Waits until `attempt` returns a value, and returns it.
///
/// # Panics
///
/// When it does not within `limit`, with `what` in the message.
pub async fn until_some<T>(
    limit: Duration,
    what: &str,
    mut attempt: impl AsyncFnMut() -> Option<T>,
) -> T {
    let start = Instant::now();
    let waiting = async {
        loop {
            if let Some(value) = attempt().await {
                return value;
            }
            tokio::time::sleep(POLL).await;
        }
    };
    match tokio::time::timeout(limit, waiting).await {
        Ok(value) => value,
        Err(_) => panic!("waited {:?} in vain for {what}", start.elapsed()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_value_is_returned_when_it_is_there() {
        let mut left = 3;
        let value = until_some(Duration::from_secs(10), "a value", async || {
            left -= 1;
            (left == 0).then_some("here")
        });
        assert_eq!(value.await, "here");
    }

    #[tokio::test]
    #[should_panic(expected = "in vain for a miracle")]
    async fn a_wait_in_vain_says_what_for() {
        until(Duration::from_millis(20), "a miracle", async || false).await;
    }

    #[tokio::test]
    #[should_panic(expected = "in vain for an answer")]
    async fn a_condition_that_hangs_is_given_up() {
        until(Duration::from_millis(20), "an answer", std::future::pending).await;
    }
}

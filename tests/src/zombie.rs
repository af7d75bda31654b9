use std::borrow::Borrow;

use walpost_testkit::{Process, until};

use crate::LIMIT;

/// Of a test consumer's environment: it stops itself after its third commit.
pub const STOPS_AFTER_COMMIT: (&str, &str) = ("WALPOST_FAILPOINT", "consumer/after_commit@3:stop");

const STANDS_BY: &str = "standing by";

/// Pauses a relay under load until its successor has the slot and publishes,
/// and wakes it beside that one; returns when it has noticed. `progress` waits
/// until more is written and published.
pub async fn wake_beside_successor<P: Borrow<Process>>(
    relay: &P,
    start: impl FnOnce() -> P,
    mut progress: impl AsyncFnMut(),
) -> P {
    let relay: &Process = relay.borrow();
    // It may have stood by itself before.
    let stood_by = times(relay, STANDS_BY);
    relay.pause();
    let successor = start();
    // The server takes the slot from one that is silent; the successor may not have
    // stood by until then.
    until(LIMIT, "the successor takes over", async || {
        let successor: &Process = successor.borrow();
        assert!(successor.is_running(), "the successor ended: {}", successor.log());
        times(successor, "streaming") > 0
    })
    .await;
    progress().await;
    relay.resume();
    until(LIMIT, "the one that was paused stands by", async || times(relay, STANDS_BY) > stood_by)
        .await;
    progress().await;
    successor
}

fn times(process: &Process, text: &str) -> usize {
    process.log().matches(text).count()
}

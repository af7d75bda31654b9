use std::time::Duration;

use walpost_testkit::Seeded;

/// A random moment within `most`.
pub(super) async fn some_moment(seeded: &mut Seeded, most: Duration) {
    let most_us = usize::try_from(most.as_micros()).expect("a moment is short");
    pass(Duration::from_micros(seeded.below(most_us) as u64)).await;
}

/// How long a fault lasts.
pub(super) async fn pass(time: Duration) {
    tokio::time::sleep(time).await;
}

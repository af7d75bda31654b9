use std::time::{Duration, Instant};

use tokio::time;
use tokio_postgres::Client;

use super::{progress::Progress, stage::Stage};
use crate::{
    failure::{Exit, Failure},
    output,
};

const INTERVAL: Duration = Duration::from_millis(100);
/// With no position moving. The first member of a group waits some seconds.
const STALL_LIMIT: Duration = Duration::from_secs(45);

/// Where a consumer has to get to.
#[derive(Debug)]
pub(super) struct Position {
    /// Its name.
    pub(super) consumer: String,
    /// In which run: each offset reset begins a new one.
    pub(super) run: i32,
    /// Records of the topic.
    pub(super) end: usize,
}

impl Position {
    /// Waits until every partition that has records is there.
    pub(super) async fn wait(
        &self,
        stage: &mut Stage,
        client: &Client,
        progress: &mut Progress,
    ) -> Result<(), Failure> {
        // A partition that ran again to its end counts; one that has not begun
        // still stands at its end, in the run before.
        let text = "select coalesce(sum(next_offset) filter (where run = $2 or next_offset = 0), 0)
                ::bigint
            from walpost.position where consumer = $1";
        let end = i64::try_from(self.end).unwrap_or(i64::MAX);
        let (mut last, mut moved) = (-1, Instant::now());
        loop {
            let row = client
                .query_one(text, &[&self.consumer, &self.run])
                .await
                .map_err(Failure::postgres)?;
            let reached: i64 = row.get(0);
            if reached >= end {
                return Ok(());
            }
            if self.run > 0 {
                let reached = u64::try_from(reached).unwrap_or(0);
                progress.show_replay(reached, self.end as u64);
            }
            if reached != last {
                (last, moved) = (reached, Instant::now());
            }
            let (_, consumer) = stage.children();
            consumer.check()?;
            if moved.elapsed() > STALL_LIMIT {
                output::note(consumer.log_tail().trim_end());
                let text = format!(
                    "the consumer stands still at {reached} of {end} records for {} s",
                    STALL_LIMIT.as_secs()
                );
                return Err(Failure::found(Exit::Running, &text));
            }
            time::sleep(INTERVAL).await;
        }
    }
}

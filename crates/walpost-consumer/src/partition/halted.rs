//! The reason of a halt as a row, for `walpost consumer list` and `show`.

use std::{sync::atomic::Ordering, time::Duration};

use tokio_postgres::types::{ToSql, Type};
use walpost_event::RetrySchedule;

use super::{Interrupt, Partition, jitter};
use crate::Handler;

impl<H: Handler> Partition<H> {
    /// Writes why the partition is halted, unless another member has claimed it since. Retries
    /// until that is done or the partition is asked to stop.
    pub(super) async fn note_halted(&self, reason: &str) {
        let backoff = RetrySchedule::backoff(Duration::from_millis(200), Duration::from_secs(30));
        let mut stop = self.stop.clone();
        for attempt in 1.. {
            let noted = tokio::select! {
                noted = self.write_halted(reason) => noted,
                () = stop.requested() => return,
            };
            let Err(interrupt) = noted else { return };
            let (partition, problem) = (&self.of, interrupt.reason());
            tracing::debug!(%partition, problem, "the reason of the halt is not written yet");
            let wait = backoff.delay(attempt, jitter()).unwrap_or_default();
            if stop.sleep(wait).await.is_err() {
                return;
            }
        }
    }

    async fn write_halted(&self, reason: &str) -> Result<(), Interrupt> {
        let (settings, of) = (&self.shared.settings, &self.of);
        let epoch = Some(self.epoch.load(Ordering::Relaxed)).filter(|epoch| *epoch > 0);
        let reason = reason.replace('\0', "\u{fffd}");
        let parameters: [(&(dyn ToSql + Sync), Type); 6] = [
            (&settings.consumer, Type::TEXT),
            (&&*of.topic, Type::TEXT),
            (&of.partition, Type::INT4),
            (&settings.group_id(), Type::TEXT),
            (&epoch, Type::INT8),
            (&reason, Type::TEXT),
        ];
        let lease = self.shared.pool.lease().await?;
        let written = lease.execute_typed(&self.shared.sql.halted, &parameters).await;
        let failed = |error| Interrupt::claiming("writing why it halted", &settings.schema, error);
        written.map_err(failed)?;
        lease.give_back();
        Ok(())
    }
}

//! One assigned partition: claim, begin, batches, and again.

mod apply;
mod begin;
mod claim;
mod failure;
mod fatal;
mod halts;
mod held;
mod interrupt;
mod offsets;
mod parked_row;
mod session;
mod stop;
mod trials;
mod unpark;
mod work;

use std::{sync::Arc, time::Duration};

use uuid::Uuid;
use walpost_event::RetrySchedule;

use self::trials::Trials;
pub(crate) use self::{fatal::Fatal, interrupt::Interrupt, stop::Stop};
use crate::{
    Database, Handler, PartitionState, TopicPartition,
    kafka::{AssignmentId, Kafka, heartbeat_interval_ms},
    metrics::TopicMetrics,
    settings::Settings,
    sql::Sql,
    status::Board,
    tell::tell,
};

/// What all partitions of a consumer share.
pub(crate) struct Shared<H> {
    pub(crate) settings: Settings,
    pub(crate) sql: Sql,
    pub(crate) database: Database,
    pub(crate) kafka: Kafka,
    pub(crate) handler: Arc<H>,
    pub(crate) board: Board,
    pub(crate) fatal: Fatal,
}

/// One assignment of one partition.
pub(crate) struct Partition<H> {
    shared: Arc<Shared<H>>,
    of: TopicPartition,
    assignment: AssignmentId,
    stop: Stop,
    metrics: TopicMetrics,
    trials: Trials,
}

impl<H: Handler> Partition<H> {
    pub(crate) fn new(
        shared: Arc<Shared<H>>,
        of: TopicPartition,
        assignment: AssignmentId,
        stop: Stop,
    ) -> Self {
        let metrics = TopicMetrics::new(&shared.settings.consumer, &of);
        let trials = Trials::new(shared.settings.max_batch_events);
        Self { shared, of, assignment, stop, metrics, trials }
    }

    /// Until it is asked to stop.
    pub(crate) async fn run(mut self) {
        let backoff = RetrySchedule::backoff(Duration::from_millis(200), Duration::from_secs(10));
        let mut faults = 0;
        loop {
            self.set_state(PartitionState::Claiming);
            let interrupt = self.claim_and_run(&mut faults).await;
            let wait = match interrupt {
                Interrupt::Stopped => return,
                Interrupt::NotAssigned => {
                    // The word of it comes by the group; should it not, ask again.
                    Duration::from_millis(2 * self.shared.settings.session_timeout_ms)
                }
                Interrupt::GivenUp(reason) => {
                    tracing::warn!(partition = %self.of, reason, "gave the partition up");
                    self.time_for_the_group()
                }
                Interrupt::Fault(reason) => {
                    faults += 1;
                    let partition = &self.of;
                    tell!(
                        warn,
                        { partition = partition, reason = reason, faults = faults },
                        "a fault, trying again"
                    );
                    backoff.delay(faults, jitter()).unwrap_or_default()
                }
                Interrupt::Discarded => Duration::ZERO,
                Interrupt::Halt(reason) => {
                    let partition = &self.of;
                    tell!(
                        error,
                        { partition = partition, reason = reason },
                        "the partition is halted, others go on"
                    );
                    self.metrics.halts.increment(1);
                    self.set_state(PartitionState::Halted { reason });
                    self.stop.requested().await;
                    return;
                }
                Interrupt::Fatal(error) => {
                    self.shared.fatal.report(error);
                    self.stop.requested().await;
                    return;
                }
            };
            let _ = self.shared.kafka.stop_fetching(&self.of, self.assignment).await;
            if self.stop.sleep(wait).await.is_err() {
                return;
            }
        }
    }

    /// Everything that one claim allows.
    async fn claim_and_run(&mut self, faults: &mut u32) -> Interrupt {
        let begun = async {
            let claimed = self.claim().await?;
            self.shared.board.count(|counts| counts.claims += 1);
            self.metrics.claims.increment(1);
            self.begin(claimed).await
        };
        // Nothing is undone by leaving half-way: the next claim finds out.
        let mut stop = self.stop.clone();
        let session = tokio::select! {
            begun = begun => begun,
            () = stop.requested() => Err(Interrupt::Stopped),
        };
        let mut session = match session {
            Ok(session) => session,
            Err(interrupt) => return interrupt,
        };
        *faults = 0;
        self.trials.claimed(session.key.epoch, session.key.next_offset, session.replay.run);
        let interrupt = self.work(&mut session).await;
        if let Interrupt::Stopped = interrupt {
            self.finish(session).await;
        }
        interrupt
    }

    /// Long enough that a member that was paused hears of its expulsion before
    /// it claims again, so that it takes nothing from its successor.
    fn time_for_the_group(&self) -> Duration {
        let heartbeat = heartbeat_interval_ms(&self.shared.settings) as f64;
        Duration::from_millis((heartbeat * (1.2 + jitter())) as u64)
    }

    fn set_state(&self, state: PartitionState) {
        self.shared.board.update(&self.of, |status| status.state = state);
    }
}

/// From 0 up to 1.
fn jitter() -> f64 {
    f64::from((Uuid::new_v4().as_u128() & 0xFFFF) as u16) / 65536.0
}

//! One assigned partition: claim, begin, batches, and again.

mod apply;
mod attempt;
mod begin;
mod claim;
mod copies;
mod failure;
mod fatal;
mod guarded;
mod halted;
mod halts;
mod held;
mod interrupt;
mod lane;
mod lanes;
mod looks;
mod offsets;
mod parked_row;
mod progress;
mod replay;
mod session;
mod stop;
mod trials;
mod unpark;
mod watch;
mod work;

use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use metrics::Gauge;
use uuid::Uuid;
use walpost_event::RetrySchedule;

#[cfg(test)]
pub(crate) use self::replay::{Again, Range, Replay};
pub(crate) use self::{
    apply::start,
    fatal::Fatal,
    interrupt::Interrupt,
    stop::{Stop, StopRequest},
};
use self::{lane::Lane, session::Session, trials::Trials};
use crate::{
    Handler, PartitionState, TopicPartition,
    blocked::Polls,
    calls::Calls,
    dead_letters::{Desk, Hold},
    kafka::{AssignmentId, Kafka, heartbeat_interval_ms},
    meter::{Meter, Meters},
    metrics::{PartitionGauges, TopicMetrics},
    points::Points,
    pool::{NoConnection, Pool},
    settings::Settings,
    sql::Sql,
    status::Board,
    tell::tell,
};

/// What all partitions of a consumer share.
pub(crate) struct Shared<H> {
    pub(crate) settings: Settings,
    pub(crate) sql: Sql,
    pub(crate) pool: Pool,
    pub(crate) kafka: Kafka,
    pub(crate) handler: Arc<H>,
    pub(crate) board: Board,
    pub(crate) points: Points,
    pub(crate) fatal: Fatal,
    /// Where to say what was parked, `None` where that is in the table alone.
    pub(crate) dead_letters: Option<Desk>,
    pub(crate) meters: Meters,
    /// Topics with a copy that was warned of.
    pub(crate) warned_of_copies: Mutex<HashSet<Arc<str>>>,
}

impl<H> Shared<H> {
    fn warned_of_copies(&self) -> MutexGuard<'_, HashSet<Arc<str>>> {
        self.warned_of_copies.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One assignment of one partition.
pub(crate) struct Partition<H> {
    shared: Arc<Shared<H>>,
    of: TopicPartition,
    assignment: AssignmentId,
    stop: Stop,
    metrics: TopicMetrics,
    calls: Calls,
    meter: Arc<Meter>,
    gauges: PartitionGauges,
    /// Of the last claim, 0 before that.
    epoch: AtomicI64,
}

impl<H: Handler> Partition<H> {
    pub(crate) fn new(
        shared: Arc<Shared<H>>,
        of: TopicPartition,
        assignment: AssignmentId,
        stop: Stop,
    ) -> Self {
        let consumer = &shared.settings.consumer;
        let metrics = TopicMetrics::new(consumer, &of);
        let calls =
            Calls::new(consumer, metrics.handler_seconds.clone(), &shared.sql.session.undo_between);
        let (meter, gauges) = shared.meters.add(consumer, &of);
        Self {
            shared,
            of,
            assignment,
            stop,
            metrics,
            calls,
            meter,
            gauges,
            epoch: AtomicI64::new(0),
        }
    }

    /// Which calls of the handler keep their thread, and the gauge of it.
    pub(crate) fn watched(&self) -> (Polls, Gauge) {
        (self.calls.polls(), self.gauges.handler_blocked_seconds.clone())
    }

    /// Until it is asked to stop.
    pub(crate) async fn run(self) {
        let partition = Arc::new(self);
        partition.claim_again_and_again().await;
    }

    async fn claim_again_and_again(self: &Arc<Self>) {
        let settings = &self.shared.settings;
        let mut trials = vec![Trials::new(settings.max_batch_events); settings.lanes];
        let backoff = RetrySchedule::backoff(Duration::from_millis(200), Duration::from_secs(10));
        let mut faults = 0;
        // It lasts while the partition is halted, too.
        let mut letters = None;
        loop {
            self.set_state(PartitionState::Claiming);
            let interrupt = self.claim_and_run(&mut trials, &mut faults, &mut letters).await;
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
                    self.set_state(PartitionState::Halted { reason: reason.clone() });
                    self.note_halted(&reason).await;
                    self.stop.clone().requested().await;
                    return;
                }
                Interrupt::Fatal(error) => {
                    self.shared.fatal.report(error);
                    self.stop.clone().requested().await;
                    return;
                }
            };
            let _ = self.shared.kafka.stop_fetching(&self.of, self.assignment).await;
            self.meter.unread();
            if self.stop.clone().sleep(wait).await.is_err() {
                return;
            }
        }
    }

    /// Everything that one claim allows. `trials`: of each lane.
    async fn claim_and_run(
        self: &Arc<Self>,
        trials: &mut [Trials],
        faults: &mut u32,
        letters: &mut Option<Hold>,
    ) -> Interrupt {
        let begun = async {
            self.epoch.store(0, Ordering::Relaxed);
            let claimed = self.claim().await?;
            self.epoch.store(claimed.epoch, Ordering::Relaxed);
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
        self.runs(&session);
        let desk = self.shared.dead_letters.as_ref();
        *letters = desk.map(|desk| desk.claimed(session.key, session.looks.at().is_some()));
        let interrupt = match trials {
            [trials] => {
                let (key, run) = (session.key, session.lane.replay.run);
                trials.claimed(key.epoch, key.next_offset, run);
                session.looks.resume(trials);
                std::mem::swap(&mut session.lane.trials, trials);
                let interrupt = self.work(&mut session).await;
                std::mem::swap(&mut session.lane.trials, trials);
                interrupt
            }
            many => self.work_in_lanes(&mut session, many).await,
        };
        if let Interrupt::Stopped = interrupt {
            self.stop.note_settling();
            self.finish(session).await;
        }
        interrupt
    }

    fn runs(&self, session: &Session) {
        let Session { key, lane, .. } = session;
        let (partition, next_offset, epoch) = (&self.of, key.next_offset, key.epoch);
        tracing::info!(%partition, next_offset, epoch, "the partition runs");
        self.shared.board.update(&self.of, |status| {
            status.state = PartitionState::Running;
            status.next_offset = Some(key.next_offset);
            status.committed_offset = None;
            status.epoch = key.epoch;
            status.run = lane.replay.run;
        });
    }

    /// Long enough that a member that was paused hears of its expulsion before
    /// it claims again, so that it takes nothing from its successor.
    fn time_for_the_group(&self) -> Duration {
        let heartbeat = heartbeat_interval_ms(&self.shared.settings) as f64;
        Duration::from_millis((heartbeat * (1.2 + jitter())) as u64)
    }

    /// An event is parked, by a transaction that is committed.
    fn say_parked(&self, position: i32) {
        if let Some(desk) = &self.shared.dead_letters {
            desk.parked(position);
        }
    }

    /// Waits for a turn, unless it is asked to stop meanwhile.
    async fn take_turn(&self, lane: &mut Lane) -> Result<(), Interrupt> {
        let mut stop = self.stop.clone();
        tokio::select! {
            () = stop.requested() => Err(Interrupt::Stopped),
            client = lane.slot.client() => Ok(client.map(drop)?),
        }
    }

    fn set_state(&self, state: PartitionState) {
        self.shared.board.update(&self.of, |status| status.state = state);
    }
}

impl From<NoConnection> for Interrupt {
    fn from(error: NoConnection) -> Self {
        Self::Fault(error.to_string())
    }
}

/// From 0 up to 1.
fn jitter() -> f64 {
    f64::from((Uuid::new_v4().as_u128() & 0xFFFF) as u16) / 65536.0
}

//! Whether the relay does its work. Pure: time is an argument.

use std::time::{Duration, Instant};

use walpost_event::Lsn;

use crate::{
    config::RelayConfig,
    sight::{SlotSight, SlotState},
    status::{Phase, PipelineStatus},
    watch::LOOK_INTERVAL,
};

/// Whether the relay publishes or could take over at once, and why not.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Readiness {
    /// It does what it is there for.
    pub ready: bool,
    /// What it does, or why it does not, in words.
    pub reason: String,
}

/// Tells from the status of a pipeline, looked at now and then, whether it
/// stands still although there is something to do.
///
/// Look at least once a second: what happens between two looks is not seen.
///
/// ```
/// use std::time::Instant;
/// use walpost_relay::{PipelineStatus, ReadyWatch, RelayConfig};
///
/// let mut watch = ReadyWatch::new(&RelayConfig::new("shop"));
/// let readiness = watch.look(&PipelineStatus::default(), Instant::now());
/// assert!(!readiness.ready, "it has only just begun");
/// ```
#[derive(Debug)]
pub struct ReadyWatch {
    /// For what the pipeline itself sees.
    limit: Duration,
    /// For what is seen of the slot now and then.
    slot_limit: Duration,
    trouble: Unchanged<()>,
    sink: Unchanged<u64>,
    holder: Unchanged<(i32, i64)>,
    taking: Unchanged<i32>,
    working: Unchanged<Lsn>,
    slot: Unchanged<Step>,
    /// Somebody else moves the slot.
    is_slot_foreign: bool,
}

/// How long the sink may say that it is in trouble.
const TROUBLE_MAX: Duration = Duration::from_secs(5);
/// What a relay that works may leave unconfirmed: its own last checkpoint, with
/// the pages that it is on.
const UNCONFIRMED_MIN_BYTES: u64 = 32 * 1024;
/// What the server said of the slot longer ago is not what it is now.
const SIGHT_MAX_AGE: Duration = Duration::from_secs(10);
/// How long the server may work on one piece of WAL without sending anything.
const WORK_MAX: Duration = Duration::from_secs(600);

/// Since when something is what it is.
#[derive(Debug)]
struct Unchanged<T>(Option<(T, Instant)>);

impl<T: PartialEq> Unchanged<T> {
    /// How long it has been `value`; no time without one.
    fn look(&mut self, value: Option<T>, now: Instant) -> Duration {
        let Some(value) = value else {
            self.0 = None;
            return Duration::ZERO;
        };
        match &self.0 {
            Some((before, since)) if *before == value => now.saturating_duration_since(*since),
            _ => {
                self.0 = Some((value, now));
                Duration::ZERO
            }
        }
    }
}

/// The step that the slot waits for, with everything whose movement is progress
/// in it. `told` is what the slot was told, `confirmed` what the server has
/// noted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// The server takes what it was told.
    Told { confirmed: Lsn },
    /// What is done gets its checkpoint.
    Checkpoint { confirmed: Lsn, told: Lsn },
    /// The stream passes the last checkpoint.
    Passing { confirmed: Lsn, told: Lsn, received: Lsn, settled: u64, items: Option<u64> },
    /// The sink takes events.
    Sink { confirmed: Lsn, settled: u64 },
    /// The rest of a transaction comes.
    Transaction { confirmed: Lsn, items: u64 },
    /// The server sends WAL.
    Server { confirmed: Lsn, received: Lsn },
    /// The relay that has the slot does its work.
    Held { confirmed: Lsn },
}

impl Step {
    /// `None` when nothing is left to do: our own last checkpoint, and what
    /// others wrote beside it, may stay unconfirmed while nothing follows.
    fn of(status: &PipelineStatus, wal: Lsn, confirmed: Lsn) -> Option<Self> {
        let (told, received, flow) = (status.confirmed, status.received, &status.flow);
        let ahead = |position: Lsn, of: Lsn| position.bytes_since(of) >= UNCONFIRMED_MIN_BYTES;
        if ahead(told, confirmed) {
            return Some(Self::Told { confirmed });
        }
        if ahead(status.done, told) {
            if flow.unpassed.is_some_and(|wal| received < wal) {
                let (settled, items) = (flow.settled, flow.open);
                return Some(Self::Passing { confirmed, told, received, settled, items });
            }
            if flow.is_due {
                return Some(Self::Checkpoint { confirmed, told });
            }
        }
        match flow.open {
            _ if flow.pending > 0 => Some(Self::Sink { confirmed, settled: flow.settled }),
            Some(items) => Some(Self::Transaction { confirmed, items }),
            None => ahead(wal, received).then_some(Self::Server { confirmed, received }),
        }
    }

    /// Whether the server has to send for it to go on.
    fn is_servers(self) -> bool {
        matches!(self, Self::Passing { .. } | Self::Transaction { .. } | Self::Server { .. })
    }

    fn describe(self) -> &'static str {
        match self {
            Self::Told { .. } => "the server does not take the confirmations that it is sent",
            Self::Checkpoint { .. } => "what is published has got no checkpoint",
            Self::Passing { .. } => "the stream does not reach the last checkpoint",
            Self::Sink { .. } => "the sink takes no events",
            Self::Transaction { .. } => "the rest of a transaction does not come",
            Self::Server { .. } => "the server sends nothing",
            Self::Held { .. } => "look at the relay that has it",
        }
    }
}

impl ReadyWatch {
    /// Nothing was seen yet.
    pub fn new(config: &RelayConfig) -> Self {
        let limit = Duration::from_millis(config.ready_stuck_ms);
        // Between two checkpoints nothing is confirmed, and between two looks
        // nothing is seen of it.
        let between = Duration::from_millis(config.checkpoint_interval_ms) + LOOK_INTERVAL;
        Self {
            limit,
            slot_limit: limit + between,
            trouble: Unchanged(None),
            sink: Unchanged(None),
            holder: Unchanged(None),
            taking: Unchanged(None),
            working: Unchanged(None),
            slot: Unchanged(None),
            is_slot_foreign: !config.confirm_slot,
        }
    }

    /// What to say of `status` at `now`, after what was seen before.
    pub fn look(&mut self, status: &PipelineStatus, now: Instant) -> Readiness {
        let streams = status.phase == Phase::Streaming;
        let is_troubled = status.trouble.is_some() || status.waits.is_some();
        let troubled = self.trouble.look(is_troubled.then_some(()), now);
        let waits = streams && status.flow.pending > 0;
        let sink_for = self.sink.look(waits.then_some(status.flow.settled), now);
        let holder_for = self.holder.look(foreign_holder(status), now);
        let taking = status.own_walsender.filter(|own| held_by(status) == Some(*own));
        let taking_for = self.taking.look(taking, now);
        let standstill = self.standstill(status, now);
        let not_ready = |reason: String| Readiness { ready: false, reason };
        match &status.phase {
            Phase::Starting => not_ready("starting: connecting and checking".to_owned()),
            Phase::Loading => not_ready(format!(
                "loading: publishes the rows from before the slot, {} read so far",
                status.loaded
            )),
            Phase::Waiting { error } => not_ready(format!("waiting to try again: {error}")),
            Phase::Paused => not_ready("paused, and publishes nothing".to_owned()),
            Phase::Stopped => not_ready("stopped".to_owned()),
            Phase::Standby if taking.is_some() => self.taking_over(taking_for),
            Phase::Standby => self.standby(status, holder_for, standstill),
            Phase::Streaming => {
                let trouble = status.trouble.as_ref().filter(|_| troubled > TROUBLE_MAX);
                let waits = status.waits.clone().filter(|_| troubled > TROUBLE_MAX);
                let stuck = gone(status)
                    .or(waits)
                    .or_else(|| trouble.map(|text| format!("the sink is in trouble: {text}")))
                    .or_else(|| (sink_for >= self.limit).then(|| sink_stuck(status, sink_for)))
                    .or(standstill);
                match stuck {
                    Some(reason) => not_ready(reason),
                    None => Readiness { ready: true, reason: "streaming".to_owned() },
                }
            }
        }
    }

    /// It has the slot already, and what comes before the first event is bounded.
    fn taking_over(&self, taking_for: Duration) -> Readiness {
        let ready = taking_for < self.slot_limit;
        let for_long = match ready {
            true => String::new(),
            false => format!(", for {} s; see its log", taking_for.as_secs()),
        };
        let reason =
            format!("taking over: this relay has the slot and is about to publish{for_long}");
        Readiness { ready, reason }
    }

    /// Whoever stands by could take over, unless the slot's holder is no relay.
    fn standby(
        &self,
        status: &PipelineStatus,
        holder_for: Duration,
        standstill: Option<String>,
    ) -> Readiness {
        let pid = held_by(status);
        if let Some(pid) = pid
            && status.walsender == Some(pid)
        {
            let reason = format!(
                "interrupted: process {pid} of the server still holds the slot for the session \
                 that this relay has lost; it should end after wal_sender_timeout_ms, else end it \
                 with `select pg_terminate_backend({pid})`"
            );
            return Readiness { ready: false, reason };
        }
        if let Some(pid) = pid
            && holder_for >= self.slot_limit
        {
            let reason = format!(
                "standing by in vain: process {pid} of the server holds the slot and has heard \
                 nothing from its client for {} s; end it with `select pg_terminate_backend({pid})`",
                holder_for.as_secs()
            );
            return Readiness { ready: false, reason };
        }
        if let Some(sight) = &status.slot
            && sight.state == SlotState::Lost
            && let Some(reason) = gone_as(sight)
        {
            return Readiness { ready: false, reason };
        }
        let holder = pid.map_or_else(String::new, |pid| format!(", process {pid} of the server"));
        let rest = standstill.map_or_else(String::new, |found| format!("; {found}"));
        let reason = format!("standing by: another relay has the slot{holder}{rest}");
        Readiness { ready: true, reason }
    }

    /// The confirmed position stands still while WAL grows, and nothing that
    /// goes on explains it.
    fn standstill(&mut self, status: &PipelineStatus, now: Instant) -> Option<String> {
        let recent = recent(status, now);
        let (wal, confirmed) = positions(status, recent);
        let unconfirmed = wal.bytes_since(confirmed);
        let step = match &status.phase {
            Phase::Streaming => Step::of(status, wal, confirmed),
            Phase::Standby if recent.is_some() && status.own_walsender.is_none() => {
                Some(Step::Held { confirmed })
            }
            _ => None,
        };
        let counts = unconfirmed >= UNCONFIRMED_MIN_BYTES && !self.is_slot_foreign;
        let step = step.filter(|_| counts);
        let stood = self.slot.look(step, now);
        let is_working = recent.is_some_and(|sight| sight.holder.is_working);
        let working = self.working.look(is_working.then_some(confirmed), now);
        let is_explained = match step? {
            Step::Checkpoint { .. } => status.flow.is_writing,
            step => step.is_servers() && is_working && working < WORK_MAX,
        };
        if stood < self.slot_limit || is_explained {
            return None;
        }
        Some(format!(
            "the slot stands still at {confirmed} for {} s, {unconfirmed} bytes of WAL are \
             unconfirmed: {}",
            stood.as_secs(),
            step?.describe()
        ))
    }
}

/// How far the server has written, and what it has noted as confirmed. While
/// nobody asks it, nobody knows better than we what it was told.
fn positions(status: &PipelineStatus, recent: Option<&SlotSight>) -> (Lsn, Lsn) {
    let Some(sight) = &status.slot else { return (status.received, status.confirmed) };
    let noted = sight.confirmed.unwrap_or(status.confirmed);
    match recent {
        Some(_) => (sight.wal.max(status.received), noted),
        None => (sight.wal.max(status.received), noted.max(status.confirmed)),
    }
}

/// What the server says, if it was said lately.
fn recent(status: &PipelineStatus, now: Instant) -> Option<&SlotSight> {
    let sight = status.slot.as_ref()?;
    (now.saturating_duration_since(sight.at) <= SIGHT_MAX_AGE).then_some(sight)
}

/// The slot is not there any more, or of no use. What was seen before the
/// session had the slot does not count.
fn gone(status: &PipelineStatus) -> Option<String> {
    let sight = status.slot.as_ref()?;
    if status.working_since().is_some_and(|since| sight.at < since) {
        return None;
    }
    gone_as(sight)
}

fn gone_as(sight: &SlotSight) -> Option<String> {
    let state = match sight.state {
        SlotState::Lost => "given up by the server",
        SlotState::Missing => "gone",
        SlotState::Reserved | SlotState::Extended | SlotState::Unreserved => return None,
    };
    let why = sight.invalidation.as_ref().map_or_else(String::new, |why| format!(" ({why})"));
    Some(format!("the slot is {state}{why}; `walpost check` says how to go on"))
}

/// The process of the server that holds the slot.
fn held_by(status: &PipelineStatus) -> Option<i32> {
    status.slot.as_ref()?.active_pid
}

/// The slot's holder and its client's last sign of life, for one who stands by
/// and whose role may see it.
fn foreign_holder(status: &PipelineStatus) -> Option<(i32, i64)> {
    let sight = status.slot.as_ref().filter(|_| status.phase == Phase::Standby)?;
    let holder = sight.active_pid.zip(sight.holder.reported_us)?;
    (!sight.holder.is_working).then_some(holder)
}

fn sink_stuck(status: &PipelineStatus, sink_for: Duration) -> String {
    let oldest = status.flow.oldest.as_ref();
    let event = oldest.map_or_else(|| "an event".to_owned(), |oldest| oldest.describe());
    format!(
        "the sink has not taken an event for {} s: {event}; {} events wait with it",
        sink_for.as_secs(),
        status.flow.pending
    )
}

#[cfg(test)]
mod tests;

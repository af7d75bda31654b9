use std::time::{Duration, Instant};

use tokio::sync::watch;
use walpost_event::Lsn;

use crate::{
    polling::PollingSight,
    sight::{Flow, SlotSight},
};

/// What a pipeline is doing: for the readiness probe, the CLI and tests.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct PipelineStatus {
    /// What it is doing now.
    pub phase: Phase,
    /// Where the server wrote its WAL when a session last began.
    pub written: Lsn,
    /// Everything below was received.
    pub received: Lsn,
    /// Everything below is durable in the sink or parked.
    pub done: Lsn,
    /// What the slot was told.
    pub confirmed: Lsn,
    /// Rows from before the slot that were read since the process began.
    pub loaded: u64,
    /// Events that the sink has acknowledged since the process began.
    pub published: u64,
    /// Events parked since the process began.
    pub parked: u64,
    /// Events that the sink has not acknowledged yet.
    pub outstanding: u64,
    /// Commit time of the oldest event that is neither durable nor parked, in
    /// microseconds since 1970.
    pub oldest_pending_us: Option<i64>,
    /// What keeps the sink from accepting anything now.
    pub trouble: Option<String>,
    /// Which other pipeline has to publish something first, while reading waits
    /// for it, or why the schema registry does not answer.
    pub waits: Option<String>,
    /// Sessions that ended with an error since the process began.
    pub failed_sessions: u64,
    /// What the server last said of the slot, which is asked every two seconds
    /// on a session of its own.
    pub slot: Option<SlotSight>,
    /// What a polling pipeline has seen in its outbox table, which it counts
    /// every two seconds.
    pub polling: Option<PollingSight>,
    /// `system_identifier` of the server that the pipeline last found.
    pub(crate) system_id: Option<String>,
    pub(crate) flow: Flow,
    /// The rows from before the slot were published since the process began.
    pub(crate) has_loaded: bool,
    /// Process of the server that our session streamed from last.
    pub(crate) walsender: Option<i32>,
    /// Process of the server that the session at hand streams from, or will.
    pub(crate) own_walsender: Option<i32>,
    /// The slot is held for a session that this relay has lost, and for no other
    /// relay.
    pub(crate) awaits_own: bool,
    pub(crate) start: StartClock,
    work: Option<Work>,
}

impl PipelineStatus {
    /// Since when the session publishes, if it does.
    pub(crate) fn working_since(&self) -> Option<Instant> {
        self.work.map(|work| work.since)
    }
}

/// How long a start has waited for servers, for `start_timeout_ms`. What has a
/// bound of its own does not count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StartClock {
    /// When it began; `None` where nobody counts.
    pub(crate) began: Option<Instant>,
    /// What is done now.
    step: StartStep,
    step_since: Option<Instant>,
    /// Spent in steps with a bound of their own.
    excused: Duration,
}

/// What a start does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum StartStep {
    /// It connects to the database and checks what it finds, or waits to try again.
    #[default]
    Database,
    /// It connects to the sink.
    Sink,
    /// It makes the slot, reads topics back or publishes rows, each with a bound
    /// of its own.
    Work,
}

impl StartClock {
    fn enter(&mut self, step: StartStep, now: Instant) {
        if let (StartStep::Work, Some(since)) = (self.step, self.step_since) {
            self.excused += now.saturating_duration_since(since);
        }
        (self.step, self.step_since) = (step, Some(now));
    }

    pub(crate) fn step(&self) -> StartStep {
        self.step
    }

    /// How long servers were waited for.
    pub(crate) fn waited(&self, now: Instant) -> Duration {
        let since = |since: Option<Instant>| {
            since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
        };
        let work =
            if self.step == StartStep::Work { since(self.step_since) } else { Duration::ZERO };
        since(self.began).saturating_sub(self.excused + work)
    }
}

/// What a session began with, once it publishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Work {
    since: Instant,
    confirmed: Lsn,
}

/// A session that has published for as long as the longest wait between two
/// was worth its start.
const WORKED_MIN: Duration = Duration::from_secs(30);

impl Work {
    /// What was only sent does not count: a session that fails before its
    /// first checkpoint sends the same again.
    fn is_worth_it(self, confirmed: Lsn, now: Instant) -> bool {
        confirmed > self.confirmed || now.duration_since(self.since) >= WORKED_MIN
    }
}

/// What a pipeline is doing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// Connecting and checking.
    #[default]
    Starting,
    /// Another relay has the slot; this one waits to take over.
    Standby,
    /// Publishing the rows that were there before the slot.
    Loading,
    /// Publishing from the WAL.
    Streaming,
    /// Waiting to try again.
    Waiting {
        /// Why the last session ended.
        error: String,
    },
    /// Held back by whoever would run it.
    Paused,
    /// Stopped for good.
    Stopped,
}

impl Phase {
    /// One word.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Standby => "standby",
            Self::Loading => "loading",
            Self::Streaming => "streaming",
            Self::Waiting { .. } => "waiting",
            Self::Paused => "paused",
            Self::Stopped => "stopped",
        }
    }
}

/// Notices that trouble is over, looking now and then.
#[derive(Debug, Default)]
pub(crate) struct TroubleWatch {
    since: Option<(Instant, u64)>,
}

impl TroubleWatch {
    /// How long there was trouble, once, when it is over. That the sink says
    /// nothing is not enough, as one that was just connected does: an event
    /// must have been acknowledged since.
    pub(crate) fn look(&mut self, status: &PipelineStatus, now: Instant) -> Option<Duration> {
        if status.trouble.is_some() {
            let since = self.since.map_or(now, |(since, _)| since);
            self.since = Some((since, status.published));
            return None;
        }
        let (since, published) = self.since?;
        if status.published <= published {
            return None;
        }
        self.since = None;
        Some(now.duration_since(since))
    }
}

/// The writing half of a [`PipelineStatus`].
#[derive(Clone, Debug)]
pub(crate) struct StatusReporter {
    sender: watch::Sender<PipelineStatus>,
}

impl StatusReporter {
    pub(crate) fn new() -> (Self, watch::Receiver<PipelineStatus>) {
        let mut status = PipelineStatus::default();
        status.start.began = Some(Instant::now());
        let (sender, receiver) = watch::channel(status);
        (Self { sender }, receiver)
    }

    pub(crate) fn update(&self, change: impl FnOnce(&mut PipelineStatus)) {
        self.sender.send_modify(change);
    }

    /// The reading half.
    pub(crate) fn subscribe(&self) -> watch::Receiver<PipelineStatus> {
        self.sender.subscribe()
    }

    pub(crate) fn current(&self) -> PipelineStatus {
        self.sender.borrow().clone()
    }

    pub(crate) fn phase(&self, phase: Phase) {
        self.update(|status| status.phase = phase);
    }

    /// What a start does now.
    pub(crate) fn step(&self, step: StartStep) {
        self.update(|status| status.start.enter(step, Instant::now()));
    }

    /// Another relay has the slot, or the server holds it for a session that this
    /// one has lost. Whether that is new.
    pub(crate) fn standing_by(&self, awaits_own: bool) -> bool {
        let mut is_new = false;
        self.update(|status| {
            is_new = status.phase != Phase::Standby || status.awaits_own != awaits_own;
            status.phase = Phase::Standby;
            status.awaits_own = awaits_own;
        });
        is_new
    }

    /// A session begins.
    pub(crate) fn starting(&self) {
        self.update(|status| {
            // A relay that stands by tries every second and stays what it is.
            if status.phase != Phase::Standby {
                status.phase = Phase::Starting;
            }
            status.work = None;
            status.waits = None;
            status.own_walsender = None;
            status.start.enter(StartStep::Database, Instant::now());
        });
    }

    /// The session begins to publish, from `confirmed` on. Whether it takes
    /// over from another relay.
    pub(crate) fn working(&self, phase: Phase, confirmed: Lsn) -> bool {
        let mut stood_by = false;
        self.update(|status| {
            stood_by = status.phase == Phase::Standby && !status.awaits_own;
            status.phase = phase;
            status.start.enter(StartStep::Work, Instant::now());
            status.confirmed = confirmed;
            status.flow = Flow::default();
            status.work = Some(Work { since: Instant::now(), confirmed });
        });
        stood_by
    }

    /// The session has ended; whether it had done anything that lasts. What it
    /// left undone stays in the status, and gets older.
    pub(crate) fn ended(&self) -> bool {
        let mut worked = false;
        self.update(|status| {
            status.outstanding = 0;
            status.trouble = None;
            status.flow = Flow::default();
            status.own_walsender = None;
            status.start.enter(StartStep::Database, Instant::now());
            let work = status.work.take();
            worked = work.is_some_and(|work| work.is_worth_it(status.confirmed, Instant::now()));
        });
        worked
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_worth_its_start_by_time_or_by_what_lasts() {
        let since = Instant::now();
        let work = Work { since, confirmed: Lsn::from(10) };
        let soon = since + WORKED_MIN - Duration::from_millis(1);
        assert!(!work.is_worth_it(Lsn::from(10), soon));
        assert!(work.is_worth_it(Lsn::from(11), since));
        assert!(work.is_worth_it(Lsn::from(10), since + WORKED_MIN));
    }

    #[test]
    fn standing_by_and_taking_over_are_each_new_once() {
        let (reporter, _receiver) = StatusReporter::new();
        reporter.starting();
        assert!(reporter.standing_by(false));
        for _ in 0..3 {
            reporter.starting();
            reporter.ended();
            assert!(!reporter.standing_by(false));
        }
        reporter.starting();
        assert!(reporter.working(Phase::Streaming, Lsn::from(10)));
        assert!(!reporter.working(Phase::Streaming, Lsn::from(10)));
        assert!(reporter.standing_by(false));
    }

    #[test]
    fn a_start_counts_its_waits_for_servers_and_no_work_that_has_a_bound_of_its_own() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let waited = |clock: &StartClock, seconds| clock.waited(at(seconds)).as_secs();
        let mut clock = StartClock { began: Some(begin), ..StartClock::default() };
        assert_eq!(waited(&clock, 3), 3);
        clock.enter(StartStep::Work, at(3));
        assert_eq!(waited(&clock, 600), 3);
        clock.enter(StartStep::Sink, at(600));
        assert_eq!((waited(&clock, 602), clock.step()), (5, StartStep::Sink));
        clock.enter(StartStep::Work, at(602));
        clock.enter(StartStep::Database, at(700));
        assert_eq!(waited(&clock, 710), 15);
        assert_eq!(StartClock::default().waited(at(9)), Duration::ZERO);
    }

    #[test]
    fn trouble_is_over_once_an_event_got_through() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let mut watch = TroubleWatch::default();
        let mut status = PipelineStatus { published: 5, ..PipelineStatus::default() };
        assert_eq!(watch.look(&status, at(0)), None);
        status.trouble = Some("t".into());
        assert_eq!(watch.look(&status, at(1)), None);
        // One topic is in trouble, another is not.
        status.published = 6;
        assert_eq!(watch.look(&status, at(2)), None);
        status.trouble = None;
        assert_eq!(watch.look(&status, at(3)), None, "a new session knows of none yet");
        status.published = 7;
        assert_eq!(watch.look(&status, at(4)), Some(Duration::from_secs(3)));
        status.published = 8;
        assert_eq!(watch.look(&status, at(5)), None, "said once");
    }

    #[test]
    fn what_only_a_session_has_ends_with_it() {
        let (reporter, receiver) = StatusReporter::new();
        reporter.starting();
        assert!(!reporter.ended(), "nothing was published");
        reporter.working(Phase::Streaming, Lsn::from(10));
        reporter.update(|status| {
            status.outstanding = 3;
            status.trouble = Some("t".into());
            status.oldest_pending_us = Some(7);
            status.published = 100;
        });
        assert!(!reporter.ended(), "nothing was confirmed");
        let status = receiver.borrow().clone();
        assert_eq!((status.outstanding, status.trouble), (0, None));
        assert_eq!(status.oldest_pending_us, Some(7), "the event still waits");
        reporter.working(Phase::Streaming, Lsn::from(10));
        reporter.update(|status| status.confirmed = Lsn::from(11));
        assert!(reporter.ended());
        assert!(!reporter.ended(), "counted once");
    }
}

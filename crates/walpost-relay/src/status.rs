use tokio::sync::watch;
use walpost_event::Lsn;

/// What a pipeline is doing: for the readiness probe, the CLI and tests.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct PipelineStatus {
    /// What it is doing now.
    pub phase: Phase,
    /// Everything below was received.
    pub received: Lsn,
    /// Everything below is durable in the sink or parked.
    pub done: Lsn,
    /// What the slot was told.
    pub confirmed: Lsn,
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
    /// Sessions that ended with an error since the process began.
    pub failed_sessions: u64,
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
            Self::Stopped => "stopped",
        }
    }
}

/// The writing half of a [`PipelineStatus`].
#[derive(Clone, Debug)]
pub(crate) struct StatusReporter {
    sender: watch::Sender<PipelineStatus>,
}

impl StatusReporter {
    pub(crate) fn new() -> (Self, watch::Receiver<PipelineStatus>) {
        let (sender, receiver) = watch::channel(PipelineStatus::default());
        (Self { sender }, receiver)
    }

    pub(crate) fn update(&self, change: impl FnOnce(&mut PipelineStatus)) {
        self.sender.send_modify(change);
    }

    pub(crate) fn current(&self) -> PipelineStatus {
        self.sender.borrow().clone()
    }

    pub(crate) fn phase(&self, phase: Phase) {
        self.update(|status| status.phase = phase);
    }
}

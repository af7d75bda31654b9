//! What a connector is to do, what it does, and what each request and each end
//! of a run makes of it. Pure: whoever has a [`Machine`] carries out its
//! [`Step`]s.

use std::time::Duration;

use walpost_event::RetrySchedule;

/// What a connector is to do, as it was asked for last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Target {
    /// It publishes.
    #[default]
    Running,
    /// It is there, and reads nothing. Its slot keeps its place, and the WAL.
    Paused,
    /// The same, without a task; what it has stored may be changed.
    Stopped,
}

/// A state as Kafka Connect names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// Its run begins, or waits for another process to leave the slot.
    Unassigned,
    /// It publishes.
    Running,
    /// As [`Target::Paused`].
    Paused,
    /// As [`Target::Stopped`].
    Stopped,
    /// Its run has ended by itself.
    Failed,
    /// It was told to begin anew, or tries again what has failed.
    Restarting,
}

/// What a run says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Report {
    /// It connects and checks.
    #[default]
    Starting,
    /// Another process has the slot; why, for people.
    Standby(String),
    /// It publishes.
    Working,
    /// It tries again by itself; what has failed, for people.
    Waiting(String),
}

/// Why a run has ended without being told to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunFailure {
    /// What has failed, with its causes and what to do; no secret.
    pub text: String,
    /// Whether the connector could not even begin: then it has no task.
    pub before_start: bool,
    /// Whether trying again may help without anybody changing something.
    pub may_heal: bool,
}

/// Of whom a restart is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Restart {
    /// Of the task too, which is what publishes.
    pub include_tasks: bool,
    /// Of what has failed alone.
    pub only_failed: bool,
}

/// What comes to a connector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// It is to do this from now on.
    Target(Target),
    /// It has another configuration.
    Reconfigured,
    /// The connector is to begin anew, as [`Restart`] says.
    Restart(Restart),
    /// Its task is to begin anew.
    RestartTask,
    /// The run of this number has ended; `Ok` where it was told to.
    Ended(u64, Result<(), RunFailure>),
    /// The run of this number says something.
    Reported(u64, Report),
    /// The wait that began with this number is over.
    RetryDue(u64),
    /// Everything ends: the process does, or does not lead any more.
    ShutDown,
}

/// What is to be done now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Begin a run of this number.
    Start(u64),
    /// Tell the run of this number to end.
    Stop(u64),
    /// Wait so long before [`Event::RetryDue`] with this number.
    RetryIn(u64, Duration),
}

/// One connector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    target: Target,
    run: Run,
    /// Of the last run or wait.
    number: u64,
    /// Runs that have ended by themselves since one has worked.
    failures: u32,
    is_restarting: bool,
    is_over: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Run {
    None,
    Active {
        report: Report,
        has_worked: bool,
    },
    /// Told to end.
    Ending {
        was: Report,
    },
    Failed {
        failure: RunFailure,
    },
}

/// What a connector and its task show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// Of the connector.
    pub connector: State,
    /// Of its task; `None` where it has none.
    pub task: Option<State>,
    /// What there is to say of the task, or of the connector without one.
    pub trace: Option<String>,
}

/// The first wait after a run has failed.
pub const RETRY_FIRST: Duration = Duration::from_secs(5);
/// The longest one.
pub const RETRY_LONGEST: Duration = Duration::from_secs(300);

const PAUSED: &str = "paused: nothing is read, and the connector's slot keeps WAL until it goes on";
const STOPPED: &str = "stopped: nothing is read, and the connector's slot, where it has one, keeps \
                       WAL until it goes on";

impl Machine {
    /// A connector that does nothing yet, and what to do first.
    pub fn new(target: Target) -> (Self, Option<Step>) {
        let mut machine = Self {
            target,
            run: Run::None,
            number: 0,
            failures: 0,
            is_restarting: false,
            is_over: false,
        };
        let step = machine.settle();
        (machine, step)
    }

    /// What it is to do.
    pub fn target(&self) -> Target {
        self.target
    }

    /// Whether nothing runs, and nothing begins by itself.
    pub fn is_idle(&self) -> bool {
        matches!(self.run, Run::None | Run::Failed { .. })
    }

    /// Takes what has come. `jitter` from 0 to 1 shortens waits.
    pub fn on(&mut self, event: Event, jitter: f64) -> Option<Step> {
        match event {
            Event::Target(target) => {
                self.target = target;
                self.is_restarting = false;
                self.settle()
            }
            Event::Reconfigured => self.anew(),
            Event::Restart(restart) => {
                let [connector, task] = self.restarted(restart);
                // A connector without its task does nothing that could begin anew.
                let has_failed = matches!(self.run, Run::Failed { .. });
                if task || (connector && has_failed) { self.anew() } else { None }
            }
            Event::RestartTask => self.anew(),
            Event::Ended(number, result) if number == self.number => self.ended(result, jitter),
            Event::Reported(number, report) if number == self.number => {
                self.reported(report);
                None
            }
            Event::RetryDue(number) if number == self.number => match self.run {
                Run::Failed { .. } => self.anew(),
                Run::None | Run::Active { .. } | Run::Ending { .. } => None,
            },
            Event::Ended(..) | Event::Reported(..) | Event::RetryDue(_) => None,
            Event::ShutDown => {
                self.is_over = true;
                self.settle()
            }
        }
    }

    /// Whether a restart is of the connector, and whether of its task.
    pub fn restarted(&self, restart: Restart) -> [bool; 2] {
        let Shown { connector, task, .. } = self.shown();
        let is_of = |state| !restart.only_failed || state == State::Failed;
        [is_of(connector), restart.include_tasks && task.is_some_and(is_of)]
    }

    /// What it shows.
    pub fn shown(&self) -> Shown {
        let both = |state, trace| Shown { connector: state, task: Some(state), trace };
        match (&self.run, self.target) {
            (Run::Active { report, .. } | Run::Ending { was: report }, _) => self.active(report),
            (Run::None, Target::Running) => both(self.beginning(), None),
            (_, Target::Paused) => both(State::Paused, Some(PAUSED.to_owned())),
            (_, Target::Stopped) => {
                Shown { connector: State::Stopped, task: None, trace: Some(STOPPED.to_owned()) }
            }
            (Run::Failed { failure }, Target::Running) => Shown {
                connector: if failure.before_start { State::Failed } else { State::Running },
                task: (!failure.before_start).then_some(State::Failed),
                trace: Some(failure.text.clone()),
            },
        }
    }

    fn active(&self, report: &Report) -> Shown {
        let (task, trace) = match report {
            Report::Starting => (self.beginning(), None),
            Report::Standby(why) => (State::Unassigned, Some(why.clone())),
            Report::Working if self.is_restarting => (State::Restarting, None),
            Report::Working => (State::Running, None),
            Report::Waiting(why) => (State::Restarting, Some(why.clone())),
        };
        Shown { connector: State::Running, task: Some(task), trace }
    }

    fn beginning(&self) -> State {
        if self.is_restarting { State::Restarting } else { State::Unassigned }
    }

    /// Ends what runs, if something does, and begins again.
    fn anew(&mut self) -> Option<Step> {
        if self.wants() {
            self.is_restarting = true;
        }
        if let Run::Active { report, .. } = &self.run {
            self.run = Run::Ending { was: report.clone() };
            return Some(Step::Stop(self.number));
        }
        if matches!(self.run, Run::Failed { .. }) {
            self.run = Run::None;
        }
        self.settle()
    }

    fn wants(&self) -> bool {
        self.target == Target::Running && !self.is_over
    }

    /// Makes what it does what it is to do.
    fn settle(&mut self) -> Option<Step> {
        match (&self.run, self.wants()) {
            (Run::None, true) => {
                self.number += 1;
                self.run = Run::Active { report: Report::Starting, has_worked: false };
                Some(Step::Start(self.number))
            }
            (Run::Active { report, .. }, false) => {
                self.run = Run::Ending { was: report.clone() };
                Some(Step::Stop(self.number))
            }
            // So that it begins at once when it is to run again.
            (Run::Failed { .. }, false) => {
                self.failures = 0;
                self.run = Run::None;
                None
            }
            // What ends begins again, if it is to, when it has ended.
            (Run::None | Run::Ending { .. }, _)
            | (Run::Active { .. } | Run::Failed { .. }, true) => None,
        }
    }

    fn ended(&mut self, result: Result<(), RunFailure>, jitter: f64) -> Option<Step> {
        let is_told = matches!(self.run, Run::Ending { .. });
        if let Run::Active { has_worked: true, .. } = self.run {
            self.failures = 0;
        }
        self.run = Run::None;
        let failure = match result {
            // It was told to end: how it did is of the past.
            _ if is_told => return self.settle(),
            Ok(()) => RunFailure {
                text: "it has ended without being told to".to_owned(),
                before_start: false,
                may_heal: true,
            },
            Err(failure) => failure,
        };
        self.is_restarting = false;
        self.failures += 1;
        let may_heal = failure.may_heal;
        self.run = Run::Failed { failure };
        let wait = RetrySchedule::backoff(RETRY_FIRST, RETRY_LONGEST).delay(self.failures, jitter);
        wait.filter(|_| may_heal).map(|wait| Step::RetryIn(self.number, wait))
    }

    fn reported(&mut self, said: Report) {
        match &mut self.run {
            Run::Active { report, has_worked } => {
                *has_worked |= said == Report::Working;
                if !matches!(said, Report::Starting | Report::Standby(_)) {
                    self.is_restarting = false;
                }
                *report = said;
            }
            // What it says in its end shows too.
            Run::Ending { was } => *was = said,
            Run::None | Run::Failed { .. } => {}
        }
    }
}

impl Target {
    /// As requests and the table have it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "RUNNING",
            Self::Paused => "PAUSED",
            Self::Stopped => "STOPPED",
        }
    }

    /// From what [`as_str`](Self::as_str) says.
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Running, Self::Paused, Self::Stopped].into_iter().find(|one| one.as_str() == text)
    }
}

impl State {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Unassigned,
        Self::Running,
        Self::Paused,
        Self::Stopped,
        Self::Failed,
        Self::Restarting,
    ];

    /// The word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unassigned => "UNASSIGNED",
            Self::Running => "RUNNING",
            Self::Paused => "PAUSED",
            Self::Stopped => "STOPPED",
            Self::Failed => "FAILED",
            Self::Restarting => "RESTARTING",
        }
    }
}

#[cfg(test)]
mod tests;

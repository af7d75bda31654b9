use std::fmt;

use walpost_consumer::{Event, Handler};

use crate::{
    Error, Report, Step, TableChange, TestDatabase,
    difference::{Comparing, compare, leave_out_unsteady, write_table},
    step::Fault,
    tables::{Scope, Snapshot, Table},
    world::{Plan, Setup, World},
};

/// Transactions that a disturbed run has at most; more events share them.
const MAX_TRANSACTIONS: usize = 20;

/// A way in which the same events can come to a handler. Under each of them the
/// effects have to be those of an undisturbed run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Way {
    /// Each event in a transaction of its own.
    OneByOne,
    /// Each event twice in a row, in one transaction.
    TwiceInARow,
    /// A copy of each event behind the event that follows it.
    Interleaved,
    /// All of them, and all once more at later offsets.
    AllAgain,
    /// All of them, and copies in another partition.
    OtherPartition,
    /// Half of them; then another consumer gets all.
    AfterRestart,
    /// The process dies at this step, in each transaction once.
    Crash(Step),
    /// The connection is lost at this step, in each transaction once, and the
    /// process lives on.
    Disconnect(Step),
    /// The process is paused at this step, another one takes the partitions over
    /// and applies everything, and the first wakes.
    TakeOver(Step),
}

impl Way {
    /// Those that interrupt transactions.
    pub const INTERRUPTED: [Self; 9] = [
        Self::Crash(Step::BeforeTransaction),
        Self::Crash(Step::BeforeHandler),
        Self::Crash(Step::BeforeCommit),
        Self::Crash(Step::AfterCommit),
        Self::Disconnect(Step::BeforeHandler),
        Self::Disconnect(Step::BeforeCommit),
        Self::TakeOver(Step::BeforeTransaction),
        Self::TakeOver(Step::BeforeHandler),
        Self::TakeOver(Step::BeforeCommit),
    ];
    /// Those in which events come otherwise.
    pub const REORDERED: [Self; 6] = [
        Self::OneByOne,
        Self::TwiceInARow,
        Self::Interleaved,
        Self::AllAgain,
        Self::OtherPartition,
        Self::AfterRestart,
    ];
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OneByOne => f.write_str("one by one"),
            Self::TwiceInARow => f.write_str("each twice in a row"),
            Self::Interleaved => f.write_str("a copy behind the next one"),
            Self::AllAgain => f.write_str("all once more"),
            Self::OtherPartition => f.write_str("copies in another partition"),
            Self::AfterRestart => f.write_str("half, a restart, and all"),
            Self::Crash(step) => write!(f, "a crash {step}"),
            Self::Disconnect(step) => write!(f, "a lost connection {step}"),
            Self::TakeOver(step) => write!(f, "a take-over {step}"),
        }
    }
}

/// What came of the same events in several ways, each on a database of its own.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Ways {
    /// The undisturbed run.
    pub undisturbed: Report,
    /// Each way.
    pub runs: Vec<WayRun>,
    /// Columns that were not compared, as `table.column`: drawn from sequences,
    /// referring to such, different in two undisturbed runs, or left out by you.
    pub left_out: Vec<String>,
}

/// What came of one way.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct WayRun {
    /// The way.
    pub way: Way,
    /// What became of the events.
    pub report: Report,
    /// What differs from the undisturbed run.
    pub changes: Vec<TableChange>,
    /// What else is wrong, `None` for nothing.
    pub problem: Option<String>,
}

impl WayRun {
    /// Whether the effects are those of the undisturbed run.
    pub fn is_same(&self) -> bool {
        self.changes.is_empty() && self.problem.is_none()
    }
}

impl Ways {
    /// Whether the effects are the same in each way.
    pub fn is_same(&self) -> bool {
        self.runs.iter().all(WayRun::is_same)
    }

    /// That the effects are the same in each way.
    ///
    /// # Panics
    /// With those that differ, and the rows, if not.
    #[track_caller]
    pub fn assert_same(&self) {
        assert!(self.is_same(), "the effects depend on how events come:{self}");
    }
}

/// The ways with what differs, one below the other.
impl fmt::Display for Ways {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for WayRun { way, report, changes, problem } in &self.runs {
            let verdict = if changes.is_empty() && problem.is_none() { "same" } else { "DIFFERS" };
            write!(f, "\n{way}: {verdict}; {} interruptions", report.interrupted)?;
            if let Some(problem) = problem {
                write!(f, "\n    {problem}")?;
            }
            write_table(f, changes)?;
        }
        if self.left_out.is_empty() {
            return Ok(());
        }
        write!(f, "\nnot compared: {}", self.left_out.join(", "))
    }
}

/// Runs each of `ways` and compares.
pub(crate) async fn compare_ways<H: Handler>(
    base: &TestDatabase,
    setup: &Setup<H>,
    scope: &Scope,
    contents: bool,
    (events, ways): (&[Event], &[Way]),
) -> Result<Ways, Error> {
    if events.is_empty() {
        return Err(Error::NoEvents);
    }
    let (undisturbed, one, mut tables) = run_undisturbed(base, setup, scope, events).await?;
    let (_, other, _) = run_undisturbed(base, setup, scope, events).await?;
    leave_out_unsteady(&mut tables, &one, &other).map_err(|table| Error::Unsteady { table })?;
    let mut came = Vec::new();
    for &way in ways {
        let world = World::copy_of(base).await?;
        let (report, problem) = come(&world, setup, way, events).await?;
        let after = scope.read(&world.client, &tables).await?;
        came.push((way, report, problem, after));
    }
    let how = Comparing { whole: false, contents };
    if came.iter().any(|(.., after)| !compare(&tables, &one, after, how).is_empty()) {
        // A clock of whole seconds, say, may have stood still before.
        let (_, late, _) = run_undisturbed(base, setup, scope, events).await?;
        leave_out_unsteady(&mut tables, &one, &late).map_err(|table| Error::Unsteady { table })?;
    }
    let runs = came.into_iter().map(|(way, report, problem, after)| {
        let changes = compare(&tables, &one, &after, how);
        let problem = problem.or_else(|| report.unfinished());
        WayRun { way, report, changes, problem }
    });
    let runs = runs.collect();
    let left_out = tables.iter().flat_map(|table| {
        let columns = table.columns.iter().filter(|column| column.left_out);
        columns.map(|column| format!("{}.{}", table.name, column.name))
    });
    Ok(Ways { undisturbed, runs, left_out: left_out.collect() })
}

async fn run_undisturbed<H: Handler>(
    base: &TestDatabase,
    setup: &Setup<H>,
    scope: &Scope,
    events: &[Event],
) -> Result<(Report, Snapshot, Vec<Table>), Error> {
    let world = World::copy_of(base).await?;
    let mut tables = scope.tables(&world.client).await?;
    tables.push(Table::parked());
    world.append(events, 0);
    let report = world.run(setup, Plan::default()).await?;
    if let Some(reason) = report.unfinished() {
        return Err(Error::Undisturbed { reason });
    }
    let snapshot = scope.read(&world.client, &tables).await?;
    Ok((report, snapshot, tables))
}

/// Has the events come in this way. What is wrong beside the effects.
async fn come<H: Handler>(
    world: &World,
    setup: &Setup<H>,
    way: Way,
    events: &[Event],
) -> Result<(Report, Option<String>), Error> {
    // One without an id cannot be told from its copy.
    let copied = || events.iter().filter(|event| !event.id().is_empty());
    let plan = Plan::default();
    let few = Plan { max_batch_events: Some(events.len().div_ceil(MAX_TRANSACTIONS)), ..plan };
    let report = match way {
        Way::OneByOne => {
            world.append(events, 0);
            world.run(setup, Plan { max_batch_events: Some(1), ..plan }).await?
        }
        Way::TwiceInARow => {
            for event in events {
                world.append([event], 0);
                world.append((!event.id().is_empty()).then_some(event), 0);
            }
            world.run(setup, plan).await?
        }
        Way::Interleaved => {
            world.append(&events[..1], 0);
            for pair in events.windows(2) {
                world.append(&pair[1..], 0);
                world.append((!pair[0].id().is_empty()).then_some(&pair[0]), 0);
            }
            world.run(setup, plan).await?
        }
        Way::AllAgain | Way::OtherPartition => {
            world.append(events, 0);
            let first = world.run(setup, plan).await?;
            let most = events.iter().map(Event::partition).max().unwrap_or_default();
            let higher = if way == Way::AllAgain { 0 } else { most + 1 };
            world.append(copied(), higher);
            first.followed_by(world.run(setup, plan).await?)
        }
        Way::AfterRestart => {
            let (half, rest) = events.split_at(events.len().div_ceil(2));
            world.append(half, 0);
            let first = world.run(setup, plan).await?;
            world.append(half.iter().filter(|event| !event.id().is_empty()), 0);
            world.append(rest, 0);
            first.followed_by(world.run(setup, plan).await?)
        }
        Way::Crash(step) => {
            world.append(events, 0);
            world.run(setup, Plan { fault: Some(Fault::Crash(step)), ..few }).await?
        }
        Way::Disconnect(step) => {
            world.append(events, 0);
            world.run(setup, Plan { fault: Some(Fault::Disconnect(step)), ..few }).await?
        }
        Way::TakeOver(step) => {
            world.append(events, 0);
            let plan = Plan { fault: Some(Fault::Pause(step)), ..few };
            let (report, refused) = world.take_over(setup, plan).await?;
            let problem = "the paused consumer committed effects after it was taken over";
            return Ok((report, (!refused).then(|| problem.to_owned())));
        }
    };
    Ok((report, None))
}

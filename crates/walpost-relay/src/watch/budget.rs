//! How much WAL a slot may keep, and when to say how much it keeps. Pure.

use crate::{
    sight::{SlotSight, SlotState},
    status::{Phase, PipelineStatus},
};

/// How much of what the slot may keep it keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WalBudget {
    /// What is kept, in bytes.
    pub retained_bytes: u64,
    /// What may be kept, in bytes.
    pub limit_bytes: u64,
    /// Who says so.
    pub set_by: BudgetSetting,
    /// The mark that was reached last.
    pub level: BudgetLevel,
}

/// Which setting bounds the WAL that is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BudgetSetting {
    /// The pipeline's own `wal_budget_bytes`.
    WalBudgetBytes,
    /// The server's `max_slot_wal_keep_size`.
    MaxSlotWalKeepSize,
}

/// How much of a budget is used. One is reached at its mark, and left 5 % of
/// the budget below it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum BudgetLevel {
    /// Less than a quarter.
    #[default]
    Calm,
    /// A quarter.
    Quarter,
    /// A half.
    Half,
    /// Three quarters.
    ThreeQuarters,
    /// All of it.
    Full,
}

/// The levels above the lowest, with their marks in percent.
const MARKS: [(BudgetLevel, u64); 4] = [
    (BudgetLevel::Quarter, 25),
    (BudgetLevel::Half, 50),
    (BudgetLevel::ThreeQuarters, 75),
    (BudgetLevel::Full, 100),
];
/// Below its mark a level is kept for so many percent, so that it does not
/// come and go with every segment.
const SLACK_PERCENT: u64 = 5;

impl WalBudget {
    /// `None` where nothing bounds the slot. `own_bytes` wins over
    /// `server_bytes`, the server's setting. Begins at the level that would be
    /// reached from below.
    pub fn new(
        retained_bytes: u64,
        own_bytes: Option<u64>,
        server_bytes: Option<u64>,
    ) -> Option<Self> {
        let (limit_bytes, set_by) = match (own_bytes, server_bytes) {
            (Some(bytes), _) => (bytes, BudgetSetting::WalBudgetBytes),
            (None, Some(bytes)) => (bytes, BudgetSetting::MaxSlotWalKeepSize),
            (None, None) => return None,
        };
        let level = next_level(BudgetLevel::Calm, retained_bytes, limit_bytes);
        Some(Self { retained_bytes, limit_bytes, set_by, level })
    }

    /// The same after `before`, whose level may still hold.
    pub(crate) fn after(self, before: BudgetLevel) -> Self {
        Self { level: next_level(before, self.retained_bytes, self.limit_bytes), ..self }
    }

    /// What is used, in percent, rounded down.
    pub fn percent(&self) -> u64 {
        percent(self.retained_bytes, self.limit_bytes)
    }
}

impl BudgetSetting {
    /// The setting as it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::WalBudgetBytes => "wal_budget_bytes",
            Self::MaxSlotWalKeepSize => "max_slot_wal_keep_size",
        }
    }
}

impl BudgetLevel {
    /// Its mark in percent, 0 for the lowest.
    pub fn percent(self) -> u64 {
        MARKS.iter().find(|(level, _)| *level == self).map_or(0, |(_, mark)| *mark)
    }
}

fn percent(used: u64, limit: u64) -> u64 {
    // A limit of nothing is used up by anything.
    let percent = u128::from(used) * 100 / u128::from(limit.max(1));
    u64::try_from(percent).unwrap_or(u64::MAX)
}

/// The level after `before`.
fn next_level(before: BudgetLevel, used: u64, limit: u64) -> BudgetLevel {
    let used = percent(used, limit);
    let holds = |(level, mark): &&(BudgetLevel, u64)| {
        let slack = if *level <= before { SLACK_PERCENT } else { 0 };
        used >= mark - slack
    };
    MARKS.iter().rev().find(holds).map_or(BudgetLevel::Calm, |(level, _)| *level)
}

/// What keeps the WAL, and what to do about it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Cause {
    pub(crate) why: String,
    pub(crate) next_step: &'static str,
}

/// `open` is the oldest transaction of the server, where it is known.
pub(crate) fn cause(
    status: &PipelineStatus,
    sight: &SlotSight,
    open: Option<&str>,
    now_us: i64,
) -> Cause {
    let cause = |why: String, next_step| Cause { why, next_step };
    if matches!(sight.state, SlotState::Missing | SlotState::Lost) {
        let why = format!("the slot is {}", sight.state.as_str());
        return cause(why, "run `walpost check`, which says how to go on");
    }
    match &status.phase {
        Phase::Standby => return standby(status, sight),
        Phase::Waiting { error } => {
            let why = format!("the pipeline is interrupted: {error}");
            return cause(why, "mend what the error names; the relay then goes on by itself");
        }
        Phase::Starting | Phase::Loading | Phase::Paused | Phase::Stopped => {
            let why = format!("the pipeline is {}", status.phase.as_str());
            return cause(why, "look at the log of `walpost run` for what it waits for");
        }
        Phase::Streaming => {}
    }
    if let Some(trouble) = &status.trouble {
        let why = format!("the sink is in trouble: {trouble}");
        return cause(why, "mend the brokers; the events wait in PostgreSQL until then");
    }
    let confirmed = sight.confirmed.unwrap_or_default();
    let before_confirmed = sight.restart.map_or(0, |restart| confirmed.bytes_since(restart));
    if before_confirmed >= sight.wal.bytes_since(confirmed) {
        return match open {
            Some(open) => cause(
                format!("{open} is open, and the slot keeps the WAL since it began"),
                "end that transaction, or wait for its end",
            ),
            None => cause(
                "nothing waits; the server moves the start of what it keeps with its next \
                 checkpoints"
                    .to_owned(),
                "wait, or look for old transactions in pg_stat_activity and pg_prepared_xacts",
            ),
        };
    }
    match &status.flow.oldest {
        Some(oldest) => {
            let since = status.oldest_pending_us.map_or_else(String::new, |since| {
                format!(", committed {} s ago", (now_us - since).max(0) / 1_000_000)
            });
            let why = format!(
                "{} events wait for the sink, the oldest is {}{since}",
                status.flow.pending,
                oldest.describe()
            );
            cause(why, "look whether the brokers keep up; the events wait in PostgreSQL until then")
        }
        None => cause(
            format!("the relay reads at {}, the server writes at {}", status.received, sight.wal),
            "wait for it to catch up; if it falls further behind, look at its CPU and at the \
             network",
        ),
    }
}

/// The same of a relay that stands by, or is about to take over.
fn standby(status: &PipelineStatus, sight: &SlotSight) -> Cause {
    if sight.active_pid.is_some() && sight.active_pid == status.own_walsender {
        return Cause {
            why: "this relay takes over, and has not published anything yet".to_owned(),
            next_step: "wait; if it goes on, look at the log of `walpost run`",
        };
    }
    let holder = sight.active_pid.map_or_else(String::new, |pid| format!(", process {pid}"));
    Cause {
        why: format!("another relay has the slot{holder}"),
        next_step: "look at the log and /ready of that relay",
    }
}

#[cfg(test)]
mod tests {
    use walpost_event::Lsn;

    use super::*;
    use crate::sight::{Oldest, testing::sight};

    #[test]
    fn a_level_is_reached_at_its_mark_and_left_below_it() {
        use BudgetLevel::{Calm, Full, Half, Quarter, ThreeQuarters};
        for (before, used, expected) in [
            (Calm, 0, Calm),
            (Calm, 249, Calm),
            (Calm, 250, Quarter),
            (Calm, 760, ThreeQuarters),
            (Calm, 5_000, Full),
            (Quarter, 240, Quarter),
            (Quarter, 200, Quarter),
            (Quarter, 199, Calm),
            (Half, 455, Half),
            (Half, 449, Quarter),
            (Half, 210, Quarter),
            (Half, 120, Calm),
            (ThreeQuarters, 700, ThreeQuarters),
            (ThreeQuarters, 699, Half),
            (Full, 950, Full),
            (Full, 949, ThreeQuarters),
        ] {
            assert_eq!(next_level(before, used, 1_000), expected, "{before:?}, {used}");
        }
    }

    #[test]
    fn around_a_mark_nothing_flaps() {
        let mut level = BudgetLevel::Calm;
        let mut changes = 0;
        for used in [490, 510, 480, 520, 470, 505, 460, 530] {
            let next = next_level(level, used, 1_000);
            changes += u32::from(next != level);
            level = next;
        }
        assert_eq!((changes, level), (2, BudgetLevel::Half));
    }

    #[test]
    fn our_own_budget_wins_and_without_any_there_is_none() {
        let own = WalBudget::new(30, Some(100), Some(1_000)).unwrap();
        assert_eq!((own.limit_bytes, own.set_by.as_str()), (100, "wal_budget_bytes"));
        assert_eq!((own.percent(), own.level), (30, BudgetLevel::Quarter));
        let server = WalBudget::new(30, None, Some(1_000)).unwrap();
        assert_eq!((server.percent(), server.set_by.as_str()), (3, "max_slot_wal_keep_size"));
        assert_eq!(WalBudget::new(30, None, None), None);
        assert_eq!(WalBudget::new(1, None, Some(0)).unwrap().level, BudgetLevel::Full);
        assert_eq!(WalBudget::new(u64::MAX, Some(1), None).unwrap().level, BudgetLevel::Full);
    }

    #[test]
    fn the_cause_names_what_holds_the_slot() {
        let why = |phase: Phase, change: fn(&mut PipelineStatus, &mut SlotSight)| {
            let mut status = PipelineStatus::default();
            status.phase = phase;
            let mut sight = sight(1_000);
            change(&mut status, &mut sight);
            cause(&status, &sight, Some("process 9"), 9_000_000).why
        };
        let lost = why(Phase::Streaming, |_, sight| sight.state = SlotState::Lost);
        assert_eq!(lost, "the slot is lost");
        let standby = why(Phase::Standby, |_, sight| sight.active_pid = Some(7));
        assert_eq!(standby, "another relay has the slot, process 7");
        let waiting = why(Phase::Waiting { error: "no route".into() }, |_, _| {});
        assert_eq!(waiting, "the pipeline is interrupted: no route");
        assert_eq!(why(Phase::Loading, |_, _| {}), "the pipeline is loading");
        let trouble = why(Phase::Streaming, |status, _| status.trouble = Some("no leader".into()));
        assert_eq!(trouble, "the sink is in trouble: no leader");
        let behind = why(Phase::Streaming, |_, sight| sight.confirmed = Some(Lsn::from(10)));
        assert!(behind.starts_with("the relay reads at 0/0, the server writes at 0/3E8"));
        let pending = why(Phase::Streaming, |status, sight| {
            sight.confirmed = Some(Lsn::from(10));
            status.oldest_pending_us = Some(2_000_000);
            status.flow.pending = 3;
            let position = walpost_event::Position { commit_lsn: Lsn::from(16), ordinal: 2 };
            status.flow.oldest = Some(Oldest { position, topic: Some("orders".into()) });
        });
        assert_eq!(
            pending,
            "3 events wait for the sink, the oldest is number 2 of the commit at 0/10, for \
             orders, committed 7 s ago"
        );
        let open = why(Phase::Streaming, |_, sight| {
            (sight.restart, sight.confirmed) = (Some(Lsn::from(10)), Some(Lsn::from(990)));
        });
        assert_eq!(open, "process 9 is open, and the slot keeps the WAL since it began");
    }
}

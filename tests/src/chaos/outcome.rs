use std::time::Duration;

use serde_json::{Value, json};
use walpost_testkit::Report;

/// What a run did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Rounds.
    pub rounds: u64,
    /// Relays killed.
    pub kills: u64,
    /// Brokers killed.
    pub broker_kills: u64,
    /// Servers stopped at once.
    pub postgres_stops: u64,
    /// Connections cut, or half open and then cut.
    pub cuts: u64,
    /// Transactions of which their writer was not told whether they are
    /// committed.
    pub unknown_commits: u64,
}

impl Counts {
    fn plus(self, other: Self) -> Self {
        Self {
            rounds: self.rounds + other.rounds,
            kills: self.kills + other.kills,
            broker_kills: self.broker_kills + other.broker_kills,
            postgres_stops: self.postgres_stops + other.postgres_stops,
            cuts: self.cuts + other.cuts,
            unknown_commits: self.unknown_commits + other.unknown_commits,
        }
    }
}

/// Some of many durations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spread {
    /// Half were shorter.
    pub p50: Duration,
    /// 99 of 100 were no longer.
    pub p99: Duration,
    /// The longest.
    pub max: Duration,
}

impl Spread {
    /// Zeros where there are none.
    #[must_use]
    pub fn of(mut all: Vec<Duration>) -> Self {
        all.sort_unstable();
        let at = |percent: usize| {
            let place = (all.len() * percent).div_ceil(100).max(1);
            all.get(place - 1).copied().unwrap_or_default()
        };
        Self { p50: at(50), p99: at(99), max: at(100) }
    }

    /// In milliseconds.
    #[must_use]
    pub fn json(&self) -> Value {
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        json!({ "p50": ms(self.p50), "p99": ms(self.p99), "max": ms(self.max) })
    }
}

/// What came of a run in one mode.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// How the relay published, or the peer.
    pub name: &'static str,
    /// What was done to it.
    pub counts: Counts,
    /// What the oracle says.
    pub report: Report,
    /// Events that are parked, and should not be.
    pub parked: u64,
    /// From each kill to the first record of an event that was written after it.
    pub recovery: Spread,
    /// How long it took.
    pub took: Duration,
    /// Whether the last relay ended well when it was told to.
    pub orderly_end: bool,
    /// Whether copies are no violation.
    pub copies_allowed: bool,
}

impl Outcome {
    /// What breaks the promise; empty if nothing does.
    #[must_use]
    pub fn violations(&self) -> Vec<String> {
        let Report { lost, published_twice, reordered, unknown, .. } = self.report;
        let copies = if self.copies_allowed { 0 } else { published_twice };
        let found = [
            (lost, "lost"),
            (copies, "published twice"),
            (reordered, "reordered"),
            (unknown, "published and not committed"),
            (self.parked, "parked"),
            (u64::from(!self.orderly_end), "end that was not orderly"),
        ];
        let wrong = found.iter().filter(|(count, _)| *count > 0);
        wrong.map(|(count, what)| format!("{}: {count} {what}", self.name)).collect()
    }

    /// The figures.
    #[must_use]
    pub fn json(&self) -> Value {
        let Counts { rounds, kills, broker_kills, postgres_stops, cuts, unknown_commits } =
            self.counts;
        json!({
            "rounds": rounds,
            "committed": self.report.committed,
            "lost": self.report.lost,
            "published_twice": self.report.published_twice,
            "reordered": self.report.reordered,
            "unknown": self.report.unknown,
            "parked": self.parked,
            "kills": kills,
            "broker_kills": broker_kills,
            "postgres_stops": postgres_stops,
            "cuts": cuts,
            "unknown_commits": unknown_commits,
            "recovery_ms": self.recovery.json(),
            "seconds": self.took.as_secs(),
        })
    }

    /// The figures of several runs: their sums, and each by itself.
    #[must_use]
    pub fn json_of_all(all: &[Self]) -> Value {
        let sum = |of: fn(&Self) -> u64| all.iter().map(of).sum::<u64>();
        let counts = all.iter().fold(Counts::default(), |sum, one| sum.plus(one.counts));
        let mut value = json!({
            "rounds": counts.rounds,
            "committed": sum(|one| one.report.committed),
            "lost": sum(|one| one.report.lost),
            "published_twice": sum(|one| one.report.published_twice),
            "reordered": sum(|one| one.report.reordered),
            "unknown": sum(|one| one.report.unknown),
            "parked": sum(|one| one.parked),
            "kills": counts.kills,
            "broker_kills": counts.broker_kills,
            "postgres_stops": counts.postgres_stops,
            "cuts": counts.cuts,
            "unknown_commits": counts.unknown_commits,
            "seconds": sum(|one| one.took.as_secs()),
        });
        for one in all {
            value[one.name] = one.json();
        }
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(report: Report, copies_allowed: bool) -> Outcome {
        Outcome {
            name: "idempotent",
            counts: Counts { rounds: 3, kills: 2, ..Counts::default() },
            report,
            parked: 0,
            recovery: Spread::default(),
            took: Duration::from_secs(9),
            orderly_end: true,
            copies_allowed,
        }
    }

    fn copied() -> Report {
        let committed = [walpost_testkit::Committed { id: "a".into(), aggregate: "x".into() }];
        let published = [0, 1].map(|offset| walpost_testkit::Published {
            id: "a".into(),
            partition: 0,
            offset,
        });
        walpost_testkit::judge(&committed, &published, None)
    }

    #[test]
    fn a_copy_is_a_violation_where_it_is_not_allowed() {
        assert_eq!(outcome(copied(), false).violations(), ["idempotent: 1 published twice"]);
        assert!(outcome(copied(), true).violations().is_empty());
    }

    #[test]
    fn the_line_has_the_sums_and_each_mode() {
        let value = Outcome::json_of_all(&[outcome(copied(), true), outcome(copied(), true)]);
        assert_eq!((&value["rounds"], &value["published_twice"]), (&json!(6), &json!(2)));
        assert_eq!(value["idempotent"]["kills"], json!(2));
    }

    #[test]
    fn the_ninety_ninth_of_few_is_the_longest() {
        let ms = Duration::from_millis;
        let spread = Spread::of((1..=30).map(ms).collect());
        assert_eq!((spread.p50, spread.p99, spread.max), (ms(15), ms(30), ms(30)));
        assert_eq!(Spread::of((1..=200).map(ms).collect()).p99, ms(198));
        assert_eq!(Spread::of(Vec::new()), Spread::default());
    }
}

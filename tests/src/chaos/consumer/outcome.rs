use std::{fmt::Write as _, fs, path::Path, time::Duration};

use serde_json::{Value, json};

use super::{
    production::Produced,
    stage::Stage,
    verdict::{Facts, Verdict},
    zombie::Refused,
};

/// What was done to the consumers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ConsumerCounts {
    pub(super) rounds: u64,
    pub(super) kills: u64,
    pub(super) zombies: u64,
    /// One joined and one left in each.
    pub(super) rebalances: u64,
    pub(super) broker_kills: u64,
    pub(super) postgres_stops: u64,
    /// Static ones that were fenced, and started again.
    pub(super) fenced: u64,
}

/// What came of a run.
#[derive(Clone, Debug)]
pub struct ConsumerOutcome {
    pub(super) verdict: Verdict,
    pub(super) counts: ConsumerCounts,
    pub(super) refused: Refused,
    pub(super) produced: Produced,
    pub(super) parked: u64,
    /// Whether every record was passed in the end.
    pub(super) arrived: bool,
    /// Whether all that were told to end did so well.
    pub(super) orderly: bool,
    pub(super) took: Duration,
}

impl ConsumerOutcome {
    /// What breaks the promise, or shows that the run proves nothing; empty if
    /// nothing does.
    #[must_use]
    pub fn violations(&self) -> Vec<String> {
        let Self { verdict, counts, refused, produced, .. } = self;
        let differ = |what: &str, is: u64, should: u64| {
            (is != should).then(|| format!("{is} {what} instead of {should}"))
        };
        let some = |what: &str, count: u64| (count > 0).then(|| format!("{count} {what}"));
        let found = [
            some("lost", verdict.lost),
            some("applied twice", verdict.applied_twice),
            some("reordered", verdict.reordered),
            some("effects of no event", verdict.unknown),
            some("records offered twice", verdict.offered_twice),
            some("records never offered", verdict.not_offered),
            some("parked", self.parked),
            differ("events in the topic", verdict.events, produced.events),
            differ("copies in the topic", verdict.copies, produced.copies),
            differ("deduplication hits", verdict.dedup_hits, produced.copies),
            (!self.arrived).then(|| "the end was not reached".to_owned()),
            (!self.orderly).then(|| "an end that was not orderly".to_owned()),
            (verdict.ordered_keys == 0).then(|| "no key whose order can be judged".to_owned()),
            (counts.zombies > 0 && refused.all() == 0)
                .then(|| format!("{} zombies and no refusal", counts.zombies)),
        ];
        found.into_iter().flatten().collect()
    }

    /// Commits of zombies that the database has refused.
    #[must_use]
    pub fn zombie_commits_refused(&self) -> u64 {
        self.refused.all()
    }

    /// The figures, those of the promise first.
    #[must_use]
    pub fn figures(&self) -> Vec<(&'static str, Value)> {
        let Self { verdict, counts, refused, produced, .. } = self;
        vec![
            ("events", json!(verdict.events)),
            ("lost", json!(verdict.lost)),
            ("applied_twice", json!(verdict.applied_twice)),
            ("reordered", json!(verdict.reordered)),
            ("zombie_commits_refused", json!(refused.all())),
            ("refused_by_epoch", json!(refused.by_epoch)),
            ("ended_by_successor", json!(refused.ended)),
            ("planted_copies", json!(produced.copies)),
            ("dedup_hits", json!(verdict.dedup_hits)),
            ("ordered_keys", json!(verdict.ordered_keys)),
            ("rounds", json!(counts.rounds)),
            ("kills", json!(counts.kills)),
            ("zombies", json!(counts.zombies)),
            ("rebalances", json!(counts.rebalances)),
            ("broker_kills", json!(counts.broker_kills)),
            ("postgres_stops", json!(counts.postgres_stops)),
            ("static_members_fenced", json!(counts.fenced)),
            ("parked", json!(self.parked)),
            ("seconds", json!(self.took.as_secs())),
        ]
    }

    /// What is wrong, with coordinates.
    #[must_use]
    pub fn examples(&self) -> &[String] {
        &self.verdict.examples
    }

    /// Keeps the evidence of a violation, or removes the logs.
    pub(super) fn conclude(&self, stage: &Stage, facts: &Facts) {
        let folder = &stage.setting.folder;
        if self.violations().is_empty() {
            if !stage.setting.keep {
                drop(fs::remove_dir_all(folder));
            }
            return;
        }
        let mut verdict = format!("seed {}\n{self:#?}\n", stage.setting.seed);
        for violation in self.violations() {
            writeln!(verdict, "{violation}").expect("a string takes all");
        }
        write(folder, "verdict.txt", &verdict);
        let mut text = "partition\toffset\tkey\tid\n".to_owned();
        for record in &facts.records {
            let (partition, offset) = (record.partition, record.offset);
            writeln!(text, "{partition}\t{offset}\t{}\t{}", record.key, record.id)
                .expect("a string takes all");
        }
        write(folder, "records.tsv", &text);
        let mut text = "key\tseq\tid\n".to_owned();
        for row in &facts.effects {
            writeln!(text, "{}\t{}\t{}", row.key, row.seq, row.id).expect("a string takes all");
        }
        write(folder, "effects.tsv", &text);
        for (name, path) in stage.server_logs() {
            drop(fs::copy(path, folder.join(name)));
        }
        eprintln!("chaos: the evidence is in {}", folder.display());
    }
}

fn write(folder: &Path, name: &str, text: &str) {
    if let Err(error) = fs::write(folder.join(name), text) {
        eprintln!("chaos: cannot keep {name}: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome() -> ConsumerOutcome {
        ConsumerOutcome {
            verdict: Verdict {
                events: 10,
                copies: 1,
                dedup_hits: 1,
                ordered_keys: 2,
                ..Verdict::default()
            },
            counts: ConsumerCounts { rounds: 3, zombies: 1, ..ConsumerCounts::default() },
            refused: Refused { by_epoch: 1, ended: 1 },
            produced: Produced { events: 10, copies: 1 },
            parked: 0,
            arrived: true,
            orderly: true,
            took: Duration::from_secs(9),
        }
    }

    #[test]
    fn a_run_without_fault_has_no_violation_and_begins_with_the_promise() {
        assert_eq!(outcome().violations(), [""; 0]);
        let names: Vec<_> = outcome().figures().iter().map(|(name, _)| *name).collect();
        let promised = ["events", "lost", "applied_twice", "reordered", "zombie_commits_refused"];
        assert_eq!(names[..5], promised);
        assert_eq!(outcome().zombie_commits_refused(), 2);
    }

    #[test]
    fn whatever_is_wrong_is_a_violation() {
        let changes: [fn(&mut ConsumerOutcome); 12] = [
            |outcome| outcome.verdict.lost = 1,
            |outcome| outcome.verdict.applied_twice = 1,
            |outcome| outcome.verdict.reordered = 1,
            |outcome| outcome.verdict.unknown = 1,
            |outcome| outcome.verdict.offered_twice = 1,
            |outcome| outcome.verdict.not_offered = 1,
            |outcome| outcome.verdict.dedup_hits = 2,
            |outcome| outcome.verdict.ordered_keys = 0,
            |outcome| outcome.parked = 1,
            |outcome| outcome.arrived = false,
            |outcome| outcome.refused = Refused::default(),
            |outcome| outcome.produced.events = 11,
        ];
        for (index, change) in changes.into_iter().enumerate() {
            let mut outcome = outcome();
            change(&mut outcome);
            assert_eq!(outcome.violations().len(), 1, "change {index}");
        }
    }
}

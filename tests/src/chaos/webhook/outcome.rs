use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs,
    time::Duration,
};

use serde_json::{Value, json};

use super::{blows::WebhookBlow, run::WebhookSetting};

/// The sources of one event at the receiver.
const SOURCES: [&str; 2] = ["inline", "inbox"];
const EXAMPLES_MAX: usize = 20;

/// What was read at the end.
#[derive(Clone, Debug, Default)]
pub(super) struct Facts {
    /// Ids of events in the outbox.
    pub(super) committed: BTreeSet<String>,
    /// Source and id, for each effect.
    pub(super) effects: Vec<(String, String)>,
    pub(super) deliveries: u64,
    /// Of all deliveries.
    pub(super) attempts: u64,
}

/// What came of a run.
#[derive(Clone, Debug)]
pub struct WebhookOutcome {
    events: u64,
    lost: u64,
    applied_twice: u64,
    /// Effects of no event.
    unknown: u64,
    deliveries: u64,
    /// Attempts beside one for each delivery.
    sent_again: u64,
    counts: BTreeMap<WebhookBlow, u64>,
    arrived: bool,
    orderly: bool,
    took: Duration,
    examples: Vec<String>,
}

impl WebhookOutcome {
    pub(super) fn of(
        facts: &Facts,
        counts: BTreeMap<WebhookBlow, u64>,
        arrived: bool,
        orderly: bool,
        took: Duration,
    ) -> Self {
        let mut seen: BTreeMap<(&str, &str), u64> = BTreeMap::new();
        for (source, id) in &facts.effects {
            *seen.entry((source, id)).or_default() += 1;
        }
        let mut examples = Vec::new();
        let mut count = |what: &str, found: Vec<String>| {
            let named = found.iter().map(|one| format!("{what}: {one}"));
            examples.extend(named.take(EXAMPLES_MAX));
            found.len() as u64
        };
        let expected = || SOURCES.iter().flat_map(|of| facts.committed.iter().map(|id| (*of, id)));
        let lost = expected().filter(|(source, id)| !seen.contains_key(&(*source, id.as_str())));
        let lost = count("lost", lost.map(|(source, id)| format!("{source} {id}")).collect());
        let twice = seen.iter().filter(|(_, count)| **count > 1);
        let twice = twice.map(|((source, id), count)| format!("{source} {id}, {count} times"));
        let applied_twice = count("applied twice", twice.collect());
        let unknown = seen.keys().filter(|(_, id)| !facts.committed.contains(*id));
        let unknown = unknown.map(|(source, id)| format!("{source} {id}"));
        let unknown = count("of no event", unknown.collect());
        Self {
            events: facts.committed.len() as u64,
            lost,
            applied_twice,
            unknown,
            deliveries: facts.deliveries,
            sent_again: facts.attempts.saturating_sub(facts.deliveries),
            counts,
            arrived,
            orderly,
            took,
            examples,
        }
    }

    /// What breaks the promise, or shows that the run proves nothing; empty if
    /// nothing does.
    #[must_use]
    pub fn violations(&self) -> Vec<String> {
        let some = |what: &str, count: u64| (count > 0).then(|| format!("{count} {what}"));
        let expected = self.events * SOURCES.len() as u64;
        let found = [
            some("lost", self.lost),
            some("applied twice", self.applied_twice),
            some("effects of no event", self.unknown),
            (self.deliveries != expected)
                .then(|| format!("{} deliveries instead of {expected}", self.deliveries)),
            (!self.arrived).then(|| "the end was not reached".to_owned()),
            (!self.orderly).then(|| "an end that was not orderly".to_owned()),
            (self.sent_again == 0).then(|| "nothing was sent again: nothing is shown".to_owned()),
            (self.events == 0).then(|| "no event".to_owned()),
        ];
        found.into_iter().flatten().collect()
    }

    /// The figures, those of the promise first.
    #[must_use]
    pub fn figures(&self) -> Vec<(String, Value)> {
        let named = |name: &str, value: Value| (name.to_owned(), value);
        let mut figures = vec![
            named("events", json!(self.events)),
            named("lost", json!(self.lost)),
            named("applied_twice", json!(self.applied_twice)),
            named("deliveries", json!(self.deliveries)),
            named("sent_again", json!(self.sent_again)),
            named("rounds", json!(self.counts.values().sum::<u64>())),
        ];
        let of_blow = |(blow, count): (&WebhookBlow, &u64)| {
            let name = blow.to_string().replace([',', '\''], "").replace(' ', "_");
            (name, json!(count))
        };
        figures.extend(self.counts.iter().map(of_blow));
        figures.push(named("seconds", json!(self.took.as_secs())));
        figures
    }

    /// What is wrong, with coordinates.
    #[must_use]
    pub fn examples(&self) -> &[String] {
        &self.examples
    }

    /// Keeps the evidence of a violation, or removes the logs.
    pub(super) fn conclude(&self, setting: &WebhookSetting, facts: &Facts) {
        let violations = self.violations();
        if violations.is_empty() {
            if !setting.keep {
                drop(fs::remove_dir_all(&setting.folder));
            }
            return;
        }
        let mut text = format!("seed {}\n{self:#?}\n{}\n", setting.seed, violations.join("\n"));
        for (source, id) in &facts.effects {
            writeln!(text, "{source}\t{id}").expect("a string takes all");
        }
        if let Err(error) = fs::write(setting.folder.join("verdict.txt"), text) {
            eprintln!("chaos: cannot keep the verdict: {error}");
        }
        eprintln!("chaos: the evidence is in {}", setting.folder.display());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts() -> Facts {
        let ids = ["a", "b"].map(str::to_owned);
        let effects =
            SOURCES.iter().flat_map(|of| ids.iter().map(|id| ((*of).to_owned(), id.clone())));
        Facts {
            effects: effects.collect(),
            committed: ids.into_iter().collect(),
            deliveries: 4,
            attempts: 5,
        }
    }

    fn outcome(facts: &Facts) -> WebhookOutcome {
        let counts = BTreeMap::from([(WebhookBlow::SenderKill, 3)]);
        WebhookOutcome::of(facts, counts, true, true, Duration::from_secs(9))
    }

    #[test]
    fn a_run_without_fault_has_no_violation_and_begins_with_the_promise() {
        let outcome = outcome(&facts());
        assert_eq!(outcome.violations(), [""; 0]);
        let figures = outcome.figures();
        let names: Vec<&str> = figures.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names[..3], ["events", "lost", "applied_twice"]);
        assert!(names.contains(&"sender_killed"), "{names:?}");
    }

    #[test]
    fn whatever_is_wrong_is_a_violation() {
        let changes: [fn(&mut Facts); 5] = [
            |facts| drop(facts.effects.pop()),
            |facts| facts.effects.push(("inline".to_owned(), "a".to_owned())),
            |facts| facts.effects.push(("inline".to_owned(), "c".to_owned())),
            |facts| facts.deliveries = 5,
            |facts| facts.attempts = 4,
        ];
        for (index, change) in changes.into_iter().enumerate() {
            let mut facts = facts();
            change(&mut facts);
            let found = outcome(&facts);
            assert!(!found.violations().is_empty(), "change {index}");
        }
        let mut found = outcome(&facts());
        (found.arrived, found.orderly) = (false, false);
        assert_eq!(found.violations().len(), 2);
    }
}

use std::collections::BTreeMap;

use walpost_tests::differential::{Group, Outcome, Tally};

/// A line for each group of cases.
pub(crate) fn groups(outcomes: &[Outcome]) {
    let mut groups: BTreeMap<Group, (usize, Tally)> = BTreeMap::new();
    for outcome in outcomes {
        let (cases, tally) = groups.entry(outcome.group).or_default();
        *cases += 1;
        tally.add(outcome.tally.clone());
    }
    let [cases, compared, equal] = ["cases", "compared", "equal"];
    println!("{:<12}{cases:>7}{compared:>10}{equal:>8}  documented  unexplained", "group");
    for (group, (cases, tally)) in &groups {
        let (documented, unexplained) = (tally.documented(), tally.unexplained.len());
        let Tally { compared, equal, .. } = tally;
        println!("{group:<12}{cases:>7}{compared:>10}{equal:>8}{documented:>12}{unexplained:>13}");
    }
}

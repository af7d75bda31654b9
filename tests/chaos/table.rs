use walpost_tests::chaos::{Outcome, Spread};

/// What came of runs, one column each.
pub(crate) fn outcomes(all: &[Outcome]) {
    let line = |name: &str, cell: &dyn Fn(&Outcome) -> String| {
        let cells: String = all.iter().map(|one| format!("{:>16}", cell(one))).collect();
        println!("{name:<28}{cells}");
    };
    line("", &|one| one.name.to_owned());
    line("rounds", &|one| one.counts.rounds.to_string());
    line("  relays killed", &|one| one.counts.kills.to_string());
    line("  brokers killed", &|one| one.counts.broker_kills.to_string());
    line("  PostgreSQL stopped", &|one| one.counts.postgres_stops.to_string());
    line("  connections cut", &|one| one.counts.cuts.to_string());
    line("commits of unknown outcome", &|one| one.counts.unknown_commits.to_string());
    line("events committed", &|one| one.report.committed.to_string());
    line("  published", &|one| one.report.published.to_string());
    line("  lost", &|one| one.report.lost.to_string());
    line("  published twice", &|one| one.report.published_twice.to_string());
    line("  reordered", &|one| one.report.reordered.to_string());
    line("  never committed", &|one| one.report.unknown.to_string());
    line("  parked", &|one| one.parked.to_string());
    line("publishing again, p50 ms", &|one| one.recovery.p50.as_millis().to_string());
    line("publishing again, p99 ms", &|one| one.recovery.p99.as_millis().to_string());
    line("seconds", &|one| one.took.as_secs().to_string());
    let broken = all.iter().filter(|one| !one.violations().is_empty());
    for example in broken.flat_map(|one| &one.report.examples) {
        println!("  {example}");
    }
}

pub(crate) fn spread(name: &str, of: &Spread) {
    let [p50, p99, max] = [of.p50, of.p99, of.max].map(|time| time.as_millis());
    println!("{name}: p50 {p50} ms, p99 {p99} ms, at most {max} ms");
}

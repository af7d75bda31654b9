//! What is kept of a run that broke the promise, for who looks for the cause.

use std::{fmt::Write as _, fs, path::Path};

use walpost_testkit::{Committed, ReadRecord};

use super::{outcome::Outcome, stage::Stage};

/// Writes everything beside the logs of the relays, which are there already.
pub(super) fn keep(stage: &Stage, outcome: &Outcome, committed: &[Committed], read: &[ReadRecord]) {
    let folder = &stage.setting.folder;
    let verdict = format!(
        "seed {}, {}\n{:?}\n{}\n",
        stage.setting.seed, outcome.name, outcome.counts, outcome.report
    );
    write(folder, "verdict.txt", &verdict);
    let mut text = "aggregate\tid\n".to_owned();
    for Committed { id, aggregate } in committed {
        writeln!(text, "{aggregate}\t{id}").expect("a string takes all");
    }
    write(folder, "committed.tsv", &text);
    write(folder, "records.tsv", &records(read));
    for (name, path) in stage.server_logs() {
        drop(fs::copy(path, folder.join(name)));
    }
    eprintln!("chaos: the evidence is in {}", folder.display());
}

fn records(read: &[ReadRecord]) -> String {
    let mut text = "partition\toffset\taggregate\tid\tposition\ttimestamp_ms\n".to_owned();
    for record in read {
        let header = |name| record.header_text(name).unwrap_or("-");
        let aggregate = record.key.as_deref().map(String::from_utf8_lossy).unwrap_or_default();
        let (id, position) = (header("id"), header("walpost-position"));
        let timestamp_ms = record.timestamp_ms.unwrap_or(-1);
        let ReadRecord { partition, offset, .. } = record;
        writeln!(text, "{partition}\t{offset}\t{aggregate}\t{id}\t{position}\t{timestamp_ms}")
            .expect("a string takes all");
    }
    text
}

fn write(folder: &Path, name: &str, text: &str) {
    if let Err(error) = fs::write(folder.join(name), text) {
        eprintln!("chaos: cannot keep {name}: {error}");
    }
}

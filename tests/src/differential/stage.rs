//! What all cases of a run share.

use std::{
    fmt, fs,
    io::Write as _,
    path::{Path, PathBuf},
};

use super::{compare::Output, diff, engine::Engine, servers::Servers, tap::Tap, worker::Worker};
use crate::chaos::off;

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// Debezium, which is right.
    Oracle,
    /// Who is compared with it.
    Other,
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Oracle => "oracle",
            Self::Other => "other",
        })
    }
}

/// Servers, the worker, and a reader of each broker.
pub(super) struct Stage {
    pub(super) other: Engine,
    pub(super) folder: PathBuf,
    // Before the servers, so that it ends before they do.
    pub(super) worker: Worker,
    taps: [Tap; 2],
    pub(super) servers: Servers,
}

impl Stage {
    /// Starts all of it, with an emptied folder.
    pub(super) async fn set(other: Engine, folder: &Path, with_registry: bool) -> Self {
        drop(fs::remove_dir_all(folder));
        fs::create_dir_all(folder).unwrap();
        let folder = folder.canonicalize().unwrap();
        let (servers, taps) = off(move || {
            let servers = Servers::start(with_registry);
            let taps = servers.bootstraps().map(|bootstrap| Tap::open(&bootstrap));
            (servers, taps)
        })
        .await;
        let worker = Worker::start(&servers, &folder).await;
        Self { other, folder, worker, taps, servers }
    }

    pub(super) fn engine(&self, side: Side) -> &Engine {
        match side {
            Side::Oracle => &Engine::Debezium,
            Side::Other => &self.other,
        }
    }

    pub(super) fn bootstrap(&self, side: Side) -> String {
        let [oracle, other] = self.servers.bootstraps();
        match side {
            Side::Oracle => oracle,
            Side::Other => other,
        }
    }

    pub(super) fn tap(&self, side: Side) -> &Tap {
        let [oracle, other] = &self.taps;
        match side {
            Side::Oracle => oracle,
            Side::Other => other,
        }
    }

    /// Why Debezium has failed or refused, for who documents it.
    pub(super) fn note_failure(&self, case: &str, cause: &str) {
        self.note("failures.tsv", &format!("{case}\t{cause}\n"));
    }

    /// What Debezium has published, likewise.
    pub(super) fn note_records(&self, case: &str, output: &Output) {
        let records = output.iter().flat_map(|((topic, partition), records)| {
            let text = move |record| format!("  {topic} {partition}\n{}", diff::record(record));
            records.iter().map(text)
        });
        self.note("records.txt", &format!("{case}\n{}", records.collect::<String>()));
    }

    fn note(&self, name: &str, text: &str) {
        let file = fs::OpenOptions::new().create(true).append(true).open(self.folder.join(name));
        file.and_then(|mut file| file.write_all(text.as_bytes())).unwrap();
    }

    /// The logs of everybody, for evidence.
    pub(super) fn keep_logs(&self) {
        self.servers.keep_logs(&self.folder);
        fs::write(self.folder.join("connect.log"), self.worker.log()).unwrap();
    }
}

//! Who reads a case's table and publishes: Debezium, or Walpost with the same
//! file.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use tokio_postgres::Client;
use walpost_testkit::{Process, local::Registry};

use super::{
    case::{Case, End},
    connector::{Places, properties},
    stage::{Side, Stage},
    worker::State,
};
use crate::connect_worker::worker_properties;

const STREAMS_LIMIT: Duration = Duration::from_secs(300);
const END_LIMIT: Duration = Duration::from_secs(300);
/// How long records of a task that has failed are waited for.
const LAST_LIMIT: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(60);
/// The state of a task is asked for each so many looks.
const STATE_LOOKS: u32 = 5;

/// Who is compared with Debezium.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Engine {
    /// Debezium itself: what differs from run to run shows.
    Debezium,
    /// The binary `walpost` at this path.
    Walpost(PathBuf),
}

/// An engine at work on a case.
#[derive(Debug)]
pub(super) struct Running {
    side: Side,
    slot: String,
    work: Work,
}

#[derive(Debug)]
enum Work {
    /// The name of the connector.
    Connector(String),
    Process(Box<Process>),
}

/// How an engine went on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// It has read everything.
    Done,
    /// It has failed, and says this.
    Died(String),
    /// Walpost has ended before it reads anything, and says this.
    Refused(String),
    /// It has neither failed nor read everything, with so many records.
    Waited(usize),
}

impl Engine {
    /// Starts it, or returns why it refuses the configuration.
    pub(super) async fn start(
        &self,
        stage: &Stage,
        side: Side,
        case: &Case,
        token: &str,
    ) -> Result<Running, String> {
        let slot = format!("{token}_{side}");
        let postgres = &stage.servers.postgres;
        let places = Places {
            host: postgres.host(),
            port: postgres.port(),
            slot: slot.clone(),
            registry: stage.servers.registry.as_ref().map(Registry::own_url),
        };
        let mut all = properties(case, token, &places);
        let work = match self {
            Self::Debezium => {
                if side == Side::Other {
                    let sabotage = case.sabotage.iter().cloned();
                    all.extend(sabotage.map(|(name, value)| (name, value.into())));
                    let bootstrap = stage.bootstrap(side);
                    // Two of one topic prefix in one JVM would have the same metrics.
                    all.insert("custom.metric.tags".to_owned(), "side=other".into());
                    for client in ["producer", "admin"] {
                        let name = format!("{client}.override.bootstrap.servers");
                        all.insert(name, bootstrap.clone().into());
                    }
                }
                stage.worker.create(&slot, &all).await?;
                Work::Connector(slot.clone())
            }
            Self::Walpost(program) => {
                all.insert("name".to_owned(), slot.clone().into());
                let folder = stage.folder.join(token);
                let text = serde_json::to_string_pretty(&all).unwrap();
                let [connector, worker] = files(&folder, &text, &stage.bootstrap(side));
                migrate(program, &postgres.url(token)).await;
                Work::Process(Box::new(walpost(program, &connector, &worker)))
            }
        };
        Ok(Running { side, slot, work })
    }
}

/// The connector's file, and the worker's beside it.
fn files(folder: &Path, connector: &str, bootstrap: &str) -> [PathBuf; 2] {
    fs::create_dir_all(folder).unwrap();
    let paths = [folder.join("connector.json"), folder.join("worker.properties")];
    let worker = worker_properties(bootstrap, &folder.display().to_string(), 0);
    for (path, text) in paths.iter().zip([connector, &worker]) {
        fs::write(path, text).unwrap();
    }
    paths
}

/// Makes Walpost's own tables, which no case is about.
async fn migrate(program: &Path, url: &str) {
    let args = ["migrate", "--postgres", url];
    let nothing: [(&str, &str); 0] = [];
    let process = Process::start(program, args, nothing);
    let ended = until_true(STREAMS_LIMIT, async || !process.is_running()).await;
    let log = process.log();
    assert!(ended && process.wait(END_LIMIT).success(), "walpost migrate has failed:\n{log}");
}

fn walpost(program: &Path, connector: &Path, worker: &Path) -> Process {
    let args = ["run".as_ref(), connector.as_os_str(), "--worker".as_ref(), worker.as_os_str()];
    Process::start(program, args, [("WALPOST_HTTP_LISTEN", "")])
}

impl Running {
    /// Waits until its slot is read, so that what is written now is in the stream.
    pub(super) async fn streams(&self, stage: &Stage, client: &Client) -> Ending {
        let sql = "select exists (select from pg_replication_slots s join pg_stat_replication r \
                   on r.pid = s.active_pid where s.slot_name = $1 and r.state <> 'startup')";
        let is_streaming = async || client.query_one(sql, &[&self.slot]).await.unwrap().get(0);
        match (self.watch(stage, STREAMS_LIMIT, 0, is_streaming).await, &self.work) {
            (Ending::Died(log), Work::Process(_)) => Ending::Refused(log),
            (ending, _) => ending,
        }
    }

    /// Waits until it has read what was written up to now, or has failed.
    pub(super) async fn ends(
        &self,
        stage: &Stage,
        client: &Client,
        case: &Case,
        token: &str,
    ) -> Ending {
        let expected = case.expected;
        let heartbeats = case.heartbeats(token);
        let count = || stage.tap(self.side).count(token, &heartbeats);
        let ending = match &self.work {
            Work::Process(_) if case.streams => {
                let lsn = "select pg_current_wal_lsn()::text";
                let lsn: String = client.query_one(lsn, &[]).await.unwrap().get(0);
                let sql = "select exists (select from pg_replication_slots where slot_name = $1 \
                           and confirmed_flush_lsn >= $2::text::pg_lsn)";
                let is_past =
                    async || client.query_one(sql, &[&self.slot, &lsn]).await.unwrap().get(0);
                self.watch(stage, END_LIMIT, expected, is_past).await
            }
            Work::Process(_) | Work::Connector(_) => {
                let runs = case.end == End::Runs;
                let is_there = async || runs && count() >= expected;
                self.watch(stage, END_LIMIT, expected, is_there).await
            }
        };
        match ending {
            Ending::Died(_) | Ending::Refused(_) => {
                // Fewer of them show when they are compared.
                let _ = until_true(LAST_LIMIT, async || count() >= expected).await;
            }
            Ending::Waited(_) => return Ending::Waited(count()),
            Ending::Done => {}
        }
        ending
    }

    async fn watch(
        &self,
        stage: &Stage,
        limit: Duration,
        expected: usize,
        is_done: impl AsyncFn() -> bool,
    ) -> Ending {
        let (mut looks, mut died) = (0, None);
        let done = until_true(limit, async || {
            looks += 1;
            if is_done().await {
                return true;
            }
            if looks % STATE_LOOKS == 0 {
                died = self.failure(stage).await;
            }
            died.is_some()
        })
        .await;
        match died {
            Some(trace) => Ending::Died(trace),
            None if done => Ending::Done,
            None => Ending::Waited(expected),
        }
    }

    /// Why it has failed, if it has.
    pub(super) async fn failure(&self, stage: &Stage) -> Option<String> {
        match &self.work {
            Work::Connector(name) => match stage.worker.state(name).await {
                State::Failed(trace) => Some(trace),
                State::Running => None,
            },
            Work::Process(process) => (!process.is_running()).then(|| process.log()),
        }
    }

    /// Ends it, and drops its slot.
    pub(super) async fn end(self, stage: &Stage, client: &Client, log: Option<&Path>) {
        match self.work {
            Work::Connector(name) => stage.worker.delete(&name).await,
            Work::Process(process) => {
                if let Some(path) = log {
                    fs::write(path, process.log()).unwrap();
                }
            }
        }
        let sql = "select pg_drop_replication_slot(slot_name) from pg_replication_slots \
                   where slot_name = $1 and not active";
        let gone = "select not exists (select from pg_replication_slots where slot_name = $1)";
        let dropped = until_true(LAST_LIMIT, async || {
            // Another moment, when it is still in use.
            drop(client.execute(sql, &[&self.slot]).await);
            client.query_one(gone, &[&self.slot]).await.is_ok_and(|row| row.get(0))
        });
        if !dropped.await {
            eprintln!("debezium: the slot {} stays", self.slot);
        }
    }
}

/// Whether it came true in time.
async fn until_true(limit: Duration, mut condition: impl AsyncFnMut() -> bool) -> bool {
    let mut looks = tokio::time::interval(LOOK);
    let waiting = async {
        loop {
            looks.tick().await;
            if condition().await {
                return;
            }
        }
    };
    tokio::time::timeout(limit, waiting).await.is_ok()
}

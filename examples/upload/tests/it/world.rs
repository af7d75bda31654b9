//! A database, a folder, and the two processes of the example.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    net::SocketAddr,
    path::PathBuf,
    time::Duration,
};

use image::ImageReader;
use stand::{Answer, post};
use tempfile::TempDir;
use tokio::time::{interval, timeout};
use tokio_postgres::Client;
use walpost_testkit::{Database, Process, local::free_port, until};

pub(crate) const LIMIT: Duration = Duration::from_secs(120);
pub(crate) const ALICE: &str = "Bearer token-of-alice";
pub(crate) const BOB: &str = "Bearer token-of-bob";
const PACE: Duration = Duration::from_millis(50);
const EXAMPLE: &str = env!("CARGO_BIN_EXE_upload");

/// A process of the example.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Part {
    Api,
    Worker,
}

impl Part {
    fn name(self) -> &'static str {
        match self {
            Self::Api => "api",
            Self::Worker => "worker",
        }
    }
}

/// A part, and the failpoint that it has.
type Armed<'a> = (Part, &'a str);

pub(crate) struct World {
    pub(crate) client: Client,
    database: Database,
    parts: BTreeMap<Part, Process>,
    api: SocketAddr,
    folder: TempDir,
}

impl World {
    /// Both parts.
    pub(crate) async fn new() -> Self {
        Self::with(None).await
    }

    /// One part with a failpoint.
    pub(crate) async fn with(armed: Option<Armed<'_>>) -> Self {
        let database = walpost_testkit::fresh_database().await;
        let client = database.connect().await;
        let folder = TempDir::new().unwrap();
        let api = ([127, 0, 0, 1], free_port().unwrap()).into();
        let mut world = Self { client, database, parts: BTreeMap::new(), api, folder };
        // The one after the other, as the first creates the tables.
        for part in [Part::Api, Part::Worker] {
            let failpoint = armed.filter(|(one, _)| *one == part).map(|(_, failpoint)| failpoint);
            world.start(part, failpoint).await;
        }
        world
    }

    pub(crate) async fn start(&mut self, part: Part, failpoint: Option<&str>) {
        let listen = self.api.to_string();
        let mut environment = self.environment();
        environment.push(("LISTEN", &listen));
        environment.extend(failpoint.map(|failpoint| ("WALPOST_FAILPOINT", failpoint)));
        let process = Process::start(EXAMPLE, [part.name()], environment);
        if part == Part::Api {
            process.listens(LIMIT).await;
        }
        self.parts.insert(part, process);
    }

    fn environment(&self) -> Vec<(&str, &str)> {
        let folder = self.folder.path().to_str().unwrap();
        vec![("DATABASE_URL", self.database.url()), ("STORE", folder)]
    }

    pub(crate) fn kill(&self, part: Part) {
        self.parts[&part].kill();
    }

    /// Waits until the part was ended by its failpoint, and by nothing else.
    pub(crate) async fn killed(&self, part: Part) {
        let process = &self.parts[&part];
        until(LIMIT, "the end of a process", async || !process.is_running()).await;
        process.killed(LIMIT);
    }

    pub(crate) fn is_running(&self, part: Part) -> bool {
        self.parts[&part].is_running()
    }

    /// The most memory that the part has had, in bytes.
    pub(crate) fn memory_max(&self, part: Part) -> u64 {
        let pid = self.parts[&part].pid();
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1_024
    }

    pub(crate) fn api(&self) -> SocketAddr {
        self.api
    }

    /// Names in a folder of the store.
    pub(crate) fn names(&self, folder: &str) -> BTreeSet<String> {
        let entries = fs::read_dir(self.folder.path().join(folder)).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    pub(crate) fn path(&self, folder: &str, name: &str) -> PathBuf {
        self.folder.path().join(folder).join(name)
    }

    pub(crate) async fn number(&self, sql: &str) -> i64 {
        self.client.query_one(sql, &[]).await.unwrap().get(0)
    }

    /// As a client does it: until there is an answer.
    pub(crate) async fn uploaded(&self, key: &str, body: &[u8]) -> Answer {
        uploaded(self.api(), (ALICE, key), body).await
    }

    /// Waits until so many jobs are over, and none is not.
    pub(crate) async fn ended(&self, jobs: i64) {
        let open = "select count(*) filter (where processing_state = 'succeeded' \
                    or (processing_state = 'failed' and next_attempt_at is null)), count(*) \
                    from walpost.inbox";
        until(LIMIT, "an end of all jobs", async || {
            let row = self.client.query_one(open, &[]).await.unwrap();
            (row.get(0), row.get(1)) == (jobs, jobs)
        })
        .await;
    }

    /// Removes whatever nobody uses, however young it is.
    pub(crate) async fn sweep(&self) -> String {
        let environment = self.environment().into_iter().chain([("AGE_S", "0")]);
        let sweeping = Process::start(EXAMPLE, ["sweep"], environment);
        until(LIMIT, "a sweep", async || !sweeping.is_running()).await;
        assert!(sweeping.wait(LIMIT).success(), "{}", sweeping.log());
        sweeping.log()
    }

    /// Each file has one job, which is done, one row of a thumbnail, its contents,
    /// and its thumbnail; and there is nothing else.
    pub(crate) async fn is_well(&self, files: i64) {
        let select = "select (select count(*) from file), \
                      (select count(*) from walpost.inbox where processing_state = 'succeeded'), \
                      (select count(*) from thumbnail), \
                      (select count(distinct file_id) from thumbnail)";
        let row = self.client.query_one(select, &[]).await.unwrap();
        for column in 0..4 {
            assert_eq!(row.get::<_, i64>(column), files, "column {column} of {select}");
        }
        let rows = self.client.query("select distinct sha256 from file", &[]).await.unwrap();
        let contents: BTreeSet<String> = rows.iter().map(|row| row.get(0)).collect();
        assert_eq!(self.names("files"), contents);
        let thumbnails = contents.iter().map(|sha256| format!("{sha256}.png")).collect();
        assert_eq!(self.names("thumbnails"), thumbnails);
        assert!(self.names("tmp").is_empty(), "{:?}", self.names("tmp"));
        for name in thumbnails {
            let reader = ImageReader::open(self.path("thumbnails", &name)).unwrap();
            let thumbnail = reader.decode().unwrap();
            assert_eq!((thumbnail.width(), thumbnail.height()), (128, 80));
        }
    }
}

pub(crate) async fn upload(
    api: SocketAddr,
    (token, key): (&str, &str),
    body: &[u8],
) -> Option<Answer> {
    let headers =
        [("content-type", "image/png"), ("authorization", token), ("idempotency-key", key)];
    post(api, "/files", &headers, body).await
}

pub(crate) async fn uploaded(api: SocketAddr, who: (&str, &str), body: &[u8]) -> Answer {
    let answered = async {
        let mut pace = interval(PACE);
        loop {
            pace.tick().await;
            match upload(api, who, body).await {
                Some(answer) if !answer.asks_for_another() => return answer,
                _ => {}
            }
        }
    };
    timeout(LIMIT, answered).await.expect("an answer")
}

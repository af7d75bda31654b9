//! Two databases, two programs, and the proxy between them.

use std::{
    fs,
    path::PathBuf,
    sync::{Arc, Mutex as BlockingMutex},
};

use tokio::sync::Mutex;
use tokio_postgres::{Client, NoTls, Row};
use walpost_migrate::{Migrator, Set};
use walpost_testkit::{
    Process, Proxy, Target,
    local::{Postgres, free_port},
    until,
};

use super::run::WebhookSetting;
use crate::{
    LIMIT,
    chaos::{load::connect, stage::off},
};

const DATABASE: &str = "postgres";
const KEY: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";
/// What the receiver prints.
const LISTENS: &str = "receiver: listens to SIGTERM";
const EFFECTS: &str = "create table effect (n bigint generated always as identity, \
    source text not null, event_id text not null)";

/// Of deliveries that are tried again soon, and whose claims end soon.
const SETTINGS: [&str; 12] = [
    "sink.kind=webhook",
    "pipeline.checkpoint_interval_ms=200",
    "destination.allow_http=true",
    "destination.allow_private_networks=true",
    "destination.retry_waits=50ms",
    "destination.retry_limit=100000",
    "destination.timeout_ms=1000",
    "destination.connect_timeout_ms=500",
    "destination.lease_ms=6000",
    "destination.breaker_wait_s=1",
    "destination.breaker_wait_max_s=1",
    "http.listen=",
];

/// Whose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Sender,
    Receiver,
}

/// A database, and the program in front of it.
#[derive(Debug)]
struct House {
    postgres: Arc<Postgres>,
    process: Option<Process>,
    /// Number of the next process, for its log.
    next: usize,
    /// For looking; `None` after the server was away.
    session: Mutex<Option<Client>>,
}

#[derive(Debug)]
pub(super) struct Stage {
    pub(super) setting: WebhookSetting,
    pub(super) proxy: Proxy,
    port: u16,
    key_file: PathBuf,
    sender: House,
    receiver: House,
    /// Why a look at a database failed last, for whoever waits in vain.
    trouble: BlockingMutex<String>,
}

impl House {
    async fn open(sets: &[Set]) -> Self {
        let postgres = off(|| Postgres::builder().throwaway().start().unwrap()).await;
        let mut client = connect(&postgres.url(DATABASE)).await;
        for set in sets {
            Migrator::new().set(*set).migrate(&mut client).await.unwrap();
        }
        let session = Mutex::new(Some(client));
        Self { postgres: Arc::new(postgres), process: None, next: 0, session }
    }

    fn url(&self) -> String {
        self.postgres.url(DATABASE)
    }
}

impl Stage {
    /// Starts everything.
    ///
    /// # Panics
    /// When it cannot.
    pub(super) async fn set(setting: WebhookSetting) -> Self {
        // What an earlier run has left.
        drop(fs::remove_dir_all(&setting.folder));
        fs::create_dir_all(&setting.folder).unwrap();
        let key_file = setting.folder.join("key");
        fs::write(&key_file, KEY).unwrap();
        let sender = House::open(&[Set::Relay, Set::Webhook]).await;
        let receiver = House::open(&[Set::Inbox]).await;
        let port = free_port().unwrap();
        let proxy = Proxy::start(Target::Tcp(([127, 0, 0, 1], port).into())).await;
        let trouble = BlockingMutex::default();
        let mut stage = Self { setting, proxy, port, key_file, sender, receiver, trouble };
        stage.look(Side::Receiver, EFFECTS).await;
        stage.restart(Side::Receiver);
        stage.restart(Side::Sender);
        let slot = "select 1 from walpost.checkpoint where initial in ('publish', 'done')";
        until(LIMIT, "the slot", async || {
            stage.look(Side::Sender, slot).await.is_some_and(|rows| !rows.is_empty())
        })
        .await;
        stage
    }

    fn house(&mut self, side: Side) -> &mut House {
        match side {
            Side::Sender => &mut self.sender,
            Side::Receiver => &mut self.receiver,
        }
    }

    pub(super) fn sender_url(&self) -> String {
        self.sender.url()
    }

    /// SIGKILL, where there is one, and the next one at once.
    pub(super) fn restart(&mut self, side: Side) {
        let next = match side {
            Side::Sender => self.start_sender(),
            Side::Receiver => {
                // Its port has to be free before.
                self.end(Side::Receiver);
                self.start_receiver()
            }
        };
        self.end(side);
        let house = self.house(side);
        house.process = Some(next);
        house.next += 1;
    }

    fn end(&mut self, side: Side) {
        let folder = self.setting.folder.clone();
        let house = self.house(side);
        if let Some(process) = house.process.take() {
            process.kill();
            keep_log(&folder, side, house.next, &process);
        }
    }

    fn start_sender(&self) -> Process {
        let proxy = self.proxy.address();
        let mut sets: Vec<String> = SETTINGS.map(str::to_owned).to_vec();
        for name in ["inline", "inbox"] {
            sets.push(format!("destination.{name}.url=http://{proxy}/{name}"));
        }
        let key = self.key_file.display();
        sets.push(format!("destination.signing_key_files={key}"));
        let args = sets.iter().flat_map(|set| ["--set", set.as_str()]);
        let env = [("WALPOST_POSTGRES_URL", self.sender.url())];
        Process::start(&self.setting.walpost, ["run"].into_iter().chain(args), env)
    }

    fn start_receiver(&self) -> Process {
        let args = [self.receiver.url(), self.port.to_string(), KEY.to_owned()];
        let none: [(&str, &str); 0] = [];
        Process::start(&self.setting.receiver, args, none)
    }

    /// SIGTERM to both; whether they ended as they should.
    pub(super) async fn terminate(&mut self) -> bool {
        let mut orderly = true;
        for side in [Side::Sender, Side::Receiver] {
            let folder = self.setting.folder.clone();
            let house = self.house(side);
            let (process, number) = (house.process.take().expect("it runs"), house.next);
            if side == Side::Receiver {
                let listens = || process.log().contains(LISTENS) || !process.is_running();
                until(LIMIT, "a receiver that listens", async || listens()).await;
            }
            orderly &= off(move || {
                let ended = process.terminate(LIMIT).success();
                keep_log(&folder, side, number, &process);
                ended
            })
            .await;
        }
        orderly
    }

    /// Whether both still run.
    pub(super) fn assert_running(&self) {
        for house in [&self.sender, &self.receiver] {
            let process = house.process.as_ref().expect("it runs");
            assert!(process.is_running(), "it ended by itself: {}", process.log());
        }
    }

    /// Does what blocks to a server, beside the runtime.
    pub(super) async fn database(
        &mut self,
        side: Side,
        act: impl FnOnce(&Postgres) + Send + 'static,
    ) {
        let postgres = self.house(side).postgres.clone();
        off(move || act(&postgres)).await;
    }

    /// What a query gives, while the database is there.
    pub(super) async fn look(&self, side: Side, sql: &str) -> Option<Vec<Row>> {
        let house = match side {
            Side::Sender => &self.sender,
            Side::Receiver => &self.receiver,
        };
        let mut session = house.session.lock().await;
        if session.is_none() {
            let (client, connection) = tokio_postgres::connect(&house.url(), NoTls).await.ok()?;
            tokio::spawn(async move { drop(connection.await) });
            *session = Some(client);
        }
        let found = session.as_ref()?.query(sql, &[]).await;
        match found {
            Ok(rows) => Some(rows),
            Err(error) => {
                *self.trouble.lock().unwrap() = walpost_event::error_chain(&error);
                *session = None;
                None
            }
        }
    }

    /// The one number that a query gives, while the database is there.
    pub(super) async fn number(&self, side: Side, sql: &str) -> Option<i64> {
        self.look(side, sql).await?.first().map(|row| row.get(0))
    }

    pub(super) fn trouble(&self) -> String {
        self.trouble.lock().unwrap().clone()
    }
}

fn keep_log(folder: &std::path::Path, side: Side, number: usize, process: &Process) {
    let name = format!("{side:?}-{number:03}.log").to_lowercase();
    drop(fs::write(folder.join(name), process.log()));
}

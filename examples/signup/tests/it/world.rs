//! Two databases, the three processes of the example, and a mail server.

use std::{
    collections::BTreeMap,
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use serde_json::json;
use stand::{Answer, post};
use tempfile::TempDir;
use tokio::time::{interval, timeout};
use tokio_postgres::Client;
use walpost_testkit::{Database, Process, local::free_port, python_packages, until, until_some};

pub(crate) const LIMIT: Duration = Duration::from_secs(120);
const PACE: Duration = Duration::from_millis(50);
const EXAMPLE: &str = env!("CARGO_BIN_EXE_signup");
const MAIL_SERVER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/mail_server");

/// A process of the example.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Part {
    Api,
    Sender,
    Mailer,
}

impl Part {
    pub(crate) const ALL: [Self; 3] = [Self::Api, Self::Sender, Self::Mailer];

    fn name(self) -> &'static str {
        match self {
            Self::Api => "api",
            Self::Sender => "sender",
            Self::Mailer => "mailer",
        }
    }
}

/// A part, and the failpoint that it has.
type Armed<'a> = (Part, &'a str);

pub(crate) struct World {
    pub(crate) app: Client,
    pub(crate) mailer: Client,
    database: Database,
    parts: BTreeMap<Part, Process>,
    ports: BTreeMap<Part, SocketAddr>,
    mail_server: Option<Process>,
    smtp: SocketAddr,
    spool: TempDir,
}

impl World {
    /// All parts and a mail server.
    pub(crate) async fn new() -> Self {
        Self::with(None).await
    }

    /// One part with a failpoint.
    pub(crate) async fn with(armed: Option<Armed<'_>>) -> Self {
        let database = walpost_testkit::fresh_database().await;
        let spool = TempDir::new().unwrap();
        let smtp = free_address();
        let server = mail_server(spool.path(), smtp).await;
        let mut world = Self {
            app: database.connect().await,
            mailer: database.connect().await,
            database,
            parts: BTreeMap::new(),
            ports: [Part::Api, Part::Mailer].map(|part| (part, free_address())).into(),
            mail_server: Some(server),
            smtp,
            spool,
        };
        // The mailer before the sender, which calls it.
        for part in [Part::Api, Part::Mailer, Part::Sender] {
            let failpoint = armed.filter(|(one, _)| *one == part).map(|(_, failpoint)| failpoint);
            world.start(part, failpoint).await;
        }
        world.mailer = world.database.beside("mailer").connect().await;
        world
    }

    pub(crate) async fn start(&mut self, part: Part, failpoint: Option<&str>) {
        let smtp = self.smtp.to_string();
        let mailer = format!("http://{}/mails", self.mailer_at());
        let listen = self.ports.get(&part).map(ToString::to_string);
        let mut environment =
            vec![("DATABASE_URL", self.database.url()), ("SMTP", &smtp), ("MAILER", &mailer)];
        environment.extend(listen.as_deref().map(|listen| ("LISTEN", listen)));
        environment.extend(failpoint.map(|failpoint| ("WALPOST_FAILPOINT", failpoint)));
        let process = Process::start(EXAMPLE, [part.name()], environment);
        if part != Part::Sender {
            process.listens(LIMIT).await;
        }
        self.parts.insert(part, process);
    }

    /// Another mailer at another port, to which the sender turns; the old one
    /// stays as it is.
    pub(crate) async fn replace_mailer(&mut self) -> Process {
        let old = self.parts.remove(&Part::Mailer).unwrap();
        self.ports.insert(Part::Mailer, free_address());
        self.start(Part::Mailer, None).await;
        self.kill(Part::Sender);
        self.start(Part::Sender, None).await;
        old
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

    pub(crate) fn stop_mail_server(&mut self) {
        self.mail_server = None;
    }

    /// At the same port.
    pub(crate) async fn start_mail_server(&mut self) {
        self.mail_server = Some(mail_server(self.spool.path(), self.smtp).await);
    }

    pub(crate) fn api(&self) -> SocketAddr {
        self.ports[&Part::Api]
    }

    pub(crate) fn mailer_at(&self) -> SocketAddr {
        self.ports[&Part::Mailer]
    }

    /// One request; none where its answer was lost.
    pub(crate) async fn sign_up(&self, key: &str, email: &str) -> Option<Answer> {
        sign_up(self.api(), key, email).await
    }

    /// As a client does it: until there is an answer.
    pub(crate) async fn signed_up(&self, key: &str, email: &str) -> Answer {
        signed_up(self.api(), key, email).await
    }

    /// The state of each delivery by its event, once none goes on by itself.
    pub(crate) async fn ended(&self, accounts: usize) -> BTreeMap<String, String> {
        until_some(LIMIT, "an end of all deliveries", async || {
            let states = self.states().await;
            let ended = ["delivered", "unknown", "failed"];
            let is_over =
                states.len() == accounts && states.values().all(|state| ended.contains(&&**state));
            is_over.then_some(states)
        })
        .await
    }

    /// The same, and settles what nobody knows since the mail server has not answered
    /// in time, as on a busy machine.
    pub(crate) async fn settled(&self, accounts: usize) {
        let states = self.ended(accounts).await;
        if states.values().any(|state| state == "unknown") {
            assert!(self.was_slow().await, "nothing took so long: {states:?}");
            self.operator(true).await;
        }
    }

    /// Whether an attempt took as long as the mailer waits for the mail server.
    pub(crate) async fn was_slow(&self) -> bool {
        let slow = "select exists (select from walpost.webhook_attempt where elapsed_ms >= 4000)";
        self.app.query_one(slow, &[]).await.unwrap().get(0)
    }

    pub(crate) async fn states(&self) -> BTreeMap<String, String> {
        let select = "select event_id, state from walpost.webhook_delivery";
        let rows = self.app.query(select, &[]).await;
        // The tables come with the first part.
        let rows = rows.unwrap_or_default();
        rows.iter().map(|row| (row.get(0), row.get(1))).collect()
    }

    /// The one delivery: its event, state and attempts.
    pub(crate) async fn delivery(&self) -> Option<(String, String, i32)> {
        let select = "select event_id, state, attempts from walpost.webhook_delivery";
        let row = self.app.query_opt(select, &[]).await.unwrap()?;
        Some((row.get(0), row.get(1), row.get(2)))
    }

    /// How many mails the mail server has of each Message-ID.
    pub(crate) fn mails(&self) -> BTreeMap<String, usize> {
        mails(self.spool.path())
    }

    /// The operator's part, with the mail server's folder or without.
    pub(crate) async fn operator(&self, looks: bool) -> String {
        let spool = self.spool.path().to_str().unwrap();
        let environment = [("DATABASE_URL", self.database.url())];
        let spool = looks.then_some(("SPOOL", spool));
        let operator = Process::start(EXAMPLE, ["operator"], environment.into_iter().chain(spool));
        until(LIMIT, "an operator", async || !operator.is_running()).await;
        assert!(operator.wait(LIMIT).success(), "{}", operator.log());
        operator.log()
    }

    /// Each account has one event, that one delivery, which has arrived, and that
    /// one mail.
    pub(crate) async fn is_well(&self, accounts: i64) {
        let select = "select (select count(*) from account), \
                      (select count(distinct lower(email)) from account), \
                      (select count(*) from walpost.outbox), \
                      (select count(distinct aggregateid) from walpost.outbox), \
                      (select count(*) from walpost.webhook_delivery d \
                       join walpost.outbox o on o.id::text = d.event_id \
                       where d.state = 'delivered')";
        let row = self.app.query_one(select, &[]).await.unwrap();
        for column in 0..5 {
            assert_eq!(row.get::<_, i64>(column), accounts, "column {column} of {select}");
        }
        let events = self.states().await.into_keys();
        let expected: BTreeMap<String, usize> =
            events.map(|event| (format!("<{event}@signup.example>"), 1)).collect();
        assert_eq!(self.mails(), expected);
    }
}

pub(crate) async fn sign_up(api: SocketAddr, key: &str, email: &str) -> Option<Answer> {
    let body = json!({ "email": email, "name": "Ada" }).to_string();
    let headers = [("content-type", "application/json"), ("idempotency-key", key)];
    post(api, "/signup", &headers, body.as_bytes()).await
}

pub(crate) async fn signed_up(api: SocketAddr, key: &str, email: &str) -> Answer {
    let answered = async {
        let mut pace = interval(PACE);
        loop {
            pace.tick().await;
            match sign_up(api, key, email).await {
                Some(answer) if !answer.asks_for_another() => return answer,
                _ => {}
            }
        }
    };
    timeout(LIMIT, answered).await.expect("an answer")
}

/// By Message-ID.
pub(crate) fn mails(folder: &Path) -> BTreeMap<String, usize> {
    let mut mails = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "eml") {
            let mail = fs::read_to_string(path).unwrap();
            let id = mail.lines().find_map(|line| line.strip_prefix("Message-ID: ")).unwrap();
            *mails.entry(id.trim().to_owned()).or_default() += 1;
        }
    }
    mails
}

/// One that this process is given once.
pub(crate) fn free_address() -> SocketAddr {
    ([127, 0, 0, 1], free_port().unwrap()).into()
}

pub(crate) async fn mail_server(folder: &Path, at: SocketAddr) -> Process {
    let requirements = PathBuf::from(MAIL_SERVER).join("requirements.txt");
    let requirements = fs::read_to_string(requirements).unwrap();
    let packages = python_packages(Path::new(env!("CARGO_TARGET_TMPDIR")), &requirements);
    let serve = format!("{MAIL_SERVER}/serve.py");
    let arguments = [serve, folder.to_str().unwrap().to_owned(), at.port().to_string()];
    let environment = [
        ("PYTHONPATH", packages.to_str().unwrap().to_owned()),
        ("PYTHONDONTWRITEBYTECODE", "1".to_owned()),
    ];
    let server = Process::start("/usr/bin/python3", arguments, environment);
    server.listens(LIMIT).await;
    server
}

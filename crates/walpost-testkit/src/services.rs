//! The servers of tests: one of each for a run, started on first use.

use std::{
    collections::HashMap,
    env,
    ffi::OsStr,
    hash::{BuildHasher, RandomState},
    process,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
};

use tokio_postgres::{Client, NoTls};
use walpost_event::error_chain;
use walpost_local::{Kafka, KafkaTools, Lifetime, LocalError, Postgres, Run, newest_postgres};

use crate::leftovers;

/// The PostgreSQL that all tests of a run share, started on first use (about 1 s,
/// during which the thread is blocked): the newest version, or the major version in
/// `WALPOST_TEST_POSTGRES_VERSION`. The server at `WALPOST_TEST_POSTGRES`, a URL,
/// when that is set; it must have `wal_level=logical` and a superuser.
///
/// # Panics
///
/// When it cannot be started.
#[track_caller]
#[must_use]
pub fn postgres() -> &'static SharedPostgres {
    static SHARED: OnceLock<&'static SharedPostgres> = OnceLock::new();
    SHARED.get_or_init(|| match set("WALPOST_TEST_POSTGRES") {
        Some(url) => Box::leak(Box::new(SharedPostgres { url, _local: None })),
        None => postgres_of(version_of_tests()),
    })
}

/// The PostgreSQL of exactly this major version that all tests of a run share,
/// started on first use; fetched where this machine has only others. Never the one of
/// `WALPOST_TEST_POSTGRES`.
///
/// # Panics
///
/// When it cannot be started.
#[track_caller]
#[must_use]
pub fn postgres_of(major: u32) -> &'static SharedPostgres {
    type Slot = Arc<OnceLock<&'static SharedPostgres>>;
    static SHARED: Mutex<Option<HashMap<u32, Slot>>> = Mutex::new(None);
    let slot = {
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(shared.get_or_insert_default().entry(major).or_default())
    };
    slot.get_or_init(|| Box::leak(Box::new(SharedPostgres::of(major))))
}

fn version_of_tests() -> u32 {
    match set("WALPOST_TEST_POSTGRES_VERSION") {
        Some(text) => text.parse().unwrap_or_else(|_| {
            panic!("WALPOST_TEST_POSTGRES_VERSION must be a major version such as 18, not {text:?}")
        }),
        None => newest_postgres().unwrap_or_else(|error| panic!("{}", error_chain(&error))),
    }
}

/// The Kafka that all tests of a run share, started on first use (about 4 s, during
/// which the thread is blocked). The broker at `WALPOST_TEST_KAFKA`, a list of
/// addresses, when that is set.
///
/// # Panics
///
/// When it cannot be started.
#[track_caller]
#[must_use]
pub fn kafka() -> &'static SharedKafka {
    static SHARED: OnceLock<SharedKafka> = OnceLock::new();
    SHARED.get_or_init(|| match set("WALPOST_TEST_KAFKA") {
        Some(bootstrap) => SharedKafka { bootstrap, _local: None },
        None => SharedKafka::start().unwrap_or_else(|error| {
            panic!(
                "the tests need Kafka: {}\n(or name a broker in WALPOST_TEST_KAFKA)",
                error_chain(&error)
            )
        }),
    })
}

/// A new, empty database on [`postgres`].
///
/// # Panics
///
/// When it cannot be created.
pub async fn fresh_database() -> Database {
    postgres().fresh_database().await
}

/// `<prefix>_` and something that no other call, process or machine returns:
/// for databases, slots (letters, digits and `_` only), groups and topics.
#[must_use]
pub fn unique_name(prefix: &str) -> String {
    static COUNTER: AtomicU32 = AtomicU32::new(0);
    let number = COUNTER.fetch_add(1, Ordering::Relaxed);
    let random = RandomState::new().hash_one(number) & 0xff_ffff_ffff;
    format!("{prefix}_{number}_{random:010x}")
}

/// A PostgreSQL shared by tests. 400 slots and walsenders, 300 connections, 20
/// prepared transactions.
#[derive(Debug)]
pub struct SharedPostgres {
    url: String,
    /// Without a run, that of this process.
    _local: Option<Postgres>,
}

impl SharedPostgres {
    /// Its address, with the database it has from the start.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// A new, empty database.
    ///
    /// # Panics
    ///
    /// When it cannot be created.
    pub async fn fresh_database(&self) -> Database {
        let name = unique_name(&leftovers::prefix(process::id()));
        let admin = connect(&self.url).await;
        let row = admin.query_one("show server_version_num", &[]).await;
        let number: String = row.expect("a server has a version").get(0);
        // Logged page by page, each new database would be WAL that all slots read.
        let strategy = if number.as_str() < "150000" { "" } else { "strategy file_copy" };
        admin
            .batch_execute(&format!("create database {name} template template0 {strategy}"))
            .await
            .unwrap_or_else(|error| {
                panic!("cannot create the database {name}: {}", error_chain(&error))
            });
        Database { url: with_database(&self.url, &name), name }
    }

    #[track_caller]
    fn of(major: u32) -> Self {
        Self::start(major).unwrap_or_else(|error| {
            panic!(
                "the tests need PostgreSQL: {}\n(or name a server in WALPOST_TEST_POSTGRES)",
                error_chain(&error)
            )
        })
    }

    fn start(major: u32) -> Result<Self, LocalError> {
        let builder = Postgres::builder()
            .version(Some(major))
            .throwaway()
            .setting("max_wal_senders", "400")
            .setting("max_replication_slots", "400")
            .setting("max_connections", "300")
            .setting("max_prepared_transactions", "20")
            // Its workers would be sessions and transactions of nobody's, in hundreds
            // of databases.
            .setting("autovacuum", "off");
        let Some(run) = Run::current() else {
            let local = builder.start()?;
            return Ok(Self { url: local.url("postgres"), _local: Some(local) });
        };
        let mut is_found = true;
        let url = run.server(&format!("postgres-{major}"), |home, lifetime| {
            is_found = false;
            let server = builder.home(home).lifetime(lifetime).start()?;
            Ok((server.pid(), server.url("postgres")))
        })?;
        if is_found {
            leftovers::drop_in_background(url.clone());
        }
        Ok(Self { url, _local: None })
    }
}

/// A Kafka shared by tests.
#[derive(Debug)]
pub struct SharedKafka {
    bootstrap: String,
    /// Without a run, that of this process.
    _local: Option<Kafka>,
}

impl SharedKafka {
    /// Its `bootstrap.servers`.
    #[must_use]
    pub fn bootstrap(&self) -> &str {
        &self.bootstrap
    }

    /// Runs one of Kafka's own Java programs: see [`KafkaTools::run`].
    ///
    /// # Panics
    ///
    /// When it cannot be had, fails, or still runs after 2 minutes.
    #[track_caller]
    pub fn run_tool(
        &self,
        class: &str,
        args: impl IntoIterator<Item = impl AsRef<OsStr>>,
    ) -> String {
        let ran = KafkaTools::find().and_then(|tools| tools.run(class, args));
        ran.unwrap_or_else(|error| panic!("{}", error_chain(&error)))
    }

    fn start() -> Result<Self, LocalError> {
        // No test stops it: being unreachable for a moment must not count it out.
        let patient = Kafka::builder().property("broker.session.timeout.ms", "30000");
        let Some(run) = Run::current() else {
            let local = patient.start()?;
            return Ok(Self { bootstrap: local.bootstrap(), _local: Some(local) });
        };
        let bootstrap = run.server("kafka", |home, lifetime: Lifetime| {
            let broker = patient.home(home).lifetime(lifetime).start()?;
            Ok((broker.pid(), broker.bootstrap()))
        })?;
        Ok(Self { bootstrap, _local: None })
    }
}

/// A database of a test. It stays until the process of its test ends.
#[derive(Debug, Clone)]
pub struct Database {
    url: String,
    name: String,
}

impl Database {
    /// Its address as a URL.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The one beside it whose name begins with this one's: `<name>_<suffix>`, as the
    /// examples create theirs.
    #[must_use]
    pub fn beside(&self, suffix: &str) -> Self {
        let name = format!("{}_{suffix}", self.name);
        Self { url: with_database(&self.url, &name), name }
    }

    /// Its address, parsed.
    ///
    /// # Panics
    ///
    /// When `WALPOST_TEST_POSTGRES` is not a URL.
    #[must_use]
    pub fn config(&self) -> tokio_postgres::Config {
        self.url.parse().unwrap_or_else(|error| panic!("not the URL of a database: {error}"))
    }

    /// A new connection, driven by a task of its own.
    ///
    /// # Panics
    ///
    /// When it cannot be made.
    pub async fn connect(&self) -> Client {
        connect(&self.url).await
    }
}

pub(crate) async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls)
        .await
        .unwrap_or_else(|error| panic!("cannot connect to the database: {}", error_chain(&error)));
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            eprintln!("a connection of the test ended: {}", error_chain(&error));
        }
    });
    client
}

fn set(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

/// `url` with the name of its database replaced.
fn with_database(url: &str, name: &str) -> String {
    let (address, parameters) = url.split_once('?').map_or((url, None), |(a, p)| (a, Some(p)));
    let (scheme, rest) = address
        .split_once("://")
        .expect("WALPOST_TEST_POSTGRES must look like postgres://user@host:port/database");
    let host = rest.split_once('/').map_or(rest, |(host, _)| host);
    let parameters = parameters.map_or(String::new(), |parameters| format!("?{parameters}"));
    format!("{scheme}://{host}/{name}{parameters}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_database_of_a_url_is_replaced() {
        assert_eq!(
            with_database("postgres://u:p@h:1/old?a=b", "new"),
            "postgres://u:p@h:1/new?a=b"
        );
        assert_eq!(with_database("postgres://u@h", "new"), "postgres://u@h/new");
    }

    #[test]
    fn names_are_unique_and_fit_a_slot() {
        let (one, other) = (unique_name("slot"), unique_name("slot"));
        assert_ne!(one, other);
        assert!(one.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_'));
        assert!(one.len() < 63);
    }
}

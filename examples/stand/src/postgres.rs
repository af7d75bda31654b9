use std::{
    env,
    io::ErrorKind,
    path::PathBuf,
    time::{Duration, Instant},
};

use tokio::task::spawn_blocking;
use tokio_postgres::{Client, error::SqlState};
use walpost_local::{LocalError, Postgres, cache_dir};
use walpost_migrate::{Migrator, Set};
use walpost_postgres::Database;

use crate::Failed;

/// What a server has from the start.
const MAINTENANCE: &str = "postgres";
const START_LIMIT: Duration = Duration::from_secs(30);
const START_PAUSE: Duration = Duration::from_secs(2);

/// A PostgreSQL server for an example. One of our own ends with this value,
/// however it ends.
#[derive(Debug)]
pub struct Stand {
    url: String,
    first: Database,
    _postgres: Option<Postgres>,
}

impl Stand {
    /// The server that DATABASE_URL names, or a private one, whose data stay in
    /// the folder that FOLDER names.
    ///
    /// # Errors
    /// When there is no server, with what to do.
    pub async fn open(example: &str) -> Result<Self, Failed> {
        if let Ok(url) = env::var("DATABASE_URL") {
            return Ok(Self { first: Database::parse(&url)?, url, _postgres: None });
        }
        let folder = folder(example);
        println!("starting PostgreSQL, with its data in {}", folder.display());
        let home = folder.join("postgres");
        let start = move || Postgres::builder().home(&home).start();
        let postgres = spawn_blocking(|| patiently(start)).await??;
        let url = postgres.url(MAINTENANCE);
        Ok(Self { first: Database::parse(&url)?, url, _postgres: Some(postgres) })
    }

    /// The database that DATABASE_URL names, or the private server's first one.
    #[must_use]
    pub fn first(&self) -> &Database {
        &self.first
    }

    /// Where [`first`](Self::first) is, as DATABASE_URL for another program.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The database of that name, which need not be there: `<first>_<name>`, so that two
    /// examples on one server, or one twice, are not in each other's way, and `<name>`
    /// where the first one is `postgres`.
    #[must_use]
    pub fn named(&self, name: &str) -> Database {
        self.first.clone().with_dbname(&beside(self.first.dbname(), name))
    }

    /// The one that is [`named`](Self::named) so with these tables, created where it is
    /// not there.
    ///
    /// # Errors
    /// When it cannot be created or migrated.
    pub async fn database(
        &self,
        name: &str,
        sets: impl IntoIterator<Item = Set>,
        tables: &str,
    ) -> Result<Database, Failed> {
        let database = self.named(name);
        create(&self.first.connect().await?, database.dbname()).await?;
        with_tables(database, sets, tables).await
    }

    /// The first one, with these tables.
    ///
    /// # Errors
    /// When it cannot be migrated.
    pub async fn first_with(
        &self,
        sets: impl IntoIterator<Item = Set>,
        tables: &str,
    ) -> Result<Database, Failed> {
        with_tables(self.first.clone(), sets, tables).await
    }
}

fn beside(first: &str, name: &str) -> String {
    match first {
        MAINTENANCE => name.to_owned(),
        first => format!("{first}_{name}"),
    }
}

async fn with_tables(
    database: Database,
    sets: impl IntoIterator<Item = Set>,
    tables: &str,
) -> Result<Database, Failed> {
    let mut client = database.connect().await?;
    Migrator::new().sets(sets).migrate(&mut client).await?;
    // One transaction, and one at a time: two that start at once both find that
    // nothing is there.
    client.batch_execute(&format!("select pg_advisory_xact_lock(7310); {tables}")).await?;
    Ok(database)
}

/// Where the data of private servers are: FOLDER, or a folder of the cache.
#[must_use]
pub fn folder(example: &str) -> PathBuf {
    env::var_os("FOLDER").map_or_else(|| cache_dir().join(example), PathBuf::from)
}

/// Two that start at once both find that it is not there.
async fn create(client: &Client, name: &str) -> Result<(), Failed> {
    let created = client.batch_execute(&format!("create database \"{name}\"")).await;
    match created {
        Err(error)
            if matches!(
                error.code(),
                Some(&SqlState::DUPLICATE_DATABASE | &SqlState::UNIQUE_VIOLATION)
            ) =>
        {
            Ok(())
        }
        created => Ok(created?),
    }
}

/// Starts a server of our own. That of a predecessor that was killed may be about
/// to end, for which this waits up to 30 s; what is missing is told at once.
///
/// # Errors
/// Those of the last attempt.
pub fn patiently<T>(start: impl Fn() -> Result<T, LocalError>) -> Result<T, LocalError> {
    let begun = Instant::now();
    loop {
        match start() {
            Err(error) if may_pass(&error) && begun.elapsed() < START_LIMIT => {
                std::thread::sleep(START_PAUSE);
            }
            ended => return ended,
        }
    }
}

/// Whether it may be the work of a predecessor that is not gone yet.
fn may_pass(error: &LocalError) -> bool {
    match error {
        LocalError::Ended { .. } | LocalError::Command { .. } | LocalError::Timeout { .. } => true,
        LocalError::Io { source, .. } => {
            !matches!(source.kind(), ErrorKind::NotFound | ErrorKind::PermissionDenied)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn a_predecessor_is_waited_for_and_nothing_that_is_missing() {
        let io = |kind: ErrorKind| LocalError::Io {
            attempt: "run",
            subject: "postgres".to_owned(),
            source: kind.into(),
        };
        let asked = Cell::new(0);
        let start = |errors: [Option<LocalError>; 2]| {
            asked.set(0);
            let errors = Cell::new(errors);
            patiently(|| {
                let [first, second] = errors.take();
                errors.set([second, None]);
                asked.set(asked.get() + 1);
                first.map_or(Ok(()), Err)
            })
        };
        assert!(start([Some(io(ErrorKind::AddrInUse)), None]).is_ok());
        assert_eq!(asked.get(), 2);
        assert!(start([Some(io(ErrorKind::NotFound)), None]).is_err());
        assert_eq!(asked.get(), 1);
    }

    #[test]
    fn names_begin_with_that_of_the_first_database_unless_every_server_has_it() {
        assert_eq!(beside("postgres", "shop"), "shop");
        assert_eq!(beside("try", "shop"), "try_shop");
    }
}

use std::{
    fmt,
    hash::{BuildHasher, RandomState},
    sync::atomic::{AtomicU32, Ordering},
    thread,
};

use postgres_protocol::escape::escape_identifier;
use walpost_consumer::{
    error_chain,
    tokio_postgres::{self, Client, Config, NoTls},
};

use crate::Error;

/// A database of its own on a server for tests, dropped with this value.
///
/// Give it the tables of your application, by [`sql`](Self::sql) or by your
/// migrations on [`url`](Self::url); then [`HandlerTest::new`] takes it.
///
/// [`HandlerTest::new`]: crate::HandlerTest::new
pub struct TestDatabase {
    /// Where it is created and dropped from.
    server_url: String,
    url: String,
    name: String,
}

impl TestDatabase {
    /// On the server at `server_url`, a URL such as
    /// `postgres://app@localhost:5432/postgres` of a database that is there; the
    /// role needs CREATEDB. Without TLS. Nothing of that database is touched.
    ///
    /// # Errors
    /// [`Error::Address`], or what the server says.
    pub async fn create(server_url: &str) -> Result<Self, Error> {
        Self::new(server_url, None).await
    }

    /// The same with everything that the database `template` of the server has,
    /// such as one that your build has migrated. Nobody may be connected to that
    /// one meanwhile.
    ///
    /// # Errors
    /// [`Error::Address`], or what the server says.
    pub async fn copy_of(server_url: &str, template: &str) -> Result<Self, Error> {
        Self::new(server_url, Some(template)).await
    }

    /// On a PostgreSQL that this process starts on first use and that ends with
    /// it, in the system's folder for temporary files, without `fsync`. Needs
    /// the feature `embedded`.
    ///
    /// A server that is installed is used; else one is fetched by Maven. Unix
    /// alone. The first use takes about a second.
    ///
    /// # Errors
    /// [`Error::Embedded`].
    #[cfg(feature = "embedded")]
    pub async fn embedded() -> Result<Self, Error> {
        Self::create(crate::embedded::server_url().await?).await
    }

    /// Its address as a URL.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs statements, such as those that create your tables.
    ///
    /// # Errors
    /// What the server says.
    pub async fn sql(&self, statements: &str) -> Result<(), Error> {
        let ran = self.client().await?.batch_execute(statements).await;
        ran.map_err(|error| {
            Error::database("running the statements of the setup failed; mend them", error)
        })
    }

    /// A new connection.
    ///
    /// # Errors
    /// If it cannot be made.
    pub async fn client(&self) -> Result<Client, Error> {
        connect(&self.url).await
    }

    pub(crate) fn config(&self) -> Result<Config, Error> {
        self.url.parse().map_err(|_| Error::Address)
    }

    /// Another one with the same contents. Ends the connections to this one.
    pub(crate) async fn copy(&self) -> Result<Self, Error> {
        let client = connect(&self.server_url).await?;
        let leave = "select pg_terminate_backend(pid, 5000) from pg_stat_activity \
                     where datname = $1";
        let left = client.query(leave, &[&self.name]).await;
        left.map_err(|error| {
            let attempted = format!(
                "ending the connections to database {} failed; close those of your setup",
                self.name
            );
            Error::database(attempted, error)
        })?;
        Self::create_with(&client, &self.server_url, Some(&self.name)).await
    }

    async fn new(server_url: &str, template: Option<&str>) -> Result<Self, Error> {
        let client = connect(server_url).await?;
        Self::create_with(&client, server_url, template).await
    }

    async fn create_with(
        client: &Client,
        server_url: &str,
        template: Option<&str>,
    ) -> Result<Self, Error> {
        let name = unique_name();
        let url = with_database(server_url, &name).ok_or(Error::Address)?;
        let template =
            template.map_or_else(String::new, |of| format!(" template {}", escape_identifier(of)));
        let create = format!("create database {name}{template}");
        client.batch_execute(&create).await.map_err(|error| {
            let attempted = "creating a database for the test failed; give the role CREATEDB, and \
                             close all connections to the database that is copied";
            Error::database(attempted, error)
        })?;
        Ok(Self { server_url: server_url.to_owned(), url, name })
    }
}

impl fmt::Debug for TestDatabase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TestDatabase({})", self.name)
    }
}

/// On a thread of its own: there may be no runtime, or one that must not wait.
impl Drop for TestDatabase {
    fn drop(&mut self) {
        let (server_url, name) = (self.server_url.clone(), self.name.clone());
        let dropping = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let dropped = async {
                let client = connect(&server_url).await?;
                let drop = format!("drop database if exists {name} with (force)");
                client.batch_execute(&drop).await.map_err(|error| Error::database("it", error))
            };
            match runtime {
                Ok(runtime) => {
                    if let Err(error) = runtime.block_on(dropped) {
                        eprintln!("database {name} is left behind: {}", error_chain(&error));
                    }
                }
                Err(error) => eprintln!("database {name} is left behind: {error}"),
            }
        });
        let _ = dropping.join();
    }
}

pub(crate) async fn connect(url: &str) -> Result<Client, Error> {
    let config: Config = url.parse().map_err(|_| Error::Address)?;
    let connected = config.connect(NoTls).await;
    let (client, connection) = connected.map_err(|error: tokio_postgres::Error| {
        Error::database(
            "connecting to the PostgreSQL of the test failed; start it, or correct its address",
            error,
        )
    })?;
    // Its end shows at the client.
    tokio::spawn(async move { drop(connection.await) });
    Ok(client)
}

fn unique_name() -> String {
    static COUNTER: AtomicU32 = AtomicU32::new(0);
    let number = COUNTER.fetch_add(1, Ordering::Relaxed);
    let random = RandomState::new().hash_one(number) & 0xff_ffff_ffff;
    format!("walpost_test_{number}_{random:010x}")
}

/// `url` with the name of its database replaced, `None` if it is no URL.
fn with_database(url: &str, name: &str) -> Option<String> {
    let (address, parameters) = url.split_once('?').map_or((url, None), |(a, p)| (a, Some(p)));
    let (scheme, rest) = address.split_once("://")?;
    let host = rest.split_once('/').map_or(rest, |(host, _)| host);
    let parameters = parameters.map_or(String::new(), |parameters| format!("?{parameters}"));
    Some(format!("{scheme}://{host}/{name}{parameters}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_database_of_a_url_is_replaced() {
        let replaced = |url| with_database(url, "new");
        assert_eq!(replaced("postgres://u:p@h:1/old?a=b").unwrap(), "postgres://u:p@h:1/new?a=b");
        assert_eq!(replaced("postgres://u@h").unwrap(), "postgres://u@h/new");
        assert_eq!(replaced("host=h user=u"), None);
    }

    #[tokio::test]
    async fn no_error_names_a_password() {
        let failed = TestDatabase::create("postgres://u:s3cr3t@127.0.0.1:1/x").await.unwrap_err();
        let text = format!("{failed:?}");
        assert!(
            text.starts_with("connecting to the PostgreSQL") && !text.contains("s3cr3t"),
            "{text}"
        );
        let failed = TestDatabase::create("host=h password=s3cr3t = x").await.unwrap_err();
        assert!(!format!("{failed:?}").contains("s3cr3t"));
    }
}

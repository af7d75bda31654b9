use walpost_event::error_chain;
use walpost_postgres::{
    Database,
    tokio_postgres::{self, NoTls},
};
use walpost_testkit::{
    Authority, Identity,
    local::{Postgres, PostgresBuilder},
};

use crate::replication::identify;

/// Who is asked for what. `app` may come without TLS, `crypt` with it, and the
/// others with a certificate in their name, `certified` with nothing else.
const HBA: &str = "local all all trust\n\
     host all app 127.0.0.1/32 trust\n\
     hostssl all crypt 127.0.0.1/32 trust\n\
     hostssl all certified 127.0.0.1/32 cert clientcert=verify-full\n\
     hostssl all careful 127.0.0.1/32 scram-sha-256 clientcert=verify-full\n";

/// A server with TLS.
pub(crate) struct Server {
    pub(crate) postgres: Postgres,
}

impl Server {
    pub(crate) async fn start(authority: &Authority, identity: &Identity, major: u32) -> Self {
        let builder = Postgres::builder()
            .version(Some(major))
            .tls(&identity.certificate, &identity.key)
            .client_authority(authority.certificate());
        Self::of(builder).await
    }

    /// A server that has none.
    pub(crate) async fn without_tls() -> Self {
        Self::of(Postgres::builder()).await
    }

    async fn of(builder: PostgresBuilder) -> Self {
        let builder = builder.throwaway().setting("wal_level", "logical").hba(HBA);
        let postgres = builder.start().unwrap_or_else(|error| panic!("{}", error_chain(&error)));
        let socket = format!(
            "host={} port={} user=postgres dbname=postgres",
            postgres.socket_dir().display(),
            postgres.port()
        );
        let (client, connection) = tokio_postgres::connect(&socket, NoTls).await.unwrap();
        tokio::spawn(connection);
        let roles = "create role app login replication; create role crypt login replication; \
             create role certified login replication; \
             create role careful login replication password 's3cret'";
        client.batch_execute(roles).await.unwrap();
        Self { postgres }
    }

    /// What becomes of both kinds of connection, and how the SQL session is
    /// protected if there is one.
    pub(crate) async fn connect(&self, host: &str, user: &str, rest: &str) -> Outcome {
        let port = self.postgres.port();
        let place = format!("host={host} port={port} connect_timeout=60");
        let text = format!("{place} user={user} dbname=postgres {rest}");
        let database = Database::parse(&text).map_err(|error| Told::of(error_chain(&error)))?;
        let replication = match user {
            // That login is the relay's own, and tested there.
            "careful" => None,
            _ => Some(identify(&database).await),
        };
        match database.connect().await {
            Ok(client) => {
                let sql = "select ssl, client_dn from pg_stat_ssl where pid = pg_backend_pid()";
                let row = client.query_one(sql, &[]).await.unwrap();
                assert_eq!(replication.unwrap_or(Ok(())), Ok(()), "{rest}");
                Ok(Session { is_encrypted: row.get(0), client: row.get(1) })
            }
            Err(error) => {
                assert!(replication.is_none_or(|done| done.is_err()), "{rest}");
                assert!(!error.is_transient(), "{rest}: {error:?}");
                let advice = error.advice().unwrap_or_default();
                Err(Told::of(format!("{}; {advice}", error_chain(&error))))
            }
        }
    }
}

/// A session, as the server sees it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Session {
    pub(crate) is_encrypted: bool,
    /// Subject of the client's certificate.
    pub(crate) client: Option<String>,
}

/// What an operator reads.
#[derive(Debug)]
pub(crate) struct Told(pub(crate) String);

impl Told {
    fn of(text: String) -> Self {
        assert!(!text.contains("s3cret"), "a secret shows: {text}");
        Self(text)
    }
}

pub(crate) type Outcome = Result<Session, Told>;

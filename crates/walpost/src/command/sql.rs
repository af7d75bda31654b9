use tokio_postgres::Client;
use walpost_postgres::{ConnectError, Database};

use crate::failure::Failure;

/// Bound on each statement of a command that only looks, in milliseconds.
const STATEMENT_TIMEOUT_MS: u32 = 30_000;

/// Opens a session.
pub(crate) async fn connect(database: &Database) -> Result<Client, Failure> {
    database.connect().await.map_err(refused)
}

/// Opens a session whose statements are bounded in time.
pub(crate) async fn connect_to_look(database: &Database) -> Result<Client, Failure> {
    let client = connect(database).await?;
    let limit = format!(
        "set statement_timeout = {STATEMENT_TIMEOUT_MS}; set default_transaction_read_only = on"
    );
    client.batch_execute(&limit).await.map_err(Failure::postgres)?;
    Ok(client)
}

/// A name as an SQL identifier.
pub(crate) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A statement failed, which may mean that the tables are not there.
pub(crate) fn failed(schema: &str) -> impl Fn(tokio_postgres::Error) -> Failure {
    move |error| {
        let missing = error.code().is_some_and(|code| ["42P01", "3F000"].contains(&code.code()));
        let failure = Failure::postgres(error).context("reading Walpost's tables failed");
        if missing {
            return failure.next_step(format!(
                "run `walpost migrate`, or set pipeline.schema, which is {schema:?}"
            ));
        }
        failure
    }
}

fn refused(error: ConnectError) -> Failure {
    let next_step = if error.is_transient() {
        "make sure that PostgreSQL runs there and lets this host in"
    } else {
        "mend the login: user, password, database, sslmode, pg_hba.conf"
    };
    Failure::postgres(error).next_step(next_step)
}

use tokio_postgres::Client;
use walpost_postgres::Database;

use super::grants::Grants;
use crate::failure::Failure;

/// Bound on each statement of a command that looks or asks, in milliseconds.
const STATEMENT_TIMEOUT_MS: u32 = 30_000;

/// Opens a session.
pub(crate) async fn connect(database: &Database) -> Result<Client, Failure> {
    database.connect().await.map_err(Failure::of_connect)
}

/// Opens a session whose statements are bounded in time, on what the role may
/// see.
pub(crate) async fn connect_to_look(database: &Database) -> Result<Client, Failure> {
    let client = connect(&database.clone().without_hidden_rows()).await?;
    let limit = format!(
        "set statement_timeout = {STATEMENT_TIMEOUT_MS}; set default_transaction_read_only = on"
    );
    client.batch_execute(&limit).await.map_err(Failure::postgres)?;
    Ok(client)
}

/// The same for one that may write.
pub(crate) async fn connect_to_ask(database: &Database) -> Result<Client, Failure> {
    let client = connect(&database.clone().without_hidden_rows()).await?;
    let limit = format!("set statement_timeout = {STATEMENT_TIMEOUT_MS}");
    client.batch_execute(&limit).await.map_err(Failure::postgres)?;
    Ok(client)
}

/// A name as an SQL identifier.
pub(crate) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A statement failed, which may mean that the tables are not there, or that
/// the role lacks `grants`.
pub(crate) fn failed(
    schema: &str,
    grants: Option<Grants>,
) -> impl Fn(tokio_postgres::Error) -> Failure {
    move |error| {
        let code = error.code().map(|code| code.code().to_owned());
        let failure = Failure::postgres(error).context("reading Walpost's tables failed");
        match (code.as_deref(), &grants) {
            (Some("42P01" | "42703" | "3F000"), _) => failure.next_step(format!(
                "run `walpost migrate`, or set pipeline.schema, which is {schema:?}"
            )),
            (Some("42501"), Some(grants)) => failure.next_step(grants.next_step()),
            _ => failure,
        }
    }
}

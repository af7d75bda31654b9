use bytes::{Buf, BytesMut};
use postgres_protocol::message::{backend::Message, frontend};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use walpost_event::error_chain;
use walpost_postgres::{Database, SslMode};

/// Logs in to the walsender without a password, and asks who it is: as the relay
/// does, under `allow` with TLS where it is refused without.
pub(crate) async fn identify(database: &Database) -> Result<(), String> {
    match identify_once(database).await {
        Err(_) if database.tls().mode == SslMode::Allow => {
            identify_once(&database.insisting_on_tls()).await
        }
        result => result,
    }
}

async fn identify_once(database: &Database) -> Result<(), String> {
    let mut stream = database.open().await.map_err(|error| error_chain(&error))?;
    let mut bytes = BytesMut::new();
    let parameters =
        [("user", database.user()), ("database", database.dbname()), ("replication", "database")];
    frontend::startup_message(parameters, &mut bytes).unwrap();
    frontend::query("IDENTIFY_SYSTEM", &mut bytes).unwrap();
    stream.write_all(&bytes).await.map_err(|error| error.to_string())?;
    bytes.clear();
    let mut has_row = false;
    loop {
        while let Some(message) = Message::parse(&mut bytes).unwrap() {
            match message {
                Message::DataRow(row) => has_row = row.buffer().has_remaining(),
                Message::ErrorResponse(_) => return Err("the server refused".to_owned()),
                Message::ReadyForQuery(_) if has_row => return Ok(()),
                _ => {}
            }
        }
        match stream.read_buf(&mut bytes).await {
            Ok(0) => return Err("the server hung up".to_owned()),
            Ok(_) => {}
            Err(error) => return Err(error.to_string()),
        }
    }
}

use std::{future::poll_fn, time::Duration};

use tokio::{sync::mpsc, task::JoinSet};
use tokio_postgres::{AsyncMessage, Client, NoTls, config::SslMode};
use walpost_event::error_chain;
use walpost_postgres::Database;

use crate::wal::quote_identifier;

/// A session of its own that hears of new rows.
pub(super) struct Listener {
    notified: mpsc::Receiver<()>,
    /// Ends with this value, and the session with it.
    _client: Client,
    _connection: JoinSet<()>,
}

impl Listener {
    /// Listens on `channel`; `None`, with a line in the log, where that is not
    /// possible now: rows are found without.
    pub(super) async fn start(database: &Database, channel: &str, limit: Duration) -> Option<Self> {
        let problem = match tokio::time::timeout(limit, listen(database, channel)).await {
            Ok(Ok(listener)) => return Some(listener),
            Ok(Err(problem)) => problem,
            Err(_) => format!("no answer within {} s", limit.as_secs()),
        };
        tracing::warn!(channel, problem, "not listening; rows are found every poll_interval_ms");
        None
    }

    /// Waits for a notification since the last wait, or for the session's end;
    /// whether it goes on.
    pub(super) async fn notified(&mut self) -> bool {
        self.notified.recv().await.is_some()
    }
}

async fn listen(database: &Database, channel: &str) -> Result<Listener, String> {
    let stream = database.open().await.map_err(|error| error_chain(&error))?;
    let mut config = database.config().clone();
    // The stream is encrypted already where it has to be.
    config.ssl_mode(SslMode::Disable);
    let started = config.connect_raw(stream, NoTls).await;
    let (client, mut connection) = started.map_err(|error| error_chain(&error))?;
    // One that waits stands for all.
    let (sender, notified) = mpsc::channel(1);
    let mut task = JoinSet::new();
    task.spawn(async move {
        while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
            if let AsyncMessage::Notification(_) = message {
                let _ = sender.try_send(());
            }
        }
    });
    let listen = format!("set idle_session_timeout = 0; listen {}", quote_identifier(channel));
    client.batch_execute(&listen).await.map_err(|error| error_chain(&error))?;
    Ok(Listener { notified, _client: client, _connection: task })
}

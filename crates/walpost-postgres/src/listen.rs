use std::future::poll_fn;

use tokio::task::JoinSet;
use tokio_postgres::{AsyncMessage, Client, NoTls, config::SslMode as NoSsl};

use crate::{ConnectError, Database, connect::describe};

/// A session that hears of notifications. It ends with this value.
#[derive(Debug)]
pub struct Listener {
    client: Client,
    connection: JoinSet<()>,
}

impl Listener {
    /// Waits until the session has ended. One that was cut off without a word ends only
    /// once something is [asked](Self::is_alive) over it, or by the keepalive of TCP.
    pub async fn ended(&mut self) {
        self.connection.join_next().await;
    }

    /// Asks the server whether it still answers.
    pub async fn is_alive(&self) -> bool {
        self.client.simple_query("").await.is_ok()
    }
}

impl Database {
    /// Opens a session of its own that listens on `channel`, and calls `heard` with what
    /// each notification says. It runs as a task of the current runtime, and is not for
    /// poolers that share sessions.
    ///
    /// # Errors
    /// When there is no session, or it may not listen.
    ///
    /// # Example
    /// ```no_run
    /// # async fn example(database: walpost_postgres::Database) -> Result<(), walpost_postgres::ConnectError> {
    /// let mut listener = database.listen("news", |payload| println!("{payload}")).await?;
    /// listener.ended().await;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn listen(
        &self,
        channel: &str,
        mut heard: impl FnMut(&str) + Send + 'static,
    ) -> Result<Listener, ConnectError> {
        let (stream, (host, port)) = self.open_to_one().await?;
        let mut config = self.config().clone();
        // The stream is encrypted already where it has to be.
        config.ssl_mode(NoSsl::Disable);
        let refused = |source: tokio_postgres::Error| ConnectError::Refused {
            target: describe(&host, port),
            source: source.into(),
        };
        let (client, mut running) = config.connect_raw(stream, NoTls).await.map_err(refused)?;
        let mut connection = JoinSet::new();
        connection.spawn(async move {
            while let Some(Ok(message)) = poll_fn(|context| running.poll_message(context)).await {
                if let AsyncMessage::Notification(notification) = message {
                    heard(notification.payload());
                }
            }
        });
        let channel = channel.replace('"', "\"\"");
        let listen = format!("set idle_session_timeout = 0; listen \"{channel}\"");
        client.batch_execute(&listen).await.map_err(refused)?;
        Ok(Listener { client, connection })
    }
}

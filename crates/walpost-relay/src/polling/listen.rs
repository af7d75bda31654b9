use std::time::Duration;

use tokio::sync::mpsc;
use walpost_event::error_chain;
use walpost_postgres::Database;

/// A session of its own that hears of new rows.
pub(super) struct Listener {
    notified: mpsc::Receiver<()>,
    /// Ends with this value, and what hears with it.
    _session: walpost_postgres::Listener,
}

impl Listener {
    /// Listens on `channel`; `None`, with a line in the log, where that is not
    /// possible now: rows are found without.
    pub(super) async fn start(database: &Database, channel: &str, limit: Duration) -> Option<Self> {
        // One that waits stands for all.
        let (sender, notified) = mpsc::channel(1);
        let listening = database.listen(channel, move |_| {
            let _ = sender.try_send(());
        });
        let problem = match tokio::time::timeout(limit, listening).await {
            Ok(Ok(session)) => return Some(Self { notified, _session: session }),
            Ok(Err(error)) => error_chain(&error),
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

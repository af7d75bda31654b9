use std::time::Duration;

use pgwire_replication::{
    PgWireError, ReplicationClient, ReplicationConfig, ReplicationEvent,
    config::{SslMode as PgwireSslMode, TlsConfig},
};
use walpost_event::Lsn;
use walpost_pgoutput::{Decoder, LogicalMessage};
use walpost_postgres::{Database, SslMode};

use super::{StreamStart, client::within, identity::ServerIdentity, transaction::Transactions};
use crate::{
    error::SourceError,
    source::{Source, SourceItem},
};

/// The WAL of a replication slot, over the crate `pgwire-replication`.
///
/// A second implementation to check the first against, and to fall back to.
/// It wakes for every row, tries only the first host, ends the session on a row
/// larger than `max_event_bytes`, and notices a connection that went dead
/// without a word only when TCP does.
pub(crate) struct PgwireSource {
    backend_pid: i32,
    client: ReplicationClient,
    decoder: Decoder,
    transactions: Transactions,
}

impl std::fmt::Debug for PgwireSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PgwireSource")
    }
}

impl PgwireSource {
    /// Takes the slot and begins to stream from it, on a connection of its
    /// own.
    ///
    /// # Errors
    /// [`SourceError::SlotInUse`] while another process streams from it,
    /// [`SourceError::OtherServer`] if this is not `start.server`.
    pub(crate) async fn start(
        database: &Database,
        start: &StreamStart,
    ) -> Result<Self, SourceError> {
        let config = config(database, start)?;
        within(START_MAX, async {
            let mut client = ReplicationClient::connect_gated(config).await?;
            start.server.expect(&identity(&mut client).await?)?;
            let backend_pid = backend_pid(&mut client).await?;
            client.start().await?;
            client.wait_started().await.map_err(|error| in_use(start, error))?;
            let transactions = Transactions::default();
            Ok(Self { backend_pid, client, decoder: start.decoder(), transactions })
        })
        .await
    }

    /// Who holds the slot, as `pg_replication_slots` names it.
    pub(crate) fn backend_pid(&self) -> i32 {
        self.backend_pid
    }

    fn push(
        &mut self,
        event: ReplicationEvent,
        items: &mut Vec<SourceItem>,
    ) -> Result<(), SourceError> {
        match event {
            ReplicationEvent::KeepAlive { wal_end, .. } => {
                items.push(SourceItem::KeepAlive { wal_end: Lsn::from(wal_end.as_u64()) });
                Ok(())
            }
            ReplicationEvent::Begin { final_lsn, xid, commit_time_micros } => {
                let begin = walpost_pgoutput::Begin {
                    final_lsn: Lsn::from(final_lsn.as_u64()),
                    commit_time_us: commit_time_micros + EPOCH_US,
                    xid,
                };
                self.transactions.push(walpost_pgoutput::WalMessage::Begin(begin), items)
            }
            ReplicationEvent::Commit { lsn, end_lsn, commit_time_micros } => {
                let commit = walpost_pgoutput::Commit {
                    commit_lsn: Lsn::from(lsn.as_u64()),
                    end_lsn: Lsn::from(end_lsn.as_u64()),
                    commit_time_us: commit_time_micros + EPOCH_US,
                };
                self.transactions.push(walpost_pgoutput::WalMessage::Commit(commit), items)
            }
            ReplicationEvent::Message { transactional, lsn, prefix, content } => {
                let lsn = Lsn::from(lsn.as_u64());
                let message = LogicalMessage { transactional, lsn, prefix, content };
                self.transactions.push(walpost_pgoutput::WalMessage::Logical(message), items)
            }
            ReplicationEvent::XLogData { wal_start, data, .. } => {
                let position = Lsn::from(wal_start.as_u64());
                let message = self
                    .decoder
                    .decode(data)
                    .map_err(|source| SourceError::Decode { position, source })?;
                self.transactions.push(message, items)
            }
            ReplicationEvent::StoppedAt { .. } => Err(SourceError::Ended),
        }
    }
}

async fn identity(client: &mut ReplicationClient) -> Result<ServerIdentity, SourceError> {
    let found = client.identify_system().await?;
    let dbname = found.dbname.unwrap_or_default();
    Ok(ServerIdentity { system_id: found.system_id, timeline: found.timeline, dbname })
}

async fn backend_pid(client: &mut ReplicationClient) -> Result<i32, SourceError> {
    let rows = client.simple_query("select pg_backend_pid()").await?;
    let pid = rows.first().and_then(|row| row.first()?.as_deref());
    let pid = pid.and_then(|pid| std::str::from_utf8(pid).ok()?.parse().ok());
    pid.ok_or_else(|| SourceError::Protocol("no process id".into()))
}

/// Bound on the login and on everything until the stream begins.
const START_MAX: Duration = Duration::from_secs(20);
/// From 1970 to 2000 in microseconds.
const EPOCH_US: i64 = 946_684_800_000_000;

impl Source for PgwireSource {
    async fn next(&mut self, items: &mut Vec<SourceItem>) -> Result<(), SourceError> {
        while items.is_empty() {
            let event = self.client.recv().await?.ok_or(SourceError::Ended)?;
            self.push(event, items)?;
        }
        Ok(())
    }

    async fn confirm(&mut self, lsn: Lsn) -> Result<(), SourceError> {
        self.client.update_applied_lsn(pgwire_replication::Lsn::from_u64(lsn.into()));
        Ok(())
    }

    async fn keep_alive(&mut self) -> Result<(), SourceError> {
        // The client's own task answers the server.
        Ok(())
    }
}

fn config(database: &Database, start: &StreamStart) -> Result<ReplicationConfig, SourceError> {
    let settings = database.config();
    let (host, port) = database.first_target();
    let password = String::from_utf8_lossy(settings.get_password().unwrap_or_default());
    let config = ReplicationConfig::new(
        host,
        database.user(),
        password,
        database.dbname(),
        start.slot.as_str(),
        start.publications.clone(),
    );
    let position = pgwire_replication::Lsn::from_u64(start.position.into());
    Ok(config
        .with_port(port)
        .with_tls(tls(database))
        .with_start_lsn(position)
        .with_ack_lsn(position)
        .with_application_name(settings.get_application_name().unwrap_or("walpost"))
        .with_options(format!("-c wal_sender_timeout={}", start.wal_sender_timeout_ms))
        .with_status_interval(Duration::from_millis(500))
        .with_max_message_size(start.max_event_bytes + 1024))
}

fn tls(database: &Database) -> TlsConfig {
    let settings = database.tls();
    let mode = match settings.mode {
        SslMode::Disable | SslMode::Allow => PgwireSslMode::Disable,
        SslMode::Prefer => PgwireSslMode::Prefer,
        SslMode::Require if settings.root_cert_given => PgwireSslMode::VerifyCa,
        SslMode::Require => PgwireSslMode::Require,
        SslMode::VerifyCa => PgwireSslMode::VerifyCa,
        SslMode::VerifyFull => PgwireSslMode::VerifyFull,
    };
    TlsConfig {
        mode,
        ca_pem_path: settings.root_cert.clone(),
        sni_hostname: None,
        client_cert_pem_path: settings.client_cert.clone(),
        client_key_pem_path: settings.client_key.clone(),
    }
}

fn in_use(start: &StreamStart, error: PgWireError) -> SourceError {
    let detail = error.to_string();
    if detail.contains("55006") {
        return SourceError::SlotInUse { slot: start.slot.clone(), detail };
    }
    error.into()
}

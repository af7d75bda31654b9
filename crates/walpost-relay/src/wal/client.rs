use std::{collections::HashMap, time::Duration};

use bytes::BytesMut;
use fallible_iterator::FallibleIterator;
use postgres_protocol::{
    authentication::{
        md5_hash,
        sasl::{ChannelBinding, SCRAM_SHA_256, ScramSha256},
    },
    message::{
        backend::{ErrorResponseBody, Message},
        frontend,
    },
};
use walpost_postgres::{Database, SslMode, shown::ServerMessage};

use super::{
    XLOG_DATA_HEADER_BYTES,
    charset::Charset,
    frames::{Frame, Frames},
};
use crate::error::{ServerError, SourceError};

/// A session in the walsender: replication commands and simple queries.
pub(crate) struct ReplicationClient {
    frames: Frames,
    database: Database,
    /// The encoding of the database.
    server_encoding: String,
}

/// A row of a simple query; every value is text.
pub(super) type TextRow = Vec<Option<String>>;

/// Bound on the login, and on commands that the server answers at once.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// Deterministic text output, and nothing that ends the session while an
/// initial load needs its snapshot, whatever the role or the database sets.
const SESSION_OPTIONS: &str = "-c datestyle=ISO -c intervalstyle=postgres -c timezone=UTC \
     -c extra_float_digits=3 -c bytea_output=hex -c statement_timeout=0 -c lock_timeout=0 \
     -c idle_session_timeout=0 -c idle_in_transaction_session_timeout=0";

impl ReplicationClient {
    /// Connects and logs in. Rows larger than `max_event_bytes` will come
    /// without the values that make them so.
    pub(crate) async fn connect(
        database: &Database,
        wal_sender_timeout_ms: u64,
        max_event_bytes: usize,
    ) -> Result<Self, SourceError> {
        let max_frame_bytes = max_event_bytes + XLOG_DATA_HEADER_BYTES;
        match Self::connect_once(database, wal_sender_timeout_ms, max_frame_bytes).await {
            Err(SourceError::Server(error))
                if database.tls().mode == SslMode::Allow && error.code.starts_with("28") =>
            {
                let database = database.insisting_on_tls();
                Self::connect_once(&database, wal_sender_timeout_ms, max_frame_bytes).await
            }
            result => result,
        }
    }

    async fn connect_once(
        database: &Database,
        wal_sender_timeout_ms: u64,
        max_frame_bytes: usize,
    ) -> Result<Self, SourceError> {
        let frames = Frames::new(database.open().await?, max_frame_bytes);
        let server_encoding = "UTF8".to_owned();
        let mut client = Self { frames, database: database.clone(), server_encoding };
        // Those of the connection string first, as in a SQL session, which prints by them.
        let own = database.config().get_options().unwrap_or_default();
        let options =
            format!("{own} {SESSION_OPTIONS} -c wal_sender_timeout={wal_sender_timeout_ms}");
        let name = database.config().get_application_name().unwrap_or("walpost");
        let parameters = [
            ("user", database.user()),
            ("database", database.dbname()),
            ("replication", "database"),
            ("client_encoding", "UTF8"),
            ("application_name", name),
            ("options", options.as_str()),
        ];
        let mut startup = BytesMut::new();
        frontend::startup_message(parameters, &mut startup)?;
        client.frames.queue(&startup);
        within(ANSWER_MAX, async {
            client.frames.flush().await?;
            client.log_in(database).await?;
            client.until_ready().await
        })
        .await?;
        Ok(client)
    }

    /// Runs a command or query with the simple protocol, one that the server
    /// answers at once.
    pub(super) async fn query(&mut self, sql: &str) -> Result<Vec<TextRow>, SourceError> {
        within(ANSWER_MAX, self.query_unbounded(sql)).await
    }

    /// The same for a command that waits; the caller bounds it.
    pub(super) async fn query_unbounded(&mut self, sql: &str) -> Result<Vec<TextRow>, SourceError> {
        self.send(|buf| frontend::query(sql, buf)).await?;
        self.until_ready().await
    }

    /// Begins to stream. From here on the connection carries CopyData alone, with texts in the
    /// encoding of the charset.
    pub(super) async fn start(mut self, sql: &str) -> Result<(Frames, Charset), SourceError> {
        let mut charset = Charset::new("UTF8", &self.database);
        // A server that converted the texts would end the stream at the first that it cannot
        // convert. It would no longer convert the names in the command either.
        if self.server_encoding != "UTF8" && sql.is_ascii() {
            charset = Charset::new(&self.server_encoding, &self.database);
            self.query("set client_encoding = 'SQL_ASCII'").await?;
        }
        let frames = within(ANSWER_MAX, self.start_unbounded(sql)).await?;
        Ok((frames, charset))
    }

    async fn start_unbounded(mut self, sql: &str) -> Result<Frames, SourceError> {
        self.send(|buf| frontend::query(sql, buf)).await?;
        loop {
            match self.frame().await? {
                // CopyBothResponse
                (b'W', _) => return Ok(self.frames),
                (b'E', body) => return Err(refusal(&body)?),
                (b'N' | b'S', _) => {}
                (tag, _) => return Err(unexpected(tag)),
            }
        }
    }

    async fn send(
        &mut self,
        message: impl FnOnce(&mut BytesMut) -> std::io::Result<()>,
    ) -> Result<(), SourceError> {
        let mut buffer = BytesMut::new();
        message(&mut buffer)?;
        self.frames.queue(&buffer);
        Ok(self.frames.flush().await?)
    }

    async fn frame(&mut self) -> Result<(u8, BytesMut), SourceError> {
        loop {
            match self.frames.pop()? {
                Some(Frame::Whole { tag, body }) => return Ok((tag, BytesMut::from(&body[..]))),
                Some(Frame::Shrunk { .. }) => {
                    return Err(SourceError::Protocol("row data before the stream".into()));
                }
                None => self.frames.fill().await?,
            }
        }
    }

    /// Reads a message through `postgres-protocol`.
    async fn message(&mut self) -> Result<Message, SourceError> {
        let (tag, body) = self.frame().await?;
        let mut whole = BytesMut::with_capacity(body.len() + 5);
        whole.extend_from_slice(&[tag]);
        whole.extend_from_slice(&(body.len() as u32 + 4).to_be_bytes());
        whole.extend_from_slice(&body);
        Message::parse(&mut whole)?.ok_or_else(|| unexpected(tag))
    }

    async fn log_in(&mut self, database: &Database) -> Result<(), SourceError> {
        let password = || {
            database.config().get_password().ok_or(SourceError::Login(
                "the server asks for a password and the connection string has none",
            ))
        };
        loop {
            match self.message().await? {
                Message::AuthenticationOk => return Ok(()),
                Message::AuthenticationCleartextPassword => {
                    let password = password()?;
                    self.send(|buf| frontend::password_message(password, buf)).await?;
                }
                Message::AuthenticationMd5Password(body) => {
                    let hash = md5_hash(database.user().as_bytes(), password()?, body.salt());
                    self.send(|buf| frontend::password_message(hash.as_bytes(), buf)).await?;
                }
                Message::AuthenticationSasl(body) => {
                    let offered: Vec<&str> = body.mechanisms().collect()?;
                    if !offered.contains(&SCRAM_SHA_256) {
                        return Err(SourceError::Login(
                            "the server offers no login method that is known here \
                             (SCRAM-SHA-256, md5, password)",
                        ));
                    }
                    self.scram(password()?).await?;
                }
                Message::ErrorResponse(body) => return Err(SourceError::Server(fields(&body)?)),
                _ => {
                    return Err(SourceError::Login(
                        "the server asks for a login method that is not known here \
                         (SCRAM-SHA-256, md5, password)",
                    ));
                }
            }
        }
    }

    async fn scram(&mut self, password: &[u8]) -> Result<(), SourceError> {
        let mut scram = ScramSha256::new(password, ChannelBinding::unsupported());
        let first = scram.message().to_vec();
        self.send(|buf| frontend::sasl_initial_response(SCRAM_SHA_256, &first, buf)).await?;
        match self.message().await? {
            Message::AuthenticationSaslContinue(body) => scram.update(body.data())?,
            Message::ErrorResponse(body) => return Err(SourceError::Server(fields(&body)?)),
            _ => return Err(SourceError::Protocol("no SASL challenge".into())),
        }
        let proof = scram.message().to_vec();
        self.send(|buf| frontend::sasl_response(&proof, buf)).await?;
        match self.message().await? {
            Message::AuthenticationSaslFinal(body) => Ok(scram.finish(body.data())?),
            Message::ErrorResponse(body) => Err(SourceError::Server(fields(&body)?)),
            _ => Err(SourceError::Protocol("no end of SASL".into())),
        }
    }

    /// Collects rows until ReadyForQuery; the first error is the result.
    async fn until_ready(&mut self) -> Result<Vec<TextRow>, SourceError> {
        let mut rows = Vec::new();
        let mut failed = None;
        loop {
            match self.message().await? {
                Message::ReadyForQuery(_) => return failed.map_or(Ok(rows), Err),
                Message::DataRow(row) => {
                    let buffer = row.buffer();
                    let text = |range: Option<std::ops::Range<usize>>| {
                        range.map(|range| String::from_utf8_lossy(&buffer[range]).into_owned())
                    };
                    rows.push(row.ranges().map(|range| Ok(text(range))).collect()?);
                }
                Message::ErrorResponse(body) => {
                    let error = SourceError::Server(fields(&body)?);
                    // A FATAL error is not followed by ReadyForQuery.
                    failed.get_or_insert(error);
                    if is_fatal(&body)? {
                        return Err(failed.take().expect("just set"));
                    }
                }
                Message::ParameterStatus(body) if body.name()? == "server_encoding" => {
                    self.server_encoding = body.value()?.to_owned();
                }
                _ => {}
            }
        }
    }
}

/// A server that does not answer in time is taken for gone.
pub(super) async fn within<T>(
    limit: Duration,
    answer: impl Future<Output = Result<T, SourceError>>,
) -> Result<T, SourceError> {
    tokio::time::timeout(limit, answer).await.unwrap_or(Err(SourceError::Silent(limit)))
}

fn unexpected(tag: u8) -> SourceError {
    SourceError::Protocol(format!("tag {:?}", char::from(tag)))
}

fn refusal(body: &[u8]) -> Result<SourceError, SourceError> {
    Ok(SourceError::Server(server_error(body)?))
}

/// An ErrorResponse from its body.
pub(super) fn server_error(body: &[u8]) -> Result<ServerError, SourceError> {
    let mut whole = BytesMut::with_capacity(body.len() + 5);
    whole.extend_from_slice(b"E");
    whole.extend_from_slice(&(body.len() as u32 + 4).to_be_bytes());
    whole.extend_from_slice(body);
    match Message::parse(&mut whole)? {
        Some(Message::ErrorResponse(body)) => fields(&body),
        _ => Err(SourceError::Protocol("an error without fields".into())),
    }
}

fn fields(body: &ErrorResponseBody) -> Result<ServerError, SourceError> {
    let mut values = HashMap::new();
    let mut fields = body.fields();
    while let Some(field) = fields.next()? {
        values.insert(field.type_(), String::from_utf8_lossy(field.value_bytes()).into_owned());
    }
    let value = |of| values.get(&of).map(String::as_str);
    Ok(ServerError::from(ServerMessage {
        severity: value(b'V').unwrap_or("ERROR"),
        state: value(b'C').unwrap_or_default(),
        message: value(b'M').unwrap_or_default(),
        file: value(b'F'),
        // The command is a constant without parameters, and decoding calls no function of an
        // application's: a name can only be one of the configuration.
        has_context: false,
        is_in_statement: true,
        constraint: value(b'n'),
        schema: value(b's'),
        table: value(b't'),
        column: value(b'c'),
        data_type: value(b'd'),
    }))
}

fn is_fatal(body: &ErrorResponseBody) -> Result<bool, SourceError> {
    let mut fields = body.fields();
    while let Some(field) = fields.next()? {
        if field.type_() == b'V' {
            return Ok(matches!(field.value_bytes(), b"FATAL" | b"PANIC"));
        }
    }
    Ok(false)
}

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::{Buf, Bytes};
use walpost_event::Lsn;
use walpost_pgoutput::Decoder;

use super::{
    StreamStart, XLOG_DATA_HEADER_BYTES,
    charset::Charset,
    client::{ReplicationClient, server_error},
    frames::{Frame, Frames},
    transaction::Transactions,
    transcode::transcode,
};
use crate::{
    error::SourceError,
    source::{Source, SourceItem},
};

/// Items of one [`Source::next`], so that acknowledgements are served between.
const BATCH_ITEMS: usize = 1024;
/// Between two standby status updates on a stream where nothing is confirmed;
/// a third of the server's patience where that is shorter.
const STATUS_INTERVAL_MAX: Duration = Duration::from_secs(1);
/// Without an answer to any of our questions for this long the server is gone.
const SILENCE_MAX: Duration = Duration::from_secs(10);
/// From 1970 to 2000, PostgreSQL's epoch.
const POSTGRES_EPOCH: Duration = Duration::from_secs(946_684_800);
const POSTGRES_EPOCH_US: i64 = POSTGRES_EPOCH.as_micros() as i64;

/// The WAL of a replication slot, over our own client.
///
/// Reads with pauses while the stream is busy, so it belongs on a thread of
/// its own: see [`crate::Relay`].
pub(crate) struct WalSource {
    frames: Frames,
    /// Of the texts in the frames.
    charset: Charset,
    /// A frame whose characters are being asked for.
    undecoded: Option<Frame>,
    backend_pid: i32,
    decoder: Decoder,
    transactions: Transactions,
    received: Lsn,
    confirmed: Lsn,
    last_status: Instant,
    status_interval: Duration,
    reply_requested: bool,
    listening: Listening,
    /// Where each item of one reading stands, for who asks.
    located: Option<Vec<Lsn>>,
}

/// How long the server has been silent while we listened.
struct Listening {
    since: Instant,
    polled: bool,
}

impl std::fmt::Debug for WalSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "WalSource(received {}, confirmed {})", self.received, self.confirmed)
    }
}

impl WalSource {
    /// Takes the slot and begins to stream from it, on a connection that is
    /// known to lead to `start.server`.
    ///
    /// # Errors
    /// [`SourceError::SlotInUse`] while another process streams from it.
    pub(crate) async fn start(
        mut client: ReplicationClient,
        start: &StreamStart,
    ) -> Result<Self, SourceError> {
        let timeout_ms = start.wal_sender_timeout_ms;
        let backend_pid = client.backend_pid().await?;
        let started = client.start(&start.command()).await;
        let (frames, charset) = started.map_err(|error| in_use(start, error))?;
        Ok(Self {
            frames,
            charset,
            undecoded: None,
            backend_pid,
            decoder: start.decoder(),
            transactions: Transactions::default(),
            received: start.position,
            // Of no position the server takes no notice.
            confirmed: if start.confirms { start.position } else { Lsn::ZERO },
            last_status: now(),
            status_interval: Duration::from_millis(timeout_ms / 3).min(STATUS_INTERVAL_MAX),
            reply_requested: true,
            listening: Listening { since: now(), polled: false },
            located: None,
        })
    }

    /// The next items, each with its position in the stream: of a row the start of
    /// its WAL record, of a message and a commit the end. Not cancel safe.
    pub(crate) async fn next_located(&mut self) -> Result<Vec<(Lsn, SourceItem)>, SourceError> {
        let mut items = Vec::new();
        self.located = Some(Vec::new());
        self.next(&mut items).await?;
        let located = self.located.take().unwrap_or_default();
        Ok(located.into_iter().zip(items).collect())
    }

    /// Who holds the slot, as `pg_replication_slots` names it.
    pub(crate) fn backend_pid(&self) -> i32 {
        self.backend_pid
    }

    /// Cancel safe.
    async fn take_frames(&mut self, items: &mut Vec<SourceItem>) -> Result<(), SourceError> {
        while items.len() < BATCH_ITEMS {
            match self.frame().await? {
                None => break,
                Some(Frame::Whole { tag: b'd', body }) => self.copy_data(body, None, items)?,
                Some(Frame::Shrunk { body, size_bytes }) => {
                    self.copy_data(body, Some(size_bytes), items)?;
                }
                Some(Frame::Whole { tag: b'E', body }) => {
                    return Err(SourceError::Server(server_error(&body)?));
                }
                // CopyDone, CommandComplete: the server shuts down.
                Some(Frame::Whole { tag: b'c' | b'C', .. }) => return Err(SourceError::Ended),
                Some(Frame::Whole { tag: b'N' | b'S', .. }) => {}
                Some(Frame::Whole { tag, .. }) => {
                    return Err(SourceError::Protocol(format!("tag {:?}", char::from(tag))));
                }
            }
        }
        Ok(())
    }

    /// The next frame that has arrived whole, its texts in UTF-8.
    async fn frame(&mut self) -> Result<Option<Frame>, SourceError> {
        if !self.charset.is_converted() {
            return Ok(self.frames.pop()?);
        }
        if self.undecoded.is_none() {
            self.undecoded = self.frames.pop()?;
        }
        if let Some(Frame::Whole { tag: b'd', body } | Frame::Shrunk { body, .. }) =
            &mut self.undecoded
        {
            *body = transcode(body, &mut self.charset).await?;
        }
        Ok(self.undecoded.take())
    }

    fn copy_data(
        &mut self,
        mut body: Bytes,
        shrunk_from: Option<u64>,
        items: &mut Vec<SourceItem>,
    ) -> Result<(), SourceError> {
        match body.first() {
            Some(b'w') if body.len() >= XLOG_DATA_HEADER_BYTES => {
                body.advance(1);
                let position = Lsn::from(body.get_u64());
                let wal_end = Lsn::from(body.get_u64());
                self.transactions.sent_at(body.get_i64().saturating_add(POSTGRES_EPOCH_US));
                self.received = self.received.max(position).max(wal_end);
                self.wal_data(position, body, shrunk_from, items)?;
                self.locate(position, items);
                Ok(())
            }
            Some(b'k') if body.len() == 18 => {
                body.advance(1);
                let wal_end = Lsn::from(body.get_u64());
                body.advance(8);
                self.reply_requested |= body.get_u8() != 0;
                self.received = self.received.max(wal_end);
                items.push(SourceItem::KeepAlive { wal_end });
                self.locate(wal_end, items);
                Ok(())
            }
            _ => Err(SourceError::Protocol("CopyData that is neither data nor keep-alive".into())),
        }
    }

    fn locate(&mut self, position: Lsn, items: &[SourceItem]) {
        if let Some(located) = &mut self.located {
            located.resize(items.len(), position);
        }
    }

    fn wal_data(
        &mut self,
        position: Lsn,
        data: Bytes,
        shrunk_from: Option<u64>,
        items: &mut Vec<SourceItem>,
    ) -> Result<(), SourceError> {
        let message =
            self.decoder.decode(data).map_err(|source| SourceError::Decode { position, source })?;
        match shrunk_from {
            None => self.transactions.push(message, items),
            Some(size_bytes) => self.transactions.push_oversize(message, size_bytes, items),
        }
    }

    async fn send_status(&mut self) -> Result<(), SourceError> {
        let clock = wall_clock().saturating_sub(POSTGRES_EPOCH).as_micros() as i64;
        let mut status = [0_u8; 39];
        status[0] = b'd';
        status[1..5].copy_from_slice(&38_u32.to_be_bytes());
        status[5] = b'r';
        status[6..14].copy_from_slice(&u64::from(self.received).to_be_bytes());
        status[14..22].copy_from_slice(&u64::from(self.confirmed).to_be_bytes());
        status[22..30].copy_from_slice(&u64::from(self.confirmed).to_be_bytes());
        status[30..38].copy_from_slice(&clock.to_be_bytes());
        // A server that decodes a large transaction is busy and silent, which
        // only its answer tells from one that is gone.
        status[38] = u8::from(self.listening.since.elapsed() >= self.status_interval);
        self.frames.queue(&status);
        self.reply_requested = false;
        self.last_status = now();
        Ok(self.frames.flush().await?)
    }

    fn status_due_in(&self) -> Duration {
        if self.reply_requested {
            return Duration::ZERO;
        }
        self.status_interval.saturating_sub(self.last_status.elapsed())
    }
}

impl Source for WalSource {
    async fn next(&mut self, items: &mut Vec<SourceItem>) -> Result<(), SourceError> {
        loop {
            self.listening.polled = true;
            self.take_frames(items).await?;
            if !items.is_empty() {
                self.listening.since = now();
                return Ok(());
            }
            let silence = self.listening.since.elapsed();
            if silence > SILENCE_MAX {
                return Err(SourceError::Silent(silence));
            }
            let due = self.status_due_in();
            if due.is_zero() {
                self.send_status().await?;
                continue;
            }
            if let Ok(filled) = tokio::time::timeout(due, self.frames.fill()).await {
                filled?;
            }
        }
    }

    async fn confirm(&mut self, lsn: Lsn) -> Result<(), SourceError> {
        debug_assert!(lsn >= self.confirmed, "confirmed positions rise");
        self.confirmed = self.confirmed.max(lsn);
        self.send_status().await
    }

    async fn keep_alive(&mut self) -> Result<(), SourceError> {
        // Whoever does not read cannot say that the other side is silent.
        if !std::mem::take(&mut self.listening.polled) {
            self.listening.since = now();
        }
        if self.status_due_in().is_zero() {
            self.send_status().await?;
        }
        Ok(())
    }
}

fn in_use(start: &StreamStart, error: SourceError) -> SourceError {
    match error {
        SourceError::Server(error) if error.code == "55006" => {
            SourceError::SlotInUse { slot: start.slot.clone(), detail: error.message().to_owned() }
        }
        other => other,
    }
}

fn now() -> Instant {
    Instant::now()
}

fn wall_clock() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

use std::{
    io,
    time::{Duration, Instant},
};

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use walpost_postgres::Stream;

use super::{coalesce::Coalescer, oversize::Shrinker};

/// Room for one read. Two to four times a default socket buffer.
const READ_BYTES: usize = 512 * 1024;
/// A header may claim up to 2 GiB; nothing but row data is ever that large.
const CONTROL_BYTES_MAX: usize = 16 * 1024 * 1024;
/// A peer that takes no bytes for this long is gone: what we send is small.
const SEND_MAX: Duration = Duration::from_secs(10);

/// Cuts the bytes of a connection into messages of the PostgreSQL protocol.
pub(super) struct Frames {
    stream: Stream,
    buffer: BytesMut,
    outgoing: BytesMut,
    coalescer: Coalescer,
    last_read: Instant,
    last_bytes: usize,
    shrinking: Option<Shrinker>,
    max_frame_bytes: usize,
}

/// One message: its tag and what follows its length.
#[derive(Debug)]
pub(super) enum Frame {
    /// As it came.
    Whole { tag: u8, body: Bytes },
    /// A CopyData larger than the limit, without the values that made it so.
    Shrunk { body: Bytes, size_bytes: u64 },
}

impl Frames {
    pub(super) fn new(stream: Stream, max_frame_bytes: usize) -> Self {
        Self {
            stream,
            buffer: BytesMut::new(),
            outgoing: BytesMut::new(),
            coalescer: Coalescer::default(),
            last_read: now(),
            last_bytes: 0,
            shrinking: None,
            max_frame_bytes,
        }
    }

    /// The next message that has arrived whole.
    pub(super) fn pop(&mut self) -> io::Result<Option<Frame>> {
        if let Some(shrinker) = &mut self.shrinking {
            let Some(frame) = shrinker.take_from(&mut self.buffer)? else {
                return Ok(None);
            };
            self.shrinking = None;
            return Ok(Some(frame));
        }
        let Some(header) = self.buffer.get(..5) else {
            return Ok(None);
        };
        let tag = header[0];
        let length = u32::from_be_bytes([header[1], header[2], header[3], header[4]]) as usize;
        let Some(body_bytes) = length.checked_sub(4) else {
            return Err(invalid("a message shorter than its own header"));
        };
        if tag == b'd' && body_bytes > self.max_frame_bytes {
            self.buffer.advance(5);
            self.shrinking = Some(Shrinker::new(body_bytes));
            return self.pop();
        }
        if tag != b'd' && body_bytes > CONTROL_BYTES_MAX {
            return Err(invalid("a control message of more than 16 MiB"));
        }
        let frame_bytes = 5 + body_bytes;
        if self.buffer.len() < frame_bytes {
            self.buffer.reserve(frame_bytes - self.buffer.len());
            return Ok(None);
        }
        let mut frame = self.buffer.split_to(frame_bytes);
        frame.advance(5);
        Ok(Some(Frame::Whole { tag, body: frame.freeze() }))
    }

    /// Reads at least one byte. Cancel safe.
    pub(super) async fn fill(&mut self) -> io::Result<()> {
        let pause = self.coalescer.pause(self.last_read.elapsed(), self.last_bytes);
        if !pause.is_zero() {
            // The timer of the runtime is a millisecond coarse; this thread
            // belongs to the pipeline alone.
            std::thread::sleep(pause);
        }
        self.buffer.reserve(READ_BYTES);
        let before = now();
        let bytes = self.stream.read_buf(&mut self.buffer).await?;
        if bytes == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.last_read = now();
        self.last_bytes = bytes;
        self.coalescer.after_read(self.last_read.duration_since(before));
        Ok(())
    }

    /// Queues a message; [`flush`](Self::flush) sends it.
    pub(super) fn queue(&mut self, message: &[u8]) {
        self.outgoing.extend_from_slice(message);
    }

    /// Sends what is queued. Cancel safe: what was not sent stays queued.
    ///
    /// # Errors
    /// Also when the peer has not taken it within ten seconds, as after a
    /// connection went dead without a word and its buffers are full.
    pub(super) async fn flush(&mut self) -> io::Result<()> {
        self.flush_within(SEND_MAX).await
    }

    async fn flush_within(&mut self, limit: Duration) -> io::Result<()> {
        tokio::time::timeout(limit, self.flush_unbounded())
            .await
            .unwrap_or_else(|_| Err(io::Error::new(io::ErrorKind::TimedOut, STUCK)))
    }

    async fn flush_unbounded(&mut self) -> io::Result<()> {
        while !self.outgoing.is_empty() {
            if self.stream.write_buf(&mut self.outgoing).await? == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
        }
        self.stream.flush().await
    }
}

const STUCK: &str = "the server takes nothing that is sent to it";

fn now() -> Instant {
    Instant::now()
}

pub(super) fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use tokio::net::UnixStream;

    use super::*;

    #[tokio::test]
    async fn a_peer_that_takes_nothing_is_given_up_and_one_that_takes_it_late_is_not() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut frames = Frames::new(Stream::Unix(ours), 1024);
        let size = 16 * 1024 * 1024;
        frames.queue(&vec![7; size]);
        let error = frames.flush_within(Duration::from_millis(50)).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);

        let mut taken = vec![0; size];
        let (flushed, read) = tokio::join!(frames.flush(), theirs.read_exact(&mut taken));
        flushed.unwrap();
        assert_eq!(read.unwrap(), size);
        assert!(taken.iter().all(|byte| *byte == 7), "nothing is lost by the time-out");
    }
}

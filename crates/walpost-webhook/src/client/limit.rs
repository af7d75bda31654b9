//! Until when the bytes of a request may go out: looked at whenever some do, by
//! whoever hands them to the kernel, however long this process was paused.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::Instant,
};

use crate::failpoint::Failpoint;

/// Of one connection, for one request after another.
#[derive(Clone, Debug, Default)]
pub(super) struct Limit(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// None before the first request: while a connection is made.
    until: Option<Instant>,
    wrote: bool,
    refused: bool,
}

impl Limit {
    /// A request is about to be sent.
    pub(super) fn begin(&self, until: Instant) {
        *self.state() = State { until: Some(until), wrote: false, refused: false };
    }

    /// Lets nothing more out; whether anything of the request has gone.
    pub(super) fn close(&self) -> bool {
        let mut state = self.state();
        state.until = Some(Instant::now());
        state.wrote
    }

    /// Whether bytes were refused for being too late.
    pub(super) fn has_refused(&self) -> bool {
        self.state().refused
    }

    /// Writes within the limit. What is looked at stays so for as long as `write`
    /// takes, which does not wait.
    fn write(&self, write: impl FnOnce() -> Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if self.state().until.is_some() {
            Failpoint::Sending.reached();
        }
        let mut state = self.state();
        if state.until.is_some_and(|until| Instant::now() >= until) {
            state.refused = true;
            let late = "the time to send it is over";
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, late)));
        }
        let written = write();
        state.wrote |= matches!(written, Poll::Ready(Ok(bytes)) if bytes > 0);
        written
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A stream that writes within a limit.
#[derive(Debug)]
pub(super) struct Limited<S> {
    stream: S,
    limit: Limit,
}

impl<S> Limited<S> {
    pub(super) fn new(stream: S, limit: Limit) -> Self {
        Self { stream, limit }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Limited<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Limited<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let Self { stream, limit } = self.get_mut();
        limit.write(|| Pin::new(stream).poll_write(context, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let Self { stream, limit } = self.get_mut();
        limit.write(|| Pin::new(stream).poll_write_vectored(context, parts))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    #[tokio::test]
    async fn nothing_goes_out_behind_the_limit() {
        let (ours, mut theirs) = duplex(64);
        let limit = Limit::default();
        let mut stream = Limited::new(ours, limit.clone());
        stream.write_all(b"greeting ").await.unwrap();
        limit.begin(Instant::now() + Duration::from_secs(60));
        stream.write_all(b"in time").await.unwrap();
        assert!(limit.close() && !limit.has_refused());
        let late = stream.write_all(b" late").await.unwrap_err();
        assert_eq!(late.kind(), io::ErrorKind::TimedOut);
        assert!(limit.has_refused());
        // The next request, which comes too late from the beginning.
        limit.begin(Instant::now());
        stream.write_all(b" late").await.unwrap_err();
        assert!(!limit.close());
        drop(stream);
        let mut got = String::new();
        theirs.read_to_string(&mut got).await.unwrap();
        assert_eq!(got, "greeting in time");
    }
}

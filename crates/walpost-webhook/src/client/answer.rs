use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::time::{Instant, timeout_at};

/// What was read of a body.
#[derive(Debug, Default)]
pub(super) struct Body {
    pub(super) kept: Bytes,
    pub(super) is_cut: bool,
}

impl Body {
    /// Reads up to `max_bytes` until `deadline`. Whatever ends it before its end
    /// cuts it.
    pub(super) async fn read(mut body: Incoming, max_bytes: usize, deadline: Instant) -> Self {
        let mut kept = BytesMut::new();
        let is_cut = loop {
            let Ok(frame) = timeout_at(deadline, body.frame()).await else { break true };
            let frame = match frame {
                None => break false,
                Some(Err(_)) => break true,
                Some(Ok(frame)) => frame,
            };
            // Trailers are passed over.
            let Ok(data) = frame.into_data() else { continue };
            let room = max_bytes - kept.len();
            kept.extend_from_slice(&data[..data.len().min(room)]);
            if data.len() > room {
                break true;
            }
        };
        Self { kept: kept.freeze(), is_cut }
    }
}

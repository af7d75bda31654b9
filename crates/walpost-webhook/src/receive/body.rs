use axum::body::Body;
use http::{HeaderMap, header::CONTENT_LENGTH};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use tokio::time::{Instant, timeout_at};

use super::problem::Problem;

/// The whole body as it came, which ends by then and has at most so many bytes.
pub(super) async fn read(
    headers: &HeaderMap,
    body: Body,
    max_bytes: usize,
    until: Instant,
) -> Result<Vec<u8>, Problem> {
    let length = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok());
    if length.and_then(|length| length.parse::<u64>().ok()).is_some_and(|n| n > max_bytes as u64) {
        return Err(Problem::BodyTooLarge { max_bytes });
    }
    match timeout_at(until, Limited::new(body, max_bytes).collect()).await {
        Ok(Ok(body)) => Ok(body.to_bytes().into()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            Err(Problem::BodyTooLarge { max_bytes })
        }
        Ok(Err(_)) => Err(Problem::BodyIncomplete),
        Err(_) => Err(Problem::BodyLate),
    }
}

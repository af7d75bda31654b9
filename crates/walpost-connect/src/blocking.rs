use crate::error::ApiError;

/// What reads files or computes for long, on a thread where that holds nobody up.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|_| {
        Err(ApiError::internal("walpost has panicked over this configuration; the log has more"))
    })
}

//! A stack on which the decoder, which calls itself, comes to its end.

use std::thread::Builder;

use crate::HandlerError;

/// Of a record and the union around it in a debug build: more than twice what
/// was seen.
/// What is not used takes no memory.
const LEVEL_BYTES: usize = 256 << 10;

/// Runs it on a thread of its own, which has ended when this returns. A panic
/// goes on.
pub(super) fn with_levels<T: Send>(
    levels: usize,
    run: impl FnOnce() -> T + Send,
) -> Result<T, HandlerError> {
    std::thread::scope(|scope| {
        let builder = Builder::new().stack_size((levels + 1) * LEVEL_BYTES);
        let thread = builder.spawn_scoped(scope, run).map_err(|error| {
            HandlerError::transient(format!("no thread starts to decode nested Avro: {error}"))
        })?;
        thread.join().map_err(|panic| std::panic::resume_unwind(panic))
    })
}

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tracing::Span;

/// What reads files or computes for long, as the judgement of a configuration does, on
/// a thread where that holds nobody up; one at a time, as what has begun goes on where
/// nobody waits for it any more. Clones share the turns, which come in the order in
/// which they were asked for.
#[derive(Clone, Debug)]
pub struct Blocking(Arc<Semaphore>);

/// Leave to run something now.
#[derive(Debug)]
pub struct Turn {
    _permit: OwnedSemaphorePermit,
}

/// What was to be done has panicked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("walpost has panicked over this configuration; the log has more")]
pub struct Panicked;

impl Default for Blocking {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(1)))
    }
}

impl Blocking {
    /// Waits for a turn, and does the work. What has begun is not ended by a cancellation,
    /// what has not does not begin then.
    ///
    /// # Errors
    /// [`Panicked`].
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Panicked> {
        self.turn().await.run(work).await
    }

    /// Waits for a turn. Safe to cancel.
    pub async fn turn(&self) -> Turn {
        let permit = Arc::clone(&self.0).acquire_owned().await;
        Turn { _permit: permit.expect("it is never closed") }
    }
}

impl Turn {
    /// Does the work, in the span of whoever asks. Cancelled it goes on.
    ///
    /// # Errors
    /// [`Panicked`].
    pub async fn run<T: Send + 'static>(
        self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Panicked> {
        let span = Span::current();
        let done = tokio::task::spawn_blocking(move || {
            let _turn = self;
            span.in_scope(work)
        });
        done.await.map_err(|_| Panicked)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use futures_util::FutureExt;

    use super::*;

    /// In place this would wait for ever.
    #[tokio::test]
    async fn the_runtime_goes_on_beside_it_and_the_next_has_its_turn() {
        let blocking = Blocking::default();
        let (say, said) = mpsc::channel();
        let first = blocking.run(move || said.recv().unwrap());
        let other = blocking.clone();
        let second = other.run(|| 2);
        let speak = async { say.send(1).unwrap() };
        let (first, second, ()) = tokio::join!(first, second, speak);
        assert_eq!((first.unwrap(), second.unwrap()), (1, 2));
    }

    #[tokio::test]
    async fn a_panic_is_an_error_of_this_one_alone() {
        let blocking = Blocking::default();
        assert_eq!(blocking.run(|| panic!("on purpose")).await, Err::<(), _>(Panicked));
        assert_eq!(blocking.run(|| 1).await, Ok(1));
    }

    #[tokio::test]
    async fn what_nobody_waits_for_any_more_keeps_its_turn_and_what_waits_gives_its_up() {
        let blocking = Blocking::default();
        let (say, said) = mpsc::channel::<()>();
        let begun = blocking.run(move || said.recv());
        assert!(begun.now_or_never().is_none());
        assert!(blocking.run(|| unreachable!("nobody waited")).now_or_never().is_none());
        let next = blocking.run(|| 3);
        drop(say);
        assert_eq!(next.await, Ok(3));
    }
}

use std::sync::Arc;

use tokio::sync::Semaphore;

use crate::error::ApiError;

/// What reads files or computes for long, on a thread where that holds nobody up; one
/// at a time, as what has begun goes on where nobody waits for it any more.
#[derive(Clone, Debug)]
pub(crate) struct Blocking(Arc<Semaphore>);

impl Blocking {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Semaphore::new(1)))
    }

    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let turn = Arc::clone(&self.0).acquire_owned().await.expect("it is never closed");
        let done = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            work()
        });
        done.await.unwrap_or_else(|_| {
            let text = "walpost has panicked over this configuration; the log has more";
            Err(ApiError::internal(text))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// In place this would wait for ever.
    #[tokio::test]
    async fn the_runtime_goes_on_beside_it_and_the_next_has_its_turn() {
        let blocking = Blocking::new();
        let (say, said) = mpsc::channel();
        let first = blocking.run(move || Ok(said.recv().unwrap()));
        let other = blocking.clone();
        let second = other.run(|| Ok(2));
        let speak = async { say.send(1).unwrap() };
        let (first, second, ()) = tokio::join!(first, second, speak);
        assert_eq!((first.unwrap(), second.unwrap()), (1, 2));
    }

    #[tokio::test]
    async fn a_panic_is_an_error_of_this_one_alone() {
        let blocking = Blocking::new();
        let error = blocking.run(|| -> Result<(), _> { panic!("on purpose") }).await.unwrap_err();
        assert_eq!(error.code, 500);
        assert_eq!(blocking.run(|| Ok(1)).await.unwrap(), 1);
    }
}

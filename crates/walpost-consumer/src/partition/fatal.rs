use tokio::sync::mpsc;

use crate::Error;

/// Takes errors that end the consumer: the first counts.
///
/// Reporting never waits. Several partitions find the same at once, and when
/// the consumer stops for the first nobody listens to the others.
#[derive(Clone, Debug)]
pub(crate) struct Fatal {
    first: mpsc::Sender<Error>,
}

impl Fatal {
    /// The reporting side, and the listening.
    pub(crate) fn new() -> (Self, mpsc::Receiver<Error>) {
        let (first, receiver) = mpsc::channel(1);
        (Self { first }, receiver)
    }

    pub(crate) fn report(&self, error: Error) {
        if let Err(late) = self.first.try_send(error) {
            let error = late.into_inner();
            tracing::debug!(reason = crate::report::report(&error), "not the first fatal error");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_kept_and_no_other_waits_for_a_listener() {
        let (fatal, mut errors) = Fatal::new();
        for part in ["first", "second", "third"] {
            fatal.report(Error::Panicked(part));
        }
        assert!(matches!(errors.try_recv(), Ok(Error::Panicked("first"))));
        drop(errors);
        fatal.report(Error::Panicked("fourth"));
    }
}

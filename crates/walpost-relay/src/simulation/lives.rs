use std::{
    pin::Pin,
    task::{Context, Poll},
};

/// A session that lives, on its own or beside others.
pub(super) type Living<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// Something that is left where it waits, after so many polls.
pub(super) struct Polled<'a, F: ?Sized> {
    pub(super) session: Pin<&'a mut F>,
    pub(super) polls: u64,
}

impl<F: Future + ?Sized> Future for Polled<'_, F> {
    /// None once it is left.
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if self.polls == 0 {
            return Poll::Ready(None);
        }
        match self.session.as_mut().poll(context) {
            Poll::Ready(ended) => Poll::Ready(Some(ended)),
            Poll::Pending => {
                self.polls -= 1;
                if self.polls == 0 {
                    // At once, and not when it would have gone on.
                    context.waker().wake_by_ref();
                }
                Poll::Pending
            }
        }
    }
}

/// Waits for one session while others live.
pub(super) async fn beside<T>(
    others: &mut Vec<Living<'_, ()>>,
    work: impl Future<Output = T>,
) -> T {
    let mut work = std::pin::pin!(work);
    std::future::poll_fn(|context| {
        others.retain_mut(|other| other.as_mut().poll(context).is_pending());
        work.as_mut().poll(context)
    })
    .await
}

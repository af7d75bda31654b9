use std::{
    sync::{Arc, Condvar, Mutex},
    time::Duration,
};

/// Wakes Kafka's thread: a command, a full queue, or room in an inbox.
#[derive(Clone, Debug, Default)]
pub(crate) struct Signal {
    inner: Arc<(Mutex<bool>, Condvar)>,
}

impl Signal {
    pub(crate) fn notify(&self) {
        let (raised, woken) = &*self.inner;
        let mut raised = raised.lock().expect("no code panics while it holds the lock");
        if !*raised {
            *raised = true;
            woken.notify_one();
        }
    }

    /// Waits for a notification, at most `limit`, and takes it.
    pub(super) fn wait(&self, limit: Duration) {
        let (raised, woken) = &*self.inner;
        let raised = raised.lock().expect("no code panics while it holds the lock");
        let (mut raised, _) = woken
            .wait_timeout_while(raised, limit, |raised| !*raised)
            .expect("no code panics while it holds the lock");
        *raised = false;
    }
}

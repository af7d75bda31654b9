//! Twins within this process wait for each other here, in the order of their
//! arrival, so that none of them has a connection meanwhile.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::{
    sync::{Mutex as Turns, OwnedMutexGuard},
    time::{Instant, timeout_at},
};

use crate::Lookup;

/// Keys that somebody of this process has or waits for.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    keys: Mutex<HashMap<Lookup, Arc<Turns<()>>>>,
}

/// A key is this one's until it is dropped.
pub(crate) struct Turn {
    queue: Arc<Queue>,
    lookup: Lookup,
    guard: Option<OwnedMutexGuard<()>>,
}

impl Queue {
    /// Its turn, if nobody has it or waits for it.
    pub(crate) fn turn_now(self: &Arc<Self>, lookup: Lookup) -> Option<Turn> {
        let turns = Arc::clone(self.keys().entry(lookup).or_default());
        let mut turn = Turn { queue: Arc::clone(self), lookup, guard: None };
        turn.guard = Some(turns.try_lock_owned().ok()?);
        Some(turn)
    }

    /// Waits for its turn; none when that has not come by then.
    pub(crate) async fn turn(self: &Arc<Self>, lookup: Lookup, until: Instant) -> Option<Turn> {
        let turns = Arc::clone(self.keys().entry(lookup).or_default());
        // Also without a turn it leaves the queue clean.
        let mut turn = Turn { queue: Arc::clone(self), lookup, guard: None };
        turn.guard = Some(timeout_at(until, turns.lock_owned()).await.ok()?);
        Some(turn)
    }

    fn keys(&self) -> MutexGuard<'_, HashMap<Lookup, Arc<Turns<()>>>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.guard = None;
        let mut keys = self.queue.keys();
        // Whoever waits has it as well, and nobody begins to while we look.
        if keys.get(&self.lookup).is_some_and(|turns| Arc::strong_count(turns) == 1) {
            keys.remove(&self.lookup);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::FutureExt;

    use super::*;
    use crate::{Key, Scope};

    fn lookup(key: &str) -> Lookup {
        Lookup::new(&Scope::principal("p"), &Key::new(key).unwrap())
    }

    #[tokio::test]
    async fn one_after_another_for_each_key_and_nothing_is_left() {
        let queue = Arc::new(Queue::default());
        let until = Instant::now() + Duration::from_secs(60);
        let first = queue.turn(lookup("a"), until).await.unwrap();
        let other = queue.turn(lookup("b"), until).await.unwrap();
        let mut second = Box::pin(queue.turn(lookup("a"), until));
        assert!(second.as_mut().now_or_never().is_none());
        assert!(queue.turn_now(lookup("a")).is_none());
        let given_up = queue.turn(lookup("a"), Instant::now()).await;
        assert!(given_up.is_none() && queue.keys().len() == 2);
        drop(first);
        let second = second.await.unwrap();
        assert_eq!(queue.keys().len(), 2);
        drop((second, other));
        assert_eq!(queue.keys().len(), 0);
    }

    #[tokio::test]
    async fn whoever_gives_up_last_cleans_up() {
        let queue = Arc::new(Queue::default());
        let until = Instant::now() + Duration::from_secs(60);
        let first = queue.turn(lookup("a"), until).await.unwrap();
        let mut second = Box::pin(queue.turn(lookup("a"), until));
        assert!(second.as_mut().now_or_never().is_none());
        drop(first);
        drop(second);
        assert!(queue.turn_now(lookup("a")).is_some());
        assert_eq!(queue.keys().len(), 0);
    }
}

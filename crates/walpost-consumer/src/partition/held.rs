//! Keys whose events wait behind a parked one: pure.

use std::{
    collections::HashSet,
    time::{Duration, Instant},
};

use crate::{Event, Park};

/// Keys that one partition may hold back. More is a fault and no poison.
pub(super) const MAX_HELD_KEYS: usize = 10_000;
/// Time between two looks for requests while anything is parked.
const LOOK_MS: u64 = 1_000;

/// What is parked of a claimed partition, as far as its owner has to know.
#[derive(Debug)]
pub(super) struct Held {
    keys: HashSet<Box<[u8]>>,
    /// When to look for requests, `None` while nothing is parked: only the
    /// owner parks.
    look_at: Option<Instant>,
}

impl Held {
    /// After a claim: the keys that are held, and whether anything is parked.
    pub(super) fn claimed(
        keys: impl IntoIterator<Item = Box<[u8]>>,
        any: bool,
        now: Instant,
    ) -> Self {
        Self { keys: keys.into_iter().collect(), look_at: any.then_some(now) }
    }

    /// Whether `event` has to wait.
    pub(super) fn holds(&self, event: &Event) -> bool {
        event.key().is_some_and(|key| self.keys.contains(key))
    }

    /// An event was parked; with its key, if that `holds_key`.
    pub(super) fn parked(&mut self, event: &Event, holds_key: bool, now: Instant) {
        if let Some(key) = event.key().filter(|_| holds_key) {
            self.keys.insert(key.into());
        }
        self.look_at.get_or_insert(now + Duration::from_millis(LOOK_MS));
    }

    /// Nothing waits for the key any more.
    pub(super) fn released(&mut self, key: &[u8]) {
        self.keys.remove(key);
    }

    pub(super) fn is_too_much(&self) -> bool {
        self.keys.len() > MAX_HELD_KEYS
    }

    /// When to look for requests, if ever.
    pub(super) fn look_at(&self) -> Option<Instant> {
        self.look_at
    }

    /// Nothing is asked for at the moment: looks again after `pause`, or a
    /// second.
    pub(super) fn looked(&mut self, now: Instant, pause: Option<Duration>) {
        self.look_at = Some(now + pause.unwrap_or(Duration::from_millis(LOOK_MS)));
    }
}

/// Whether parking `event` holds its key back.
pub(super) fn holds_key(park: Park, event: &Event) -> bool {
    match park {
        Park::Key => event.key().is_some() && event.identity().is_ok(),
        Park::Event => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(key: Option<&[u8]>, id: Option<&[u8]>) -> Event {
        Event::builder("t").key(key).header("id", id).build()
    }

    #[test]
    fn a_key_is_held_from_its_parked_event_until_nothing_waits() {
        let now = Instant::now();
        let mut held = Held::claimed([], false, now);
        let first = event(Some(b"a"), Some(b"1"));
        assert_eq!((held.holds(&first), held.look_at()), (false, None));
        held.parked(&first, true, now);
        assert!(held.holds(&event(Some(b"a"), Some(b"2"))));
        assert!(!held.holds(&event(Some(b"b"), Some(b"3"))));
        assert!(!held.holds(&event(None, Some(b"4"))));
        assert_eq!(held.look_at(), Some(now + Duration::from_secs(1)));
        held.released(b"a");
        assert!(!held.holds(&first));
    }

    #[test]
    fn an_event_that_is_parked_alone_holds_nothing_but_is_looked_after() {
        let now = Instant::now();
        let mut held = Held::claimed([], false, now);
        let alone = event(Some(b"a"), Some(b"1"));
        held.parked(&alone, holds_key(Park::Event, &alone), now);
        assert!(!held.holds(&alone));
        assert!(held.look_at().is_some());
    }

    #[test]
    fn without_a_key_or_an_id_an_event_is_parked_alone() {
        assert!(holds_key(Park::Key, &event(Some(b"a"), Some(b"1"))));
        assert!(!holds_key(Park::Key, &event(None, Some(b"1"))));
        assert!(!holds_key(Park::Key, &event(Some(b"a"), None)));
    }

    #[test]
    fn too_many_keys_are_noticed() {
        let keys = |count: usize| (0..count).map(|key| key.to_be_bytes().to_vec().into());
        let now = Instant::now();
        assert!(!Held::claimed(keys(MAX_HELD_KEYS), true, now).is_too_much());
        assert!(Held::claimed(keys(MAX_HELD_KEYS + 1), true, now).is_too_much());
    }
}

//! Keys whose events wait behind a parked one: pure.

use std::collections::HashSet;

use crate::{Event, Park};

/// Keys that one lane may hold back. More is a fault and no poison.
pub(super) const MAX_HELD_KEYS: usize = 10_000;

/// The keys that one lane has to hold back.
#[derive(Debug, Default)]
pub(super) struct Held {
    keys: HashSet<Box<[u8]>>,
}

impl Held {
    pub(super) fn new(keys: impl IntoIterator<Item = Box<[u8]>>) -> Self {
        Self { keys: keys.into_iter().collect() }
    }

    /// Whether `event` has to wait.
    pub(super) fn holds(&self, event: &Event) -> bool {
        event.key().is_some_and(|key| self.keys.contains(key))
    }

    /// An event of the key was parked.
    pub(super) fn hold(&mut self, key: &[u8]) {
        self.keys.insert(key.into());
    }

    /// Nothing waits for the key any more.
    pub(super) fn release(&mut self, key: &[u8]) {
        self.keys.remove(key);
    }

    pub(super) fn is_too_much(&self) -> bool {
        self.keys.len() > MAX_HELD_KEYS
    }

    /// Hands the keys to lanes: those of a lane by its number.
    pub(super) fn split(self, lanes: usize, lane_of: impl Fn(&[u8]) -> usize) -> Vec<Self> {
        let mut split: Vec<Self> = (0..lanes).map(|_| Self::default()).collect();
        for key in self.keys {
            if let Some(held) = split.get_mut(lane_of(&key)) {
                held.keys.insert(key);
            }
        }
        split
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
    fn a_key_is_held_until_it_is_released() {
        let mut held = Held::default();
        held.hold(b"a");
        assert!(held.holds(&event(Some(b"a"), Some(b"2"))));
        assert!(!held.holds(&event(Some(b"b"), Some(b"3"))));
        assert!(!held.holds(&event(None, Some(b"4"))));
        held.release(b"a");
        assert!(!held.holds(&event(Some(b"a"), Some(b"2"))));
    }

    #[test]
    fn each_lane_holds_its_own_keys() {
        let held = Held::new([b"a".as_slice().into(), b"b".as_slice().into()]);
        let split = held.split(2, |key| usize::from(key == b"b"));
        let holds = |lane: &Held, key: &[u8]| lane.holds(&event(Some(key), Some(b"1")));
        assert!(holds(&split[0], b"a") && !holds(&split[0], b"b"));
        assert!(!holds(&split[1], b"a") && holds(&split[1], b"b"));
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
        assert!(!Held::new(keys(MAX_HELD_KEYS)).is_too_much());
        assert!(Held::new(keys(MAX_HELD_KEYS + 1)).is_too_much());
    }
}

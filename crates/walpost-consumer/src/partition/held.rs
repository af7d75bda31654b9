//! Keys whose events wait behind a parked one: pure.

use std::{
    collections::HashSet,
    time::{Duration, Instant},
};

use crate::{Event, Park};

/// Keys that one lane may hold back. More is a fault and no poison.
pub(super) const MAX_HELD_KEYS: usize = 10_000;
/// Time between two looks for requests while anything is parked.
const LOOK_MS: u64 = 1_000;

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

/// When to look for requests about parked events: never while there are none,
/// as only the owner parks.
#[derive(Debug)]
pub(super) struct Looks {
    at: Option<Instant>,
}

impl Looks {
    /// After a claim: whether anything is parked.
    pub(super) fn claimed(any: bool, now: Instant) -> Self {
        Self { at: any.then_some(now) }
    }

    /// An event was parked.
    pub(super) fn parked(&mut self, now: Instant) {
        self.at.get_or_insert(now + Duration::from_millis(LOOK_MS));
    }

    pub(super) fn at(&self) -> Option<Instant> {
        self.at
    }

    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.at.is_some_and(|at| at <= now)
    }

    /// Looks again after `pause`, or a second.
    pub(super) fn again(&mut self, now: Instant, pause: Option<Duration>) {
        self.at = Some(now + pause.unwrap_or(Duration::from_millis(LOOK_MS)));
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
    fn nothing_is_looked_for_until_something_is_parked() {
        let now = Instant::now();
        let mut looks = Looks::claimed(false, now);
        assert_eq!(looks.at(), None);
        looks.parked(now);
        looks.parked(now + Duration::from_secs(9));
        assert_eq!(looks.at(), Some(now + Duration::from_secs(1)));
        assert!(Looks::claimed(true, now).is_due(now));
        looks.again(now, Some(Duration::ZERO));
        assert!(looks.is_due(now));
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

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    time::Duration,
};

use walpost_event::Bytes;

use crate::pace::Load;

/// What one side has and the other has not yet, in the order in which it came.
#[derive(Debug)]
pub(crate) struct Waiting<T> {
    next: u64,
    entries: BTreeMap<u64, Entry<T>>,
    by_id: HashMap<Bytes, VecDeque<u64>>,
    bytes: usize,
}

#[derive(Debug)]
struct Entry<T> {
    since: Duration,
    id: Option<Bytes>,
    bytes: usize,
    what: T,
}

impl<T> Default for Waiting<T> {
    fn default() -> Self {
        Self { next: 0, entries: BTreeMap::new(), by_id: HashMap::new(), bytes: 0 }
    }
}

impl<T> Waiting<T> {
    /// Returns its number.
    pub(crate) fn add(&mut self, now: Duration, id: Option<Bytes>, bytes: usize, what: T) -> u64 {
        let number = self.next;
        self.next += 1;
        if let Some(id) = &id {
            self.by_id.entry(id.clone()).or_default().push_back(number);
        }
        self.bytes += bytes;
        self.entries.insert(number, Entry { since: now, id, bytes, what });
        number
    }

    /// Takes the oldest with this id that is wanted.
    pub(crate) fn take_by_id(&mut self, id: &Bytes, wanted: impl Fn(&T) -> bool) -> Option<T> {
        let numbers = self.by_id.get(id)?.iter().copied();
        let is_wanted =
            |number: &u64| self.entries.get(number).is_some_and(|entry| wanted(&entry.what));
        let number = numbers.into_iter().find(is_wanted)?;
        self.remove(number)
    }

    /// Takes the oldest if it is due, by the time since when it waits.
    pub(crate) fn take_oldest(&mut self, is_due: impl Fn(Duration) -> bool) -> Option<T> {
        let (number, entry) = self.entries.first_key_value()?;
        let number = *number;
        is_due(entry.since).then(|| self.remove(number)).flatten()
    }

    pub(crate) fn get_mut(&mut self, number: u64) -> Option<&mut T> {
        self.entries.get_mut(&number).map(|entry| &mut entry.what)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.entries.values().map(|entry| &entry.what)
    }

    pub(crate) fn load(&self) -> Load {
        Load { count: self.entries.len(), bytes: self.bytes }
    }

    fn remove(&mut self, number: u64) -> Option<T> {
        let entry = self.entries.remove(&number)?;
        self.bytes -= entry.bytes;
        if let Some(id) = &entry.id
            && let Some(numbers) = self.by_id.get_mut(id)
        {
            numbers.retain(|other| *other != number);
            if numbers.is_empty() {
                self.by_id.remove(id);
            }
        }
        Some(entry.what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: fn(u64) -> Duration = Duration::from_secs;

    #[test]
    fn the_oldest_of_an_id_goes_first_and_nothing_is_left_of_it() {
        let mut waiting = Waiting::default();
        let id = Bytes::from_static(b"a");
        for what in [1, 2, 3] {
            waiting.add(AT(0), Some(id.clone()), 10, what);
        }
        assert_eq!(waiting.take_by_id(&id, |what| *what > 1), Some(2));
        assert_eq!(waiting.take_by_id(&id, |_| true), Some(1));
        assert_eq!(waiting.take_by_id(&id, |what| *what == 1), None);
        assert_eq!(waiting.load(), Load { count: 1, bytes: 10 });
        assert_eq!(waiting.take_by_id(&id, |_| true), Some(3));
        assert!(waiting.by_id.is_empty() && waiting.bytes == 0);
    }

    #[test]
    fn what_is_due_is_taken_in_order() {
        let mut waiting = Waiting::default();
        waiting.add(AT(1), None, 1, "a");
        waiting.add(AT(2), None, 1, "b");
        assert_eq!(waiting.take_oldest(|since| since <= AT(0)), None);
        assert_eq!(waiting.take_oldest(|since| since <= AT(1)), Some("a"));
        assert_eq!(waiting.take_oldest(|since| since <= AT(1)), None);
        assert_eq!(waiting.take_oldest(|since| since <= AT(2)), Some("b"));
    }
}

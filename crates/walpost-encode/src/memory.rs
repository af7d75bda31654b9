//! What is remembered of earlier records, so that it is not worked out again.

use std::{borrow::Borrow, collections::HashMap, hash::Hash};

/// What an entry takes beside its key and its value.
const ENTRY_BYTES: usize = 64;

/// A map with a bound in entries and in bytes. Beyond it, what was not asked
/// for the longest is forgotten, a quarter at once: what is looked up for every
/// record has to be cheap, forgetting has not.
#[derive(Clone, Debug)]
pub(crate) struct Memory<K, V> {
    max_entries: usize,
    max_bytes: usize,
    bytes: usize,
    clock: u64,
    entries: HashMap<K, Entry<V>>,
}

#[derive(Clone, Debug)]
struct Entry<V> {
    value: V,
    bytes: usize,
    used: u64,
}

impl<K: Eq + Hash, V> Memory<K, V> {
    /// Remembers nothing yet.
    pub(crate) fn new(max_entries: usize, max_bytes: usize) -> Self {
        Self { max_entries, max_bytes, bytes: 0, clock: 0, entries: HashMap::new() }
    }

    /// What is remembered under this key.
    pub(crate) fn get<Q: Eq + Hash + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        let entry = self.entries.get_mut(key)?;
        self.clock += 1;
        entry.used = self.clock;
        Some(&mut entry.value)
    }

    /// Remembers `value`, which takes so many bytes with its key; not if it is
    /// larger than the whole bound.
    pub(crate) fn insert(&mut self, key: K, value: V, bytes: usize) {
        let bytes = bytes.saturating_add(ENTRY_BYTES);
        if bytes > self.max_bytes || self.max_entries == 0 {
            return;
        }
        if self.bytes + bytes > self.max_bytes || self.entries.len() >= self.max_entries {
            self.forget(bytes);
        }
        self.clock += 1;
        let entry = Entry { value, bytes, used: self.clock };
        self.bytes += bytes;
        if let Some(old) = self.entries.insert(key, entry) {
            self.bytes -= old.bytes;
        }
    }

    /// Makes room for so many bytes, and then some.
    fn forget(&mut self, room: usize) {
        let mut by_age: Vec<(u64, usize)> =
            self.entries.values().map(|entry| (entry.used, entry.bytes)).collect();
        by_age.sort_unstable();
        let bytes_left = (self.max_bytes - room).min(self.max_bytes / 4 * 3);
        let entries_left = self.max_entries / 4 * 3;
        let (mut entries, mut last) = (by_age.len(), 0);
        for (used, bytes) in by_age {
            if self.bytes <= bytes_left && entries <= entries_left {
                break;
            }
            self.bytes -= bytes;
            entries -= 1;
            last = used;
        }
        self.entries.retain(|_, entry| entry.used > last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_asked_for_the_longest_is_forgotten_first() {
        let mut memory = Memory::new(8, 1 << 20);
        for key in 0..8 {
            memory.insert(key, key, 1);
        }
        assert_eq!(memory.get(&0).copied(), Some(0));
        memory.insert(8, 8, 1);
        let kept: Vec<i32> = (0..9).filter(|key| memory.get(key).is_some()).collect();
        assert_eq!(kept, [0, 3, 4, 5, 6, 7, 8]);
    }

    #[test]
    fn a_memory_is_bounded_in_bytes() {
        const MAX_BYTES: usize = 10_000;
        let mut memory = Memory::new(usize::MAX, MAX_BYTES);
        for key in 0..1_000 {
            memory.insert(key, (), key % 3_000);
            let counted: usize = memory.entries.values().map(|entry| entry.bytes).sum();
            assert_eq!(counted, memory.bytes);
            assert!(memory.bytes <= MAX_BYTES, "{} bytes", memory.bytes);
            assert!(memory.get(&key).is_some(), "the last one is remembered");
        }
        memory.insert(5, (), MAX_BYTES);
        assert!(memory.get(&5).is_none(), "larger than all of it");
        memory.insert(999, (), 1);
        memory.insert(999, (), 2);
        let counted: usize = memory.entries.values().map(|entry| entry.bytes).sum();
        assert_eq!(counted, memory.bytes);
    }

    #[test]
    fn a_memory_of_nothing_remembers_nothing() {
        let mut memory = Memory::new(0, 1_000);
        memory.insert(1, (), 1);
        assert!(memory.get(&1).is_none());
        let mut memory = Memory::new(1, 1_000);
        memory.insert(1, (), 1);
        memory.insert(2, (), 1);
        assert!(memory.get(&1).is_none() && memory.get(&2).is_some());
    }
}

//! The order in which Java's `HashMap` yields its entries: that of the hashes.

use std::{
    collections::{HashMap, hash_map::Entry},
    hash::Hash,
};

#[cfg(feature = "avro")]
use super::value::Value;

/// The hash of a string: of its UTF-16 units.
pub(crate) fn hash_of_text(text: &str) -> u32 {
    text.encode_utf16().fold(0_u32, |hash, unit| hash.wrapping_mul(31).wrapping_add(unit.into()))
}

/// A map that keeps the order of Java's `HashMap`, as long as no eight keys
/// share a bucket.
pub(crate) struct JavaMap<K, V> {
    capacity: u32,
    /// With hash, and place in the order of their insertion.
    entries: HashMap<K, (u32, usize, V)>,
}

impl<K: Eq + Hash, V> JavaMap<K, V> {
    /// As `new HashMap<>(capacity)`; 16 is Java's default.
    pub(crate) fn with_capacity(capacity: usize) -> Self {
        let capacity = u32::try_from(capacity).unwrap_or(1 << 30).clamp(1, 1 << 30);
        Self { capacity: capacity.next_power_of_two(), entries: HashMap::new() }
    }

    /// Inserts or replaces.
    pub(crate) fn insert(&mut self, hash: u32, key: K, value: V) {
        let place = self.entries.len();
        match self.entries.entry(key) {
            Entry::Occupied(mut known) => known.get_mut().2 = value,
            Entry::Vacant(free) => {
                free.insert((hash ^ (hash >> 16), place, value));
                if self.entries.len() as u64 > u64::from(self.capacity) * 3 / 4 {
                    self.capacity *= 2;
                }
            }
        }
    }

    /// The entries in Java's order.
    pub(crate) fn into_entries(self) -> impl Iterator<Item = (K, V)> {
        let mask = self.capacity - 1;
        let mut entries: Vec<_> = self.entries.into_iter().collect();
        entries.sort_unstable_by_key(|(_, (hash, place, _))| (hash & mask, *place));
        entries.into_iter().map(|(key, (_, _, value))| (key, value))
    }
}

/// Entries whose keys are text, in the order of Java's `HashMap`.
#[cfg(feature = "avro")]
pub(crate) fn in_java_order(entries: &[(Value, Value)]) -> Vec<&(Value, Value)> {
    let mut map = JavaMap::with_capacity(16);
    for entry in entries {
        let key = match &entry.0 {
            Value::String(text) => &**text,
            _ => "",
        };
        map.insert(hash_of_text(key), key, entry);
    }
    map.into_entries().map(|(_, entry)| entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(keys: &[&str]) -> String {
        let mut map = JavaMap::with_capacity(16);
        for key in keys {
            map.insert(hash_of_text(key), *key, ());
        }
        map.into_entries().map(|(key, ())| key).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn hashes_are_those_of_java() {
        assert_eq!(hash_of_text(""), 0);
        assert_eq!(hash_of_text("hello"), 99_162_322);
        assert_eq!(hash_of_text("polygenelubricants"), 0x8000_0000);
    }

    #[test]
    fn entries_come_by_their_buckets() {
        assert_eq!(order(&["b", "a", "c"]), "a b c");
        // Both have the hash 2112.
        assert_eq!(order(&["BB", "Aa", "a"]), "BB Aa a");
        assert_eq!(order(&["a", "b", "a"]), "a b");
    }
}

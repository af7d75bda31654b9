use std::{
    collections::{HashMap, VecDeque},
    hash::{DefaultHasher, Hash, Hasher},
};

/// Records that are remembered, so that a second one is known.
const MOST: usize = 1_000_000;

/// What Debezium has written lately, as hashes; the oldest are forgotten.
#[derive(Debug, Default)]
pub(crate) struct Recent {
    order: VecDeque<u64>,
    times: HashMap<u64, u32>,
}

impl Recent {
    pub(crate) fn hash_of(what: &impl Hash) -> u64 {
        let mut hasher = DefaultHasher::new();
        what.hash(&mut hasher);
        hasher.finish()
    }

    pub(crate) fn add(&mut self, hash: u64) {
        if self.order.len() >= MOST
            && let Some(oldest) = self.order.pop_front()
            && let Some(times) = self.times.get_mut(&oldest)
        {
            *times -= 1;
            if *times == 0 {
                self.times.remove(&oldest);
            }
        }
        self.order.push_back(hash);
        *self.times.entry(hash).or_default() += 1;
    }

    pub(crate) fn contains(&self, hash: u64) -> bool {
        self.times.contains_key(&hash)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_is_forgotten_unless_it_came_again() {
        let mut recent = Recent::default();
        recent.add(1);
        recent.add(2);
        recent.add(1);
        (3..MOST as u64 + 1).for_each(|hash| recent.add(hash));
        assert!(recent.contains(1) && recent.contains(2));
        recent.add(0);
        assert!(recent.contains(1) && !recent.contains(2), "its second time is remembered");
        recent.add(0);
        assert!(!recent.contains(1));
        assert_eq!(recent.order.len(), MOST);
    }
}

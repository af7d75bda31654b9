//! The schemas that were fetched, at most so many: pure.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use super::Written;

pub(super) struct Cache<S = Written> {
    max: usize,
    schemas: HashMap<u32, Arc<S>>,
    /// As they came.
    order: VecDeque<u32>,
}

impl<S> Cache<S> {
    pub(super) fn new(max: usize) -> Self {
        Self { max, schemas: HashMap::new(), order: VecDeque::new() }
    }

    pub(super) fn get(&self, id: u32) -> Option<Arc<S>> {
        self.schemas.get(&id).map(Arc::clone)
    }

    /// The oldest goes where there is no room.
    pub(super) fn put(&mut self, id: u32, schema: Arc<S>) {
        if self.schemas.insert(id, schema).is_some() {
            return;
        }
        self.order.push_back(id);
        if self.order.len() > self.max
            && let Some(oldest) = self.order.pop_front()
        {
            self.schemas.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_holds_the_newest_and_no_more() {
        let mut cache = Cache::new(3);
        for id in [1, 2, 3, 2, 4, 5] {
            cache.put(id, Arc::new(id));
        }
        let held: Vec<u32> = (0..9).filter(|id| cache.get(*id).is_some()).collect();
        assert_eq!(held, [3, 4, 5]);
        assert_eq!((cache.schemas.len(), cache.order.len()), (3, 3));
    }
}

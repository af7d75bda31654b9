use super::{
    schedule::Event,
    source::change,
    world::{World, lsn},
};
use crate::{
    error::SourceError,
    proven::sees,
    source::{Source, SourceItem},
    wal::snapshot::load_position,
};

/// Between two looks whether a commit is visible.
const LOOK_MS: u64 = 20;

/// The rows that a lost slot has not brought.
pub(super) struct RowsOfWorld {
    world: World,
    holder: u32,
    epoch: u32,
    events: Vec<Event>,
    next: usize,
    position: u64,
}

impl RowsOfWorld {
    /// Those of the snapshot `boundary` for which a condition holds. A new slot
    /// has a snapshot that sees them at once; afterwards they have to be visible.
    pub(super) async fn open(
        world: &World,
        holder: u32,
        position: u64,
        boundary: &str,
        condition: &str,
        is_new: bool,
    ) -> Self {
        while !is_new && !world.lock().is_visible(boundary) {
            world.pass(LOOK_MS).await;
        }
        let state = world.lock();
        let events = state.outbox(condition, |xid| sees(boundary, xid));
        let epoch = state.epoch;
        drop(state);
        Self { world: world.clone(), holder, epoch, events, next: 0, position }
    }

    fn read(&mut self, items: &mut Vec<SourceItem>) {
        let mut state = self.world.lock();
        let read_max_items = state.schedule.settings.read_max_items;
        let max = 1 + state.chance.below(read_max_items);
        drop(state);
        while items.len() < max && self.next <= self.events.len() + 1 {
            items.push(match self.next.checked_sub(1) {
                None => SourceItem::Begin {
                    commit_lsn: load_position(lsn(self.position)),
                    committed_at_us: 0,
                    xid: 0,
                    is_late: true,
                },
                Some(index) if index < self.events.len() => change(&self.events[index]),
                Some(_) => SourceItem::Commit { end_lsn: lsn(self.position) },
            });
            self.next += 1;
        }
    }
}

impl Source for RowsOfWorld {
    async fn next(&mut self, items: &mut Vec<SourceItem>) -> Result<(), SourceError> {
        let now = {
            let state = self.world.lock();
            (state.slots[self.world.pipeline].holder, state.epoch)
        };
        if now != (self.holder, self.epoch) {
            return Err(SourceError::Ended);
        }
        self.read(items);
        if items.is_empty() {
            return std::future::pending().await;
        }
        Ok(())
    }

    async fn confirm(&mut self, _: walpost_event::Lsn) -> Result<(), SourceError> {
        Ok(())
    }

    async fn keep_alive(&mut self) -> Result<(), SourceError> {
        Ok(())
    }
}

use std::sync::{Arc, LazyLock};

use walpost_event::{Column, Lsn, Operation, Relation, ReplicaIdentity, Row, RowChange, type_oid};
use walpost_pgoutput::LogicalMessage;

use super::{
    schedule::{Event, Kind, TOPICS},
    world::{Entry, State, World, lsn, xid},
};
use crate::{
    error::SourceError,
    moves::crossing::PREFIX,
    source::{Source, SourceItem},
};

/// The stream of the slot.
pub(super) struct WalOfWorld {
    world: World,
    holder: u32,
    epoch: u32,
    losses: u32,
    /// Index of the next entry, and of its next item.
    entry: usize,
    item: usize,
    /// Everything that was committed below was handed over.
    told: u64,
}

impl WalOfWorld {
    /// From `position` on, or from the slot's where that is later. Whatever was
    /// committed below is left out.
    pub(super) fn start(world: &World, holder: u32, position: Lsn) -> Self {
        let state = world.lock();
        let slot = &state.slots[world.pipeline];
        let start = slot.position().max(position.into());
        let entry = state.wal.partition_point(|entry| entry.start < start);
        let (epoch, losses) = (state.epoch, slot.losses);
        drop(state);
        Self { world: world.clone(), holder, epoch, losses, entry, item: 0, told: start }
    }

    /// Until when it stays unnoticed that the server is gone; none while it hears
    /// us.
    fn unheard_ms(&self, state: &State) -> Result<Option<u64>, SourceError> {
        let slot = &state.slots[self.world.pipeline];
        let is_same = (state.epoch, slot.losses) == (self.epoch, self.losses);
        let unnoticed = slot.unnoticed.iter().find(|(holder, _)| *holder == self.holder);
        match unnoticed {
            _ if is_same && !slot.is_lost && slot.holder == self.holder => Ok(None),
            Some((_, until_ms)) if *until_ms > state.now_ms => Ok(Some(*until_ms)),
            _ => Err(SourceError::Ended),
        }
    }

    fn read(&mut self, state: &mut State, items: &mut Vec<SourceItem>) {
        let max = 1 + state.chance.below(state.schedule.settings.read_max_items);
        while items.len() < max {
            let Some(entry) = state.wal.get(self.entry).copied() else { break };
            let Some(index) = entry.transaction else {
                self.entry += 1;
                // The server tells it now or later.
                if state.chance.chance(30) && entry.end > self.told {
                    self.told = entry.end;
                    items.push(SourceItem::KeepAlive { wal_end: lsn(entry.end) });
                }
                continue;
            };
            if self.item > 0 && state.chance.chance(5) {
                self.told = entry.start;
                items.push(SourceItem::KeepAlive { wal_end: lsn(entry.start) });
            }
            self.transaction(entry, index, state, items);
        }
        if items.is_empty() && state.wal_end() > self.told {
            self.told = state.wal_end();
            items.push(SourceItem::KeepAlive { wal_end: lsn(self.told) });
        }
    }

    /// Its next item.
    fn transaction(
        &mut self,
        entry: Entry,
        index: usize,
        state: &State,
        items: &mut Vec<SourceItem>,
    ) {
        let transaction = &state.schedule.transactions[index];
        let (item, noise) = (self.item, transaction.noise);
        self.item += 1;
        if item == 0 {
            let committed_at_us = 1 + state.now_ms as i64;
            let commit_lsn = lsn(entry.start);
            let (xid, is_late) = (xid(index), false);
            items.push(SourceItem::Begin { commit_lsn, committed_at_us, xid, is_late });
        } else if item <= noise {
            items.push(other_change(item));
        } else if let Some(event) = transaction
            .events
            .iter()
            .filter(|event| state.oracle.is_taken(self.world.pipeline, event.number))
            .nth(item - 1 - noise)
        {
            items.push(change(event));
        } else if let Some(message) = state.moves.message(index).filter(|_| item == noise + 1) {
            items.push(logical_message(PREFIX, message.to_owned()));
        } else {
            (self.entry, self.item, self.told) = (self.entry + 1, 0, entry.end);
            items.push(SourceItem::Commit { end_lsn: lsn(entry.end) });
        }
    }
}

impl Source for WalOfWorld {
    async fn next(&mut self, items: &mut Vec<SourceItem>) -> Result<(), SourceError> {
        loop {
            let world = self.world.clone();
            let unheard_ms = self.unheard_ms(&world.lock())?;
            if let Some(until_ms) = unheard_ms {
                world.until(until_ms).await;
                continue;
            }
            let next_ms = {
                let mut state = world.lock();
                self.read(&mut state, items);
                state.next_ms()
            };
            if !items.is_empty() {
                return Ok(());
            }
            world.more(next_ms).await;
        }
    }

    async fn confirm(&mut self, position: Lsn) -> Result<(), SourceError> {
        let mut state = self.world.lock();
        if self.unheard_ms(&state)?.is_none() {
            state.confirm(self.world.pipeline, position.into(), self.told);
        }
        drop(state);
        // Whether that was all.
        drop(self.world.lock());
        Ok(())
    }

    async fn keep_alive(&mut self) -> Result<(), SourceError> {
        self.unheard_ms(&self.world.lock()).map(|_| ())
    }
}

const COLUMNS: [&str; 4] = ["id", "aggregatetype", "aggregateid", "payload"];

static OUTBOX: LazyLock<Arc<Relation>> = LazyLock::new(|| relation("outbox"));
static OTHER: LazyLock<Arc<Relation>> = LazyLock::new(|| relation("orders"));

fn relation(name: &str) -> Arc<Relation> {
    let column = |name: &str| Column {
        name: name.into(),
        type_oid: type_oid::TEXT,
        type_modifier: -1,
        is_key: name == "id",
    };
    Arc::new(Relation {
        oid: 1,
        schema: "walpost".to_owned(),
        name: name.to_owned(),
        replica_identity: ReplicaIdentity::Default,
        columns: COLUMNS.map(column).into(),
    })
}

pub(super) fn change(event: &Event) -> SourceItem {
    let Event { number, aggregate, kind } = *event;
    let (id, of) = (format!("e{number}"), format!("a{aggregate}"));
    let topic = format!("t{}", aggregate % TOPICS);
    let row = |topic: Option<&str>| {
        let values = [Some(id.as_str()), topic, Some(of.as_str()), Some("payload")];
        RowChange::insert(Row::from_text(OUTBOX.clone(), values))
    };
    let message = |content| logical_message("walpost", content);
    match kind {
        Kind::Row | Kind::Refused | Kind::Unsendable => SourceItem::Change(row(Some(&topic))),
        Kind::Unroutable => SourceItem::Change(row(None)),
        Kind::Oversize => SourceItem::Oversize { change: row(Some(&topic)), size_bytes: 1 << 30 },
        Kind::Undecodable => message("no object".to_owned()),
        Kind::Emitted => message(format!(
            r#"{{"id":"{id}","aggregatetype":"{topic}","aggregateid":"{of}","payload":"p"}}"#
        )),
    }
}

/// One for each topic.
pub(super) fn rows() -> Vec<RowChange> {
    let change = |number| change(&Event { number, aggregate: number, kind: Kind::Row });
    let row = |item| if let SourceItem::Change(row) = item { Some(row) } else { None };
    (0..TOPICS).filter_map(|number| row(change(number))).collect()
}

/// What a transaction has beside its events.
fn other_change(number: usize) -> SourceItem {
    let row = |relation: &Arc<Relation>| Row::from_text(relation.clone(), [Some("other")]);
    match number % 3 {
        0 => SourceItem::Change(RowChange::insert(row(&OTHER))),
        1 => SourceItem::Change(RowChange {
            operation: Operation::Delete,
            row: row(&OUTBOX),
            old: None,
        }),
        _ => logical_message("somebody", "{}".to_owned()),
    }
}

fn logical_message(prefix: &str, content: String) -> SourceItem {
    SourceItem::Message(LogicalMessage {
        transactional: true,
        lsn: Lsn::ZERO,
        prefix: prefix.to_owned(),
        content: content.into_bytes().into(),
    })
}

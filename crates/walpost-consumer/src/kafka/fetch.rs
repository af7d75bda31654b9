use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use rdkafka::{
    Offset, TopicPartitionList,
    consumer::{BaseConsumer, Consumer, RebalanceProtocol, base_consumer::PartitionQueue},
    error::{KafkaError, KafkaResult},
};

use super::{
    command::Place,
    context::Context,
    position::{News, Position},
    read,
    signal::Signal,
};
use crate::{
    Event, TopicPartition,
    inbox::{FetchFailure, Inbox},
};

/// Which partitions librdkafka fetches, each by a queue of its own.
///
/// The group's assignment is accepted empty, so that no rebalance waits for a
/// claim; each partition is added when its start is known. With the eager
/// protocol librdkafka knows whole assignments alone, so the others are given
/// again at the offsets where their queues have got to.
pub(super) struct Fetching {
    // Before the consumer: a queue must not outlive its client.
    partitions: BTreeMap<TopicPartition, Fetch>,
    /// Stopped, which librdkafka has not heard of.
    leaving: BTreeSet<TopicPartition>,
    consumer: Arc<BaseConsumer<Context>>,
    signal: Signal,
    /// Kept for its memory.
    polled: Vec<Event>,
}

struct Fetch {
    queue: PartitionQueue<Context>,
    inbox: Arc<Inbox>,
    position: Position,
}

impl Fetching {
    pub(super) fn new(consumer: Arc<BaseConsumer<Context>>, signal: Signal) -> Self {
        let (partitions, leaving) = (BTreeMap::new(), BTreeSet::new());
        Self { partitions, leaving, consumer, signal, polled: Vec::new() }
    }

    /// Answers an assignment of the group.
    pub(super) fn accept(&self) -> KafkaResult<()> {
        if self.is_cooperative() {
            self.consumer.incremental_assign(&TopicPartitionList::new())
        } else {
            self.consumer.assign(&self.list()?)
        }
    }

    /// Fetches a partition from `place`. It must have been stopped, and
    /// librdkafka must have heard of it.
    pub(super) fn start(
        &mut self,
        of: TopicPartition,
        place: Place,
        inbox: Arc<Inbox>,
    ) -> KafkaResult<()> {
        let queue = self.split(&of)?;
        // Records of an earlier claim would be outdated, and are dropped by
        // librdkafka when read.
        while queue.poll(std::time::Duration::ZERO).is_some() {}
        let position = Position::at(place);
        let list = one(&of, position.next_offset())?;
        self.partitions.insert(of, Fetch { queue, inbox, position });
        if self.is_cooperative() {
            self.consumer.incremental_assign(&list)
        } else {
            self.consumer.assign(&self.list()?)
        }
    }

    /// Ends fetching a partition; none is fine.
    pub(super) fn stop(&mut self, of: &TopicPartition) {
        if let Some((of, fetch)) = self.partitions.remove_entry(of) {
            drop(fetch);
            self.leaving.insert(of);
        }
    }

    /// Whether librdkafka has yet to hear that the partition was stopped.
    pub(super) fn is_leaving(&self, of: &TopicPartition) -> bool {
        self.leaving.contains(of)
    }

    /// Tells librdkafka what was stopped. By the cooperative protocol that
    /// answers a revocation that is open, whichever partitions it is of; so
    /// then only [`answer`](Self::answer) is for it.
    pub(super) fn settle(&mut self) -> KafkaResult<()> {
        if self.leaving.is_empty() {
            return Ok(());
        }
        if self.is_cooperative() {
            self.unassign_leaving()
        } else {
            self.leaving.clear();
            self.consumer.assign(&self.list()?)
        }
    }

    /// Answers a revocation, whose partitions were stopped.
    pub(super) fn answer(&mut self) -> KafkaResult<()> {
        if self.is_cooperative() {
            self.unassign_leaving()
        } else {
            self.leaving.clear();
            self.partitions.clear();
            self.consumer.unassign()
        }
    }

    fn unassign_leaving(&mut self) -> KafkaResult<()> {
        let mut list = TopicPartitionList::with_capacity(self.leaving.len());
        for of in std::mem::take(&mut self.leaving) {
            list.add_partition(&of.topic, of.partition);
        }
        self.consumer.incremental_unassign(&list)
    }

    /// Moves records to where there is room.
    pub(super) fn fill(&mut self) {
        for (of, Fetch { queue, inbox, position }) in &mut self.partitions {
            let next = || loop {
                let fetched = read::fetched(&of.topic, queue.poll(std::time::Duration::ZERO));
                if let Some(taken) = position.take(fetched) {
                    return taken;
                }
            };
            inbox.fill(&mut self.polled, next);
            if let Some(news) = position.news() {
                inbox.read(position.next_offset(), news == News::End);
            }
        }
    }

    /// A record came by the client's common queue, where none should.
    pub(super) fn stray(&self, topic: &str, partition: i32) {
        let of = TopicPartition { topic: topic.into(), partition };
        if let Some(fetch) = self.partitions.get(&of) {
            let lost = "a record came outside of its queue".to_owned();
            fetch.inbox.fail(FetchFailure::Lost(lost));
        }
    }

    fn split(&self, of: &TopicPartition) -> KafkaResult<PartitionQueue<Context>> {
        let queue = self.consumer.split_partition_queue(&of.topic, of.partition);
        let mut queue = queue
            .ok_or_else(|| KafkaError::Subscription("the partition has no queue".to_owned()))?;
        let signal = self.signal.clone();
        queue.set_nonempty_callback(move || signal.notify());
        Ok(queue)
    }

    fn list(&self) -> KafkaResult<TopicPartitionList> {
        let mut list = TopicPartitionList::with_capacity(self.partitions.len());
        for (of, fetch) in &self.partitions {
            let offset = Offset::Offset(fetch.position.next_offset());
            list.add_partition_offset(&of.topic, of.partition, offset)?;
        }
        Ok(list)
    }

    fn is_cooperative(&self) -> bool {
        matches!(self.consumer.rebalance_protocol(), RebalanceProtocol::Cooperative)
    }
}

fn one(of: &TopicPartition, offset: i64) -> KafkaResult<TopicPartitionList> {
    let mut list = TopicPartitionList::with_capacity(1);
    list.add_partition_offset(&of.topic, of.partition, Offset::Offset(offset))?;
    Ok(list)
}

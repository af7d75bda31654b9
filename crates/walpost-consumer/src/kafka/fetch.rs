use std::{collections::BTreeMap, sync::Arc};

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
        Self { partitions: BTreeMap::new(), consumer, signal, polled: Vec::new() }
    }

    /// Answers an assignment of the group.
    pub(super) fn accept(&self) -> KafkaResult<()> {
        if self.is_cooperative() {
            self.consumer.incremental_assign(&TopicPartitionList::new())
        } else {
            self.consumer.assign(&self.list()?)
        }
    }

    /// Fetches a partition from `place`, dropping what was fetched before.
    pub(super) fn start(
        &mut self,
        of: TopicPartition,
        place: Place,
        inbox: Arc<Inbox>,
    ) -> KafkaResult<()> {
        self.stop(&of)?;
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
    pub(super) fn stop(&mut self, of: &TopicPartition) -> KafkaResult<()> {
        let Some(fetch) = self.partitions.remove(of) else {
            return Ok(());
        };
        drop(fetch);
        if self.is_cooperative() {
            self.consumer.incremental_unassign(&one(of, 0)?)
        } else {
            self.consumer.assign(&self.list()?)
        }
    }

    /// Answers a revocation.
    pub(super) fn release(&mut self, revoked: &[TopicPartition]) -> KafkaResult<()> {
        let mut list = TopicPartitionList::new();
        for of in revoked {
            if self.partitions.remove(of).is_some() {
                list.add_partition(&of.topic, of.partition);
            }
        }
        if self.is_cooperative() {
            self.consumer.incremental_unassign(&list)
        } else {
            self.partitions.clear();
            self.consumer.unassign()
        }
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

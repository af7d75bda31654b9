use std::{
    ffi::{CString, c_char, c_void},
    fmt, ptr,
    sync::Arc,
    time::Duration,
};

use rdkafka::{
    Offset, TopicPartitionList,
    consumer::{BaseConsumer, Consumer, ConsumerContext},
    error::{KafkaError, KafkaResult},
};
use rdkafka_sys as native;

use crate::{
    admin::{Operation, Options, poll},
    answer::{self, Answer},
    owned::Owned,
};

/// Questions to the cluster whose answers come later, so that the thread that
/// owns a client never waits for one.
///
/// Each is asked under a number of the caller's choice, which its answer
/// carries. Every question gets exactly one answer, an error after the time
/// limit (of twice that for [`end`](Self::end), which looks for the leader
/// first); those that are open when this is dropped get none.
pub struct Questions<C: ConsumerContext> {
    // Before the consumer: a queue must not outlive its client.
    queue: Owned<native::rd_kafka_queue_t>,
    // Called by the queue.
    _answered: Box<Answered>,
    consumer: Arc<BaseConsumer<C>>,
    limit: Duration,
}

/// How the cluster ids of the broker inside librdkafka begin.
const EMBEDDED: &str = "mockCluster";

type Answered = Box<dyn Fn() + Send + Sync>;

/// One end of a partition's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The oldest offset that is kept.
    Oldest,
    /// The offset after the newest record that a consumer may see.
    Newest {
        /// Whether transactions that are still open are seen, as by
        /// `isolation.level = read_uncommitted`.
        uncommitted: bool,
    },
}

impl<C: ConsumerContext> Questions<C> {
    /// Asks by the client of `consumer`, and waits up to `limit` for each
    /// answer. `answered` is called by a thread of librdkafka's when an answer
    /// is there; it must not block.
    pub fn new(
        consumer: Arc<BaseConsumer<C>>,
        limit: Duration,
        answered: impl Fn() + Send + Sync + 'static,
    ) -> Self {
        let answered: Box<Answered> = Box::new(Box::new(answered));
        // SAFETY: the client lives as long as `consumer`.
        let queue = unsafe { native::rd_kafka_queue_new(consumer.client().native_ptr()) };
        let queue = Owned::new(queue, native::rd_kafka_queue_destroy);
        let opaque = ptr::from_ref(&*answered).cast_mut().cast();
        // SAFETY: `answered` stays where it is until `drop` takes the callback
        // back.
        unsafe { native::rd_kafka_queue_cb_event_enable(queue.ptr(), Some(notify), opaque) };
        Self { queue, _answered: answered, consumer, limit }
    }

    /// Asks for a topic's id and partitions: [`Answer::Topic`].
    ///
    /// # Errors
    /// If the name contains a NUL.
    pub fn topic(&self, topic: &str, number: usize) -> KafkaResult<()> {
        let name = CString::new(topic)?;
        let mut names: [*const c_char; 1] = [name.as_ptr()];
        let mut options = self.options(Operation::RD_KAFKA_ADMIN_OP_DESCRIBETOPICS, number)?;
        if self.is_embedded() {
            options = options.broker(1).map_err(KafkaError::AdminOp)?;
        }
        // SAFETY: `names` holds one C string, which is copied.
        let topics =
            unsafe { native::rd_kafka_TopicCollection_of_topic_names(names.as_mut_ptr(), 1) };
        let topics = Owned::new(topics, native::rd_kafka_TopicCollection_destroy);
        let client = self.consumer.client().native_ptr();
        // SAFETY: all four are alive; topics and options are copied, and the
        // request keeps a reference to the queue of its own.
        unsafe {
            native::rd_kafka_DescribeTopics(client, topics.ptr(), options.ptr(), self.queue.ptr());
        }
        Ok(())
    }

    /// Asks for one end of a partition's log: [`Answer::Offset`].
    ///
    /// # Errors
    /// If the name contains a NUL.
    pub fn end(&self, topic: &str, partition: i32, end: End, number: usize) -> KafkaResult<()> {
        use native::rd_kafka_IsolationLevel_t as Isolation;
        let (offset, isolation) = match end {
            End::Oldest => (Offset::Beginning, Isolation::RD_KAFKA_ISOLATION_LEVEL_READ_COMMITTED),
            End::Newest { uncommitted: false } => {
                (Offset::End, Isolation::RD_KAFKA_ISOLATION_LEVEL_READ_COMMITTED)
            }
            End::Newest { uncommitted: true } => {
                (Offset::End, Isolation::RD_KAFKA_ISOLATION_LEVEL_READ_UNCOMMITTED)
            }
        };
        let list = one(topic, partition, offset)?;
        let options = self.options(Operation::RD_KAFKA_ADMIN_OP_LISTOFFSETS, number)?;
        let options = options.isolation(isolation).map_err(KafkaError::AdminOp)?;
        let client = self.consumer.client().native_ptr();
        // SAFETY: as in `topic`; the list is copied.
        unsafe {
            native::rd_kafka_ListOffsets(client, list.ptr(), options.ptr(), self.queue.ptr());
        }
        Ok(())
    }

    /// The next answer that is there, with the number of its question. Never
    /// waits.
    pub fn answer(&self) -> Option<(usize, Answer)> {
        loop {
            let event = poll(&self.queue, Duration::ZERO)?;
            // SAFETY: the event is alive. The number was set as an address and
            // is never followed.
            let number = unsafe { native::rd_kafka_event_opaque(event.ptr()) }.addr();
            if let Some(answer) = answer::read(&event) {
                return Some((number, answer));
            }
        }
    }

    /// The controller answers for topics. The broker inside librdkafka names
    /// none; of its brokers the first one is always there.
    fn is_embedded(&self) -> bool {
        let cluster = self.consumer.client().fetch_cluster_id(Duration::ZERO);
        cluster.is_some_and(|id| id.starts_with(EMBEDDED))
    }

    fn options(&self, operation: Operation, number: usize) -> KafkaResult<Options> {
        let options = Options::new(self.consumer.client(), operation, self.limit);
        Ok(options.map_err(KafkaError::AdminOp)?.number(number))
    }
}

impl<C: ConsumerContext> Drop for Questions<C> {
    fn drop(&mut self) {
        // SAFETY: the queue is alive. librdkafka calls and changes the callback
        // under the queue's lock, so it does not run from here on.
        unsafe {
            native::rd_kafka_queue_cb_event_enable(self.queue.ptr(), None, ptr::null_mut());
        }
    }
}

impl<C: ConsumerContext> fmt::Debug for Questions<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { queue, limit, .. } = self;
        f.debug_struct("Questions").field("queue", queue).field("limit", limit).finish()
    }
}

unsafe extern "C" fn notify(_: *mut native::rd_kafka_t, answered: *mut c_void) {
    // SAFETY: `Questions::new` gave this address, and keeps what lies there.
    let answered = unsafe { &*answered.cast::<Answered>() };
    answered();
}

fn one(topic: &str, partition: i32, offset: Offset) -> KafkaResult<TopicPartitionList> {
    // `add_partition` of rust-rdkafka panics on such a name.
    CString::new(topic)?;
    let mut list = TopicPartitionList::with_capacity(1);
    list.add_partition_offset(topic, partition, offset)?;
    Ok(list)
}

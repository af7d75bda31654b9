//! What the group holds, asked for on a thread of its own: the one call of
//! librdkafka's that is sound under lost connections waits for its answer.
//!
//! Its questions to a group by way of the administration are not: one that is
//! given up may be answered from freed memory, and one that is never given up
//! may stay without an answer for ever.

use std::{
    io,
    sync::{
        Arc,
        mpsc::{Receiver, SyncSender, TrySendError, sync_channel},
    },
    thread::JoinHandle,
    time::Duration,
};

use rdkafka::consumer::BaseConsumer;
use walpost_librdkafka::{Committed, committed};

use super::{
    command::{KafkaFailure, Reply},
    context::Context,
};
use crate::TopicPartition;

/// Longest wait for an answer.
const LIMIT: Duration = Duration::from_secs(5);
/// Questions that wait; each partition has one at a time.
const MAX_WAITING: usize = 100_000;
/// Partitions that are asked for together.
const MAX_TOGETHER: usize = 1_000;

const ATTEMPTED: &str = "asking the group for its offset";

/// The thread, which ends with this value.
pub(super) struct GroupOffsets {
    questions: Option<SyncSender<Asked>>,
    thread: Option<JoinHandle<()>>,
}

struct Asked {
    partition: TopicPartition,
    reply: Reply<Committed>,
}

impl GroupOffsets {
    pub(super) fn start(consumer: Arc<BaseConsumer<Context>>) -> io::Result<Self> {
        let (questions, asked) = sync_channel(MAX_WAITING);
        let thread = std::thread::Builder::new()
            .name("walpost-offsets".to_owned())
            .spawn(move || answer(&consumer, &asked))?;
        Ok(Self { questions: Some(questions), thread: Some(thread) })
    }

    /// Never waits. The answer comes within some seconds of its turn.
    pub(super) fn ask(&self, partition: TopicPartition, reply: Reply<Committed>) {
        let Some(questions) = &self.questions else { return };
        let refused = match questions.try_send(Asked { partition, reply }) {
            Ok(()) => return,
            Err(TrySendError::Full(asked) | TrySendError::Disconnected(asked)) => asked,
        };
        fail(refused, format!("more than {MAX_WAITING} questions are open"));
    }
}

impl Drop for GroupOffsets {
    fn drop(&mut self) {
        self.questions = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn answer(consumer: &BaseConsumer<Context>, asked: &Receiver<Asked>) {
    while let Ok(first) = asked.recv() {
        let mut together = vec![first];
        together.extend(asked.try_iter().take(MAX_TOGETHER - 1));
        together.retain(|asked| !asked.reply.is_closed());
        if together.is_empty() {
            continue;
        }
        let of: Vec<(&str, i32)> = together
            .iter()
            .map(|asked| (&*asked.partition.topic, asked.partition.partition))
            .collect();
        match committed(consumer, &of, LIMIT) {
            Ok(held) => {
                for (asked, held) in together.into_iter().zip(held) {
                    match held {
                        Ok(held) => drop(asked.reply.send(Ok(held))),
                        Err(error) => fail(asked, error.to_string()),
                    }
                }
            }
            Err(error) => {
                let problem = error.to_string();
                together.into_iter().for_each(|asked| fail(asked, problem.clone()));
            }
        }
    }
}

fn fail(asked: Asked, problem: String) {
    let _ = asked.reply.send(Err(KafkaFailure::Other { attempted: ATTEMPTED, problem }));
}

#[cfg(test)]
mod tests {
    use rdkafka::{ClientConfig, config::FromClientConfigAndContext};
    use tokio::sync::oneshot;

    use super::*;

    #[test]
    fn a_group_that_does_not_answer_is_given_up_and_asked_again() {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", "127.0.0.1:1").set("group.id", "g");
        let consumer = BaseConsumer::from_config_and_context(&config, Context::default()).unwrap();
        let offsets = GroupOffsets::start(Arc::new(consumer)).unwrap();
        for _ in 0..2 {
            let (reply, answer) = oneshot::channel();
            offsets.ask(TopicPartition { topic: "t".into(), partition: 0 }, reply);
            let problem = answer.blocking_recv().unwrap().unwrap_err().to_string();
            assert!(problem.starts_with(ATTEMPTED), "{problem}");
        }
    }
}

use std::{sync::Arc, thread::JoinHandle, time::Duration};

use rdkafka::{ClientConfig, config::FromClientConfigAndContext, consumer::BaseConsumer};
use tokio::sync::{mpsc, oneshot};
use walpost_librdkafka::{Committed, NoAccess, without_value};

use super::{
    command::{
        AssignmentId, Command, Commit, FoundTopic, GroupEvent, KafkaFailure, Place, Question,
        Reply, Start,
    },
    config::client_config,
    context::Context,
    instance::Instance,
    signal::Signal,
    thread,
};
use crate::{BoxError, Error, TopicPartition, inbox::Inbox, settings::Settings};

/// Commands on their way to Kafka's thread.
const MAX_COMMANDS: usize = 1024;
/// Events of the group that nobody has looked at.
const MAX_GROUP_EVENTS: usize = 1024;

/// The way to the thread, the thread, and what the group does.
pub(crate) type Started = (Kafka, KafkaThread, mpsc::Receiver<GroupEvent>);

/// The way to Kafka's thread. The thread ends when the last one is dropped.
#[derive(Clone, Debug)]
pub(crate) struct Kafka {
    commands: mpsc::Sender<Command>,
    signal: Signal,
}

/// The thread, to be waited for.
#[derive(Debug)]
pub(crate) struct KafkaThread {
    handle: JoinHandle<()>,
}

/// Starts the thread, which joins the group.
pub(crate) fn start(settings: &Settings) -> Result<Started, Error> {
    let (commands, command_receiver) = mpsc::channel(MAX_COMMANDS);
    let (events, event_receiver) = mpsc::channel(MAX_GROUP_EVENTS);
    let signal = Signal::default();
    let config = client_config(settings);
    // Only here can a wrong property be told from a broker that is down.
    check(&config).map_err(|source| Error::Kafka {
        attempted: "configuring the Kafka client".to_owned(),
        source,
    })?;
    let plan = thread::Plan {
        brokers: settings.brokers().to_owned(),
        topics: settings.topics.clone(),
        instance: Instance::of(&config),
        read_uncommitted: config.get("isolation.level") == Some("read_uncommitted"),
        commit_interval: Duration::from_millis(settings.commit_interval_ms),
        signal: signal.clone(),
        commands: command_receiver,
        events,
    };
    let thread = KafkaThread::start(move || {
        let consumer = BaseConsumer::from_config_and_context(&config, Context::default());
        thread::run(plan, consumer);
    })?;
    Ok((Kafka { commands, signal }, thread, event_receiver))
}

fn check(config: &ClientConfig) -> Result<(), BoxError> {
    config.create_native_config().map_err(|error| {
        let text = without_value(&error);
        NoAccess::in_refusal(&text).map_or(BoxError::from(text), BoxError::from)
    })?;
    NoAccess::in_settings(config).map_or(Ok(()), |missing| Err(missing.into()))
}

/// The same for `run`, which stands in for librdkafka.
#[cfg(feature = "test-kit")]
pub(super) fn start_as(
    run: impl FnOnce(Signal, mpsc::Receiver<Command>, mpsc::Sender<GroupEvent>) + Send + 'static,
) -> Result<Started, Error> {
    let (commands, command_receiver) = mpsc::channel(MAX_COMMANDS);
    let (events, event_receiver) = mpsc::channel(MAX_GROUP_EVENTS);
    let signal = Signal::default();
    let waking = signal.clone();
    let thread = KafkaThread::start(move || run(waking, command_receiver, events))?;
    Ok((Kafka { commands, signal }, thread, event_receiver))
}

impl KafkaThread {
    fn start(run: impl FnOnce() + Send + 'static) -> Result<Self, Error> {
        let thread = std::thread::Builder::new().name("walpost-kafka".to_owned());
        let handle = thread.spawn(run).map_err(|error| Error::Kafka {
            attempted: "starting the thread of the Kafka client".to_owned(),
            source: error.into(),
        })?;
        Ok(Self { handle })
    }

    /// Waits for the thread's end after [`Kafka::close`].
    pub(crate) async fn join(self) -> Result<(), Error> {
        let joined = tokio::task::spawn_blocking(move || self.handle.join()).await;
        match joined {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(Error::Panicked("Kafka thread")),
        }
    }
}

impl Kafka {
    /// What wakes the thread when an inbox has room.
    pub(crate) fn signal(&self) -> Signal {
        self.signal.clone()
    }

    /// Cluster, id and partitions of a topic, asked for anew.
    pub(crate) async fn topic(&self, topic: &Arc<str>) -> Result<FoundTopic, KafkaFailure> {
        let topic = Arc::clone(topic);
        self.ask(|reply| Command::Ask(Question::Topic { topic, reply })).await
    }

    /// What the group holds, once Kafka has answered the last commit of the
    /// partition.
    pub(crate) async fn committed(&self, of: &TopicPartition) -> Result<Committed, KafkaFailure> {
        let partition = of.clone();
        self.ask(|reply| Command::Ask(Question::Committed { partition, reply })).await
    }

    /// Oldest offset, and the one after the newest that may be read.
    pub(crate) async fn watermarks(&self, of: &TopicPartition) -> Result<(i64, i64), KafkaFailure> {
        let (partition, uncommitted) = (of.clone(), false);
        self.ask(|reply| Command::Ask(Question::Watermarks { partition, uncommitted, reply })).await
    }

    /// The offset after the newest, also where transactions below it are open.
    pub(crate) async fn end_of_log(&self, of: &TopicPartition) -> Result<i64, KafkaFailure> {
        let (partition, uncommitted) = (of.clone(), true);
        let asked =
            self.ask(|reply| Command::Ask(Question::Watermarks { partition, uncommitted, reply }));
        Ok(asked.await?.1)
    }

    /// Fetches from `place`; what was fetched before is dropped.
    pub(crate) async fn fetch(
        &self,
        of: &TopicPartition,
        assignment: AssignmentId,
        place: Place,
        inbox: Arc<Inbox>,
    ) -> Result<(), KafkaFailure> {
        let partition = of.clone();
        let start = |reply| Start { partition, assignment, place, inbox, reply };
        self.ask(|reply| Command::Start(start(reply))).await
    }

    /// Ends fetching.
    pub(crate) async fn stop_fetching(
        &self,
        of: &TopicPartition,
        assignment: AssignmentId,
    ) -> Result<(), KafkaFailure> {
        let partition = of.clone();
        self.ask(|reply| Command::Stop { partition, assignment, reply }).await
    }

    /// Sends an offset on its way. The answer comes when Kafka has it, or does
    /// not.
    pub(crate) async fn commit(
        &self,
        of: &TopicPartition,
        assignment: AssignmentId,
        offset: i64,
        marker: String,
        urgent: bool,
    ) -> oneshot::Receiver<Result<(), KafkaFailure>> {
        let (reply, answer) = oneshot::channel();
        let partition = of.clone();
        let commit = Commit { partition, assignment, offset, marker, urgent, reply };
        self.send(Command::Commit(commit)).await;
        answer
    }

    /// A commit of the partition that waits for the interval goes out at once.
    pub(crate) async fn hurry(&self, of: &TopicPartition) {
        self.send(Command::Hurry(of.clone())).await;
    }

    /// Gives revoked partitions back to the group.
    pub(crate) async fn release(
        &self,
        partitions: Vec<(TopicPartition, AssignmentId)>,
    ) -> Result<(), KafkaFailure> {
        self.ask(|reply| Command::Release { partitions, reply }).await
    }

    /// Leaves the group and ends the thread.
    pub(crate) async fn close(&self) -> Result<(), KafkaFailure> {
        self.ask(|reply| Command::Close { reply }).await
    }

    async fn ask<T>(&self, command: impl FnOnce(Reply<T>) -> Command) -> Result<T, KafkaFailure> {
        let (reply, answer) = oneshot::channel();
        self.send(command(reply)).await;
        answer.await.unwrap_or(Err(KafkaFailure::Closed))
    }

    async fn send(&self, command: Command) {
        if self.commands.send(command).await.is_ok() {
            self.signal.notify();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_that_is_refused_is_named_without_its_value() {
        for name in ["sasl.pasword", "security.protocol"] {
            let mut settings = Settings::new("shipping".into());
            settings.kafka.insert(name.to_owned(), "s3cret".to_owned());
            let error = start(&settings).map(drop).expect_err("librdkafka refuses it");
            let text = walpost_event::error_chain(&error);
            assert!(text.contains(name) && !text.contains("s3cret"), "{text}");
        }
    }
}

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use rdkafka::{
    Offset, TopicPartitionList,
    consumer::{BaseConsumer, Consumer},
    error::{KafkaError, KafkaResult, RDKafkaErrorCode},
};
use tokio::sync::mpsc;
use walpost_librdkafka::{NoAccess, commit_async, without_value};

use super::{
    asking::Asking,
    assignments::Assignments,
    command::{AssignmentId, Command, Commit, GroupEvent, KafkaFailure, Question, Start},
    commits::Commits,
    context::{Context, Note},
    fatal,
    fetch::Fetching,
    instance::{Instance, join},
    reach::{Complaint, Reach},
    signal::Signal,
};
use crate::{
    BoxError, Error, TopicPartition,
    tell::{seconds, tell},
};

/// Longest sleep without a signal.
const IDLE: Duration = Duration::from_millis(100);
/// Events of librdkafka's that one round serves at most.
const MAX_POLLS: usize = 1000;

/// What the thread is given.
pub(super) struct Plan {
    /// As they were given.
    pub(super) brokers: String,
    pub(super) topics: Vec<String>,
    /// Whose place in the group is looked at first.
    pub(super) instance: Option<Instance>,
    /// Records of open transactions are read too.
    pub(super) read_uncommitted: bool,
    pub(super) commit_interval: Duration,
    pub(super) signal: Signal,
    pub(super) commands: mpsc::Receiver<Command>,
    pub(super) events: mpsc::Sender<GroupEvent>,
}

/// Owns the client from here to its drop.
pub(super) fn run(plan: Plan, created: KafkaResult<BaseConsumer<Context>>) {
    let events = plan.events.clone();
    let fatal = |attempted: &str, source: BoxError| {
        let attempted = attempted.to_owned();
        let _ = events.blocking_send(GroupEvent::Fatal(Error::Kafka { attempted, source }));
    };
    let mut consumer = match created {
        Ok(consumer) => consumer,
        Err(error) => {
            let text = without_value(&error);
            let source = NoAccess::in_refusal(&text).map_or(text.into(), BoxError::from);
            return fatal("creating the Kafka client", source);
        }
    };
    let signal = plan.signal.clone();
    consumer.set_nonempty_callback(move || signal.notify());
    let consumer = Arc::new(consumer);
    let asking =
        match Asking::new(Arc::clone(&consumer), plan.read_uncommitted, plan.signal.clone()) {
            Ok(asking) => asking,
            Err(error) => return fatal("starting the thread of the group's offsets", error.into()),
        };
    // The last thing that can fail: from here on the context is closed at the end,
    // for which its thread waits.
    let joining = match join(&consumer, plan.instance, plan.topics.clone(), plan.events.clone()) {
        Ok(joining) => joining,
        Err(error) => return drop(events.blocking_send(GroupEvent::Fatal(error))),
    };
    let mut thread = Thread {
        fetching: Fetching::new(Arc::clone(&consumer), plan.signal.clone()),
        asking,
        held_back: Vec::new(),
        held_starts: Vec::new(),
        consumer,
        assignments: Assignments::default(),
        commits: Commits::new(plan.commit_interval),
        reach: Reach::new(Instant::now()),
        brokers: plan.brokers,
        probe: plan.topics.first().cloned().unwrap_or_default(),
        signal: plan.signal,
        commands: plan.commands,
        events: plan.events,
    };
    let closing = thread.serve();
    // librdkafka waits for the answer to a revocation also when it is closed.
    let revoked = thread.assignments.revoked();
    while thread.assignments.is_revoking() {
        let _ = thread.release(&revoked);
    }
    thread.consumer.context().close();
    drop(joining);
    drop(thread);
    if let Some(reply) = closing {
        let _ = reply.send(Ok(()));
    }
}

struct Thread {
    // Before the consumer: its queues must go first.
    fetching: Fetching,
    asking: Asking,
    /// Questions that wait for the answer to a commit.
    held_back: Vec<Question>,
    /// Of partitions that librdkafka does not know to have been stopped.
    held_starts: Vec<Start>,
    consumer: Arc<BaseConsumer<Context>>,
    assignments: Assignments,
    commits: Commits,
    reach: Reach,
    brokers: String,
    /// The topic that is asked for to see whether a broker answers.
    probe: String,
    signal: Signal,
    commands: mpsc::Receiver<Command>,
    events: mpsc::Sender<GroupEvent>,
}

impl Thread {
    /// Until it is told to close, or nobody is left to tell.
    fn serve(&mut self) -> Option<super::command::Reply<()>> {
        loop {
            loop {
                match self.commands.try_recv() {
                    Ok(Command::Close { reply }) => return Some(reply),
                    Ok(command) => self.carry_out(command),
                    Err(mpsc::error::TryRecvError::Empty) => break,
                    Err(mpsc::error::TryRecvError::Disconnected) => return None,
                }
            }
            self.poll();
            let answered = self.asking.take_answers();
            self.watch(answered);
            for question in std::mem::take(&mut self.held_back) {
                self.ask(question);
            }
            self.fetching.fill();
            self.send_commits();
            let wait = self.commits.next_due(Instant::now()).unwrap_or(IDLE);
            self.signal.wait(wait.min(IDLE));
        }
    }

    /// Serves librdkafka's events; records come by the partitions' queues.
    fn poll(&mut self) {
        let consumer = Arc::clone(&self.consumer);
        for _ in 0..MAX_POLLS {
            let served = consumer.context().served();
            match consumer.poll(Duration::ZERO) {
                None if consumer.context().served() == served => break,
                None => {}
                Some(Ok(message)) => {
                    use rdkafka::Message;
                    let (topic, partition) = (message.topic(), message.partition());
                    self.fetching.stray(topic, partition);
                }
                Some(Err(error)) => self.client_error(error),
            }
            for note in consumer.context().take_notes() {
                self.take_note(note);
            }
        }
    }

    /// Tells when no broker answers, and when one does again.
    fn watch(&mut self, answered: bool) {
        if !self.reach.is_silent() {
            return;
        }
        let now = Instant::now();
        let (brokers, ever) = (&self.brokers, self.reach.has_ever_answered());
        let has_id = || self.consumer.client().fetch_cluster_id(Duration::ZERO).is_some();
        // The cluster's id comes with the first answer, and stays.
        if answered || (!ever && has_id()) {
            if let Some(silence) = self.reach.answered(now) {
                let after = seconds(silence);
                tell!(info, { brokers = brokers, after = after }, "brokers answer");
            }
            return;
        }
        if ever {
            self.asking.probe(&self.probe);
        }
        if let Some((silence, reason)) = self.reach.silence(now) {
            let silence = seconds(silence);
            tell!(
                warn,
                { brokers = brokers, silence = silence, reason = reason },
                "no broker answers, nothing is consumed until one does; trying again"
            );
        }
    }

    fn complain(&mut self, code: RDKafkaErrorCode, reason: &str) {
        if let Some(no_access) = self.reach.no_access(code) {
            let attempted = format!("logging in to the brokers at {}", self.brokers);
            let error = Error::Kafka { attempted, source: no_access.into() };
            let _ = self.events.blocking_send(GroupEvent::Fatal(error));
        }
        match self.reach.complain(code, reason, Instant::now()) {
            None => {}
            Some(Complaint::UnknownTopic) => tell!(
                error,
                { reason = reason },
                "a topic does not exist; create it (it is waited for), or correct its name"
            ),
            Some(Complaint::Denied) => tell!(
                error,
                { reason = reason },
                "Kafka denies a right; grant Read and Describe on the topics, and Read on the group"
            ),
            Some(Complaint::Strategy) => tell!(
                error,
                { reason = reason },
                "the group's other members assign otherwise; it joins when they have gone, and \
                 the session of each one with a group.instance.id that was stopped has ended. Stop \
                 all and start them alike: by default those with an instance id assign by \
                 roundrobin, others by cooperative-sticky (partition.assignment.strategy)"
            ),
            Some(Complaint::Connection) => {
                tell!(warn, { reason = reason }, "a connection to a broker failed; trying again");
            }
            Some(Complaint::Other) => tell!(warn, { reason = reason }, "Kafka's client complains"),
        }
    }

    fn client_error(&self, error: KafkaError) {
        let known = self.consumer.client().fatal_error().map(|(code, _)| code);
        if known.is_some() || matches!(error, KafkaError::MessageConsumptionFatal(_)) {
            let attempted = fatal::attempted(known).to_owned();
            let event = GroupEvent::Fatal(Error::Kafka { attempted, source: error.into() });
            let _ = self.events.blocking_send(event);
        }
        // All others were noted by the context, with their reasons.
    }

    fn take_note(&mut self, note: Note) {
        match note {
            Note::Complaint { code, reason } => self.complain(code, &reason),
            Note::Assign(partitions) => {
                let partitions = self.assignments.assign(partitions);
                if let Err(error) = self.fetching.accept() {
                    tracing::warn!(%error, "taking an assignment failed");
                }
                let _ = self.events.blocking_send(GroupEvent::Assigned(partitions));
            }
            Note::Revoke { partitions, lost } => {
                let partitions = self.assignments.revoke(partitions);
                let _ = self.events.blocking_send(GroupEvent::Revoked { partitions, lost });
            }
            Note::Committed { result, offsets } => self.commits.answered(&result, offsets),
        }
    }

    fn carry_out(&mut self, command: Command) {
        match command {
            Command::Ask(question) => self.ask(question),
            Command::Start(start) => self.start(start),
            Command::Stop { partition, assignment, reply } => {
                let _ = reply.send(self.stop(&partition, assignment));
            }
            Command::Commit(commit) => self.commits.add(commit),
            Command::Hurry(partition) => self.commits.hurry(&partition),
            Command::Release { partitions, reply } => {
                let _ = reply.send(self.release(&partitions));
            }
            Command::Close { .. } => unreachable!("taken by the loop"),
        }
    }

    /// The group's offset is not asked for while a commit of ours to it is on
    /// its way: the answer could be of before the commit.
    fn ask(&mut self, question: Question) {
        match &question {
            _ if !question.is_wanted() => {}
            Question::Committed { partition, .. } if self.commits.is_in_flight(partition) => {
                self.held_back.push(question);
            }
            _ => self.asking.ask(question),
        }
    }

    fn start(&mut self, start: Start) {
        if start.reply.is_closed() {
            return;
        }
        let of = &start.partition;
        if let Err(failure) = self.assignments.check_to_start(of, start.assignment) {
            let _ = start.reply.send(Err(failure));
            return;
        }
        self.fetching.stop(of);
        if self.fetching.is_leaving(of) && self.assignments.is_revoking() {
            return self.held_starts.push(start);
        }
        let Start { partition, place, inbox, reply, .. } = start;
        let settled = self.settle();
        let started = settled.and_then(|()| self.fetching.start(partition, place, inbox));
        let _ = reply.send(started.map_err(failure("starting to fetch")));
    }

    fn stop(&mut self, of: &TopicPartition, assignment: AssignmentId) -> Result<(), KafkaFailure> {
        // librdkafka may have told of a revocation since the last poll.
        self.poll();
        self.assignments.check(of, assignment)?;
        self.fetching.stop(of);
        self.settle().map_err(failure("ending to fetch"))
    }

    /// While a revocation is open librdkafka hears of what was stopped with the
    /// answer to that: before, it would take it for the answer, and give away
    /// what is not done yet. It fetches nothing meanwhile.
    fn settle(&mut self) -> KafkaResult<()> {
        if self.assignments.is_revoking() { Ok(()) } else { self.fetching.settle() }
    }

    fn release(
        &mut self,
        partitions: &[(TopicPartition, AssignmentId)],
    ) -> Result<(), KafkaFailure> {
        self.assignments.release(partitions);
        for (of, assignment) in partitions {
            self.commits.forget(of, *assignment);
            self.fetching.stop(of);
        }
        // The one that librdkafka waits for is the last.
        if self.assignments.is_revoking() {
            return Ok(());
        }
        let answered = self.fetching.answer();
        for start in std::mem::take(&mut self.held_starts) {
            self.start(start);
        }
        answered.map_err(failure("giving partitions back"))
    }

    fn send_commits(&mut self) {
        let now = Instant::now();
        let due = self.commits.due(now);
        let lost = !due.is_empty() && self.consumer.assignment_lost();
        let mut list = TopicPartitionList::with_capacity(due.len());
        let mut sent = Vec::with_capacity(due.len());
        for commit in due {
            if lost || self.assignments.check(&commit.partition, commit.assignment).is_err() {
                let _ = commit.reply.send(Err(KafkaFailure::NotAssigned));
            } else if let Err(error) = add(&mut list, &commit) {
                let _ = commit.reply.send(Err(failure("committing an offset")(error)));
            } else {
                sent.push(commit);
            }
        }
        if sent.is_empty() {
            return;
        }
        match commit_async(&*self.consumer, &list) {
            Ok(()) => self.commits.sent(now, sent),
            Err(error) => {
                for commit in sent {
                    let _ = commit.reply.send(Err(failure("committing an offset")(error.clone())));
                }
            }
        }
    }
}

fn add(list: &mut TopicPartitionList, commit: &Commit) -> KafkaResult<()> {
    let mut element = list.add_partition(&commit.partition.topic, commit.partition.partition);
    element.set_offset(Offset::Offset(commit.offset))?;
    element.set_metadata(&commit.marker);
    Ok(())
}

fn failure(attempted: &'static str) -> impl FnOnce(KafkaError) -> KafkaFailure {
    move |error| KafkaFailure::Other { attempted, problem: error.to_string() }
}

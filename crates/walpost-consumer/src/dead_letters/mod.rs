//! Parked events, published to a topic of their own as well, so that people see
//! them where they look.
//!
//! Apart from the partitions: one task of the consumer, with a connection while
//! there is something to do, looks for committed rows of `consumer_parked` of
//! the partitions that this member has claimed, writes their letters, and notes
//! behind the fence in the rows that they are there. So nothing here can hold a
//! partition up; a death between the letter and the note repeats the letter.
//! Memory is one piece, whatever waits in the table.

mod desk;
mod letter;
mod post;
mod table;
mod trouble;

use std::{
    collections::BTreeMap,
    future::Future,
    time::{Duration, Instant, SystemTime},
};

use tokio::{sync::watch, task::JoinHandle, time::timeout};
use walpost_event::RetrySchedule;

pub(crate) use self::desk::{Desk, Hold};
use self::{
    letter::{Form, Letter},
    post::{Away, Fate, Post},
    table::{REFUSED_AGAIN_MINUTES, Table, Unnoted},
    trouble::Trouble,
};
use crate::{
    Error,
    database_error::Verdict,
    failpoint::Failpoint,
    metrics::DeadLetterMetrics,
    pool::{Lease, Pool},
    report::report,
    settings::Settings,
    sql::{ClaimKey, Sql},
    tell::{Reminder, tell},
};

/// Letters of one partition that were written and could not be noted, as
/// somebody has locked their rows. Beyond it no more are written.
const UNNOTED_MAX_EVENTS: usize = 1_000;
/// Before the next look for rows that somebody has locked.
const LOCKED_PAUSE_MS: u64 = 1_000;
/// Longest wait for one answer of the database.
const ANSWER_LIMIT_MS: u64 = 30_000;
/// How long a consumer that stops waits for the piece at hand, and for the
/// producer.
const STOP_LIMIT_MS: u64 = 5_000;
/// After what goes wrong: the first wait and the longest.
const RETRY_MS: (u64, u64) = (500, 30_000);
/// How often brokers have to say that the topic is not there, or not ours,
/// before a start is refused: one that was just created is not known to all.
const REFUSED_AFTER_ANSWERS: u32 = 5;
const REFUSED_PAUSE_MS: u64 = 500;

/// The writing of dead letters of one consumer. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct DeadLetters {
    desk: Desk,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl DeadLetters {
    /// Those of a consumer that has a topic for them, else `None`. Waits until
    /// brokers have said that the topic is there.
    ///
    /// # Errors
    /// [`Error::Setting`] if they say that it is not, or that it is not ours to
    /// write.
    pub(crate) async fn open(
        settings: &Settings,
        sql: &Sql,
        pool: &Pool,
    ) -> Result<Option<Self>, Error> {
        let Some(topic) = &settings.dead_letter_topic else { return Ok(None) };
        let (post, thread) = Post::start(settings, topic)?;
        topic_is_there(&post, topic).await?;
        let (stop, stopped) = watch::channel(false);
        let desk = Desk::default();
        let metrics = DeadLetterMetrics::new(&settings.consumer);
        let writer = Writer {
            consumer: settings.consumer.clone(),
            topic: topic.clone(),
            pool: pool.clone(),
            desk: desk.clone(),
            table: Table::new(sql, settings, topic),
            trouble: Trouble::new(topic, &metrics),
            metrics,
            post,
            known: BTreeMap::new(),
        };
        let task = tokio::spawn(writer.run(stopped));
        Ok(Some(Self { desk, stop, task, thread: Some(thread) }))
    }

    /// Where partitions say what they have parked.
    pub(crate) fn desk(&self) -> Desk {
        self.desk.clone()
    }

    /// Finishes the piece at hand, in bounded time. The others are for the next
    /// owners of the partitions.
    pub(crate) async fn finish(mut self) {
        let limit = Duration::from_millis(STOP_LIMIT_MS);
        self.stop.send_replace(true);
        match timeout(limit, &mut self.task).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tell!(error, { error = error }, "dead letters panicked: a bug"),
            Err(_) => self.task.abort(),
        }
        let Some(thread) = self.thread.take() else { return };
        let joined = tokio::task::spawn_blocking(move || thread.join());
        if timeout(limit, joined).await.is_err() {
            tracing::warn!(?limit, "the producer of dead letters did not end in time");
        }
    }
}

impl Drop for DeadLetters {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Waits until that is known.
async fn topic_is_there(post: &Post, topic: &str) -> Result<(), Error> {
    let (first, longest) = RETRY_MS;
    let backoff =
        RetrySchedule::backoff(Duration::from_millis(first), Duration::from_millis(longest));
    let (mut reminder, mut failures, mut refusals) = (Reminder::default(), 0, 0);
    loop {
        let problem = match post.find().await {
            Ok(()) => return Ok(()),
            Err(Away::Missing) => {
                format!(
                    "topic {topic} does not exist in the cluster; create it, or correct the name"
                )
            }
            Err(Away::Denied) => {
                format!("Kafka denies topic {topic}; grant Describe and Write on it")
            }
            Err(Away::Now(reason)) => {
                failures += 1;
                if reminder.is_due(Instant::now()) {
                    tell!(
                        warn,
                        { topic = topic, reason = reason },
                        "whether the topic of dead letters exists is not known, nothing is \
                         consumed until it is; trying again"
                    );
                }
                tokio::time::sleep(backoff.delay(failures, 0.0).unwrap_or_default()).await;
                continue;
            }
        };
        refusals += 1;
        if refusals >= REFUSED_AFTER_ANSWERS {
            return Err(Error::Setting { setting: "dead_letter_topic".to_owned(), problem });
        }
        tokio::time::sleep(Duration::from_millis(REFUSED_PAUSE_MS)).await;
    }
}

/// Why a claim is not looked at to its end.
enum Failed {
    /// Somebody else has claimed the partition.
    GivenUp,
    /// It will pass.
    Now(String),
}

/// What is known of a claim between two looks.
struct Known {
    epoch: i64,
    /// When the first look was, by the server's clock.
    began: SystemTime,
    unnoted: Unnoted,
    /// The topic has refused a letter.
    refused: bool,
}

struct Writer {
    consumer: String,
    topic: String,
    pool: Pool,
    desk: Desk,
    table: Table,
    trouble: Trouble,
    metrics: DeadLetterMetrics,
    post: Post,
    /// By position.
    known: BTreeMap<i32, Known>,
}

impl Writer {
    async fn run(mut self, mut stop: watch::Receiver<bool>) {
        let (first, longest) = RETRY_MS;
        let backoff =
            RetrySchedule::backoff(Duration::from_millis(first), Duration::from_millis(longest));
        let mut failures = 0;
        loop {
            tokio::select! {
                _ = stop.wait_for(|stop| *stop) => return,
                () = self.desk.due() => {}
            }
            let Err(reason) = self.round(&stop).await else {
                failures = 0;
                continue;
            };
            failures += 1;
            self.trouble.tell(&reason);
            let pause = backoff.delay(failures, 0.0).unwrap_or_default();
            if timeout(pause, stop.wait_for(|stop| *stop)).await.is_ok() {
                return;
            }
        }
    }

    /// Looks at every claim that is due.
    async fn round(&mut self, stop: &watch::Receiver<bool>) -> Result<(), String> {
        let desk = self.desk.clone();
        self.known.retain(|position, known| desk.has(*position, known.epoch));
        while !*stop.borrow()
            && let Some(key) = desk.next(Instant::now())
        {
            match self.serve(key, stop).await {
                Ok(None) => {}
                Ok(Some(again)) => desk.again(key, Instant::now() + again),
                Err(Failed::GivenUp) => desk.forget(key),
                Err(Failed::Now(reason)) => {
                    desk.again(key, Instant::now());
                    return Err(reason);
                }
            }
        }
        Ok(())
    }

    /// Writes what is missing of one claim. When to look again, if at all.
    async fn serve(
        &mut self,
        key: ClaimKey,
        stop: &watch::Receiver<bool>,
    ) -> Result<Option<Duration>, Failed> {
        let mut known = self.recall(key).await?;
        let served = self.write(key, &mut known, stop).await;
        self.known.insert(key.position, known);
        served
    }

    /// A turn for one question; none is held while Kafka is waited for.
    async fn lease(&self) -> Result<Lease, Failed> {
        self.pool.lease().await.map_err(|error| Failed::Now(error.to_string()))
    }

    async fn recall(&mut self, key: ClaimKey) -> Result<Known, Failed> {
        let lease = self.lease().await?;
        let now = within(self.table.look(&lease, key)).await?.ok_or(Failed::GivenUp)?;
        lease.give_back();
        let before = self.known.remove(&key.position).filter(|known| known.epoch == key.epoch);
        let fresh =
            Known { epoch: key.epoch, began: now, unnoted: BTreeMap::new(), refused: false };
        Ok(before.unwrap_or(fresh))
    }

    async fn write(
        &mut self,
        key: ClaimKey,
        known: &mut Known,
        stop: &watch::Receiver<bool>,
    ) -> Result<Option<Duration>, Failed> {
        loop {
            self.note(key, &mut known.unnoted).await?;
            let locked = Duration::from_millis(LOCKED_PAUSE_MS);
            if known.unnoted.len() >= UNNOTED_MAX_EVENTS || *stop.borrow() {
                return Ok(Some(locked));
            }
            let lease = self.lease().await?;
            let next = self.table.next(&lease, key, known.began, &known.unnoted);
            let letters = within(next).await?;
            lease.give_back();
            if letters.is_empty() {
                let refused = Duration::from_secs(60 * REFUSED_AGAIN_MINUTES.unsigned_abs() as u64);
                let refused = known.refused.then_some(refused);
                return Ok(if known.unnoted.is_empty() { refused } else { Some(locked) });
            }
            let away = self.send(letters, known).await;
            if let Some(away) = away {
                self.note(key, &mut known.unnoted).await?;
                return Err(Failed::Now(away.to_string()));
            }
        }
    }

    /// Writes a piece: what the topic refuses once more without its contents.
    async fn send(&mut self, letters: Vec<Letter>, known: &mut Known) -> Option<Away> {
        let form = |letter: &Letter| letter.paper(Form::Whole, &self.consumer);
        let posted = self.post.send(letters.iter().map(form).collect()).await;
        let mut away = posted.away;
        let mut too_much = Vec::new();
        for (letter, fate) in letters.into_iter().zip(posted.fates) {
            match fate {
                Fate::Written => self.written(&letter, known),
                Fate::Refused(why) => too_much.push((letter, why)),
                Fate::Unknown => {}
            }
        }
        if !too_much.is_empty() && away.is_none() {
            let bare =
                |(letter, why): &(Letter, String)| letter.paper(Form::Bare(why), &self.consumer);
            let posted = self.post.send(too_much.iter().map(bare).collect()).await;
            away = posted.away;
            for ((letter, _), fate) in too_much.into_iter().zip(posted.fates) {
                match fate {
                    Fate::Written => self.written(&letter, known),
                    Fate::Refused(why) => self.refused(&letter, why, known),
                    Fate::Unknown => {}
                }
            }
        }
        if !known.unnoted.is_empty() {
            Failpoint::AfterDeadLetter.reached();
        }
        away
    }

    fn written(&mut self, letter: &Letter, known: &mut Known) {
        self.trouble.over();
        self.metrics.written.increment(1);
        known.unnoted.insert(letter.id, (letter.parking, None));
    }

    fn refused(&self, letter: &Letter, why: String, known: &mut Known) {
        self.metrics.refused.increment(1);
        let (id, topic) = (letter.id, &self.topic);
        tell!(
            warn,
            { id = id, topic = topic, reason = why },
            "the topic takes no dead letter of this parked event; it is tried again later"
        );
        known.refused = true;
        known.unnoted.insert(letter.id, (letter.parking, Some(why)));
    }

    /// Notes in the rows what is not noted yet, where nobody has locked them.
    async fn note(&self, key: ClaimKey, unnoted: &mut Unnoted) -> Result<(), Failed> {
        if unnoted.is_empty() {
            return Ok(());
        }
        let mut lease = self.lease().await?;
        let left = within(self.table.note(&mut lease, key, unnoted)).await?;
        lease.give_back();
        unnoted.retain(|id, _| left.contains(id));
        Ok(())
    }
}

/// An answer of the database, in bounded time.
async fn within<T>(
    asked: impl Future<Output = Result<T, tokio_postgres::Error>>,
) -> Result<T, Failed> {
    match timeout(Duration::from_millis(ANSWER_LIMIT_MS), asked).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) if Verdict::of(&error) == Verdict::GivenUp => Err(Failed::GivenUp),
        Ok(Err(error)) => Err(Failed::Now(format!("looking at dead letters: {}", report(&error)))),
        Err(_) => {
            Err(Failed::Now(format!("the database gave no answer within {ANSWER_LIMIT_MS} ms")))
        }
    }
}

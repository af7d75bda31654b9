//! Parked events, published to a topic of their own as well, so that people see
//! them where they look.
//!
//! Apart from the pipeline: a task with a session and a sink of its own looks for
//! committed rows of `parked` that have no dead letter, writes it, and notes in
//! the row that it is there. So nothing here can hold the pipeline up, and
//! nothing is in the checkpoint; a death between the letter and the note repeats
//! the letter. Memory is one batch, whatever waits in the table.

mod letter;
mod sending;
mod table;
mod trouble;

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, SystemTime},
};

use metrics::{Counter, counter};
use tokio::{sync::watch, time::timeout};
use walpost_event::error_chain;
use walpost_postgres::Database;
use walpost_router::{Router, RouterConfig};

use self::{
    letter::{Envelope, Form, Letter},
    sending::{Sending, Sent},
    table::Table,
    trouble::Trouble,
};
use crate::{
    config::RelayConfig,
    error::RelayError,
    sink::Sink,
    sql::Sql,
    status::{Phase, PipelineStatus},
};

/// Events that are looked for at a time.
const BATCH_MAX_EVENTS: usize = 500;
/// Letters that were written and could not be noted, as somebody has locked
/// their rows. Beyond it no more are written.
const UNNOTED_MAX_EVENTS: usize = 1_000;
/// Between two looks at the table, where the pipeline says nothing of new rows.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// After something went wrong.
const RETRY: Duration = Duration::from_secs(5);

/// Publishes the parked events of a pipeline to
/// [`dead_letter_topic`](RelayConfig::dead_letter_topic).
///
/// A dead letter is written at least once, after the row of its event is
/// committed, and has the header
/// [`DEAD_LETTER_HEADER`](crate::DEAD_LETTER_HEADER).
#[derive(Debug)]
pub struct DeadLetters {
    database: Database,
    config: RelayConfig,
    router: RouterConfig,
}

impl DeadLetters {
    /// Those of a pipeline that has a topic for them, else `None`. Nothing is
    /// connected yet.
    pub fn new(database: &Database, config: &RelayConfig, router: &RouterConfig) -> Option<Self> {
        config.dead_letter_topic.as_ref()?;
        let (database, config, router) = (database.clone(), config.clone(), router.clone());
        Some(Self { database, config, router })
    }

    /// Goes on until the pipeline of `status` has stopped, working while it
    /// publishes. What goes wrong is counted, said and tried again. `connect` is
    /// called when there is something to write and no sink: one that is not the
    /// pipeline's, and not transactional under its name, which would fence it off.
    pub async fn run<K, F>(
        self,
        mut status: watch::Receiver<PipelineStatus>,
        mut connect: impl FnMut() -> F + Send,
    ) where
        K: Sink,
        F: Future<Output = Result<K, RelayError>> + Send,
    {
        let Some(mut writer) = Writer::new(&self.config, &self.router) else { return };
        loop {
            let due = |status: &PipelineStatus| is_active(status) || is_over(status);
            let is_gone = status.wait_for(due).await.is_err();
            // Whoever is gone without a word leaves what it said last.
            if is_gone || status.has_changed().is_err() || is_over(&status.borrow()) {
                return;
            }
            let session = self.session(&mut writer, &mut status, &mut connect).await;
            if let Err(error) = session {
                writer.trouble.tell(&error_chain(&error));
                if !pause(&mut status).await {
                    return;
                }
            }
        }
    }

    /// On a session of its own, until the pipeline is not ours any more.
    async fn session<K, F>(
        &self,
        writer: &mut Writer,
        status: &mut watch::Receiver<PipelineStatus>,
        connect: &mut (impl FnMut() -> F + Send),
    ) -> Result<(), RelayError>
    where
        K: Sink,
        F: Future<Output = Result<K, RelayError>> + Send,
    {
        let (client, _) = self.database.connect_to_one().await?;
        let sql =
            Sql::new(Arc::new(client), Duration::from_millis(self.config.statement_timeout_ms));
        // A note that a crash of the server takes away costs a copy, no letter.
        let settings = "set lock_timeout = '1s'; set synchronous_commit = off";
        sql.batch("setting up the session", settings).await?;
        let table = Table::new(sql, &self.config);
        let mut sink = None;
        let served = writer.serve(&table, &mut sink, status, connect).await;
        if let Some(sink) = sink {
            sink.close().await;
        }
        served
    }
}

/// What is known between two sessions.
struct Writer {
    envelope: Envelope,
    trouble: Trouble,
    written: Counter,
    refused: Counter,
    /// By the server's clock.
    began: Option<SystemTime>,
    /// Letters that were written, or refused and why, and are not noted yet.
    unnoted: BTreeMap<i64, Option<String>>,
    /// So many go alone, as one of them was refused with others.
    alone: usize,
    /// It was refused alone, and goes without its contents.
    bare: Option<(i64, Form)>,
}

impl Writer {
    fn new(config: &RelayConfig, router: &RouterConfig) -> Option<Self> {
        let topic = config.dead_letter_topic.as_deref()?;
        let label = [("pipeline", config.pipeline.clone())];
        Some(Self {
            envelope: Envelope {
                topic: topic.into(),
                pipeline: config.pipeline.clone(),
                has_source_header: config.source_header,
                payload_column: router.event_payload.clone(),
                key_column: router.event_key.clone(),
            },
            trouble: Trouble::new(&config.pipeline, topic),
            written: counter!("walpost_dead_letters_total", &label),
            refused: counter!("walpost_dead_letters_refused_total", &label),
            began: None,
            unnoted: BTreeMap::new(),
            alone: 0,
            bare: None,
        })
    }

    async fn serve<K, F>(
        &mut self,
        table: &Table,
        sink: &mut Option<K>,
        status: &mut watch::Receiver<PipelineStatus>,
        connect: &mut (impl FnMut() -> F + Send),
    ) -> Result<(), RelayError>
    where
        K: Sink,
        F: Future<Output = Result<K, RelayError>> + Send,
    {
        loop {
            self.note(table).await?;
            let parked = status.borrow().parked;
            if !is_active(&status.borrow()) {
                return Ok(());
            }
            let letters = self.next(table).await?;
            if letters.is_empty() {
                let news = |now: &PipelineStatus| !is_active(now) || now.parked != parked;
                if let Ok(Err(_)) = timeout(LOOK_EVERY, status.wait_for(news)).await {
                    return Ok(());
                }
                continue;
            }
            let count = letters.len();
            let open = match sink.take() {
                Some(open) => open,
                None => tokio::select! {
                    opened = connect() => opened?,
                    _ = status.wait_for(|status| !is_active(status)) => return Ok(()),
                },
            };
            let open = sink.insert(open);
            let forms: Vec<Form> = letters.iter().map(|letter| self.form(letter)).collect();
            let letters = letters.into_iter().zip(forms);
            let sending = Sending::new(open, &self.envelope, letters);
            let mut sent = sending.run(status, &mut self.trouble).await;
            if sent.ended
                && let Some(ended) = sink.take()
            {
                ended.close().await;
            }
            let trouble = sent.trouble.take();
            self.settle(sent, count);
            if let Some(trouble) = trouble {
                self.trouble.tell(&trouble);
                self.note(table).await?;
                if !pause(status).await {
                    return Ok(());
                }
            }
        }
    }

    async fn next(&mut self, table: &Table) -> Result<Vec<Letter>, RelayError> {
        let began = match self.began {
            Some(began) => began,
            None => *self.began.insert(table.now().await?),
        };
        let max_events = match (self.unnoted.len(), self.alone) {
            (UNNOTED_MAX_EVENTS.., _) => return Ok(Vec::new()),
            (_, 0) => BATCH_MAX_EVENTS,
            (_, _) => 1,
        };
        table.next(began, max_events as i64, &self.unnoted).await
    }

    fn form(&self, letter: &Letter) -> Form {
        match &self.bare {
            Some((id, form)) if *id == letter.id => form.clone(),
            _ => Form::Whole,
        }
    }

    /// Takes what became of a batch of so many.
    fn settle(&mut self, sent: Sent, count: usize) {
        let Sent { written, mut refused, rejected, .. } = sent;
        if count > 1 && !rejected.is_empty() {
            // It may be any of them.
            self.alone = self.alone.max(count - written.len());
        } else {
            for (id, form, detail) in rejected {
                match form {
                    Form::Whole => self.bare = Some((id, Form::Bare(detail))),
                    Form::Bare(_) => refused.push((id, detail)),
                }
            }
            self.alone = self.alone.saturating_sub(written.len() + refused.len());
        }
        if !written.is_empty() {
            self.trouble.over();
        }
        self.written.increment(written.len() as u64);
        self.refused.increment(refused.len() as u64);
        for (id, detail) in refused {
            tracing::warn!(
                id,
                topic = &*self.envelope.topic,
                reason = detail,
                "the topic takes no dead letter of this parked event; it is tried again later"
            );
            self.unnoted.insert(id, Some(detail));
        }
        self.unnoted.extend(written.into_iter().map(|id| (id, None)));
    }

    /// Notes in the rows what is not noted yet, where nobody has locked them.
    async fn note(&mut self, table: &Table) -> Result<(), RelayError> {
        if self.unnoted.is_empty() {
            return Ok(());
        }
        let left = table.note(&self.envelope.topic, &self.unnoted).await?;
        self.unnoted.retain(|id, _| left.contains(id));
        Ok(())
    }
}

/// No event has this topic for its own.
///
/// # Errors
/// Text that names the setting.
pub(crate) fn apart(config: &RelayConfig, router: &Router) -> Result<(), String> {
    match &config.dead_letter_topic {
        Some(topic) if router.has_form_of(topic) => Err(format!(
            "dead_letter_topic is {topic:?}, which events may be routed to by \
             route.topic.replacement, {:?}; take a name of another form",
            router.config().topic_replacement
        )),
        _ => Ok(()),
    }
}

/// The pipeline publishes, so it is ours.
fn is_active(status: &PipelineStatus) -> bool {
    matches!(status.phase, Phase::Loading | Phase::Streaming)
}

fn is_over(status: &PipelineStatus) -> bool {
    status.phase == Phase::Stopped
}

/// Waits before something is tried again; false where the pipeline has stopped, or is
/// gone without a word.
async fn pause(status: &mut watch::Receiver<PipelineStatus>) -> bool {
    timeout(RETRY, status.wait_for(is_over)).await.is_err()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn nothing_is_tried_again_for_a_pipeline_that_is_gone() {
        let (pipeline, mut status) = watch::channel(PipelineStatus::default());
        pipeline.send_modify(|status| status.phase = Phase::Streaming);
        assert!(pause(&mut status).await);
        pipeline.send_modify(|status| status.phase = Phase::Stopped);
        assert!(!pause(&mut status).await);
        pipeline.send_modify(|status| status.phase = Phase::Streaming);
        drop(pipeline);
        assert!(!pause(&mut status).await);
    }
}

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use tokio::{
    sync::{mpsc, watch},
    time::{Instant, MissedTickBehavior, interval, sleep_until},
};
use walpost_event::{Message, Row, RowChange, error_chain};

use super::{
    audit::{Audit, Dealt, ReplayState},
    filter::ORDER_COLUMN,
    pace::Pace,
};
use crate::{
    ack::Ticket,
    asking::Asker,
    convert::{Converter, Unmade},
    error::{RelayError, SourceError},
    headers::ReplayHeader,
    sink::{Delivery, Sink, Unsent},
    source::SourceItem,
    wal::Loaded,
};

/// Between two looks at the clock.
const TICK: Duration = Duration::from_millis(100);
/// Between two notes of how far it is: so much of a replay that is killed comes
/// once more when it is gone on with.
const NOTE_EVERY: Duration = Duration::from_secs(1);
/// Without any acknowledgement for so long, with something to send, it fails.
const STALLED: Duration = Duration::from_secs(60);
/// For what is on its way once it ends.
const SETTLE: Duration = Duration::from_secs(10);
/// Rows that are named of those that could not be sent.
const NAMED_MAX: usize = 10;

/// How far a replay is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ReplayProgress {
    /// Rows that were found.
    pub selected: u64,
    /// Records that the sink has acknowledged, by all processes of the replay.
    pub sent: u64,
    /// Rows that could not be sent.
    pub unsendable: u64,
    /// Records that this process has had acknowledged.
    pub sent_now: u64,
    /// From its first record to the last acknowledgement.
    pub sending: Duration,
}

impl ReplayProgress {
    /// Acknowledged records a second, as measured.
    pub fn rate_per_s(&self) -> f64 {
        match self.sending.as_secs_f64() {
            0.0 => 0.0,
            seconds => self.sent_now as f64 / seconds,
        }
    }
}

/// A row that could not be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsendable {
    /// Its number in the column `seq`.
    pub seq: i64,
    /// Why; never contents.
    pub reason: String,
}

/// How a replay has ended.
#[derive(Debug)]
#[non_exhaustive]
pub struct Replayed {
    /// Its number.
    pub id: i64,
    /// All of it, or how far.
    pub state: ReplayState,
    /// How far it has come.
    pub progress: ReplayProgress,
    /// The first of the rows that could not be sent.
    pub unsendable: Vec<Unsendable>,
    /// Rows that were found and that a replay which came to its end did not meet:
    /// they were deleted since, or parked.
    pub gone: u64,
    /// Why it has failed, where it has.
    pub error: Option<RelayError>,
}

/// From rows to the sink, at a pace, until all of them are acknowledged.
pub(super) struct Sending<K> {
    pub(super) id: i64,
    pub(super) audit: Audit,
    pub(super) sink: K,
    pub(super) converter: Converter,
    pub(super) asker: Asker,
    pub(super) header: ReplayHeader,
    pub(super) to_topic: Option<Arc<str>>,
    pub(super) pace: Pace,
    pub(super) rows: mpsc::Receiver<Loaded>,
    pub(super) selected: u64,
    /// What was dealt with, by those before as well.
    pub(super) dealt: Dealt,
    /// Of these, rows that may stand behind one that was not dealt with, and
    /// whether they were sent.
    pub(super) ahead: Vec<(i64, bool)>,
    pub(super) state: State,
}

/// What is at hand.
pub(super) struct State {
    items: VecDeque<SourceItem>,
    all_read: bool,
    /// The sink had no room for it.
    held: Option<(i64, Message)>,
    /// Somebody is asked what its record needs.
    unmade: Option<(i64, RowChange)>,
    outstanding: BTreeMap<Ticket, i64>,
    /// The first row whose record was not acknowledged and will not be.
    lost: Option<i64>,
    next_ticket: Ticket,
    last_read: Option<i64>,
    unsendable: Vec<Unsendable>,
    sent_now: u64,
    first_sent: Option<Instant>,
    last_acknowledged: Option<Instant>,
    last_news: Instant,
    last_noted: Instant,
    ending: Option<Ending>,
}

/// Nothing more is sent; what is on its way is waited for.
struct Ending {
    until: Instant,
    error: Option<RelayError>,
}

impl State {
    pub(super) fn new(last_seq: Option<i64>) -> Self {
        let now = Instant::now();
        Self {
            items: VecDeque::new(),
            all_read: false,
            held: None,
            unmade: None,
            outstanding: BTreeMap::new(),
            lost: None,
            next_ticket: 0,
            last_read: last_seq,
            unsendable: Vec::new(),
            sent_now: 0,
            first_sent: None,
            last_acknowledged: None,
            last_news: now,
            last_noted: now,
            ending: None,
        }
    }

    /// Whether nothing is left to be sent.
    fn is_through(&self) -> bool {
        let is_empty = self.held.is_none() && self.unmade.is_none();
        self.all_read && self.items.is_empty() && is_empty
    }

    /// Whether everything was dealt with.
    fn is_settled(&self) -> bool {
        self.is_through() && self.outstanding.is_empty() && self.lost.is_none()
    }

    /// Every row up to here is dealt with.
    fn last_seq(&self) -> Option<i64> {
        let unsent = self.held.as_ref().map(|(seq, _)| *seq);
        let unsent = unsent.or(self.unmade.as_ref().map(|(seq, _)| *seq));
        let first = self.outstanding.values().copied().chain(unsent).chain(self.lost).min();
        first.map_or(self.last_read, |first| Some(first - 1))
    }
}

impl<K: Sink> Sending<K> {
    /// Sends until all is acknowledged, until `stop` is true, or until it fails.
    /// `told` hears ten times a second how far it is.
    pub(super) async fn run(
        mut self,
        stop: watch::Receiver<bool>,
        told: &mut (dyn FnMut(ReplayProgress) + Send),
    ) -> Replayed {
        let served = self.serve(stop, told).await;
        let (is_stopped, ended) = match self.state.ending.take() {
            Some(ending) => (true, ending.error),
            None => (false, None),
        };
        let error = served.err().or(ended);
        let state = match &error {
            Some(_) => ReplayState::Failed,
            None if is_stopped && !self.state.is_settled() => ReplayState::Stopped,
            None => ReplayState::Done,
        };
        let gone = match state {
            ReplayState::Done => {
                self.selected.saturating_sub(self.dealt.sent + self.dealt.unsendable)
            }
            _ => 0,
        };
        let detail = match &error {
            Some(error) => Some(error_chain(error)),
            None => (gone > 0).then(|| {
                let selected = self.selected;
                format!("{gone} of {selected} rows had gone from the table, or were parked")
            }),
        };
        let kept = self.kept();
        let noted = self.audit.note(self.id, kept, Some((state, detail.as_deref()))).await;
        let progress = self.progress();
        told(progress);
        self.sink.close().await;
        let error = error.or(noted.err());
        let state = if error.is_some() { ReplayState::Failed } else { state };
        Replayed { id: self.id, state, progress, unsendable: self.state.unsendable, gone, error }
    }

    async fn serve(
        &mut self,
        mut stop: watch::Receiver<bool>,
        told: &mut (dyn FnMut(ReplayProgress) + Send),
    ) -> Result<(), RelayError> {
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut deliveries = Vec::new();
        loop {
            // No checkpoint names the places: what is marked as sent once more
            // does not count when they are read back.
            self.sink.allow(self.sink.places().len());
            let ending = self.state.ending.is_some();
            let due = if ending { None } else { self.send() };
            if self.state.outstanding.is_empty() && (ending || self.state.is_through()) {
                return Ok(());
            }
            let reading = !ending && self.state.items.is_empty() && !self.state.all_read;
            let stoppable = self.state.ending.is_none();
            tokio::select! {
                biased;
                () = stopped(&mut stop), if stoppable => self.end(None),
                () = self.sink.deliveries(&mut deliveries) => self.settle(&mut deliveries),
                rows = self.rows.recv(), if reading => self.take(rows)?,
                answer = self.asker.answered() => self.converter.learn(answer?),
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {}
                _ = ticks.tick() => {
                    self.tick().await?;
                    told(self.progress());
                }
            }
            if self.state.ending.as_ref().is_some_and(|ending| Instant::now() >= ending.until) {
                return Ok(());
            }
        }
    }

    fn end(&mut self, error: Option<RelayError>) {
        match &mut self.state.ending {
            Some(ending) => ending.error = ending.error.take().or(error),
            None => self.state.ending = Some(Ending { until: Instant::now() + SETTLE, error }),
        }
    }

    fn take(&mut self, loaded: Option<Loaded>) -> Result<(), RelayError> {
        match loaded {
            Some(Loaded::Rows(rows)) => self.state.items.extend(rows),
            Some(Loaded::End) => self.state.all_read = true,
            Some(Loaded::Failed(error)) => return Err(RelayError::Source(error)),
            None => return Err(RelayError::Source(SourceError::Ended)),
        }
        Ok(())
    }

    /// Sends what may go now; the moment at which more may.
    fn send(&mut self) -> Option<Instant> {
        loop {
            let now = Instant::now();
            let is_idle = self.state.held.is_none() && self.state.unmade.is_none();
            if is_idle && self.state.items.is_empty() || self.asker.is_asking() {
                return None;
            }
            if let Some(due) = self.pace.waits_until(now) {
                return Some(due);
            }
            if self.state.held.is_none() {
                self.state.held = self.next_message();
            }
            let Some((seq, message)) = self.state.held.take() else { continue };
            match self.sink.try_send(self.state.next_ticket, message) {
                Ok(_) => {
                    self.pace.went(now);
                    self.state.outstanding.insert(self.state.next_ticket, seq);
                    self.state.next_ticket += 1;
                    self.state.first_sent.get_or_insert(now);
                    self.state.last_news = now;
                }
                Err(
                    Unsent::Full(message) | Unsent::Apart(message) | Unsent::Away { message, .. },
                ) => {
                    self.state.held = Some((seq, *message));
                    return None;
                }
                Err(Unsent::Never { topic, detail }) => {
                    self.give_up(seq, format!("{topic}: {detail}"));
                }
            }
        }
    }

    /// The next row as a message, if it becomes one.
    fn next_message(&mut self) -> Option<(i64, Message)> {
        if let Some((seq, change)) = self.state.unmade.take() {
            return self.made(seq, change);
        }
        let (row, too_large) = match self.state.items.pop_front()? {
            SourceItem::Change(change) => (change.row, None),
            SourceItem::Oversize { change, size_bytes } => (change.row, Some(size_bytes)),
            _ => return None,
        };
        let seq = seq(&row);
        self.state.last_read = Some(seq);
        if let Some(size_bytes) = too_large {
            self.give_up(seq, format!("its {size_bytes} bytes are more than max_event_bytes"));
            return None;
        }
        self.made(seq, RowChange::insert(row))
    }

    fn made(&mut self, seq: i64, change: RowChange) -> Option<(i64, Message)> {
        match self.converter.message(&change, None) {
            Ok(mut message) => {
                self.header.add(&mut message.headers);
                if let Some(topic) = &self.to_topic {
                    message.topic = topic.clone();
                    // That of another topic, which may have fewer.
                    message.partition = None;
                }
                Some((seq, message))
            }
            Err(Unmade::Park(parking)) => {
                self.give_up(seq, parking.detail);
                None
            }
            Err(Unmade::Dropped) => {
                self.give_up(seq, "the transforms drop it".to_owned());
                None
            }
            Err(Unmade::Ask(question)) => {
                self.asker.ask(question);
                self.state.unmade = Some((seq, change));
                None
            }
        }
    }

    fn give_up(&mut self, seq: i64, reason: String) {
        self.dealt.unsendable += 1;
        self.ahead.push((seq, false));
        if self.state.unsendable.len() < NAMED_MAX {
            self.state.unsendable.push(Unsendable { seq, reason });
        }
    }

    fn settle(&mut self, deliveries: &mut Vec<Delivery>) {
        for Delivery { ticket, result } in deliveries.drain(..) {
            let seq = self.state.outstanding.remove(&ticket);
            match result {
                Ok(_) => {
                    let now = Instant::now();
                    self.dealt.sent += 1;
                    self.ahead.extend(seq.map(|seq| (seq, true)));
                    self.state.sent_now += 1;
                    self.state.last_acknowledged = Some(now);
                    self.state.last_news = now;
                }
                Err(error) => {
                    self.state.lost = self.state.lost.into_iter().chain(seq).min();
                    let detail = error.to_string();
                    self.end(Some(RelayError::Sink { detail, transient: true }));
                }
            }
        }
    }

    async fn tick(&mut self) -> Result<(), RelayError> {
        let is_held = self.state.held.is_some() || self.state.unmade.is_some();
        let has_work = !self.state.outstanding.is_empty() || is_held;
        if !has_work {
            self.state.last_news = Instant::now();
        }
        if self.state.ending.is_none() && self.state.last_news.elapsed() >= STALLED {
            let trouble = self.asker.waits().or_else(|| self.sink.trouble());
            let trouble = trouble.unwrap_or_else(|| "no reason given".to_owned());
            let detail = format!("nothing was acknowledged for {} s: {trouble}", STALLED.as_secs());
            self.end(Some(RelayError::Sink { detail, transient: true }));
        }
        if self.state.last_noted.elapsed() >= NOTE_EVERY {
            self.state.last_noted = Instant::now();
            let kept = self.kept();
            self.audit.note(self.id, kept, None).await?;
        }
        Ok(())
    }

    /// What whoever goes on with it need not deal with: nothing behind a row that
    /// was not dealt with counts, since that comes once more.
    fn kept(&mut self) -> Dealt {
        self.dealt.last_seq = self.state.last_seq().or(self.dealt.last_seq);
        self.ahead.retain(|(seq, _)| Some(*seq) > self.dealt.last_seq);
        let sent = self.ahead.iter().filter(|(_, is_sent)| *is_sent).count() as u64;
        let unsendable = self.ahead.len() as u64 - sent;
        Dealt {
            sent: self.dealt.sent - sent,
            unsendable: self.dealt.unsendable - unsendable,
            last_seq: self.dealt.last_seq,
        }
    }

    fn progress(&self) -> ReplayProgress {
        let sending = self.state.first_sent.zip(self.state.last_acknowledged);
        ReplayProgress {
            selected: self.selected,
            sent: self.dealt.sent,
            unsendable: self.dealt.unsendable,
            sent_now: self.state.sent_now,
            sending: sending.map_or(Duration::ZERO, |(first, last)| last - first),
        }
    }
}

/// Whoever could stop it and is gone wants it no more.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    drop(stop.wait_for(|stop| *stop).await);
}

fn seq(row: &Row) -> i64 {
    let index = row.relation().column_index(ORDER_COLUMN).unwrap_or(usize::MAX);
    row.text(index).and_then(|text| text.parse().ok()).unwrap_or_default()
}

//! A batch of dead letters, through a sink of their own.

use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

use tokio::{
    sync::watch,
    time::{Instant, MissedTickBehavior, interval},
};
use walpost_event::Message;

use super::{
    is_active,
    letter::{Envelope, Form, Letter},
    trouble::Trouble,
};
use crate::{
    ack::Ticket,
    sink::{Delivery, DeliveryErrorKind, Sink, Unsent},
    status::PipelineStatus,
};

/// Between two looks at the clock.
const TICK: Duration = Duration::from_millis(200);
/// Without any news for so long something is wrong with the sink.
const STALLED: Duration = Duration::from_secs(10);
/// For what is on its way once nothing more is sent.
const SETTLE: Duration = Duration::from_secs(5);

/// What became of a batch. What is in none of these has no letter yet.
#[derive(Debug, Default)]
pub(super) struct Sent {
    pub(super) written: Vec<i64>,
    /// The topic takes not even what is left without their contents, and why.
    pub(super) refused: Vec<(i64, String)>,
    /// They were refused by the sink once they were on their way, perhaps for
    /// another one of the batch.
    pub(super) rejected: Vec<(i64, Form, String)>,
    /// The sink takes nothing more.
    pub(super) ended: bool,
    /// Why nothing more could be sent now.
    pub(super) trouble: Option<String>,
}

/// A batch at hand.
pub(super) struct Sending<'a, K> {
    sink: &'a mut K,
    envelope: &'a Envelope,
    queue: VecDeque<(Letter, Form)>,
    /// What the sink had no room for.
    held: Option<(Letter, Form, Message)>,
    on_way: HashMap<Ticket, (i64, Form)>,
    next_ticket: Ticket,
    sent: Sent,
    last_news: Instant,
}

impl<'a, K: Sink> Sending<'a, K> {
    pub(super) fn new(
        sink: &'a mut K,
        envelope: &'a Envelope,
        letters: impl IntoIterator<Item = (Letter, Form)>,
    ) -> Self {
        Self {
            sink,
            envelope,
            queue: letters.into_iter().collect(),
            held: None,
            on_way: HashMap::new(),
            next_ticket: 0,
            sent: Sent::default(),
            last_news: Instant::now(),
        }
    }

    /// Sends until all of the batch is settled, until the sink or its topic
    /// cannot be used, or until the pipeline is not ours any more.
    pub(super) async fn run(
        mut self,
        status: &mut watch::Receiver<PipelineStatus>,
        trouble: &mut Trouble,
    ) -> Sent {
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut deliveries = Vec::new();
        let mut give_up = None;
        loop {
            // No checkpoint names the places: nothing there is read back as a
            // published event.
            self.sink.allow(self.sink.places().len());
            let is_ending =
                self.sent.ended || self.sent.trouble.is_some() || !is_active(&status.borrow());
            if is_ending {
                give_up.get_or_insert_with(|| Instant::now() + SETTLE);
            } else {
                self.send();
            }
            let is_through = self.queue.is_empty() && self.held.is_none();
            if self.on_way.is_empty() && (is_ending || is_through)
                || give_up.is_some_and(|limit| Instant::now() >= limit)
            {
                // What may still land is written once more, by another sink.
                self.sent.ended |= !self.on_way.is_empty();
                return self.sent;
            }
            tokio::select! {
                biased;
                () = self.sink.deliveries(&mut deliveries) => self.settle(&mut deliveries),
                _ = ticks.tick() => self.tick(trouble),
            }
        }
    }

    /// Sends what the sink has room for.
    fn send(&mut self) {
        loop {
            let held = self.held.take().or_else(|| {
                let (letter, form) = self.queue.pop_front()?;
                let message = letter.message(&form, self.envelope);
                Some((letter, form, message))
            });
            let Some((letter, form, message)) = held else { return };
            match self.sink.try_send(self.next_ticket, message) {
                Ok(_) => {
                    self.on_way.insert(self.next_ticket, (letter.id, form));
                    self.next_ticket += 1;
                    self.last_news = Instant::now();
                }
                Err(Unsent::Full(message) | Unsent::Apart(message)) => {
                    self.held = Some((letter, form, *message));
                    return;
                }
                Err(Unsent::Away { detail, .. }) => {
                    self.sent.trouble = Some(detail.to_string());
                    return;
                }
                Err(Unsent::Never { detail, .. }) => match form {
                    Form::Whole => self.queue.push_front((letter, Form::Bare(detail))),
                    Form::Bare(_) => self.sent.refused.push((letter.id, detail)),
                },
            }
        }
    }

    fn settle(&mut self, deliveries: &mut Vec<Delivery>) {
        for Delivery { ticket, result } in deliveries.drain(..) {
            let Some((id, form)) = self.on_way.remove(&ticket) else { continue };
            self.last_news = Instant::now();
            let Err(error) = result else {
                self.sent.written.push(id);
                continue;
            };
            self.sent.ended = true;
            match error.kind {
                DeliveryErrorKind::Rejected | DeliveryErrorKind::RefusedAlone => {
                    self.sent.rejected.push((id, form, error.detail.to_string()));
                }
                // For another one of the batch.
                DeliveryErrorKind::NotSent => {}
                DeliveryErrorKind::Unknown
                | DeliveryErrorKind::Unavailable
                | DeliveryErrorKind::Refused => self.sent.trouble = Some(error.to_string()),
            }
        }
    }

    fn tick(&mut self, trouble: &mut Trouble) {
        if self.last_news.elapsed() < STALLED {
            return;
        }
        self.last_news = Instant::now();
        let reason = self.sink.trouble();
        let reason = reason.unwrap_or_else(|| "the brokers acknowledge nothing".to_owned());
        match self.on_way.is_empty() {
            true => self.sent.trouble = Some(reason),
            // They are on their way; nothing else could be done for them.
            false => trouble.tell(&reason),
        }
    }
}

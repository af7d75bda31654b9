//! Messages that are no events of the stream, through a sink that is not the
//! pipeline's: nothing here can hold the pipeline up, and no checkpoint knows of
//! it.

use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior, interval};
use walpost_event::Message;

use crate::sink::{Delivery, DeliveryErrorKind, Sink, Unsent};

/// Between two looks at the clock.
const TICK: Duration = Duration::from_millis(200);
/// Between two lines that say the same.
const AGAIN: Duration = Duration::from_secs(30);

/// Messages that the sink takes by no means, by their places in the batch, and
/// why.
pub(crate) type Refused = Vec<(usize, String)>;

/// Why messages were not all sent.
pub(crate) struct Unfinished {
    pub(crate) reason: String,
    /// It is the topic of one of them that cannot be used.
    pub(crate) is_away: bool,
}

impl From<String> for Unfinished {
    fn from(reason: String) -> Self {
        Self { reason, is_away: false }
    }
}

/// Sends messages in order, and waits until each is durable or refused.
///
/// # Errors
/// Why the sink is of no use now, also when nothing has happened for
/// `patience`. It is to be closed then; what is not durable may still land.
pub(crate) async fn send<K: Sink>(
    sink: &mut K,
    messages: Vec<Message>,
    patience: Duration,
) -> Result<Refused, Unfinished> {
    let mut sending = Sending { sink, refused: Vec::new(), next: 0, news: Instant::now() };
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut waiting = messages.into_iter();
    let mut held = None;
    let mut deliveries = Vec::new();
    loop {
        // No checkpoint names the places: nothing there is read back.
        sending.sink.allow(sending.sink.places().len());
        while let Some(message) = held.take().or_else(|| waiting.next()) {
            held = sending.offer(message)?;
            if held.is_some() {
                break;
            }
        }
        if held.is_none() && sending.sink.outstanding() == 0 {
            return Ok(sending.refused);
        }
        if sending.news.elapsed() >= patience {
            let trouble = sending.sink.trouble();
            return Err(trouble
                .unwrap_or_else(|| "the sink acknowledges nothing".to_owned())
                .into());
        }
        tokio::select! {
            biased;
            () = sending.sink.deliveries(&mut deliveries) => sending.settle(&mut deliveries)?,
            _ = ticks.tick() => {}
        }
    }
}

struct Sending<'a, K> {
    sink: &'a mut K,
    refused: Refused,
    /// Ticket of the next message: its place in the batch.
    next: usize,
    news: Instant,
}

impl<K: Sink> Sending<'_, K> {
    /// Hands one over; gives it back where there is no room now.
    fn offer(&mut self, message: Message) -> Result<Option<Message>, Unfinished> {
        match self.sink.try_send(self.next as u64, message) {
            Ok(_) => self.news = Instant::now(),
            Err(Unsent::Full(message) | Unsent::Apart(message)) => return Ok(Some(*message)),
            Err(Unsent::Away { detail, .. }) => {
                return Err(Unfinished { reason: detail.to_string(), is_away: true });
            }
            Err(Unsent::Never { topic, detail }) => {
                self.refused.push((self.next, format!("{topic}: {detail}")));
            }
        }
        self.next += 1;
        Ok(None)
    }

    fn settle(&mut self, deliveries: &mut Vec<Delivery>) -> Result<(), String> {
        let mut trouble = None;
        for Delivery { ticket, result } in deliveries.drain(..) {
            self.news = Instant::now();
            let Err(error) = result else { continue };
            // Refused for itself only where nothing else was with it.
            if error.kind == DeliveryErrorKind::Rejected && self.next == 1 {
                self.refused.push((ticket as usize, error.to_string()));
            } else if error.kind != DeliveryErrorKind::NotSent || trouble.is_none() {
                trouble = Some(error.to_string());
            }
        }
        trouble.map_or(Ok(()), Err)
    }
}

/// What is wrong, said once and then now and again.
#[derive(Debug, Default)]
pub(crate) struct Complaint {
    said: Option<(String, Instant)>,
}

impl Complaint {
    /// Whether it is to be said: it is new, or was said long ago.
    pub(crate) fn is_news(&mut self, reason: &str, now: Instant) -> bool {
        let is_told = self
            .said
            .as_ref()
            .is_some_and(|(said, when)| said == reason && now.duration_since(*when) < AGAIN);
        if !is_told {
            self.said = Some((reason.to_owned(), now));
        }
        !is_told
    }

    /// Whether there was one until now.
    pub(crate) fn is_over(&mut self) -> bool {
        self.said.take().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_complaint_is_said_now_and_again_and_another_at_once() {
        let (mut complaint, start) = (Complaint::default(), Instant::now());
        assert!(complaint.is_news("a", start));
        assert!(!complaint.is_news("a", start + AGAIN / 2));
        assert!(complaint.is_news("b", start + AGAIN / 2));
        assert!(!complaint.is_news("b", start + AGAIN));
        assert!(complaint.is_news("b", start + AGAIN * 2));
        assert!(complaint.is_over() && !complaint.is_over());
        assert!(complaint.is_news("b", start + AGAIN * 2), "it has come back");
    }
}

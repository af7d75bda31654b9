use std::sync::Arc;

use tokio::time::{Instant, timeout_at};
use walpost_event::Message;

use super::{batch::Lane, verdict::Fate};
use crate::{
    ack::Ticket,
    policy::{Disposition, decide},
    sink::{Delivery, DeliveryErrorKind, Sink, Unsent},
};

/// What is to be sent, and what became of it.
pub(super) struct Outgoing {
    /// There until the sink takes it.
    pub(super) message: Option<Message>,
    pub(super) fate: Fate,
}

/// How a sending ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SendEnd {
    /// Every message that the sink took has its delivery.
    Settled,
    /// The sink takes no more, or still has messages: close it.
    SinkSpent,
}

/// One claim's messages on their way through a sink.
///
/// Of a lane, messages go in order and none after one that cannot go. As a
/// partition takes a prefix of what was sent to it, whatever lands of a lane is a
/// prefix of the lane: a copy may follow from another sender, but no first
/// appearance out of order.
pub(super) struct Sending<'a, K> {
    sink: &'a mut K,
    lanes: &'a [Lane],
    rows: &'a mut [Option<Outgoing>],
    /// Of each lane, how many were taken.
    taken: Vec<usize>,
    /// Of each lane, whether nothing more of it goes.
    stopped: Vec<bool>,
    /// One at a time, as one of them was refused in company.
    alone: bool,
    failure: Option<Failure>,
}

/// The first delivery that failed for more than one row.
struct Failure {
    kind: DeliveryErrorKind,
    detail: Arc<str>,
}

impl<'a, K: Sink> Sending<'a, K> {
    pub(super) fn new(
        sink: &'a mut K,
        lanes: &'a [Lane],
        rows: &'a mut [Option<Outgoing>],
        alone: bool,
    ) -> Self {
        let (taken, stopped) = (vec![0; lanes.len()], vec![false; lanes.len()]);
        Self { sink, lanes, rows, taken, stopped, alone, failure: None }
    }

    /// Sends until everything is settled or `deadline`; `in_time` says what the
    /// latter means for what is left.
    pub(super) async fn run(
        mut self,
        mut deadline: Instant,
        stop: impl Future<Output = Instant>,
    ) -> SendEnd {
        let mut deliveries = Vec::new();
        let mut stop = std::pin::pin!(stop);
        let mut is_stopping = false;
        loop {
            self.offer();
            if self.sink.outstanding() == 0 && (self.failure.is_some() || self.is_done()) {
                break;
            }
            tokio::select! {
                received = timeout_at(deadline, self.sink.deliveries(&mut deliveries)) => {
                    if received.is_err() {
                        return self.out_of_time(is_stopping);
                    }
                }
                limit = &mut stop, if !is_stopping => {
                    is_stopping = true;
                    deadline = deadline.min(limit);
                }
            }
            for delivery in deliveries.drain(..) {
                self.settle(delivery);
            }
        }
        match self.failure.take() {
            None => SendEnd::Settled,
            Some(failure) => {
                self.sink_failed(&failure);
                SendEnd::SinkSpent
            }
        }
    }

    fn is_done(&self) -> bool {
        let lanes = self.lanes.iter().zip(&self.taken).zip(&self.stopped);
        lanes.into_iter().all(|((lane, taken), stopped)| *stopped || *taken == lane.len())
    }

    /// Hands over what the sink takes now.
    fn offer(&mut self) {
        loop {
            let places = self.sink.places().len();
            self.sink.allow(places);
            for lane in 0..self.lanes.len() {
                self.offer_lane(lane);
            }
            // A place that was met is allowed, and what is for it offered again.
            if self.sink.places().len() == places {
                return;
            }
        }
    }

    fn offer_lane(&mut self, lane: usize) {
        while self.failure.is_none() && !self.stopped[lane] {
            if self.alone && self.sink.outstanding() > 0 {
                return;
            }
            let Some(row) = self.lanes[lane].get(self.taken[lane]).copied() else { return };
            let message = self.rows[row].as_mut().and_then(|row| row.message.take());
            let Some(message) = message else {
                // It became no message.
                self.stopped[lane] = true;
                return;
            };
            match self.sink.try_send(row as Ticket, message) {
                Ok(_) => self.taken[lane] += 1,
                Err(Unsent::Full(message) | Unsent::Apart(message)) => {
                    self.row(row).message = Some(*message);
                    return;
                }
                Err(Unsent::Away { detail, .. }) => {
                    self.row(row).fate = Fate::Unanswered(detail.to_string());
                    self.stopped[lane] = true;
                }
                Err(Unsent::Never { topic, detail }) => {
                    self.row(row).fate = Fate::Refused(format!("{topic}: {detail}"));
                    self.stopped[lane] = true;
                }
            }
        }
    }

    fn row(&mut self, row: usize) -> &mut Outgoing {
        self.rows[row].as_mut().expect("a lane has rows with messages alone")
    }

    fn settle(&mut self, Delivery { ticket, result }: Delivery) {
        let row = usize::try_from(ticket).expect("a ticket is a row's place");
        let Err(error) = result else {
            self.row(row).fate = Fate::Published;
            return;
        };
        let alone = self.alone || self.rows.iter().flatten().count() == 1;
        match decide(error.kind, alone) {
            Disposition::Park => self.row(row).fate = Fate::Refused(error.to_string()),
            Disposition::RetryAlone => self.row(row).fate = Fate::Suspect,
            Disposition::Retry => {}
        }
        // A refusal says what happened, what it tore with it does not.
        let is_first = self.failure.as_ref().is_none_or(|failure| {
            failure.kind != DeliveryErrorKind::Rejected && error.kind == DeliveryErrorKind::Rejected
        });
        if is_first {
            self.failure = Some(Failure { kind: error.kind, detail: error.to_string().into() });
        }
    }

    /// Rows that were sent have had an attempt, unless another row's refusal
    /// ended it.
    fn sink_failed(&mut self, failure: &Failure) {
        if failure.kind == DeliveryErrorKind::Rejected {
            return;
        }
        self.unanswered(&failure.detail);
    }

    fn out_of_time(mut self, is_stopping: bool) -> SendEnd {
        if !is_stopping {
            let trouble = self.sink.trouble();
            self.unanswered(trouble.as_deref().unwrap_or("not acknowledged in time"));
        }
        match self.sink.outstanding() {
            0 => SendEnd::Settled,
            _ => SendEnd::SinkSpent,
        }
    }

    /// What was sent, and the next row of each lane, which waits for the sink,
    /// have failed.
    fn unanswered(&mut self, detail: &str) {
        for lane in 0..self.lanes.len() {
            let tried = self.taken[lane] + usize::from(!self.stopped[lane]);
            for row in self.lanes[lane].iter().take(tried).copied() {
                let row = self.row(row);
                if row.fate == Fate::Untouched {
                    row.fate = Fate::Unanswered(detail.to_owned());
                }
            }
        }
    }
}

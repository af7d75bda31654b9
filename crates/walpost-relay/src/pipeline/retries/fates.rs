//! What became of retries, back to their rows.

use tokio::time::Instant;

use super::{RETRY, Worked};
use crate::{
    error::RelayError,
    parked::{Outcome, Parking, Verdict},
    pipeline::{Pipeline, stop::attend},
    policy::{Disposition, decide},
    sink::{Delivery, DeliveryError, DeliveryErrorKind, Sink},
    source::Source,
};

impl<S: Source, K: Sink> Pipeline<S, K> {
    pub(super) fn note_settled(&mut self, outcomes: Vec<Outcome>) {
        self.progress.retries.settling.clear();
        // Others may be due behind them, also where nothing keeps an order.
        self.progress.retries.next_look = Instant::now();
        for Outcome { id, position, aggregate, verdict } in outcomes {
            match verdict {
                Verdict::Done => {
                    self.metrics.retried.increment(1);
                    tracing::info!(id, %position, "parked event sent on");
                }
                Verdict::Refused { parking, .. } => tracing::warn!(
                    id,
                    %position,
                    reason = parking.reason.as_str(),
                    detail = parking.detail,
                    "event parked again; see it with `walpost parked show`"
                ),
                Verdict::Again => {}
            }
            if let Some(aggregate) = aggregate {
                self.parked.note_news(aggregate);
            }
        }
    }

    /// Takes the fate of a retry; gives back that of an event of the stream.
    pub(in crate::pipeline) fn retry_delivered(&mut self, delivery: Delivery) -> Option<Delivery> {
        if delivery.ticket < RETRY {
            return Some(delivery);
        }
        let Delivery { ticket, result } = delivery;
        let retries = &mut self.progress.retries;
        match result {
            Ok(landed) => {
                if let Some(offset) = landed.offset {
                    self.progress.floors.landed(landed.lane, offset);
                }
                retries.alone.take_if(|alone| *alone == ticket);
                if let Some(retry) = retries.on_way.remove(&ticket) {
                    self.carried.retries.settled(retry.id);
                    retries.settle(retry, Verdict::Done);
                }
            }
            Err(error) if error.kind == DeliveryErrorKind::RefusedAlone => {
                retries.alone.take_if(|alone| *alone == ticket);
                if let Some(retry) = retries.on_way.remove(&ticket) {
                    self.carried.apart.refused(&error.topic);
                    self.refuse(retry, 1, Parking::rejected(error.to_string()));
                }
            }
            Err(error) => retries.failed.push((ticket, error)),
        }
        None
    }

    /// Says what follows from the retries that failed. What was refused alone is
    /// parked again; of the others a start finds out.
    pub(in crate::pipeline) fn judge_retries(&mut self) -> Vec<(Disposition, DeliveryError)> {
        let alone = self.progress.retries.alone.take();
        let mut judged = Vec::new();
        for (ticket, error) in std::mem::take(&mut self.progress.retries.failed) {
            let Some(retry) = self.progress.retries.on_way.remove(&ticket) else { continue };
            let disposition = decide(error.kind, alone == Some(ticket));
            match disposition {
                Disposition::Park => self.refuse(retry, 1, Parking::rejected(error.to_string())),
                Disposition::RetryAlone => self.carried.retries.add(retry.id),
                Disposition::Retry => {}
            }
            judged.push((disposition, error));
        }
        judged
    }

    /// Writes what is known of retries. What is not written in time, the next
    /// start finds out.
    pub(in crate::pipeline) async fn finish_retries(
        &mut self,
        deadline: Instant,
    ) -> Result<(), RelayError> {
        loop {
            if self.progress.retries.job.is_none() && !self.settle_retries() {
                return Ok(());
            }
            let wait = self.progress.retries.worked();
            let Some(worked) = attend(&mut self.source, deadline, wait).await else {
                tracing::warn!("what became of parked events was not written in time");
                return Ok(());
            };
            match worked? {
                // Nothing more is sent.
                Worked::Looked(_) | Worked::Unseen | Worked::Begun(..) => {}
                Worked::Settled(outcomes) => self.note_settled(outcomes),
            }
        }
    }
}

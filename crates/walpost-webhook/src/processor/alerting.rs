//! Alerts in the transaction that ends what they are about.

use std::{collections::HashSet, time::SystemTime};

use tokio_postgres::Transaction;

use super::Shared;
use crate::{
    NewDelivery, StoreError, Verdict,
    alert::{About, Cause},
    store::Ended,
};

impl About {
    fn of(verdict: &Verdict) -> Option<Self> {
        match verdict {
            Verdict::Failed => Some(Self::Failed),
            Verdict::Held => Some(Self::Unknown),
            Verdict::Disable => Some(Self::Disabled),
            Verdict::Delivered | Verdict::Retry { .. } => None,
        }
    }
}

impl Shared {
    /// Whether somebody may have to be told of these ends, or of the breaker.
    pub(super) fn may_alert(&self, ended: &[Ended]) -> bool {
        self.settings.alerts.is_some()
            && (self.gate.has_opened()
                || ended.iter().any(|each| About::of(&each.verdict).is_some()))
    }

    /// Has people told of the ends of those claims that held, and of the breaker.
    /// Where no alert can be created, what it is about ends all the same.
    pub(super) async fn alert(
        &self,
        tx: &mut Transaction<'_>,
        ended: &[Ended],
        held: &HashSet<(i64, i64)>,
    ) -> Result<(), StoreError> {
        let alerts = self.alerts(ended, held);
        if alerts.is_empty() {
            return Ok(());
        }
        let deliveries = &self.settings.deliveries;
        let failed = |error| deliveries.error("creating an alert", "writer", &error);
        let savepoint = tx.transaction().await.map_err(failed)?;
        match deliveries.insert(&savepoint, &alerts).await {
            Ok(_) => savepoint.commit().await.map_err(failed),
            Err(error) => {
                let destination = &*self.settings.name;
                tracing::error!(destination, %error, "nobody could be told");
                savepoint.rollback().await.map_err(failed)
            }
        }
    }

    fn alerts(&self, ended: &[Ended], held: &HashSet<(i64, i64)>) -> Vec<NewDelivery> {
        let Some(alerts) = &self.settings.alerts else { return Vec::new() };
        let (now, destination) = (SystemTime::now(), &*self.settings.name);
        let of_end = |about: About| {
            let is_so = |each: &&Ended| {
                About::of(&each.verdict) == Some(about) && held.contains(&each.lapsed.claim())
            };
            let Ended { lapsed, end, .. } = ended.iter().find(is_so)?;
            let outcome = end.outcome.name();
            let (delivery, attempts) = (lapsed.id, lapsed.attempt);
            alerts.alert(about, Cause { destination, delivery, attempts, outcome }, now)
        };
        let mut all: Vec<NewDelivery> = [About::Failed, About::Unknown, About::Disabled]
            .into_iter()
            .filter_map(of_end)
            .collect();
        if let Some(last) = ended.last().filter(|_| self.gate.has_opened()) {
            let (delivery, attempts) = (last.lapsed.id, last.lapsed.attempt);
            let cause = Cause { destination, delivery, attempts, outcome: last.end.outcome.name() };
            all.extend(alerts.alert(About::BreakerOpen, cause, now));
        }
        all
    }
}

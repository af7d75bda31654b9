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
    /// Whether somebody may have to be told of these ends, or that the breaker has
    /// opened.
    pub(super) fn may_alert(&self, ended: &[Ended], opened: bool) -> bool {
        let is_told = |each: &Ended| About::of(&each.verdict).is_some();
        self.settings.alerts.is_some() && (opened || ended.iter().any(is_told))
    }

    /// Has people told of the ends of those claims that held, and of the breaker
    /// where it has opened. Where no alert can be created, what it is about ends all
    /// the same.
    pub(super) async fn alert(
        &self,
        tx: &mut Transaction<'_>,
        ended: &[Ended],
        held: &HashSet<(i64, i64)>,
        opened: bool,
    ) -> Result<(), StoreError> {
        let alerts = self.alerts(ended, held, opened);
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

    fn alerts(
        &self,
        ended: &[Ended],
        held: &HashSet<(i64, i64)>,
        opened: bool,
    ) -> Vec<NewDelivery> {
        let Some(alerts) = &self.settings.alerts else { return Vec::new() };
        let (now, destination) = (SystemTime::now(), &*self.settings.name);
        let alert = |about: About, Ended { lapsed, end, .. }: &Ended| {
            let (delivery, attempts, outcome) = (lapsed.id, lapsed.attempt, end.outcome.name());
            let status = end.status();
            let cause = Cause { destination, delivery, attempts, outcome, status };
            alerts.alert(about, cause, now)
        };
        let of_end = |about: About| {
            let is_so = |each: &&Ended| {
                About::of(&each.verdict) == Some(about) && held.contains(&each.lapsed.claim())
            };
            alert(about, ended.iter().find(is_so)?)
        };
        let mut all: Vec<NewDelivery> = [About::Failed, About::Unknown, About::Disabled]
            .into_iter()
            .filter_map(of_end)
            .collect();
        let last = ended.last().filter(|_| opened);
        all.extend(last.and_then(|last| alert(About::BreakerOpen, last)));
        all
    }
}

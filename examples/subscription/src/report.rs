//! What the tables of both sides say: ours, and the provider's.

use std::{collections::BTreeMap, fmt};

use stand::{End, Figures};
use tokio_postgres::Client;
use walpost_postgres::Database;

use crate::Failed;

pub(crate) struct Report {
    app: Client,
    billing: Client,
    wanted: u64,
}

/// Of all subscriptions.
#[derive(Default)]
pub(crate) struct Counts {
    wanted: u64,
    requested: u64,
    active: u64,
    failed: u64,
    /// Of the provider's.
    doubled: u64,
    /// The provider has it, and we have not.
    unknown: u64,
}

impl Report {
    pub(crate) async fn open(
        app: &Database,
        billing: &Database,
        wanted: u64,
    ) -> Result<Self, Failed> {
        Ok(Self { app: app.connect().await?, billing: billing.connect().await?, wanted })
    }

    /// Theirs first: what they have, we have asked for before.
    pub(crate) async fn so_far(&self) -> Result<Counts, Failed> {
        let select = "select reference, count(*), min(state) from subscription group by 1";
        let rows = self.billing.query(select, &[]).await?;
        let theirs: BTreeMap<String, (i64, String)> =
            rows.iter().map(|row| (row.get(0), (row.get(1), row.get(2)))).collect();
        let mut counts = Counts { wanted: self.wanted, ..Counts::default() };
        let mut known = 0;
        for row in self.app.query("select id, state from subscription", &[]).await? {
            let (id, state): (&str, &str) = (row.get(0), row.get(1));
            counts.requested += 1;
            let Some((copies, there)) = theirs.get(id) else { continue };
            known += 1;
            counts.doubled += u64::from(*copies > 1);
            match state {
                "active" if there == state => counts.active += 1,
                "failed" if there == state => counts.failed += 1,
                _ => {}
            }
        }
        counts.unknown = theirs.len() as u64 - known;
        Ok(counts)
    }
}

impl Counts {
    pub(crate) fn figures(&self) -> Figures {
        Figures { now: self.to_string(), last: self.last_line(), end: self.end() }
    }

    fn end(&self) -> End {
        let ended = self.active + self.failed;
        let is_complete = ended >= self.wanted && ended == self.requested;
        End::of(self.doubled + self.unknown > 0, is_complete)
    }

    fn last_line(&self) -> String {
        let Self { requested, active, failed, doubled, unknown, .. } = self;
        let figures = format!("{requested} subscriptions, {active} active, {failed} failed");
        match self.end() {
            End::Done => format!("done: {figures}, none unknown to us, none doubled"),
            End::GoesOn => format!(
                "stopped: {figures}, none unknown to us, none doubled; the next start goes on"
            ),
            End::Broken => format!(
                "BROKEN: of {requested} subscriptions {doubled} doubled, {unknown} unknown to us"
            ),
        }
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { requested, active, failed, doubled, unknown, .. } = self;
        let on_their_way = requested.saturating_sub(active + failed);
        write!(
            f,
            "{requested:>6} requested {active:>6} active {failed:>6} failed \
             {on_their_way:>6} on their way {unknown:>3} unknown to us {doubled:>3} doubled"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_is_there_twice_or_unknown_to_us_breaks_it_however_far_it_is() {
        let of = |active, failed, doubled, unknown| {
            let requested = 3;
            Counts { wanted: 3, requested, active, failed, doubled, unknown }
        };
        assert_eq!(of(1, 0, 0, 0).end(), End::GoesOn);
        assert_eq!(of(2, 1, 0, 0).end(), End::Done);
        for broken in [of(1, 0, 1, 0), of(2, 1, 1, 0), of(1, 0, 0, 1), of(2, 1, 0, 1)] {
            assert_eq!(broken.end(), End::Broken, "{broken}");
            assert!(broken.last_line().starts_with("BROKEN: of 3 "), "{}", broken.last_line());
        }
    }
}

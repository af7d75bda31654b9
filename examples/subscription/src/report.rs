//! What the tables of both sides say: ours, and the provider's.

use std::{collections::BTreeMap, fmt};

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

/// The last line.
pub(crate) struct AtTheEnd(Counts);

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

    pub(crate) async fn at_the_end(&self) -> Result<AtTheEnd, Failed> {
        Ok(AtTheEnd(self.so_far().await?))
    }
}

impl Counts {
    pub(crate) fn is_complete(&self) -> bool {
        let ended = self.active + self.failed;
        ended >= self.wanted && ended == self.requested
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

impl fmt::Display for AtTheEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counts { requested, active, failed, doubled, unknown, .. } = self.0;
        if doubled + unknown > 0 {
            return write!(
                f,
                "BROKEN: of {requested} subscriptions {doubled} doubled, {unknown} unknown to us"
            );
        }
        let figures = format!("{requested} subscriptions, {active} active, {failed} failed");
        match self.0.is_complete() {
            true => write!(f, "done: {figures}, none unknown to us, none doubled"),
            false => write!(
                f,
                "stopped: {figures}, none unknown to us, none doubled; the next start goes on"
            ),
        }
    }
}

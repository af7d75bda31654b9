//! What the tables and the mail server have: how many mails for how many
//! accounts.

use std::{collections::BTreeMap, fmt};

use tokio_postgres::Client;
use walpost_postgres::Database;

use crate::{Failed, mail_server::Spool, mailer::message_id};

pub(crate) struct Report {
    app: Client,
    mailer: Client,
    /// That of the mail server where it is our own.
    spool: Option<Spool>,
    wanted: i64,
}

#[derive(Default)]
pub(crate) struct Counts {
    wanted: i64,
    accounts: i64,
    mails: usize,
    twice: usize,
    /// Deliveries by their states.
    states: BTreeMap<String, usize>,
}

/// The last line.
pub(crate) struct AtTheEnd(Counts);

impl Report {
    pub(crate) async fn new(
        app: &Database,
        mailer: &Database,
        spool: Option<Spool>,
        wanted: i64,
    ) -> Result<Self, Failed> {
        Ok(Self { app: app.connect().await?, mailer: mailer.connect().await?, spool, wanted })
    }

    pub(crate) async fn so_far(&self) -> Result<Counts, Failed> {
        // In one statement, so that they fit together; mails are younger.
        let select = "select (select count(*) from account), \
                      array(select event_id from walpost.webhook_delivery order by id), \
                      array(select state::text from walpost.webhook_delivery order by id)";
        let row = self.app.query_one(select, &[]).await?;
        let (events, states): (Vec<String>, Vec<String>) = (row.get(1), row.get(2));
        let mut counts = Counts { wanted: self.wanted, accounts: row.get(0), ..Counts::default() };
        let mails = self.mails().await?;
        for (event, state) in events.iter().zip(states) {
            let mails = mails.get(&message_id(event)).copied().unwrap_or_default();
            counts.mails += usize::from(mails > 0);
            counts.twice += usize::from(mails > 1);
            *counts.states.entry(state).or_default() += 1;
        }
        Ok(counts)
    }

    pub(crate) async fn at_the_end(&self) -> Result<AtTheEnd, Failed> {
        Ok(AtTheEnd(self.so_far().await?))
    }

    /// By Message-ID, as the mail server has them; with one that is not ours as
    /// the mailer knows it.
    async fn mails(&self) -> Result<BTreeMap<String, usize>, Failed> {
        if let Some(spool) = &self.spool {
            return Ok(spool.message_ids()?);
        }
        let select = "select event_id from mail where accepted_at is not null";
        let rows = self.mailer.query(select, &[]).await?;
        Ok(rows.iter().map(|row| (message_id(row.get(0)), 1)).collect())
    }
}

impl Counts {
    fn state(&self, name: &str) -> usize {
        self.states.get(name).copied().unwrap_or_default()
    }

    /// Accounts whose mail may still go out by itself.
    fn waiting(&self) -> i64 {
        let ended = ["delivered", "unknown", "failed"].map(|state| self.state(state));
        self.accounts - ended.iter().sum::<usize>() as i64
    }

    pub(crate) fn accounts(&self) -> i64 {
        self.accounts
    }

    /// Every account is there, and nothing goes on by itself any more.
    pub(crate) fn is_complete(&self) -> bool {
        self.accounts >= self.wanted && self.waiting() == 0
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { accounts, mails, twice, .. } = self;
        let (waiting, unknown) = (self.waiting(), self.state("unknown"));
        write!(
            f,
            "{accounts:>6} accounts   {mails:>6} mails   {waiting:>4} on their way   \
             {unknown} unknown   {twice} twice"
        )
    }
}

impl fmt::Display for AtTheEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(counts) = self;
        let Counts { wanted, accounts, mails, twice, .. } = counts;
        let (unknown, failed) = (counts.state("unknown"), counts.state("failed"));
        if *twice > 0 {
            return write!(f, "BROKEN: of {accounts} accounts {twice} have two mails");
        }
        if !counts.is_complete() {
            return write!(
                f,
                "stopped: {accounts} of {wanted} accounts, {mails} mails, none twice; the next \
                 start goes on from here"
            );
        }
        write!(f, "done: {accounts} accounts, {mails} mails, none twice")?;
        if failed > 0 {
            write!(f, "; the mail server has refused {failed} for good")?;
        }
        if unknown > 0 {
            write!(f, "; of {unknown} nobody knows: cargo run -p signup settle")?;
        }
        Ok(())
    }
}

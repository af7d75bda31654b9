//! What the tables and the mail server have: how many mails for how many
//! accounts.

use std::{collections::BTreeMap, fmt};

use stand::{End, Figures};
use tokio_postgres::Client;
use walpost_postgres::Database;

use crate::{Failed, mail_server::Spool, mailer::message_id};

pub(crate) struct Report {
    app: Client,
    mailer: Client,
    /// That of the mail server where we may look.
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

    /// By Message-ID, as the mail server has them; where we may not look, as the
    /// mailer knows it.
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

    pub(crate) fn figures(&self) -> Figures {
        Figures { now: self.to_string(), last: self.last_line(), end: self.end() }
    }

    /// Done where every account is there, and nothing goes on by itself any more.
    fn end(&self) -> End {
        let is_complete = self.accounts >= self.wanted && self.waiting() == 0;
        End::of(self.twice > 0, is_complete)
    }

    fn last_line(&self) -> String {
        let Self { wanted, accounts, mails, twice, .. } = self;
        let mut done = format!("done: {accounts} accounts, {mails} mails, none twice");
        match self.end() {
            End::Done => {}
            End::GoesOn => {
                return format!(
                    "stopped: {accounts} of {wanted} accounts, {mails} mails, none twice; the \
                     next start goes on from here"
                );
            }
            End::Broken => {
                return format!("BROKEN: of {accounts} accounts {twice} have two mails");
            }
        }
        let (unknown, failed) = (self.state("unknown"), self.state("failed"));
        if failed > 0 {
            done += &format!("; the mail server has refused {failed} for good");
        }
        if unknown > 0 {
            done += &format!("; of {unknown} nobody knows: cargo run -p signup settle");
        }
        done
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_mail_breaks_it_however_far_it_is() {
        let of = |delivered, twice| {
            let states = BTreeMap::from([("delivered".to_owned(), delivered)]);
            Counts { wanted: 3, accounts: 3, mails: delivered, twice, states }
        };
        assert_eq!(of(3, 0).end(), End::Done);
        assert_eq!(of(2, 0).end(), End::GoesOn);
        for broken in [of(3, 1), of(2, 1)] {
            assert_eq!(broken.end(), End::Broken, "{broken}");
            assert_eq!(broken.last_line(), "BROKEN: of 3 accounts 1 have two mails");
        }
    }
}

//! A bank that tells of payments, and of some twice.

use std::{error::Error, time::Duration};

use stand::{Failed, Stop};
use tokio::time::sleep;
use tokio_postgres::{Client, error::SqlState};
use walpost_event::error_chain;
use walpost_outbox::OutboxTable;
use walpost_postgres::{Database, shown::driver_error};

use super::invoices::{Noted, issue, outbox, pay, refund};
use crate::settings;

/// Before a database that was away is tried again.
const PAUSE: Duration = Duration::from_millis(200);
/// Of the payment for invoice 0.
const FIRST_PAYMENT: i64 = 700_000;
/// So many of the payments are told twice.
const TOLD_TWICE: i64 = 10;
/// Those that are paid for a while, and these of them.
const REFUNDED: &str = "select id, payment_id from invoices \
    where status = 'paid' and id % 25 = 0 and id <= $1 order by id limit 1";
const REFUND_BEHIND: i64 = 10;

/// Pays invoices until there are as many, or it is asked to stop. A database that
/// goes away is waited for: what was not committed is done again.
pub(super) async fn pay_invoices(
    database: Database,
    wanted: i64,
    stop: Stop,
) -> Result<(), Failed> {
    let outbox = outbox()?;
    let pace = settings::pace()?;
    loop {
        let Err(error) = in_session(&database, &outbox, wanted, pace, &stop).await else {
            return Ok(());
        };
        if !is_away(&*error) {
            return Err(error);
        }
        eprintln!("finance: its database is away: {}", error_chain(&*error));
        tokio::select! {
            () = stop.requested() => return Ok(()),
            () = sleep(PAUSE) => {}
        }
    }
}

async fn in_session(
    database: &Database,
    outbox: &OutboxTable,
    wanted: i64,
    pace: Duration,
    stop: &Stop,
) -> Result<(), Failed> {
    let mut client = database.connect().await?;
    let mut stopped = std::pin::pin!(stop.requested());
    loop {
        tokio::select! {
            biased;
            () = &mut stopped => return Ok(()),
            () = sleep(pace) => {}
        }
        let Some(invoice) = next(&client, wanted).await? else { break };
        let payment = FIRST_PAYMENT + invoice;
        pay(&mut client, outbox, invoice, payment).await?;
        if invoice % TOLD_TWICE == 0 {
            let again = pay(&mut client, outbox, invoice, payment).await?;
            assert_eq!(again, Noted::Before, "one payment, one event");
        }
        refund_one(&mut client, outbox, invoice - REFUND_BEHIND).await?;
    }
    while refund_one(&mut client, outbox, i64::MAX).await? {}
    Ok(())
}

/// One that a predecessor has left open, or a new one; none where all are paid.
async fn next(client: &Client, wanted: i64) -> Result<Option<i64>, Failed> {
    let look = "select (select min(id) from invoices where status = 'open'), \
                (select count(*) from invoices)";
    let row = client.query_one(look, &[]).await?;
    let (open, there): (Option<i64>, i64) = (row.get(0), row.get(1));
    if open.is_some() || there >= wanted {
        return Ok(open);
    }
    let city = ["Lisbon", "Oslo", "Vienna"][there as usize % 3];
    Ok(Some(issue(client, city, 1_000 + there).await?))
}

async fn refund_one(client: &mut Client, outbox: &OutboxTable, until: i64) -> Result<bool, Failed> {
    let Some(row) = client.query_opt(REFUNDED, &[&until]).await? else { return Ok(false) };
    refund(client, outbox, row.get(0), row.get(1)).await?;
    Ok(true)
}

/// Whether it is the connection that failed, and not the statement.
fn is_away(error: &(dyn Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if error.is::<std::io::Error>() {
            return true;
        }
        if let Some(error) = driver_error(error) {
            // Shutdown, crash and start of the server are of this class.
            let is_of_operator = |code: &SqlState| code.code().starts_with("57P");
            if error.is_closed() || error.code().is_some_and(is_of_operator) {
                return true;
            }
        }
        cause = error.source();
    }
    false
}

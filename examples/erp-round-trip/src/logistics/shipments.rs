//! What logistics does with the events of finance.

use serde::Deserialize;
use walpost_inbox::{Event, Handler, HandlerError, Head, tokio_postgres::Transaction};

/// What an event asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Work {
    Ship,
    Cancel,
}

#[derive(Deserialize)]
struct InvoicePaid {
    invoice_id: i64,
    payment_id: i64,
    city: String,
}

#[derive(Deserialize)]
struct InvoiceRefunded {
    invoice_id: i64,
    payment_id: i64,
}

pub(crate) struct Shipments;

impl Handler for Shipments {
    type Work = Work;

    fn select(&self, event: &Head) -> Option<Work> {
        match event.event_type() {
            "invoice.paid" => Some(Work::Ship),
            "invoice.refunded" => Some(Work::Cancel),
            _ => None,
        }
    }

    /// What is written through `tx` commits together with the row of the inbox
    /// that says that this event is done, or not at all. So this needs no thought
    /// about copies.
    async fn process(
        &self,
        tx: &Transaction<'_>,
        work: &Work,
        event: &Event,
    ) -> Result<(), HandlerError> {
        match work {
            Work::Ship => ship(tx, event).await,
            Work::Cancel => cancel(tx, event).await,
        }
    }
}

async fn ship(tx: &Transaction<'_>, event: &Event) -> Result<(), HandlerError> {
    let paid: InvoicePaid = event.json()?;
    is_key_of(event, paid.invoice_id, paid.payment_id)?;
    let insert = "insert into shipment (invoice_id, city, state, idempotency_key) \
                  values ($1, $2, 'waiting', $3)";
    tx.execute(insert, &[&paid.invoice_id, &paid.city, &event.head().event_id()]).await?;
    Ok(())
}

/// Two webhooks may arrive in either order: a refund waits for its shipment.
async fn cancel(tx: &Transaction<'_>, event: &Event) -> Result<(), HandlerError> {
    let refunded: InvoiceRefunded = event.json()?;
    is_key_of(event, refunded.invoice_id, refunded.payment_id)?;
    let update = "update shipment set state = 'cancelled' \
                  where invoice_id = $1 and state = 'waiting'";
    match tx.execute(update, &[&refunded.invoice_id]).await? {
        0 => Err(HandlerError::transient("the shipment that it cancels is not there yet")),
        _ => Ok(()),
    }
}

/// The signature is over the body, and the key stands in a header: whoever sent a
/// body again under another key would have a second shipment. The body says which
/// key is its own.
fn is_key_of(event: &Event, invoice_id: i64, payment_id: i64) -> Result<(), HandlerError> {
    let head = event.head();
    if head.event_id() == format!("{}:{invoice_id}:{payment_id}", head.event_type()) {
        return Ok(());
    }
    Err(HandlerError::give_up("its key is not that of its body"))
}

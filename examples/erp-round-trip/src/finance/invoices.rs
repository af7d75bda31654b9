//! What happens to an invoice: its state and its event in one transaction.

use std::sync::Arc;

use serde::Serialize;
use stand::Failed;
use tokio_postgres::{Client, Transaction};
use walpost_outbox::{
    IdColumn, NewEvent, OutboxTable, Written, walpost_contracts::Contracts, write_once,
};

/// What finance and those who read its events agree on.
const CONTRACTS: [(&str, &str); 2] = [
    ("invoice-paid.md", include_str!("../../../../docs/events/finance/invoice-paid.md")),
    ("invoice-refunded.md", include_str!("../../../../docs/events/finance/invoice-refunded.md")),
];

#[derive(Serialize)]
struct InvoicePaid<'a> {
    r#type: &'a str,
    invoice_id: i64,
    payment_id: i64,
    amount_cents: i64,
    city: &'a str,
}

#[derive(Serialize)]
struct InvoiceRefunded<'a> {
    r#type: &'a str,
    invoice_id: i64,
    payment_id: i64,
}

/// What came of a payment or a refund.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Noted {
    /// State and event are there now.
    Now,
    /// They were there: this one was told before.
    Before,
}

/// The ERP's table as the writer has to know it. No column of it says what an
/// event is about.
pub(crate) fn outbox() -> Result<OutboxTable, Failed> {
    let contracts = CONTRACTS.map(|(name, text)| (name.into(), text.to_owned()));
    let table = OutboxTable::builder("public", "finance_outbox")
        .id("id", IdColumn::Uuid)
        .without_aggregate()
        .event_type("event_type")
        .idempotency_key("idempotency_key")
        .build()?;
    Ok(table.with_contracts(Arc::new(Contracts::parse(contracts)?)))
}

/// A new one, to be paid.
pub(crate) async fn issue(client: &Client, city: &str, amount_cents: i64) -> Result<i64, Failed> {
    let insert = "insert into invoices (city, amount_cents) values ($1, $2) returning id";
    Ok(client.query_one(insert, &[&city, &amount_cents]).await?.get(0))
}

/// The bank says that an invoice is paid, and may say so twice.
pub(crate) async fn pay(
    client: &mut Client,
    outbox: &OutboxTable,
    invoice_id: i64,
    payment_id: i64,
) -> Result<Noted, Failed> {
    let tx = client.transaction().await?;
    let look = "select city, amount_cents from invoices where id = $1 for update";
    let invoice = tx.query_one(look, &[&invoice_id]).await?;
    let (city, amount_cents): (&str, i64) = (invoice.get(0), invoice.get(1));
    let kind = "invoice.paid";
    let paid = InvoicePaid { r#type: kind, invoice_id, payment_id, amount_cents, city };
    let event = NewEvent::new("invoice", invoice_id.to_string(), kind)
        .idempotency_key(format!("{kind}:{invoice_id}:{payment_id}"))
        .json(&paid)?;
    if let Written::AlreadyWritten(_) = write_once(&tx, outbox, &event).await? {
        return Ok(Noted::Before);
    }
    let update = "update invoices set status = 'paid', payment_id = $2 \
                  where id = $1 and status = 'open'";
    changed(&tx, update, invoice_id, payment_id).await?;
    // Here both are there, or neither is.
    tx.commit().await?;
    Ok(Noted::Now)
}

/// The money goes back.
pub(crate) async fn refund(
    client: &mut Client,
    outbox: &OutboxTable,
    invoice_id: i64,
    payment_id: i64,
) -> Result<Noted, Failed> {
    let tx = client.transaction().await?;
    let kind = "invoice.refunded";
    let event = NewEvent::new("invoice", invoice_id.to_string(), kind)
        .idempotency_key(format!("{kind}:{invoice_id}:{payment_id}"))
        .json(&InvoiceRefunded { r#type: kind, invoice_id, payment_id })?;
    if let Written::AlreadyWritten(_) = write_once(&tx, outbox, &event).await? {
        return Ok(Noted::Before);
    }
    let update = "update invoices set status = 'refunded' \
                  where id = $1 and payment_id = $2 and status = 'paid'";
    changed(&tx, update, invoice_id, payment_id).await?;
    tx.commit().await?;
    Ok(Noted::Now)
}

/// An event without its change is rolled back with the transaction.
async fn changed(
    tx: &Transaction<'_>,
    update: &str,
    invoice_id: i64,
    payment_id: i64,
) -> Result<(), Failed> {
    match tx.execute(update, &[&invoice_id, &payment_id]).await? {
        1 => Ok(()),
        _ => Err(format!("invoice {invoice_id} is in another state, or another payment's").into()),
    }
}

#[cfg(test)]
mod tests {
    use walpost_event::error_chain;

    use super::{super::database::testing::fresh, *};

    /// Of the invoice, and how many events there are.
    async fn state(client: &Client, invoice: i64) -> (String, i64) {
        let look = "select status, (select count(*) from finance_outbox) from invoices \
                    where id = $1";
        let row = client.query_one(look, &[&invoice]).await.unwrap();
        (row.get(0), row.get(1))
    }

    fn is(status: &str, events: i64) -> (String, i64) {
        (status.to_owned(), events)
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_payment_that_is_told_twice_is_one_event_and_another_one_is_refused_with_its_own() {
        let (mut client, outbox) = (fresh().await, outbox().unwrap());
        let invoice = issue(&client, "Oslo", 1_999).await.unwrap();
        let early = refund(&mut client, &outbox, invoice, 7).await.unwrap_err();
        assert!(early.to_string().contains("another state"), "{early}");
        assert_eq!(state(&client, invoice).await, is("open", 0));
        assert_eq!(pay(&mut client, &outbox, invoice, 7).await.unwrap(), Noted::Now);
        assert_eq!(pay(&mut client, &outbox, invoice, 7).await.unwrap(), Noted::Before);
        assert_eq!(state(&client, invoice).await, is("paid", 1));
        let other = pay(&mut client, &outbox, invoice, 8).await.unwrap_err();
        assert!(other.to_string().contains("another payment's"), "{other}");
        assert_eq!(state(&client, invoice).await, is("paid", 1));
        for noted in [Noted::Now, Noted::Before] {
            assert_eq!(refund(&mut client, &outbox, invoice, 7).await.unwrap(), noted);
        }
        assert_eq!(state(&client, invoice).await, is("refunded", 2));
        let keys =
            "select string_agg(idempotency_key, ' ' order by created_at) from finance_outbox";
        let keys: String = client.query_one(keys, &[]).await.unwrap().get(0);
        assert_eq!(keys, format!("invoice.paid:{invoice}:7 invoice.refunded:{invoice}:7"));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn an_event_that_breaks_its_contract_leaves_its_invoice_open() {
        let (mut client, outbox) = (fresh().await, outbox().unwrap());
        let invoice = issue(&client, "", 1_999).await.unwrap();
        let refused = pay(&mut client, &outbox, invoice, 7).await.unwrap_err();
        assert!(error_chain(&*refused).contains("/city"), "{refused}");
        assert_eq!(state(&client, invoice).await, is("open", 0));
    }
}

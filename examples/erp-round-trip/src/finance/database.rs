//! Finance's database: its tables, and what `walpost migrate` makes.

use stand::{Failed, Stand};
use walpost_migrate::Set;
use walpost_postgres::Database;

/// Its name.
pub(crate) const NAME: &str = "finance";
const SETS: [Set; 2] = [Set::Relay, Set::Webhook];
/// The outbox as the ERP has it, with nothing added.
const OUTBOX: &str = include_str!("../../../finance-outbox/schema.sql");
const INVOICES: &str = "
    create table if not exists invoices (
        id bigint generated always as identity primary key,
        city text not null,
        amount_cents bigint not null,
        status text not null default 'open', -- open | paid | refunded
        payment_id bigint);
    create index if not exists invoices_to_do on invoices (id) where status = 'open';";
/// Deliveries tell the row what became of them.
const MARK: &str = "
    select walpost.webhook_mark('finance_outbox', 'delivery_status',
        pending => 'pending', delivered => 'delivered', failed => 'failed',
        attempts_column => 'delivery_attempts', last_attempt_at_column => 'last_attempt_at',
        delivered_at_column => 'delivered_at')";

pub(crate) async fn open() -> Result<Database, Failed> {
    Stand::open("erp-round-trip").await?.database(NAME, SETS, &tables()).await
}

fn tables() -> String {
    let outbox = format!(
        "do $$ begin if to_regclass('finance_outbox') is null then {OUTBOX} end if; end $$"
    );
    [INVOICES, &outbox, MARK].join(";\n")
}

#[cfg(test)]
pub(crate) mod testing {
    use walpost_migrate::Migrator;
    use walpost_testkit::fresh_database;

    use super::*;

    /// One of a test.
    pub(crate) async fn fresh() -> tokio_postgres::Client {
        let mut client = fresh_database().await.connect().await;
        Migrator::new().sets(SETS).migrate(&mut client).await.unwrap();
        client.batch_execute(&tables()).await.unwrap();
        // As each start does.
        client.batch_execute(&tables()).await.unwrap();
        client
    }
}

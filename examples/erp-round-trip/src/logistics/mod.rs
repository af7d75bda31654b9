//! The logistics module: a program of its own, with a database of its own.

mod shipments;

use stand::{Failed, Stand, Stop, serve};
use tokio::net::TcpListener;
use walpost_inbox::{Database, Processor};
use walpost_migrate::Set;
use walpost_webhook::{
    Verifier,
    receive::{Place, Receiver, Source},
};

use self::shipments::Shipments;
use crate::settings::{self, FINANCE, KEY, Mode, PATH};

/// Name of its database.
pub(crate) const NAME: &str = "logistics";
const HANDLER_TIMEOUT_MS: u32 = 5_000;
/// For so long a kill keeps what was claimed.
const LEASE_MS: u32 = 7_000;
/// Nothing in it keeps a shipment from being there twice: that would show.
const TABLES: &str = "
    create table if not exists shipment (
        id bigint generated always as identity primary key,
        invoice_id bigint not null,
        city text not null,
        state text not null, -- waiting | cancelled
        idempotency_key text not null,
        created_at timestamptz not null default now());
    create index if not exists shipment_invoice on shipment (invoice_id);";

/// Takes the webhooks of finance.
pub(crate) async fn run(stop: Stop) -> Result<(), Failed> {
    let listener = TcpListener::bind(settings::logistics()?).await?;
    let stand = Stand::open("erp-round-trip").await?;
    let database = stand.database(NAME, [Set::Inbox], TABLES).await?;
    let database = Database::config(database.config().clone());

    let builder = Receiver::builder(database.clone());
    let receiver = match settings::mode()? {
        Mode::Inline => builder.inline(PATH, finance()?, Shipments),
        Mode::Inbox => builder.inbox(PATH, finance()?),
    };
    let receiver = receiver.build()?;
    // Also beside `inline`: for what somebody has tried again by hand, and for
    // events of types that are not known yet, which wait for review.
    let processor = Processor::builder(database)
        .handler_timeout_ms(HANDLER_TIMEOUT_MS)
        .lease_ms(LEASE_MS)
        .handler(Shipments)?;
    let stopped = stop.requested();
    let mut processing = tokio::spawn(async move { processor.run(stopped).await });

    tokio::select! {
        served = serve(listener, receiver.router(), &stop) => served?,
        ended = &mut processing => {
            ended??;
            // It ends when it is told to, and may hear of it first.
            receiver.drained().await;
            return Ok(());
        }
    }
    receiver.drained().await;
    Ok(processing.await??)
}

/// Signed by the body; the key of the delivery is the event's id.
fn finance() -> Result<Source, Failed> {
    let verifier = Verifier::standard([KEY.parse()?]);
    let key = Place::Header("x-idempotency-key".parse()?);
    let source = Source::new(FINANCE, verifier, key, Place::pointer("/type"));
    Ok(source.related_reference(Place::pointer("/invoice_id")))
}

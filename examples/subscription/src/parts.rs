//! Who runs: everything in one process, or one part of it.

use axum::Router;
use stand::{Faults, Running, Stand, Stop, listen, number, serve, spawn};
use tokio::task::JoinSet;
use walpost_migrate::Set;
use walpost_postgres::Database;

use crate::{
    Failed, Settings, customers, inbox,
    outside::{Billing, tell},
    reconcile::Reconciler,
    report::Report,
    requests, route,
    settings::url,
    table::{TABLES, outbox},
};

/// Requests, unless the variable SUBSCRIPTIONS says otherwise.
const SUBSCRIPTIONS: u64 = 200;
/// Of 100 requests to the provider, unless FAULTS_PERCENT says otherwise.
const FAULTS_PERCENT: u64 = 8;
/// One in so many of the provider's webhooks is odd, in this example.
const WHIMS_EVERY: u64 = 5;

/// One part, or without a name all of them and a number of customers.
///
/// # Errors
/// When a part cannot begin, or has ended by itself.
pub async fn run(part: Option<&str>, stop: Stop) -> Result<(), Failed> {
    let settings = Settings::from_environment()?;
    let stand = Stand::open("subscription").await?;
    match part {
        None => everything(&stand, settings, stop).await,
        Some("billing") => {
            let billing = Billing::open(&stand, faults(settings, 0), 0).await?;
            let webhooks = format!("{}{}", url("SERVICE_URL")?, inbox::PATH);
            let telling = tell(billing.database().clone(), webhooks, stop.clone());
            let listener = listen().await?;
            tokio::try_join!(serve(listener, billing.router(), &stop), telling)?;
            Ok(())
        }
        Some("service") => {
            let service = service(&tables(&stand).await?)?;
            serve(listen().await?, service, &stop).await
        }
        Some("processor") => {
            let processor = inbox::processor(&tables(&stand).await?, outbox()?)?;
            Ok(processor.run(stop.requested()).await?)
        }
        Some("reconciler") => {
            let database = tables(&stand).await?;
            Reconciler::new(database, outbox()?, &url("BILLING_URL")?, settings)?.run(stop).await;
            Ok(())
        }
        Some("sender") => {
            let database = tables(&stand).await?;
            let mut sending = requests::start(&database, &url("BILLING_URL")?, &settings)?;
            tokio::select! {
                ended = sending.ended() => return Err(ended),
                () = stop.requested() => {}
            }
            sending.stop().await
        }
        Some(other) => Err(format!(
            "{other} is no part; they are service, sender, processor, reconciler and billing"
        )
        .into()),
    }
}

async fn everything(stand: &Stand, settings: Settings, stop: Stop) -> Result<(), Failed> {
    let wanted = number("SUBSCRIPTIONS", SUBSCRIPTIONS)?;
    let percent = number("FAULTS_PERCENT", FAULTS_PERCENT)?;
    let database = tables(stand).await?;
    let mut parts = JoinSet::new();
    let service = spawn(&mut parts, service(&database)?, &stop).await?;
    let service = format!("http://{service}");
    let billing = Billing::open(stand, faults(settings, percent), WHIMS_EVERY).await?;
    let report = Report::open(&database, billing.database(), wanted).await?;
    report.so_far().await?.figures().tell()?;

    let webhooks = format!("{service}{}", inbox::PATH);
    parts.spawn(tell(billing.database().clone(), webhooks, stop.clone()));
    let billing = spawn(&mut parts, billing.router(), &stop).await?;
    let billing = format!("http://{billing}");
    let processor = inbox::processor(&database, outbox()?)?;
    let told = stop.clone();
    parts.spawn(async move { Ok(processor.run(told.requested()).await?) });
    let reconciler = Reconciler::new(database.clone(), outbox()?, &billing, settings)?;
    let told = stop.clone();
    parts.spawn(async move {
        reconciler.run(told).await;
        Ok(())
    });
    let sending = requests::start(&database, &billing, &settings)?;
    let customers = tokio::spawn(customers::come(database, service, wanted, stop.clone()));

    let running = Running { clients: Some(customers), parts, sending: Some(sending) };
    running.watch(async || Ok(report.so_far().await?.figures()), &stop).await
}

fn service(database: &Database) -> Result<Router, Failed> {
    Ok(route::router(database, outbox()?)?.merge(inbox::receiver(database)?))
}

async fn tables(stand: &Stand) -> Result<Database, Failed> {
    let sets = [Set::Relay, Set::Webhook, Set::Idempotency, Set::Inbox];
    stand.database("app", sets, TABLES).await
}

/// What is late comes when its caller has gone.
fn faults(settings: Settings, percent: u64) -> Faults {
    Faults::new(percent, settings.call_timeout * 2)
}

//! Who runs: everything in one process, or one part of it.

use std::env;

use axum::Router;
use stand::{Faults, Running, Stand, Stop, listen, number, serve, spawn};
use tokio::task::JoinSet;
use walpost_migrate::Set;
use walpost_postgres::Database;

use crate::{
    Failed, Settings,
    advance::Shop,
    customers, others,
    outside::{Payment, Warehouse},
    refunds,
    report::Report,
    route, sweeper,
    table::{TABLES, Table},
};

/// Checkouts, unless the variable CHECKOUTS says otherwise.
const CHECKOUTS: u64 = 200;
/// Of 100 requests to others, unless FAULTS_PERCENT says otherwise.
const FAULTS_PERCENT: u64 = 8;

/// One part, or without a name all of them and a number of customers.
///
/// # Errors
/// When a part cannot begin, or has ended by itself.
pub async fn run(part: Option<&str>, stop: Stop) -> Result<(), Failed> {
    let settings = Settings::from_environment()?;
    let stand = Stand::open("checkout").await?;
    match part {
        None => everything(&stand, settings, stop).await,
        Some("payment") => {
            let router = payment(&stand, settings, 0).await?;
            serve(listen().await?, router, &stop).await
        }
        Some("warehouse") => {
            let router = warehouse(&stand, settings, 0).await?;
            serve(listen().await?, router, &stop).await
        }
        Some("service") => {
            let (database, shop) = of_environment(&stand, settings).await?;
            let router = route::router(shop, &database)?;
            let listener = listen().await?;
            serve(listener, router, &stop).await
        }
        Some("sweeper") => {
            let (database, shop) = of_environment(&stand, settings).await?;
            sweeper::sweep(shop, database, stop).await;
            Ok(())
        }
        Some("sender") => {
            let database = tables(&stand).await?;
            let mut sending = refunds::start(&database, &variable("PAYMENT_URL")?, &settings)?;
            tokio::select! {
                ended = sending.ended() => return Err(ended),
                () = stop.requested() => {}
            }
            sending.stop().await
        }
        Some(other) => Err(format!(
            "{other} is no part; they are payment, warehouse, service, sweeper and sender"
        )
        .into()),
    }
}

async fn everything(stand: &Stand, settings: Settings, stop: Stop) -> Result<(), Failed> {
    let checkouts = number("CHECKOUTS", CHECKOUTS)?;
    let percent = number("FAULTS_PERCENT", FAULTS_PERCENT)?;
    let database = tables(stand).await?;
    let mut parts = JoinSet::new();
    let payment = spawn(&mut parts, payment(stand, settings, percent).await?, &stop).await?;
    let payment = format!("http://{payment}");
    let warehouse = spawn(&mut parts, warehouse(stand, settings, percent).await?, &stop).await?;
    let warehouse = format!("http://{warehouse}");
    let report = Report::open(stand, &database, checkouts).await?;
    report.so_far().await?.figures().tell()?;

    let shop = shop(settings, &payment, &warehouse)?;
    let service = spawn(&mut parts, route::router(shop.clone(), &database)?, &stop).await?;
    let service = format!("http://{service}");
    let sweeper = sweeper::sweep(shop, database.clone(), stop.clone());
    parts.spawn(async move {
        sweeper.await;
        Ok(())
    });
    let sending = refunds::start(&database, &payment, &settings)?;
    let customers = tokio::spawn(customers::come(service, checkouts, stop.clone()));

    let running = Running { clients: Some(customers), parts, sending: Some(sending) };
    running.watch(async || Ok(report.so_far().await?.figures()), &stop).await
}

async fn tables(stand: &Stand) -> Result<Database, Failed> {
    stand.database("shop", [Set::Relay, Set::Webhook, Set::Idempotency], TABLES).await
}

/// What is late comes when its caller has gone, and before it is settled.
fn faults(settings: Settings, percent: u64) -> Faults {
    Faults::new(percent, settings.call_timeout * 2)
}

async fn payment(stand: &Stand, settings: Settings, percent: u64) -> Result<Router, Failed> {
    let knows_keys = !settings.keys_last.is_zero();
    Ok(Payment::open(stand, faults(settings, percent), knows_keys).await?.router())
}

async fn warehouse(stand: &Stand, settings: Settings, percent: u64) -> Result<Router, Failed> {
    Ok(Warehouse::open(stand, faults(settings, percent)).await?.router())
}

async fn of_environment(stand: &Stand, settings: Settings) -> Result<(Database, Shop), Failed> {
    let database = tables(stand).await?;
    Ok((database, shop(settings, &variable("PAYMENT_URL")?, &variable("WAREHOUSE_URL")?)?))
}

fn shop(settings: Settings, payment: &str, warehouse: &str) -> Result<Shop, Failed> {
    Ok(Shop {
        settings,
        table: Table::new(settings.abandoned_after)?,
        payment: others::Payment::new(payment, settings.call_timeout)?,
        warehouse: others::Warehouse::new(warehouse, settings.call_timeout)?,
    })
}

fn variable(name: &str) -> Result<String, Failed> {
    env::var(name).map_err(|_| format!("{name} is not set; it is a URL").into())
}

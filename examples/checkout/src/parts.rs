//! Who runs: everything in one process, or one part of it.

use std::{env, net::Ipv4Addr, time::Duration};

use axum::Router;
use stand::{Faults, Stand, Stop, serve};
use tokio::{
    net::TcpListener,
    task::JoinSet,
    time::{MissedTickBehavior, interval},
};
use walpost_migrate::Set;
use walpost_postgres::Database;

use crate::{
    Failed, Settings,
    advance::Shop,
    customers, others,
    outside::{Payment, Warehouse},
    refunds,
    report::Report,
    route,
    settings::number,
    sweeper,
    table::{TABLES, Table},
};

/// Checkouts, unless the variable CHECKOUTS says otherwise.
const CHECKOUTS: u64 = 200;
/// Of 100 requests to others, unless FAULTS_PERCENT says otherwise.
const FAULTS_PERCENT: u64 = 8;
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

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
            let listener = listen().await?;
            serve(listener, payment(&stand, settings, 0).await?, &stop).await
        }
        Some("warehouse") => {
            let listener = listen().await?;
            serve(listener, warehouse(&stand, settings, 0).await?, &stop).await
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
    let mut parts: JoinSet<Result<(), Failed>> = JoinSet::new();
    let payment = spawn(&mut parts, payment(stand, settings, percent).await?, &stop).await?;
    let warehouse = spawn(&mut parts, warehouse(stand, settings, percent).await?, &stop).await?;
    let report = Report::open(stand, &database, checkouts).await?;
    report.so_far().await?.figures().tell()?;

    let shop = shop(settings, &payment, &warehouse)?;
    let service = spawn(&mut parts, route::router(shop.clone(), &database)?, &stop).await?;
    let sweeper = sweeper::sweep(shop, database.clone(), stop.clone());
    parts.spawn(async move {
        sweeper.await;
        Ok(())
    });
    let mut sending = refunds::start(&database, &payment, &settings)?;
    let customers = customers::come(service, checkouts, stop.clone());
    let mut customers = tokio::spawn(customers);

    let mut tick = interval(REPORT_INTERVAL);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut are_there = true;
    let ended: Result<(), Failed> = loop {
        tokio::select! {
            () = stop.requested() => break Ok(()),
            ended = sending.ended() => break Err(ended),
            Some(ended) = parts.join_next() => break ended?,
            ended = &mut customers, if are_there => match ended {
                Ok(Ok(())) => are_there = false,
                Ok(Err(error)) => break Err(error),
                Err(panic) => break Err(panic.into()),
            },
            _ = tick.tick() => {
                match report.so_far().await?.figures().tell() {
                    Ok(is_done) if is_done && !are_there => break Ok(()),
                    Ok(_) => {}
                    Err(broken) => break Err(broken),
                }
            }
        }
    };
    stop.stop();
    if ended.is_ok() {
        if are_there {
            customers.await??;
        }
        sending.stop().await?;
        while let Some(part) = parts.join_next().await {
            part??;
        }
        report.so_far().await?.figures().tell_the_end()?;
    }
    ended
}

/// Serves on a port of its own, and says where.
async fn spawn(
    parts: &mut JoinSet<Result<(), Failed>>,
    router: Router,
    stop: &Stop,
) -> Result<String, Failed> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let url = format!("http://{}", listener.local_addr()?);
    let stop = stop.clone();
    parts.spawn(async move { serve(listener, router, &stop).await });
    Ok(url)
}

/// On the port that LISTEN names, or one of its own.
async fn listen() -> Result<TcpListener, Failed> {
    let port = u16::try_from(number("LISTEN", 0)?)?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
    println!("listens on {}", listener.local_addr()?.port());
    Ok(listener)
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

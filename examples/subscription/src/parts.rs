//! Who runs: everything in one process, or one part of it.

use std::{net::Ipv4Addr, time::Duration};

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
    Failed, Settings, customers, inbox,
    outside::{Billing, tell},
    reconcile::Reconciler,
    report::Report,
    requests, route,
    settings::{number, url},
    table::{TABLES, outbox},
};

/// Requests, unless the variable SUBSCRIPTIONS says otherwise.
const SUBSCRIPTIONS: u64 = 200;
/// Of 100 requests to the provider, unless FAULTS_PERCENT says otherwise.
const FAULTS_PERCENT: u64 = 8;
/// One in so many of the provider's webhooks is odd, in this example.
const WHIMS_EVERY: u64 = 5;
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

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
    let mut parts: JoinSet<Result<(), Failed>> = JoinSet::new();
    let service = spawn(&mut parts, service(&database)?, &stop).await?;
    let billing = Billing::open(stand, faults(settings, percent), WHIMS_EVERY).await?;
    let report = Report::open(&database, billing.database(), wanted).await?;
    report.so_far().await?.figures().tell()?;

    let webhooks = format!("{service}{}", inbox::PATH);
    parts.spawn(tell(billing.database().clone(), webhooks, stop.clone()));
    let billing = spawn(&mut parts, billing.router(), &stop).await?;
    let processor = inbox::processor(&database, outbox()?)?;
    let told = stop.clone();
    parts.spawn(async move { Ok(processor.run(told.requested()).await?) });
    let reconciler = Reconciler::new(database.clone(), outbox()?, &billing, settings)?;
    let told = stop.clone();
    parts.spawn(async move {
        reconciler.run(told).await;
        Ok(())
    });
    let mut sending = requests::start(&database, &billing, &settings)?;
    let mut customers = tokio::spawn(customers::come(database, service, wanted, stop.clone()));

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

fn service(database: &Database) -> Result<Router, Failed> {
    Ok(route::router(database, outbox()?)?.merge(inbox::receiver(database)?))
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
    let sets = [Set::Relay, Set::Webhook, Set::Idempotency, Set::Inbox];
    stand.database("app", sets, TABLES).await
}

/// What is late comes when its caller has gone.
fn faults(settings: Settings, percent: u64) -> Faults {
    Faults::new(percent, settings.call_timeout * 2)
}

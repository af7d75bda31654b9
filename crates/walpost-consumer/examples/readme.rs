//! Notes a shipment for every order, exactly once.

use std::{
    env,
    error::Error,
    io::{self, IsTerminal},
    process::ExitCode,
};

use walpost_consumer::tokio_postgres::Transaction;
use walpost_consumer::{Consumer, Database, Event, Handler, HandlerError, error_chain};

#[derive(serde::Deserialize)]
struct OrderPlaced {
    order_id: i64,
}

struct Shipping;

impl Handler for Shipping {
    async fn handle(&self, tx: &Transaction<'_>, event: &Event) -> Result<(), HandlerError> {
        let order: OrderPlaced = event.json()?;
        tx.execute("insert into shipment (order_id) values ($1)", &[&order.order_id]).await?;
        Ok(())
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    let is_terminal = io::stderr().is_terminal();
    tracing_subscriber::fmt().with_writer(io::stderr).with_ansi(is_terminal).init();
    let Err(error) = run().await else { return ExitCode::SUCCESS };
    eprintln!("shipping: {}", error_chain(&*error));
    ExitCode::FAILURE
}

async fn run() -> Result<(), Box<dyn Error>> {
    let consumer = Consumer::builder("shipping")
        .kafka("bootstrap.servers", variable("KAFKA")?)
        .topics(["outbox.event.order"])
        .database(Database::config(variable("DATABASE_URL")?.parse()?))
        .handler(Shipping)?;
    consumer.run(async { drop(tokio::signal::ctrl_c().await) }).await?;
    Ok(())
}

fn variable(name: &str) -> Result<String, String> {
    env::var(name).map_err(|error| format!("{name}: {error}"))
}

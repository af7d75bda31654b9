//! The finance module: a program of its own, with a database of its own.

mod database;
mod invoices;
mod sender;
mod work;

use stand::{Failed, Stop};

use crate::settings::{self, Source};

pub(crate) use self::database::NAME;

/// Pays invoices, and has logistics told.
pub(crate) async fn run(stop: Stop) -> Result<(), Failed> {
    let wanted = settings::invoices()?;
    let source = settings::source()?;
    let database = database::open().await?;
    let mut working = tokio::spawn(work::pay_invoices(database.clone(), wanted, stop.clone()));
    if source == Source::Elsewhere {
        return working.await?;
    }
    let mut sending = sender::sender(source)?.start(&database)?;
    let mut is_open = true;
    loop {
        tokio::select! {
            () = stop.requested() => break,
            error = sending.ended() => return Err(error),
            ended = &mut working, if is_open => {
                ended??;
                is_open = false;
            }
        }
    }
    if is_open {
        working.await??;
    }
    sending.stop().await
}

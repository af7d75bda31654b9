//! Ends what nobody comes back for: looks at checkouts without a step for a
//! while, and goes on with them as a request would.

use std::time::Duration;

use stand::Stop;
use tokio::time::{MissedTickBehavior, interval};
use tokio_postgres::Client;
use walpost_event::error_chain;
use walpost_idempotency::http::TxError;
use walpost_postgres::Database;

use crate::{
    advance::{By, Shop},
    checkout::State,
};

const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Few, since each may wait for calls, and the last one is not to be taken for
/// abandoned again meanwhile.
const AT_A_TIME: i64 = 4;
/// For how long a charge is looked for that the provider says it does not have.
const AUDITED_FOR: Duration = Duration::from_secs(24 * 3_600);

/// Until it is told to stop. As many as one likes at the same time.
pub(crate) async fn sweep(shop: Shop, database: Database, stop: Stop) {
    let mut client: Option<Client> = None;
    let mut tick = interval(LOOK_EVERY);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = stop.requested() => return,
            _ = tick.tick() => {}
        }
        let connected = match client.take() {
            Some(client) => client,
            None => match database.connect().await {
                Ok(client) => client,
                Err(error) => {
                    tracing::warn!(error = error_chain(&error), "the sweeper has no database");
                    continue;
                }
            },
        };
        client = look(&shop, connected).await;
    }
}

/// The connection, unless it is spent.
async fn look(shop: &Shop, mut client: Client) -> Option<Client> {
    match end_what_is_due(shop, &mut client).await {
        Ok(()) => Some(client),
        Err(error) => {
            tracing::warn!(error = error_chain(&error), "a sweep was broken off");
            None
        }
    }
}

async fn end_what_is_due(shop: &Shop, client: &mut Client) -> Result<(), TxError> {
    for checkout in shop.table.claim_due(client, AT_A_TIME).await? {
        if checkout.state == State::NotCharged {
            let audited = shop.audit(client, checkout).await?;
            shop.table.look_later(client, &audited, AUDITED_FOR).await?;
        } else {
            shop.advance(By::Sweeper(client), checkout).await?;
        }
    }
    Ok(())
}

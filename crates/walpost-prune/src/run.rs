use std::{error::Error, pin::pin, time::Duration};

use tokio::{
    select,
    time::{sleep, timeout},
};
use tokio_postgres::Client;
use walpost_postgres::shown::{Author, chain};

use crate::{Pace, Pruning, pass};

/// Between a pass that failed and the next one, at most.
const SOON: Duration = Duration::from_secs(60);
/// Of a connection. Longer than any that comes, for whoever has set no limit.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(120);

/// Passes, the first one at once, until `shutdown` is ready; each opens a
/// connection, within two minutes. What goes wrong is told to the pruning, and tried
/// again within a minute.
pub async fn run<P, C, F, E>(
    pruning: &P,
    pace: Pace,
    mut connect: C,
    shutdown: impl Future<Output = ()>,
) where
    P: Pruning,
    C: FnMut() -> F,
    F: Future<Output = Result<Client, E>>,
    E: Into<Box<dyn Error + Send + Sync>>,
{
    let mut shutdown = pin!(shutdown);
    loop {
        let passed = select! {
            biased;
            () = &mut shutdown => return,
            passed = connect_and_pass(pruning, pace, &mut connect) => passed,
        };
        let wait = match passed {
            Ok(()) => pace.every,
            Err(error) => {
                let wait = pace.every.min(SOON);
                pruning.tell_failure(&error, wait.as_secs());
                wait
            }
        };
        select! {
            biased;
            () = &mut shutdown => return,
            () = sleep(wait) => {}
        }
    }
}

/// The error with its causes.
async fn connect_and_pass<P, F, E>(
    pruning: &P,
    pace: Pace,
    connect: &mut impl FnMut() -> F,
) -> Result<(), String>
where
    P: Pruning,
    F: Future<Output = Result<Client, E>>,
    E: Into<Box<dyn Error + Send + Sync>>,
{
    let connected = timeout(CONNECT_TIMEOUT, connect()).await;
    let connected = connected.map_err(|_| format!("no connection in {CONNECT_TIMEOUT:?}"))?;
    let mut client = connected.map_err(|error| {
        let error: Box<dyn Error + Send + Sync> = error.into();
        chain(&*error, Author::Walpost)
    })?;
    let passed = pass(pruning, pace, &mut client).await;
    pruning.tell(&passed.map_err(|error| chain(&error, Author::Walpost))?);
    Ok(())
}

//! A request whose claim, writes and response are one transaction.

use std::{convert::Infallible, mem::ManuallyDrop, sync::Arc};

use axum_core::{BoxError, body::Body};
use bytes::Bytes;
use http::{Request, Response};
use tokio_postgres::{Client, Transaction};
use tower_service::Service;
use walpost_prepared::{AT_END, Left, roll_back};

use super::{
    extract::{Given, Tx},
    handling::{Handled, handle, serve},
    layer::{Shared, Step},
    metrics::{self, Result as Counted},
    request::Asked,
    respond::stored,
};
use crate::{Claimed, Error, failpoint::Failpoint, idempotency::limit_ms};

/// Claims the request and carries it out, or says why not; takes `call` only
/// when it is carried out.
pub(super) async fn attempt<S, B>(shared: &Arc<Shared>, call: &mut Option<(S, Asked)>) -> Step
where
    S: Service<Request<Body>, Response = Response<B>, Error = Infallible> + Send,
    S::Future: Send,
    B: http_body::Body<Data = Bytes> + Send,
    B::Error: Into<BoxError>,
{
    let mut lent = match shared.database.get().await {
        Ok(lent) => lent,
        Err(none) => return none.into(),
    };
    let is_used = lent.is_used;
    let (step, ended) = attempt_on(shared, lent.client(), is_used, call).await;
    match ended {
        Ended::Committed(left) => lent.committed(left),
        Ended::RolledBack(left) => lent.rolled_back(left),
        // It is closed, and with it what may be open on it.
        Ended::Unknown => drop(lent),
    }
    step
}

/// How the transaction of a request has ended, and what it has left behind.
enum Ended {
    Committed(Option<Left>),
    RolledBack(Option<Left>),
    Unknown,
}

/// And how its transaction has ended.
async fn attempt_on<S, B>(
    shared: &Arc<Shared>,
    client: &mut Client,
    is_used: bool,
    call: &mut Option<(S, Asked)>,
) -> (Step, Ended)
where
    S: Service<Request<Body>, Response = Response<B>, Error = Infallible> + Send,
    S::Future: Send,
    B: http_body::Body<Data = Bytes> + Send,
    B::Error: Into<BoxError>,
{
    let begun = shared.idempotency.begin(client);
    let tx = match shared.database.in_time("beginning a transaction", begun).await {
        Ok(tx) => tx,
        Err(error) => return (Step::failed(&error, is_used), Ended::Unknown),
    };
    // Sent without waiting: a failure of it is that of the next statement as well.
    let _ = tx.client().simple_query_raw(&shared.idempotency.sql.keep_session).await;
    let claimed = match call.as_ref().and_then(|(_, asked)| asked.claim) {
        None => None,
        Some((lookup, fingerprint)) => {
            let claim = shared.idempotency.claim(&tx, &lookup, &fingerprint, &shared.policy);
            let claim = shared.database.in_time("claiming a request", claim).await;
            match claim.map(|claim| shared.granted(claim)) {
                Ok(Ok(claimed)) => Some(claimed),
                Ok(Err(step)) => return (step, rolled_back(shared, tx).await),
                Err(error) => return (Step::failed(&error, is_used), Ended::Unknown),
            }
        }
    };
    Failpoint::AfterClaim.reached();
    shared.count(if claimed.is_some() { Counted::New } else { Counted::Keyless });
    let (service, mut asked) = call.take().expect("it is carried out once");
    let (given, jobs) = Tx::channel();
    asked.parts.extensions.insert(Given::Tx(given));
    let limit = shared.policy.handler_timeout;
    let handling = handle(service, asked.request(), shared.policy.response_max_bytes, limit);
    let handled = serve(&tx, jobs, handling, limit).await;
    end(shared, tx, claimed, handled).await
}

/// Commits the response with its effect, or undoes this.
async fn end(
    shared: &Shared,
    tx: Transaction<'_>,
    claimed: Option<Claimed>,
    handled: Handled,
) -> (Step, Ended) {
    let (parts, body) = match handled {
        Ok(response) => response,
        // The connection may be in the middle of a statement.
        Err(failed) => return (Step::answered(shared.failed(failed)), Ended::Unknown),
    };
    let status = parts.status.as_u16();
    let ended = match claimed {
        Some(claimed) if shared.policy.keep.keeps(status) => {
            let response = stored(&shared.policy, &parts, &body);
            let kept = keep(shared, tx, &claimed, &response);
            shared.database.in_time("storing a response", kept).await
        }
        None if parts.status.is_success() || parts.status.is_redirection() => {
            shared.database.in_time("committing a request", commit(shared, tx)).await
        }
        Some(_) | None => {
            metrics::failure(&shared.policy.route, "not_kept");
            let ended = rolled_back(shared, tx).await;
            return (Step::answered(Response::from_parts(parts, Body::from(body))), ended);
        }
    };
    match ended {
        Ok(left) => {
            let response = Response::from_parts(parts, Body::from(body));
            (Step::answered(response), Ended::Committed(left))
        }
        Err(error) => (Step::answered(shared.not_stored(&error)), Ended::Unknown),
    }
}

async fn keep(
    shared: &Shared,
    tx: Transaction<'_>,
    claimed: &Claimed,
    response: &crate::Response,
) -> Result<Option<Left>, Error> {
    if !response.has_effect() {
        shared.idempotency.undo(&tx).await?;
    }
    Failpoint::BeforeCommit.reached();
    let limit_ms = Some(limit_ms(&shared.policy));
    let idempotency = &shared.idempotency;
    let undo = idempotency.sql.undo_session(Some(claimed.lookup()), limit_ms, limit_ms);
    let ended =
        idempotency.commit_behind(tx, Some(&undo), claimed, response, &committing()).await?;
    Failpoint::AfterCommit.reached();
    Ok(ended.iter().find_map(Left::read))
}

/// COMMIT, without what the handler's statements would leave behind.
fn committing() -> String {
    format!("{AT_END}; commit")
}

async fn rolled_back(shared: &Shared, tx: Transaction<'_>) -> Ended {
    const ATTEMPTED: &str = "rolling back";
    let ended = async {
        let rolled_back = roll_back(tx, &shared.idempotency.sql.roll_back()).await;
        rolled_back.map_err(|error| shared.idempotency.failed(ATTEMPTED, &error))
    };
    let ended = shared.database.in_time(ATTEMPTED, ended).await;
    ended.map_or(Ended::Unknown, Ended::RolledBack)
}

/// An error where a statement has failed: COMMIT alone would undo the transaction,
/// and call that a success.
async fn commit(shared: &Shared, tx: Transaction<'_>) -> Result<Option<Left>, Error> {
    // It is over then, so nothing is left for its `Drop` to do.
    let tx = ManuallyDrop::new(tx);
    let undo = shared.idempotency.sql.undo_session(None, None, None);
    let committed = tx.simple_query(&format!("select 1; {undo}; {}", committing())).await;
    let failed = |error| shared.idempotency.failed("committing a request", &error);
    Ok(committed.map_err(failed)?.iter().find_map(Left::read))
}

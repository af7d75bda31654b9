//! A request whose claim, writes and response are one transaction.

use std::{convert::Infallible, mem::ManuallyDrop, sync::Arc};

use axum_core::{BoxError, body::Body};
use bytes::Bytes;
use http::{Request, Response};
use tokio_postgres::{Client, Transaction};
use tower_service::Service;

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
    let (step, is_clean) = attempt_on(shared, lent.client(), is_used, call).await;
    // Else it is closed, and with it what may be open on it.
    if is_clean {
        lent.give_back();
    }
    step
}

/// And whether the connection has nothing open.
async fn attempt_on<S, B>(
    shared: &Arc<Shared>,
    client: &mut Client,
    is_used: bool,
    call: &mut Option<(S, Asked)>,
) -> (Step, bool)
where
    S: Service<Request<Body>, Response = Response<B>, Error = Infallible> + Send,
    S::Future: Send,
    B: http_body::Body<Data = Bytes> + Send,
    B::Error: Into<BoxError>,
{
    let begun = shared.idempotency.begin(client);
    let tx = match shared.database.in_time("beginning a transaction", begun).await {
        Ok(tx) => tx,
        Err(error) => return (Step::failed(&error, is_used), false),
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
                Err(error) => return (Step::failed(&error, is_used), false),
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
) -> (Step, bool) {
    let (parts, body) = match handled {
        Ok(response) => response,
        // The connection may be in the middle of a statement.
        Err(failed) => return (Step::answered(shared.failed(failed)), false),
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
            let is_clean = rolled_back(shared, tx).await;
            return (Step::answered(Response::from_parts(parts, Body::from(body))), is_clean);
        }
    };
    match ended {
        Ok(()) => (Step::answered(Response::from_parts(parts, Body::from(body))), true),
        Err(error) => (Step::answered(shared.not_stored(&error)), false),
    }
}

async fn keep(
    shared: &Shared,
    tx: Transaction<'_>,
    claimed: &Claimed,
    response: &crate::Response,
) -> Result<(), Error> {
    if !response.has_effect() {
        shared.idempotency.undo(&tx).await?;
    }
    Failpoint::BeforeCommit.reached();
    let limit_ms = Some(limit_ms(&shared.policy));
    let undo = shared.idempotency.sql.undo_session(Some(claimed.lookup()), limit_ms, limit_ms);
    shared.idempotency.commit_behind(tx, Some(&undo), claimed, response).await?;
    Failpoint::AfterCommit.reached();
    Ok(())
}

/// Whether the connection has nothing open.
async fn rolled_back(shared: &Shared, tx: Transaction<'_>) -> bool {
    const ATTEMPTED: &str = "rolling back";
    let ended = async {
        let rolled_back = tx.batch_execute(&shared.idempotency.sql.roll_back()).await;
        let ended = rolled_back.and(tx.rollback().await);
        ended.map_err(|error| shared.idempotency.failed(ATTEMPTED, &error))
    };
    shared.database.in_time(ATTEMPTED, ended).await.is_ok()
}

/// An error where a statement has failed: COMMIT alone would undo the transaction,
/// and call that a success.
async fn commit(shared: &Shared, tx: Transaction<'_>) -> Result<(), Error> {
    // It is over then, so nothing is left for its `Drop` to do.
    let tx = ManuallyDrop::new(tx);
    let undo = shared.idempotency.sql.undo_session(None, None, None);
    let committed = tx.batch_execute(&format!("select 1; {undo}; commit")).await;
    committed.map_err(|error| shared.idempotency.failed("committing a request", &error))
}

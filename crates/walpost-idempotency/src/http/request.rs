//! What a request asks for, before anything is done.

use axum::extract::OriginalUri;
use axum_core::body::Body;
use bytes::Bytes;
use http::{
    Request as HttpRequest,
    header::{CONTENT_LENGTH, CONTENT_TYPE},
    request::Parts,
};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use tokio::time::timeout;

use super::layer::Shared;
use crate::{Fingerprint, Key, Lookup, Problem, Request, Scope};

/// A request, read.
pub(super) struct Asked {
    pub(super) parts: Parts,
    pub(super) body: Bytes,
    /// Where it has a key.
    pub(super) claim: Option<(Lookup, Fingerprint)>,
}

impl Asked {
    /// Head first: a request that is refused for it is not read.
    pub(super) async fn read(shared: &Shared, request: HttpRequest<Body>) -> Result<Self, Problem> {
        let (parts, body) = request.into_parts();
        let lookup = lookup(shared, &parts)?;
        let body = read_body(shared, &parts, body).await?;
        let claim = lookup.map(|lookup| (lookup, fingerprint(&parts, &body)));
        Ok(Self { parts, body, claim })
    }

    /// As it came, for the handler.
    pub(super) fn request(self) -> HttpRequest<Body> {
        HttpRequest::from_parts(self.parts, Body::from(self.body))
    }
}

fn lookup(shared: &Shared, parts: &Parts) -> Result<Option<Lookup>, Problem> {
    let policy = &shared.policy;
    let values = parts.headers.get_all(&policy.header).iter().map(|value| value.as_bytes());
    let key = match Key::from_values(values, policy.syntax).map_err(Problem::KeyInvalid)? {
        Some(key) => key,
        None if policy.key_required => return Err(Problem::KeyMissing),
        None => return Ok(None),
    };
    let principal = (shared.principal)(parts).ok_or_else(|| {
        let route = &*policy.route;
        tracing::warn!(route, "a request under an idempotency key has no principal: refused");
        Problem::NoPrincipal
    })?;
    let scope = Scope::new(policy.scope, &principal, &policy.route);
    Ok(Some(Lookup::new(&scope, &key)))
}

async fn read_body(shared: &Shared, parts: &Parts, body: Body) -> Result<Bytes, Problem> {
    let max_bytes = shared.policy.request_max_bytes;
    let length = parts.headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok());
    if length.and_then(|length| length.parse::<u64>().ok()).is_some_and(|n| n > max_bytes as u64) {
        return Err(Problem::BodyTooLarge { max_bytes });
    }
    let read = timeout(shared.policy.handler_timeout, Limited::new(body, max_bytes).collect());
    match read.await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            Err(Problem::BodyTooLarge { max_bytes })
        }
        Ok(Err(_)) | Err(_) => Err(Problem::BodyIncomplete),
    }
}

/// By the path as it was asked for: below a `nest` the request has the rest of
/// it alone, which is that of other resources too.
fn fingerprint(parts: &Parts, body: &[u8]) -> Fingerprint {
    let uri = parts.extensions.get::<OriginalUri>().map_or(&parts.uri, |original| &original.0);
    Fingerprint::of(&Request {
        method: parts.method.as_str(),
        route: uri.path(),
        query: uri.query().unwrap_or_default(),
        content_type: parts.headers.get(CONTENT_TYPE).map(|value| value.as_bytes()),
        body,
    })
}

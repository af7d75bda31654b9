//! Every metric of the layer, through the `metrics` facade.

use metrics::{counter, describe_counter};

/// What became of a request, as `result` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Result {
    /// Its handler was called.
    New,
    Replayed,
    /// 409, its twin is in flight.
    Conflict,
    /// Another request has its key.
    Mismatch,
    /// 410.
    Expired,
    /// 409, until an operator has looked.
    Unresolved,
    /// 400, 403, 413.
    Invalid,
    /// 503, without the database.
    StoreError,
    /// 503, as many wait for their twins as may.
    Crowded,
    /// Its handler was called without protection.
    Open,
    /// Its handler was called, and it had no key.
    Keyless,
}

/// Says what each metric means. Called when a layer is made.
pub(crate) fn describe() {
    describe_counter!(
        "walpost_idempotency_requests_total",
        "Requests, by what became of them under their idempotency keys"
    );
    describe_counter!(
        "walpost_idempotency_failures_total",
        "Handlers that were called and whose response was not stored"
    );
    describe_counter!(
        "walpost_idempotency_lease_lost_total",
        "Runs under a lease that were overtaken"
    );
}

pub(crate) fn request(route: &str, result: Result) {
    let result = match result {
        Result::New => "new",
        Result::Replayed => "replayed",
        Result::Conflict => "conflict",
        Result::Mismatch => "mismatch",
        Result::Expired => "expired",
        Result::Unresolved => "unresolved",
        Result::Invalid => "invalid",
        Result::StoreError => "store_error",
        Result::Crowded => "crowded",
        Result::Open => "open",
        Result::Keyless => "keyless",
    };
    let labels = [("route", route.to_owned()), ("result", result.to_owned())];
    counter!("walpost_idempotency_requests_total", &labels).increment(1);
}

/// `reason` is one of few.
pub(crate) fn failure(route: &str, reason: &'static str) {
    let labels = [("route", route.to_owned()), ("reason", reason.to_owned())];
    counter!("walpost_idempotency_failures_total", &labels).increment(1);
}

pub(crate) fn lease_lost(route: &str) {
    counter!("walpost_idempotency_lease_lost_total", "route" => route.to_owned()).increment(1);
}

//! `Idempotency-Key` on PostgreSQL: a request that is sent again is answered
//! again, and carried out once.
//!
//! Clients retry: a phone loses its network, a proxy gives up, a user taps
//! twice. Under a key that the client chose for the request, claim, effect,
//! outbox event and stored response commit in one transaction here, so that a
//! retry finds all of it or nothing.
//!
//! - [`Idempotency`] is the whole of it on a transaction of `tokio_postgres`,
//!   for any kind of server: see its example.
//! - The module `http` (feature `axum`) puts it around the routes of an axum
//!   router, as a tower layer, and hands their handlers the transaction.
//! - [`Policy`] says for each route what happens to twins, mismatches, expired
//!   keys and failures; [`judge`] decides by it, without I/O.
//!
//! For work that leaves the database, such as charging a card, no transaction
//! helps: [`Mode::Leased`] commits the claim first, under a lease and a fence,
//! and has recovery points to go on from.
//!
//! ```
//! use std::time::{Duration, SystemTime};
//! use walpost_idempotency::{
//!     Fingerprint, Policy, Progress, Request, Response, Verdict, judge, Record,
//! };
//!
//! let policy = Policy::new("POST /orders");
//! let now = SystemTime::now();
//! let first = Request { method: "POST", route: "/orders", body: b"{}", ..Request::default() };
//! let fingerprint = Fingerprint::of(&first);
//! assert_eq!(judge(None, &fingerprint, now, &policy), Verdict::New);
//!
//! let answer = Response::new(201, "{\"id\":7}");
//! let stored = Record::new(fingerprint, Progress::Completed(answer.clone()))
//!     .expires_at(now + Duration::from_secs(60));
//! let again = judge(Some(stored.clone()), &fingerprint, now, &policy);
//! assert_eq!(again, Verdict::Replay(answer));
//!
//! let other = Fingerprint::of(&Request { body: b"[]", ..first });
//! assert_eq!(judge(Some(stored), &other, now, &policy), Verdict::Mismatch);
//! ```
//!
//! Requests that have expired count no more; `Pruner` (feature `pruner`) has them
//! leave now and then.
//!
//! Rows have hashes of principal, key and request, and none of these; a response
//! is stored as it was given, so roles get what they need by
//! `select walpost.idempotency_grant(kind, role)`, where `kind` is `application`,
//! `reader` (everything but responses), `pruner` or `operator`.
//! `walpost migrate --set idempotency` creates the table.
//!
//! The header is that of draft-ietf-httpapi-idempotency-key-header-07, a work in
//! progress that has expired; 410 and the mark of a replay are not in it.
//!
//! Semver covers `tokio_postgres`, which is re-exported, and with the feature
//! `axum` also `axum-core`, `http` and tower's traits.

mod digest;
mod error;
#[cfg(feature = "axum")]
mod failpoint;
mod fingerprint;
#[cfg(feature = "axum")]
pub mod http;
mod idempotency;
mod judge;
mod key;
mod lease;
mod operator;
mod policy;
mod problem;
#[cfg(feature = "pruner")]
mod pruner;
mod report;
mod response;
mod scope;
mod sql;
mod structured;

pub use tokio_postgres;
#[cfg(feature = "pruner")]
#[doc(inline)]
pub use walpost_prune::Pass;

#[cfg(feature = "pruner")]
pub use crate::pruner::Pruner;
pub use crate::{
    error::{Error, KeepError},
    fingerprint::{Fingerprint, Request},
    idempotency::{Claim, Claimed, Idempotency},
    judge::{Progress, Record, Verdict, judge},
    key::{KEY_MAX_BYTES, Key, KeyError, KeySyntax},
    lease::Lease,
    operator::{Entry, Pruned},
    policy::{
        AfterExpiry, InFlight, Mode, OnMismatch, OnStoreFailure, Overtake, Policy, PolicyError,
    },
    problem::{PROBLEM_JSON, Problem},
    response::{Keep, Response},
    scope::{Lookup, ParseLookupError, Scope, ScopeBy},
};

/// Every point at which a test can end a process, for those who test all of them.
#[cfg(all(feature = "axum", feature = "failpoints"))]
#[doc(hidden)]
pub fn failpoints() -> impl Iterator<Item = &'static str> {
    failpoint::Failpoint::ALL.into_iter().map(failpoint::Failpoint::name)
}

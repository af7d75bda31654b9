//! Webhooks: what is sent is signed, retried and kept away from where it must not
//! go; what is received is checked.
//!
//! - [`Signer`] makes signatures as [Standard Webhooks] has them: HMAC-SHA256
//!   (`v1`) and ed25519 (`v1a`), with several keys while one replaces another.
//! - [`Verifier`] checks those, and signatures in the ways of Stripe, GitHub,
//!   Slack and Shopify, over the bytes as they were received, in constant time.
//! - [`AddressPolicy`] says which addresses may be dialled, [`Schedule`] when to
//!   try again, and [`judge`] what becomes of a delivery after an attempt.
//! - [`Client`] makes one attempt, at an address that was checked and within one
//!   deadline; [`Destination`] says what is sent.
//! - [`Deliveries`] are rows, one for each event and destination, and a
//!   [`Processor`] sends those of a destination: claimed under a lease and a fence,
//!   with no transaction open during a call. An operator looks at them, decides and
//!   prunes through [`Deliveries`] too, and a [`Watch`] counts what waits.
//! - With the feature `relay`, the module `sink` makes deliveries of a relay's
//!   events.
//! - With the feature `receive`, the module of that name is an axum router that
//!   takes each event of others once, into the inbox.
//!
//! The first three are pure: time and randomness are arguments. No key, token
//! or body is in an error, a log line or a `Debug` of this crate.
//!
//! Who only receives needs none of the feature `delivery`, which is on by
//! default.
//!
//! [Standard Webhooks]: https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md

mod address;
#[cfg(feature = "delivery")]
mod alert;
#[cfg(feature = "delivery")]
mod bell;
#[cfg(feature = "delivery")]
mod breaker;
#[cfg(feature = "delivery")]
mod client;
#[cfg(feature = "delivery")]
mod destination;
#[cfg(feature = "delivery")]
mod endpoint;
#[cfg(any(feature = "delivery", feature = "receive"))]
mod failpoint;
mod judge;
mod key;
#[cfg(feature = "delivery")]
mod metrics;
#[cfg(feature = "delivery")]
mod order;
mod outcome;
#[cfg(feature = "delivery")]
mod processor;
#[cfg(feature = "delivery")]
mod pruner;
#[cfg(feature = "delivery")]
mod rate;
#[cfg(feature = "receive")]
pub mod receive;
mod schedule;
#[cfg(feature = "delivery")]
mod secret;
mod sign;
#[cfg(feature = "relay")]
pub mod sink;
#[cfg(feature = "delivery")]
mod store;
mod verify;
#[cfg(feature = "delivery")]
mod watch;

pub use crate::{
    address::{AddressPolicy, Forbidden},
    judge::{OnUnknownOutcome, RetryPolicy, Verdict, judge},
    key::{KeyError, SigningKey, VerifyingKey},
    outcome::{Failure, Outcome, retry_after},
    schedule::{Pace, Schedule},
    sign::{SignError, Signature, Signer},
    verify::{Encoding, HmacScheme, Rejection, Sha, Verified, Verifier},
};
#[cfg(feature = "delivery")]
#[doc(inline)]
pub use walpost_prune::Pass;

#[cfg(feature = "delivery")]
pub use crate::{
    alert::{AlertFormat, Alerts},
    bell::Bell,
    breaker::Breaker,
    client::{
        Attempt, CertificateError, Client, ClientSettings, Ports, Proxy, ProxyError, Request,
        Resolver, Tls,
    },
    destination::{Destination, Message, RequestError},
    endpoint::{Endpoint, EndpointError},
    metrics::Snapshot,
    order::{OnHeadFailure, Order},
    processor::{Processor, ProcessorSettings},
    pruner::Pruner,
    rate::Rate,
    secret::{Secret, SecretError},
    store::{
        AttemptEntry, Contents, Decided, Deliveries, DeliveryEntry, DeliveryFilter, DeliveryState,
        DestinationBacklog, DestinationEntry, DestinationState, LastError, NewDelivery,
        NoSuchState, Prune, Pruned, Settlement, StoreError,
    },
    watch::Watch,
};

/// Every point at which a test can end a process, for those who test all of them.
#[cfg(feature = "failpoints")]
#[doc(hidden)]
pub fn failpoints() -> impl Iterator<Item = &'static str> {
    failpoint::Failpoint::ALL.into_iter().map(failpoint::Failpoint::name)
}

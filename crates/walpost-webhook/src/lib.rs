//! Webhooks: what is sent is signed, retried and kept away from where it must not
//! go; what is received is checked.
//!
//! - [`Signer`] makes signatures as [Standard Webhooks] has them: HMAC-SHA256
//!   (`v1`) and ed25519 (`v1a`), with several keys while one replaces another.
//! - [`Verifier`] checks those, and signatures in the ways of Stripe, GitHub,
//!   Slack and Shopify, over the bytes as they were received, in constant time.
//! - [`AddressPolicy`] says which addresses may be dialled, [`Schedule`] when to
//!   try again, and [`judge`] what becomes of a delivery after an attempt.
//!
//! All of it is pure: time and randomness are arguments. No key is in an error, a log
//! line or a `Debug` of this crate.
//!
//! [Standard Webhooks]: https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md

mod address;
#[cfg(feature = "delivery")]
mod endpoint;
mod judge;
mod key;
mod outcome;
mod schedule;
mod sign;
mod verify;

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
pub use crate::endpoint::{Endpoint, EndpointError};

//! Webhooks against what others have published, and against receivers that do
//! what they should not.

#![allow(clippy::unwrap_used, reason = "a failed step fails its test")]

mod addresses;
mod client;
mod dialling;
mod oracle;
mod receiver;
mod tls;

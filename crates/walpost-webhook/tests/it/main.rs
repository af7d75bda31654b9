//! Webhooks against what others have published.

#![allow(clippy::unwrap_used, reason = "a failed step fails its test")]

mod addresses;
mod oracle;

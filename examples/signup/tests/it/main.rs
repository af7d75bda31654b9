//! The example as separate processes, each of which is ended wherever it can be,
//! before a mail server of its own; and as one command.
//!
//! What is judged are rows of the databases and mails of the mail server.

#![allow(clippy::unwrap_used, reason = "a failed step fails its test")]

#[path = "../../src/failpoint.rs"]
mod failpoint;
mod kills;
mod mails;
mod points;
mod requests;
mod run;
mod world;

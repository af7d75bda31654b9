//! The example as separate processes, each of which is ended wherever it can be,
//! and as one command.
//!
//! What is judged are rows of the database and files of the folder.

#![allow(clippy::unwrap_used, reason = "a failed step fails its test")]

#[path = "../../src/failpoint.rs"]
mod failpoint;
mod kills;
mod pictures;
mod points;
mod requests;
mod run;
mod world;

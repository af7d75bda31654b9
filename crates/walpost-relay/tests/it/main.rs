//! The relay against real PostgreSQL servers, with a sink in memory.

#![allow(clippy::unwrap_used)]

mod confirm;
mod connection;
mod events;
mod first_start;
mod login;
mod parking;
mod refusals;
mod rig;
mod sink;
mod standby;

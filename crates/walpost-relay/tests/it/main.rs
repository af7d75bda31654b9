//! The relay against real PostgreSQL servers, with a sink in memory.

#![allow(clippy::unwrap_used)]

mod confirm;
mod connection;
mod drain;
mod events;
mod fencing;
mod first_start;
mod gauges;
mod hold;
mod login;
mod parked_rows;
mod parking;
mod refusals;
mod resume;
mod rig;
mod sink;
mod standby;
mod suspects;
mod timelines;

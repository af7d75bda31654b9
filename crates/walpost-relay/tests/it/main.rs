//! The relay against real PostgreSQL servers, with a sink in memory.

#![allow(clippy::unwrap_used)]

mod abandoned;
mod advice;
mod clone;
mod confirm;
mod connection;
mod drain;
mod events;
mod failover;
mod fencing;
mod first_start;
mod gauges;
mod hold;
mod idle;
mod login;
mod parked_rows;
mod parking;
mod ready;
mod refusals;
mod resume;
mod retries;
mod rig;
mod sink;
mod slot_states;
mod standby;
mod suspects;
mod timelines;
mod transactions;

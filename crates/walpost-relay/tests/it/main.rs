//! The relay against real PostgreSQL servers, with a sink in memory.

#![allow(clippy::unwrap_used)]

mod abandoned;
mod advice;
mod aside;
mod clone;
mod confirm;
mod connection;
mod dead_letters;
mod drain;
mod events;
mod failover;
mod fencing;
mod first_start;
mod gauges;
mod hold;
mod idle;
mod login;
mod marking;
mod membership;
mod moves;
mod parked_rows;
mod parking;
mod polling;
mod polling_faults;
mod polling_rig;
mod proven;
mod ready;
mod recovery;
mod recovery_refusals;
mod refusals;
mod replay;
mod resume;
mod retention;
mod retention_refusals;
mod retries;
mod rig;
mod row_filters;
mod sink;
mod slot_states;
mod standby;
mod suspects;
mod switching;
mod switching_refusals;
mod timelines;
mod transactions;

//! `walpost serve` from outside: requests of Kafka Connect's interface, and what
//! comes of them in PostgreSQL and Kafka.

mod access;
mod life;
mod support;
mod two;

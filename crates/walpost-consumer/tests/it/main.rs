//! The consumer against a real Kafka and a real PostgreSQL.

#![allow(clippy::unwrap_used, reason = "a failed step fails its test")]

mod anew;
mod apply;
mod avro;
mod blocked;
mod contents;
mod dead_letter_topics;
mod dead_letters;
mod embedded;
mod fault;
mod fence;
mod group;
mod growth;
mod guard;
mod halted;
mod identity;
mod lanes;
mod loss;
mod manual;
mod member;
mod membership;
mod metrics;
mod named;
mod nulls;
mod older;
mod operator;
mod parked;
mod patience;
mod poison;
mod python;
mod redis;
mod replay;
mod reset;
mod retries;
mod security;
mod session;
mod set_back;
mod setup;
mod slow;
mod support;
mod told;
mod traces;
mod values;
mod versions;

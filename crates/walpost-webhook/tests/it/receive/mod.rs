//! What receives: real senders' signatures over real connections, into a real
//! PostgreSQL.

mod contents;
mod duplicates;
mod faults;
mod grants;
mod handler;
mod kills;
mod outage;
mod processed;
mod requests;
mod senders;
mod server;
mod sign;
mod world;

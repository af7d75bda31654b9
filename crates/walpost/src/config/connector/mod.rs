//! A connector of Debezium's as configuration: its file, and a worker's beside
//! it, are read and judged; what a key of ours says is a layer of its own, and
//! the rest goes straight to the types of those who do it.
//!
//! - `read.rs`: the files, their placeholders, and the verdicts.
//! - `layer.rs`: its keys among those of others.
//! - `relay.rs`: what no key of ours says of the pipeline.
//! - `encode.rs`, `registry.rs`, `transforms.rs`: how rows become bytes.
//! - `served.rs`: connectors that come over HTTP.
//! - `tables.rs`: which tables the filters mean.
//! - `told.rs`: its properties where a text names keys of ours.
//! - `topics.rs`: what a topic is made like that does not exist.

mod encode;
mod layer;
mod read;
mod registry;
mod relay;
mod served;
mod tables;
mod told;
mod topics;
mod transforms;

pub(crate) use self::{
    encode::options,
    read::{ConnectorArgs, ConnectorFile},
    relay::complete,
    served::Reading,
    tables::{FoundTable, Reach, Tables, arrivals, is_publication_changed, outboxes},
    topics::new_topic,
};

#[cfg(test)]
mod tests;

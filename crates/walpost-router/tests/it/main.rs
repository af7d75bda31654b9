//! The router's rules, as records that come out of rows.

mod configuration;
mod fixture;
mod messages;
mod own;
mod properties;
mod records;

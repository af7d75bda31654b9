//! The decoder against frames built by hand, generated frames, arbitrary
//! bytes, and streams of real PostgreSQL servers.

mod frames;
mod malformed;
mod messages;
mod properties;
mod servers;

//! What is there already where services run: a server with databases, the tables
//! of Walpost, `walpost run`, and what every `main` has. Nothing of this is to be
//! copied into a service of your own.

mod http;
mod points;
mod faults;
mod postgres;
mod program;
mod sending;

pub use crate::{
    http::{Answer, post, post_and_go},
    points::reached,
    faults::{Fault, Faults},
    postgres::{Stand, folder, patiently},
    program::{Stop, program, serve},
    sending::{Sender, Sending},
};

/// Why an example has ended.
pub type Failed = Box<dyn std::error::Error + Send + Sync>;

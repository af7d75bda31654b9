//! What is there already where services run: a server with databases, the tables
//! of Walpost, `walpost run`, and what every `main` has. Nothing of this is to be
//! copied into a service of your own.

mod answers;
mod faults;
mod figures;
mod http;
mod points;
mod postgres;
mod program;
mod running;
mod sending;

pub use crate::{
    answers::{ANSWERS, Answered, bad_request, key, once, response},
    faults::{Fault, Faults},
    figures::{End, Figures},
    http::{Answer, post, post_a_part, post_and_go},
    points::reached,
    postgres::{Stand, folder, patiently},
    program::{Stop, listen, number, program, serve, spawn},
    running::Running,
    sending::{Sender, Sending},
};

/// Why an example has ended.
pub type Failed = Box<dyn std::error::Error + Send + Sync>;

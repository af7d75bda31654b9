//! Finance and logistics of an ERP: an invoice is paid, and one shipment waits.
//!
//! `finance/invoices.rs` and `logistics/shipments.rs` are what the two modules of
//! the ERP have, `logistics/mod.rs` is the service around the latter.
//! `finance/sender.rs` stands for `walpost run`, and `both.rs` for whatever runs
//! services elsewhere.

mod both;
mod finance;
mod logistics;
mod report;
mod settings;

use std::{env, process::ExitCode};

use stand::program;

fn main() -> ExitCode {
    match env::args().nth(1).as_deref() {
        None => program("erp-round-trip", both::run),
        Some("finance") => program("finance", finance::run),
        Some("logistics") => program("logistics", logistics::run),
        Some(other) => {
            eprintln!("erp-round-trip: {other:?} is neither finance nor logistics");
            ExitCode::FAILURE
        }
    }
}

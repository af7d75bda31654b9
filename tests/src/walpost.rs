//! The program `walpost`, built with these tests and with their features.

use std::process::ExitCode;

fn main() -> ExitCode {
    walpost::main()
}

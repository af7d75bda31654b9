//! The program `walpost`.

use std::process::ExitCode;

fn main() -> ExitCode {
    walpost::main()
}

//! `checkout` runs all of it; `checkout service`, say, one part.

use std::{env, process::ExitCode};

fn main() -> ExitCode {
    stand::program("checkout", async |stop| {
        let part = env::args().nth(1);
        checkout::run(part.as_deref(), stop).await
    })
}

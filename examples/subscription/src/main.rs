//! `subscription` runs all of it; `subscription service`, say, one part.

use std::{env, process::ExitCode};

fn main() -> ExitCode {
    stand::program("subscription", async |stop| {
        let part = env::args().nth(1);
        subscription::run(part.as_deref(), stop).await
    })
}

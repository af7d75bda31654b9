//! Text for people and programs. A reader that has gone away (`walpost config |
//! head`) is no fault of ours, and ends nothing.

use std::{
    fmt::Display,
    io::{self, ErrorKind, Write},
};

use crate::failure::Failure;

/// Writes to stdout, as it is.
pub(crate) fn print(text: impl Display) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    let written = write!(stdout, "{text}").and_then(|()| stdout.flush());
    unless_gone(written).map_err(|error| Failure::running(error).context("cannot write to stdout"))
}

/// Writes one line to stderr, if it can be written.
pub(crate) fn note(text: impl Display) {
    let _ = writeln!(io::stderr(), "{text}");
}

fn unless_gone(written: io::Result<()>) -> io::Result<()> {
    match written {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

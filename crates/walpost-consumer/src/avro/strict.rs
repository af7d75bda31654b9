//! Data whose end is an error for the decoder.

use std::io::{self, ErrorKind, Read};

/// With `UnexpectedEof` the decoder takes what is missing for a null: of a
/// string, of a truth value, and of a union.
pub(super) struct Strict<'a>(pub(super) &'a [u8]);

impl Read for Strict<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.0.is_empty() && !buffer.is_empty() { Err(ended()) } else { self.0.read(buffer) }
    }

    fn read_exact(&mut self, buffer: &mut [u8]) -> io::Result<()> {
        if self.0.len() < buffer.len() { Err(ended()) } else { self.0.read_exact(buffer) }
    }
}

fn ended() -> io::Error {
    ErrorKind::InvalidData.into()
}

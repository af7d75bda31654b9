use std::{borrow::Cow, ops::Range};

use crate::error::{DecodeError, DecodeErrorKind};

/// A checked cursor over one message. Every read names what it expects, so
/// that an error can say so.
pub(crate) struct Reader<'a> {
    data: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(data: &'a [u8]) -> Self {
        Self { data, at: 0 }
    }

    pub(crate) fn offset(&self) -> usize {
        self.at
    }

    pub(crate) fn remaining(&self) -> usize {
        self.data.len().saturating_sub(self.at)
    }

    pub(crate) fn u8(&mut self, expected: &'static str) -> Result<u8, DecodeError> {
        self.array::<1>(expected).map(u8::from_be_bytes)
    }

    pub(crate) fn u32(&mut self, expected: &'static str) -> Result<u32, DecodeError> {
        self.array(expected).map(u32::from_be_bytes)
    }

    pub(crate) fn i32(&mut self, expected: &'static str) -> Result<i32, DecodeError> {
        self.array(expected).map(i32::from_be_bytes)
    }

    pub(crate) fn u64(&mut self, expected: &'static str) -> Result<u64, DecodeError> {
        self.array(expected).map(u64::from_be_bytes)
    }

    pub(crate) fn i64(&mut self, expected: &'static str) -> Result<i64, DecodeError> {
        self.array(expected).map(i64::from_be_bytes)
    }

    /// A 16-bit count, from 0.
    pub(crate) fn count16(&mut self, expected: &'static str) -> Result<usize, DecodeError> {
        let at = self.at;
        let found = self.array(expected).map(i16::from_be_bytes)?;
        usize::try_from(found).map_err(|_| negative(expected, found.into(), at))
    }

    /// A 32-bit count or length, from 0.
    pub(crate) fn count32(&mut self, expected: &'static str) -> Result<usize, DecodeError> {
        let at = self.at;
        let found = self.i32(expected)?;
        usize::try_from(found).map_err(|_| negative(expected, found.into(), at))
    }

    /// A name up to its zero byte. Bytes that are not UTF-8 are replaced: a name that no
    /// configuration can hold must not end the stream.
    pub(crate) fn text(&mut self, expected: &'static str) -> Result<Cow<'a, str>, DecodeError> {
        let rest = self.data.get(self.at..).unwrap_or_default();
        let Some(len) = rest.iter().position(|byte| *byte == 0) else {
            return Err(self.error(DecodeErrorKind::Unterminated { expected }));
        };
        self.at += len + 1;
        Ok(String::from_utf8_lossy(&rest[..len]))
    }

    /// Skips `len` bytes and says where they were.
    pub(crate) fn range(
        &mut self,
        len: usize,
        expected: &'static str,
    ) -> Result<Range<usize>, DecodeError> {
        self.require(len as u64, expected)?;
        let start = self.at;
        self.at += len;
        Ok(start..self.at)
    }

    /// Fails unless `needed` bytes remain: to be asked before memory is
    /// reserved by a count from the message.
    pub(crate) fn require(&self, needed: u64, expected: &'static str) -> Result<(), DecodeError> {
        let remaining = self.remaining();
        if needed > remaining as u64 {
            return Err(self.error(DecodeErrorKind::Truncated { expected, needed, remaining }));
        }
        Ok(())
    }

    /// Fails if bytes are left.
    pub(crate) fn end(&self) -> Result<(), DecodeError> {
        match self.remaining() {
            0 => Ok(()),
            len => Err(self.error(DecodeErrorKind::Trailing { len })),
        }
    }

    /// An error at the current offset.
    pub(crate) fn error(&self, kind: DecodeErrorKind) -> DecodeError {
        DecodeError::new(kind, self.at)
    }

    fn array<const N: usize>(&mut self, expected: &'static str) -> Result<[u8; N], DecodeError> {
        let Some(bytes) = self.data.get(self.at..).and_then(|rest| rest.first_chunk::<N>()) else {
            let remaining = self.remaining();
            let needed = N as u64;
            return Err(self.error(DecodeErrorKind::Truncated { expected, needed, remaining }));
        };
        self.at += N;
        Ok(*bytes)
    }
}

fn negative(expected: &'static str, found: i64, at: usize) -> DecodeError {
    DecodeError::new(DecodeErrorKind::Negative { expected, found }, at)
}

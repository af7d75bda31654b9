//! A frame of the stream in the encoding of the database, as the same frame in UTF-8.

use std::{iter, ops::Range};

use bytes::{BufMut, Bytes, BytesMut};
use walpost_pgoutput::UNDECODABLE;

use super::{XLOG_DATA_HEADER_BYTES, charset::Charset};
use crate::error::SourceError;

/// A part of a frame.
#[derive(Clone, Copy)]
enum Part {
    /// It stays as it is.
    Bytes,
    /// A string without its zero byte.
    Name,
    /// The text of a column, without its kind and length.
    Text,
}

/// The frame, `XLogData` with its header, in UTF-8. What is not in the form of the protocol stays
/// as it is: the decoder says so.
pub(super) async fn transcode(frame: &Bytes, charset: &mut Charset) -> Result<Bytes, SourceError> {
    let Some(parts) = parts(frame) else { return Ok(frame.clone()) };
    let texts = parts.iter().filter(|(part, _)| !matches!(part, Part::Bytes));
    charset.learn(texts.map(|(_, range)| &frame[range.clone()])).await?;
    let mut out = BytesMut::with_capacity(frame.len() + frame.len() / 2);
    for (part, range) in parts {
        let bytes = &frame[range];
        match (part, charset.decode(bytes)) {
            (Part::Bytes, _) => out.put_slice(bytes),
            (Part::Name, Ok(text)) => out.put_slice(text.as_bytes()),
            (Part::Name, Err(_)) => out.put_slice(bytes),
            (Part::Text, Ok(text)) => {
                out.put_u8(b't');
                put_counted(&mut out, text.as_bytes());
            }
            (Part::Text, Err(at)) => {
                out.put_u8(UNDECODABLE);
                out.put_u32(at as u32);
                put_counted(&mut out, bytes);
            }
        }
    }
    Ok(out.freeze())
}

/// A text is below 1 GiB on the server, and UTF-8 takes at most three bytes for one of its own.
fn put_counted(out: &mut BytesMut, bytes: &[u8]) {
    out.put_u32(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
    out.put_slice(bytes);
}

/// What the frame consists of, in order and without gaps.
fn parts(frame: &[u8]) -> Option<Vec<(Part, Range<usize>)>> {
    let mut cutter = Cutter { frame, at: 0, parts: Vec::new() };
    cutter.skip(XLOG_DATA_HEADER_BYTES)?;
    match cutter.u8()? {
        tag @ (b'I' | b'U' | b'D') => cutter.change(tag)?,
        b'R' => {
            cutter.skip(4)?;
            cutter.name()?;
            cutter.name()?;
            cutter.skip(1)?;
            for _ in 0..cutter.u16()? {
                cutter.skip(1)?;
                cutter.name()?;
                cutter.skip(8)?;
            }
        }
        b'Y' => {
            cutter.skip(4)?;
            cutter.name()?;
            cutter.name()?;
        }
        b'M' => {
            cutter.skip(9)?;
            cutter.name()?;
        }
        _ => return None,
    }
    let rest = cutter.at..frame.len();
    cutter.parts.push((Part::Bytes, rest));
    Some(cutter.parts)
}

struct Cutter<'a> {
    frame: &'a [u8],
    at: usize,
    parts: Vec<(Part, Range<usize>)>,
}

impl Cutter<'_> {
    fn change(&mut self, tag: u8) -> Option<()> {
        self.skip(4)?;
        let mut rows = iter::repeat_n((), if tag == b'U' { 2 } else { 1 });
        while self.at < self.frame.len() && rows.next().is_some() {
            self.skip(1)?;
            for _ in 0..self.u16()? {
                match self.frame.get(self.at)? {
                    b'n' | b'u' => self.skip(1)?,
                    b't' => self.text()?,
                    _ => {
                        self.skip(1)?;
                        let len = self.u32()?;
                        self.skip(len)?;
                    }
                }
            }
        }
        Some(())
    }

    fn text(&mut self) -> Option<()> {
        let length = self.frame.get(self.at + 1..self.at + 5)?;
        let len = u32::from_be_bytes(length.try_into().ok()?) as usize;
        self.at += 5;
        self.part(Part::Text, len)
    }

    fn name(&mut self) -> Option<()> {
        let len = self.frame.get(self.at..)?.iter().position(|byte| *byte == 0)?;
        self.part(Part::Name, len)?;
        self.skip(1)
    }

    fn skip(&mut self, len: usize) -> Option<()> {
        self.part(Part::Bytes, len)
    }

    fn part(&mut self, part: Part, len: usize) -> Option<()> {
        let end = self.at.checked_add(len).filter(|end| *end <= self.frame.len())?;
        self.parts.push((part, self.at..end));
        self.at = end;
        Some(())
    }

    fn u8(&mut self) -> Option<u8> {
        self.skip(1)?;
        self.frame.get(self.at - 1).copied()
    }

    fn u16(&mut self) -> Option<usize> {
        self.skip(2)?;
        let bytes = self.frame[self.at - 2..self.at].try_into().ok()?;
        Some(u16::from_be_bytes(bytes).into())
    }

    fn u32(&mut self) -> Option<usize> {
        self.skip(4)?;
        let bytes = self.frame[self.at - 4..self.at].try_into().ok()?;
        usize::try_from(u32::from_be_bytes(bytes)).ok()
    }
}

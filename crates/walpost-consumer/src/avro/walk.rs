//! Whether data may be decoded: pure, and without building values.
//!
//! The decoder calls itself for what is nested and takes the memory that a
//! count of items asks for, so that a few bytes could end the process. Here
//! nothing grows beyond its bounds.

use super::layout::{Kind, Layout, MAX_LEVELS, Place};

/// Items that a value may have beside one for each of its bytes: some take none.
pub(super) const SPARE_ITEMS: u64 = 1_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    TooDeep,
    TooManyItems,
    /// Shorter or longer than a value, or with a number that stands for nothing.
    NotWritten,
}

impl Layout {
    /// Goes over all of `data` as the decoder does: by items, whatever size a
    /// block is said to have. What a leaf holds is left to the decoder.
    /// Returns the levels that the value has.
    pub(super) fn walk(&self, data: &[u8]) -> Result<usize, Refusal> {
        let items_left = SPARE_ITEMS.saturating_add(data.len() as u64);
        let mut walk = Walk { layout: self, rest: data, items_left, open: Vec::new(), levels: 0 };
        let mut next = Some(self.root);
        while let Some(place) = next {
            walk.enter(place)?;
            next = walk.next()?;
        }
        if walk.rest.is_empty() { Ok(walk.levels) } else { Err(Refusal::NotWritten) }
    }
}

struct Walk<'a> {
    layout: &'a Layout,
    rest: &'a [u8],
    items_left: u64,
    /// Outermost first, [`MAX_LEVELS`] at most.
    open: Vec<Open<'a>>,
    /// The most that were open at once.
    levels: usize,
}

enum Open<'a> {
    Record(std::slice::Iter<'a, Place>),
    Items {
        of: Place,
        /// Of the block that is read.
        left: u64,
        /// Whether a key stands before each.
        keyed: bool,
    },
}

impl<'a> Walk<'a> {
    fn enter(&mut self, place: Place) -> Result<(), Refusal> {
        let layout = self.layout;
        match layout.kind(place) {
            Kind::Bytes(size) => self.skip(*size),
            Kind::Number => self.number().map(drop),
            Kind::Prefixed => self.skip_prefixed(),
            Kind::Union(of) => {
                let variant = self.length()?;
                // No union is in a union, so this goes no deeper.
                self.enter(*of.get(variant).ok_or(Refusal::NotWritten)?)
            }
            Kind::Record(fields) => self.push(Open::Record(fields.iter())),
            Kind::Array(of) => self.push(Open::Items { of: *of, left: 0, keyed: false }),
            Kind::Map(of) => self.push(Open::Items { of: *of, left: 0, keyed: true }),
        }
    }

    /// The next value, behind what is closed before it.
    fn next(&mut self) -> Result<Option<Place>, Refusal> {
        while let Some(open) = self.open.pop() {
            match open {
                Open::Record(mut fields) => {
                    if let Some(field) = fields.next() {
                        self.open.push(Open::Record(fields));
                        return Ok(Some(*field));
                    }
                }
                Open::Items { of, left, keyed } => {
                    let left = if left == 0 { self.block()? } else { left };
                    if left > 0 {
                        if keyed {
                            self.skip_prefixed()?;
                        }
                        self.open.push(Open::Items { of, left: left - 1, keyed });
                        return Ok(Some(of));
                    }
                }
            }
        }
        Ok(None)
    }

    fn push(&mut self, open: Open<'a>) -> Result<(), Refusal> {
        if self.open.len() == MAX_LEVELS {
            return Err(Refusal::TooDeep);
        }
        self.open.push(open);
        self.levels = self.levels.max(self.open.len());
        Ok(())
    }

    /// Items of the block that begins, 0 behind the last one.
    fn block(&mut self) -> Result<u64, Refusal> {
        let count = self.number()?;
        if count < 0 {
            // Its bytes, for readers that pass it over.
            self.number()?;
        }
        let items = count.unsigned_abs();
        self.items_left = self.items_left.checked_sub(items).ok_or(Refusal::TooManyItems)?;
        Ok(items)
    }

    /// A zigzag varint, as long as the decoder takes them.
    fn number(&mut self) -> Result<i64, Refusal> {
        let mut bits = 0u64;
        for (index, byte) in self.rest.iter().take(10).enumerate() {
            bits |= u64::from(byte & 0x7f) << (7 * index);
            if byte & 0x80 == 0 {
                self.rest = &self.rest[index + 1..];
                return Ok((bits >> 1).cast_signed() ^ -(bits & 1).cast_signed());
            }
        }
        Err(Refusal::NotWritten)
    }

    fn length(&mut self) -> Result<usize, Refusal> {
        usize::try_from(self.number()?).map_err(|_| Refusal::NotWritten)
    }

    fn skip(&mut self, bytes: usize) -> Result<(), Refusal> {
        self.rest = self.rest.get(bytes..).ok_or(Refusal::NotWritten)?;
        Ok(())
    }

    fn skip_prefixed(&mut self) -> Result<(), Refusal> {
        let bytes = self.length()?;
        self.skip(bytes)
    }
}

#[cfg(test)]
mod tests;

use std::io;

use bytes::{Buf, BufMut, BytesMut};

use super::{
    XLOG_DATA_HEADER_BYTES,
    frames::{Frame, invalid},
};

/// Values up to this size survive the shrinking: ids, keys and types do.
pub(super) const KEPT_VALUE_BYTES: usize = 16 * 1024;
/// Tag, relation.
const CHANGE_HEADER_BYTES: usize = 5;
/// Kind, number of columns.
const ROW_HEADER_BYTES: usize = 3;

/// Tag, flags, LSN of a logical message.
const MESSAGE_PREFIX_AT: usize = 10;

/// Lets a CopyData message that is too large for memory stream past.
///
/// Of an insert, an update or a delete it keeps the small values and turns each
/// large one into "not in the WAL", so that the decoder reads the result as it reads
/// any change. Of a logical message it keeps all but the content. What describes
/// tables and transactions stays whole: the catalog bounds it.
#[derive(Debug)]
pub(super) struct Shrinker {
    size_bytes: usize,
    left_bytes: usize,
    kept: BytesMut,
    state: State,
}

#[derive(Debug)]
enum State {
    WalHeader,
    ChangeHeader,
    /// The new row, or the old one before it.
    RowHeader,
    MessageHeader,
    Column {
        left: u16,
    },
    Value {
        columns_left: u16,
        kind: u8,
        bytes: usize,
    },
    SkipValue {
        columns_left: u16,
        bytes: usize,
    },
    SkipRest,
    KeepRest,
}

impl Shrinker {
    pub(super) fn new(size_bytes: usize) -> Self {
        Self { size_bytes, left_bytes: size_bytes, kept: BytesMut::new(), state: State::WalHeader }
    }

    /// Takes what it can from `buffer`; the frame, once all of it has passed.
    pub(super) fn take_from(&mut self, buffer: &mut BytesMut) -> io::Result<Option<Frame>> {
        while self.left_bytes > 0 {
            if !self.step(buffer)? {
                return Ok(None);
            }
        }
        if !matches!(self.state, State::SkipRest | State::KeepRest | State::Column { left: 0 }) {
            return Err(invalid("a row that ends within a value"));
        }
        let body = self.kept.split().freeze();
        Ok(Some(Frame::Shrunk { body, size_bytes: self.size_bytes as u64 }))
    }

    /// One step of the state machine; false if it needs more bytes.
    fn step(&mut self, buffer: &mut BytesMut) -> io::Result<bool> {
        match self.state {
            State::WalHeader => {
                // The tag of the pgoutput message decides what follows.
                let Some(tag) = buffer.get(XLOG_DATA_HEADER_BYTES).copied() else {
                    return Ok(false);
                };
                self.keep(buffer, XLOG_DATA_HEADER_BYTES)?;
                self.state = match tag {
                    b'I' | b'U' | b'D' => State::ChangeHeader,
                    b'M' => State::MessageHeader,
                    _ => State::KeepRest,
                };
            }
            State::ChangeHeader => {
                if buffer.len() < CHANGE_HEADER_BYTES {
                    return Ok(false);
                }
                self.keep(buffer, CHANGE_HEADER_BYTES)?;
                self.state = State::RowHeader;
            }
            State::RowHeader | State::Column { left: 0 } => return self.row_header(buffer),
            State::MessageHeader => return self.message_header(buffer),
            State::Column { left } => return self.column(buffer, left - 1),
            State::Value { columns_left, kind, bytes } => {
                if buffer.len() < bytes {
                    return Ok(false);
                }
                self.kept.put_u8(kind);
                self.kept.put_u32(u32::try_from(bytes).expect("a value below the kept size"));
                self.keep(buffer, bytes)?;
                self.state = State::Column { left: columns_left };
            }
            State::SkipValue { columns_left, bytes } => {
                let passed = self.skip(buffer, bytes)?;
                self.state = match bytes - passed {
                    0 => State::Column { left: columns_left },
                    bytes => State::SkipValue { columns_left, bytes },
                };
                return Ok(passed > 0 || bytes == 0);
            }
            State::SkipRest => {
                let all = self.left_bytes;
                return Ok(self.skip(buffer, all)? > 0);
            }
            State::KeepRest => {
                let arrived = self.left_bytes.min(buffer.len());
                self.keep(buffer, arrived)?;
                return Ok(arrived > 0);
            }
        }
        Ok(true)
    }

    /// Kind of the next row of the change, and how many columns it has.
    fn row_header(&mut self, buffer: &mut BytesMut) -> io::Result<bool> {
        let Some(header) = buffer.get(..ROW_HEADER_BYTES) else { return Ok(false) };
        if !matches!(header[0], b'N' | b'K' | b'O') {
            return Err(invalid("bytes behind the last column"));
        }
        let left = u16::from_be_bytes([header[1], header[2]]);
        self.keep(buffer, ROW_HEADER_BYTES)?;
        self.state = State::Column { left };
        Ok(true)
    }

    /// Tag, flags, LSN and prefix of a logical message; then no content.
    fn message_header(&mut self, buffer: &mut BytesMut) -> io::Result<bool> {
        let prefix = buffer.get(MESSAGE_PREFIX_AT..).unwrap_or_default();
        let Some(end) = prefix.iter().position(|byte| *byte == 0) else {
            if prefix.len() > KEPT_VALUE_BYTES {
                return Err(invalid("a message prefix of more than 16 KiB"));
            }
            return Ok(false);
        };
        self.keep(buffer, MESSAGE_PREFIX_AT + end + 1)?;
        self.kept.put_u32(0);
        self.state = State::SkipRest;
        Ok(true)
    }

    fn column(&mut self, buffer: &mut BytesMut, columns_left: u16) -> io::Result<bool> {
        let Some(kind) = buffer.first().copied() else { return Ok(false) };
        if matches!(kind, b'n' | b'u') {
            self.keep(buffer, 1)?;
            self.state = State::Column { left: columns_left };
            return Ok(true);
        }
        let Some(header) = buffer.get(..5) else { return Ok(false) };
        let bytes = u32::from_be_bytes([header[1], header[2], header[3], header[4]]) as usize;
        self.skip(buffer, 5)?;
        if bytes <= KEPT_VALUE_BYTES {
            self.state = State::Value { columns_left, kind, bytes };
        } else {
            self.kept.put_u8(b'u');
            self.state = State::SkipValue { columns_left, bytes };
        }
        Ok(true)
    }

    fn keep(&mut self, buffer: &mut BytesMut, bytes: usize) -> io::Result<()> {
        self.spend(bytes)?;
        self.kept.extend_from_slice(&buffer[..bytes]);
        buffer.advance(bytes);
        Ok(())
    }

    /// Drops up to `bytes` of what has arrived.
    fn skip(&mut self, buffer: &mut BytesMut, bytes: usize) -> io::Result<usize> {
        let passed = bytes.min(buffer.len());
        self.spend(passed)?;
        buffer.advance(passed);
        Ok(passed)
    }

    fn spend(&mut self, bytes: usize) -> io::Result<()> {
        self.left_bytes = self
            .left_bytes
            .checked_sub(bytes)
            .ok_or_else(|| invalid("a value longer than its message"))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(tag: u8) -> Vec<u8> {
        let mut bytes = vec![b'w'];
        bytes.extend([0; 24]);
        bytes.push(tag);
        bytes
    }

    /// Rows behind a relation's number, each with its kind.
    fn change(tag: u8, rows: &[(u8, &[(u8, usize)])]) -> Vec<u8> {
        let mut bytes = message(tag);
        bytes.extend(7_u32.to_be_bytes());
        for (row, columns) in rows {
            bytes.push(*row);
            bytes.extend((columns.len() as u16).to_be_bytes());
            for (kind, size) in *columns {
                bytes.push(*kind);
                if matches!(kind, b't' | b'b') {
                    bytes.extend((*size as u32).to_be_bytes());
                    bytes.extend(std::iter::repeat_n(b'x', *size));
                }
            }
        }
        bytes
    }

    fn insert(columns: &[(u8, usize)]) -> Vec<u8> {
        change(b'I', &[(b'N', columns)])
    }

    fn shrink(message: &[u8], piece: usize) -> io::Result<(Vec<u8>, u64)> {
        let mut shrinker = Shrinker::new(message.len());
        let mut buffer = BytesMut::new();
        for part in message.chunks(piece) {
            buffer.extend_from_slice(part);
            if let Some(Frame::Shrunk { body, size_bytes }) = shrinker.take_from(&mut buffer)? {
                assert!(buffer.is_empty());
                return Ok((body.to_vec(), size_bytes));
            }
        }
        Err(invalid("never finished"))
    }

    #[test]
    fn small_values_survive_and_large_ones_become_unchanged() {
        let large = KEPT_VALUE_BYTES + 1;
        let message = insert(&[(b't', 36), (b't', large), (b'n', 0), (b'b', 3), (b'u', 0)]);
        let expected = insert(&[(b't', 36), (b'u', 0), (b'n', 0), (b'b', 3), (b'u', 0)]);
        for piece in [1, 7, 4096, usize::MAX] {
            let piece = piece.min(message.len());
            let shrunk = shrink(&message, piece).unwrap();
            assert_eq!(shrunk, (expected.clone(), message.len() as u64));
        }
    }

    #[test]
    fn rows_of_updates_and_deletes_are_shrunk_too() {
        let (large, left_out) = ((b't', KEPT_VALUE_BYTES + 1), (b'u', 0));
        let cases = [
            (b'U', vec![(b'K', (b't', 9)), (b'N', large)]),
            (b'U', vec![(b'O', large), (b'N', large)]),
            (b'D', vec![(b'O', large)]),
        ];
        for (tag, rows) in cases {
            let with = |of: &dyn Fn((u8, usize)) -> (u8, usize)| {
                let rows: Vec<_> = rows.iter().map(|(row, value)| (*row, [of(*value)])).collect();
                let rows: Vec<_> = rows.iter().map(|(row, values)| (*row, &values[..])).collect();
                change(tag, &rows)
            };
            let message = with(&|value| value);
            let expected = with(&|value| if value == large { left_out } else { value });
            for piece in [1, 9, message.len()] {
                let (kept, size) = shrink(&message, piece).unwrap();
                assert_eq!((kept, size), (expected.clone(), message.len() as u64));
            }
        }
    }

    #[test]
    fn what_describes_a_table_stays_whole() {
        let mut message = message(b'R');
        message.extend(vec![7; 100_000]);
        assert_eq!(shrink(&message, 1000).unwrap().0, message);
    }

    #[test]
    fn bytes_behind_a_row_are_an_error() {
        let mut message = insert(&[(b't', 5)]);
        message.extend(*b"xxx");
        assert!(shrink(&message, 10).is_err());
    }

    #[test]
    fn a_logical_message_keeps_its_prefix_and_loses_its_content() {
        let mut message = vec![b'w'];
        message.extend([7; 24]);
        message.extend(*b"M\x01\0\0\0\0\0\0\0\x05walpost\0");
        let kept_bytes = message.len();
        message.extend(50_000_u32.to_be_bytes());
        message.extend(vec![b'x'; 50_000]);
        for piece in [1, 13, 4096] {
            let (kept, size) = shrink(&message, piece).unwrap();
            assert_eq!(kept[..kept_bytes], message[..kept_bytes]);
            assert_eq!(kept[kept_bytes..], [0; 4]);
            assert_eq!(size, message.len() as u64);
        }
    }

    #[test]
    fn a_value_longer_than_its_message_is_an_error() {
        let mut message = insert(&[(b't', 5)]);
        let length_at = XLOG_DATA_HEADER_BYTES + CHANGE_HEADER_BYTES + ROW_HEADER_BYTES + 1;
        message[length_at..length_at + 4].copy_from_slice(&u32::MAX.to_be_bytes());
        assert!(shrink(&message, 10).is_err());
    }

    #[test]
    fn a_row_with_fewer_columns_than_it_says_is_an_error() {
        let mut message = insert(&[(b't', 5)]);
        message[XLOG_DATA_HEADER_BYTES + 7] = 2;
        assert!(shrink(&message, 10).is_err());
    }
}

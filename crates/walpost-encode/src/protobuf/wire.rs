//! Protobuf's binary form.

/// How what follows is delimited.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wire {
    Varint = 0,
    Fixed64 = 1,
    Len = 2,
    Fixed32 = 5,
}

/// What stands before the value of a field.
pub(super) fn tag(number: u64, wire: Wire, out: &mut Vec<u8>) {
    varint(number << 3 | wire as u64, out);
}

/// Seven bits to a byte, the lowest first.
pub(super) fn varint(mut bits: u64, out: &mut Vec<u8>) {
    while bits >= 0x80 {
        out.push(bits as u8 | 0x80);
        bits >>= 7;
    }
    out.push(bits as u8);
}

/// A number of either sign, which takes ten bytes where it is negative.
pub(super) fn integer(number: i64, out: &mut Vec<u8>) {
    varint(number as u64, out);
}

/// A field of bytes, or of what is framed like them.
pub(super) fn bytes(number: u64, content: &[u8], out: &mut Vec<u8>) {
    tag(number, Wire::Len, out);
    varint(content.len() as u64, out);
    out.extend_from_slice(content);
}

/// A field of a number; none where it is zero.
pub(super) fn nonzero(number: u64, value: i64, out: &mut Vec<u8>) {
    if value != 0 {
        tag(number, Wire::Varint, out);
        integer(value, out);
    }
}

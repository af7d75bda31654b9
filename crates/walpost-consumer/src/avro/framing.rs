//! Confluent's framing: pure.

/// Schema id and data of a value.
pub(super) fn framed(value: Option<&[u8]>) -> Result<(u32, &[u8]), &'static str> {
    let Some(value) = value else {
        return Err("the record has no value, expected Avro");
    };
    match value {
        [0, a, b, c, d, data @ ..] => Ok((u32::from_be_bytes([*a, *b, *c, *d]), data)),
        [0, ..] => Err("the value is shorter than the id of a schema"),
        _ => Err("the value does not begin with a zero byte and the id of a schema"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_stands_behind_a_zero_byte() {
        assert_eq!(framed(Some(&[0, 0, 0, 1, 2, 9, 8])), Ok((258, &[9, 8][..])));
        assert_eq!(framed(Some(&[0, 0, 0, 0, 7])), Ok((7, &[][..])));
        for value in [&b""[..], b"{}", &[1, 0, 0, 0, 7], &[0, 0, 0, 7]] {
            assert!(framed(Some(value)).is_err(), "{value:?}");
        }
        assert!(framed(None).is_err());
    }
}

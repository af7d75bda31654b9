//! When an event's id identifies the event by itself, and when only together with its table.

/// [`is_globally_unique`] as a regular expression, for SQL (`id ~ pattern`) and for other languages.
///
/// PostgreSQL's advanced syntax; Python's `re` and Java's `Pattern` read it too.
pub const GLOBALLY_UNIQUE_PATTERN: &str = "(?i)^(?:(?!0{8}-0{4}-0{4}-)(?!f{8}-f{4}-f{4}-f{4}-f{12}$)\
     [0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\
     |(?![0-9]{26}$)[0-7][0-9a-hjkmnp-tv-z]{25})$";

/// Returns whether `id` is unique without its table: a UUID (RFC 9562, text with hyphens) or a ULID.
///
/// Two events never share such an id, so it is the event's whole identity. Every other id, such as a
/// number or a name, is unique only within the table it was written to.
///
/// Not globally unique, although they have the form: the nil and the max UUID, UUIDs whose first half is
/// zero, and ULIDs of digits alone. These are counters with leading zeros.
pub fn is_globally_unique(id: &str) -> bool {
    is_uuid(id.as_bytes()) || is_ulid(id.as_bytes())
}

/// Header with the id space of the event's table: ids that are not globally unique are
/// unique within it.
pub const SOURCE_HEADER: &str = "walpost-source";

/// Returns what an id is unique in: the value of the [header](SOURCE_HEADER), or the topic
/// of a record without one; empty if the id is [globally unique](is_globally_unique).
///
/// ```
/// use walpost_event::source_of;
///
/// assert_eq!(source_of("17", Some("7f3a"), "orders"), "7f3a");
/// assert_eq!(source_of("17", None, "orders"), "orders");
/// assert_eq!(source_of("5f0c3b0e-9d1a-4c55-8a57-0f2f6f1f7b11", Some("7f3a"), "orders"), "");
/// ```
pub fn source_of<'a>(id: &str, header: Option<&'a str>, topic: &'a str) -> &'a str {
    if is_globally_unique(id) { "" } else { header.unwrap_or(topic) }
}

fn is_uuid(id: &[u8]) -> bool {
    const HYPHENS: [usize; 4] = [8, 13, 18, 23];
    let fits = |(at, byte): (usize, &u8)| match HYPHENS.contains(&at) {
        true => *byte == b'-',
        false => byte.is_ascii_hexdigit(),
    };
    id.len() == 36
        && id.iter().enumerate().all(fits)
        && !id[..19].iter().all(|byte| matches!(byte, b'0' | b'-'))
        && !id.iter().all(|byte| matches!(byte, b'f' | b'F' | b'-'))
}

fn is_ulid(id: &[u8]) -> bool {
    let is_crockford = |byte: &u8| {
        byte.is_ascii_alphanumeric()
            && !matches!(byte.to_ascii_lowercase(), b'i' | b'l' | b'o' | b'u')
    };
    id.len() == 26
        && matches!(id[0], b'0'..=b'7')
        && id.iter().all(is_crockford)
        && !id.iter().all(u8::is_ascii_digit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuids_and_ulids_are_globally_unique() {
        for id in [
            "5f0c3b0e-9d1a-4c55-8a57-0f2f6f1f7b11",
            "5F0C3B0E-9D1A-4C55-8A57-0F2F6F1F7B11",
            "01932c07-7b1e-7cc2-8000-000000000001",
            "c4ca4238-a0b9-2382-0dcc-509a6f75849b",
            "01ARZ3NDEKTSV4RRFFQ69G5FAV",
            "01arz3ndektsv4rrffq69g5fav",
        ] {
            assert!(is_globally_unique(id), "{id}");
        }
    }

    #[test]
    fn counters_names_and_padded_counters_are_not() {
        for id in [
            "",
            "17",
            "order-17",
            "00000000-0000-0000-0000-000000000000",
            "00000000-0000-0000-0000-000000000017",
            "00000000-0000-0000-8000-000000000017",
            "ffffffff-ffff-ffff-ffff-ffffffffffff",
            "5f0c3b0e9d1a4c558a570f2f6f1f7b11",
            "5f0c3b0e-9d1a-4c55-8a57-0f2f6f1f7b1",
            "5f0c3b0e-9d1a-4c55-8a57-0f2f6f1f7b1g",
            "5f0c3b0e-9d1a-4c55-8a57-0f2f6f1f7b11\n",
            "5f0c3b0e09d1a-4c55-8a57-0f2f6f1f7b11",
            "00000000000000000000000017",
            "81ARZ3NDEKTSV4RRFFQ69G5FAV",
            "01ARZ3NDEKTSV4RRFFQ69G5FAU",
            "01ARZ3NDEKTSV4RRFFQ69G5FA",
        ] {
            assert!(!is_globally_unique(id), "{id}");
        }
    }
}

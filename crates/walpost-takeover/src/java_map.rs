//! The offsets file of a standalone Kafka Connect worker, and of Debezium's
//! engine and server (`FileOffsetBackingStore`): one Java-serialised
//! `HashMap<byte[], byte[]>`.
//!
//! Read strictly, by the grammar of Java's Object Serialization Stream Protocol,
//! version 2: a class that is not one of these two, and bytes behind the map, are
//! errors. No count reserves memory for what has not come.

/// An offset as it is stored: its key, and its value, `None` for a deleted one.
pub type Entry = (Vec<u8>, Option<Vec<u8>>);

/// The bytes are no such map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("byte {at}: expected {expected}")]
pub struct JavaMapError {
    /// Where, from 0.
    pub at: usize,
    /// What should be there.
    pub expected: &'static str,
}

const STREAM: [u8; 4] = [0xac, 0xed, 0, 5];
const NULL: u8 = 0x70;
const REFERENCE: u8 = 0x71;
const CLASS: u8 = 0x72;
const OBJECT: u8 = 0x73;
const ARRAY: u8 = 0x75;
const BLOCK: u8 = 0x77;
const END: u8 = 0x78;
/// Of the first thing in a stream that can be referred to.
const FIRST_HANDLE: u32 = 0x7e_0000;
/// The class of the map, the map, and then the class of its arrays.
const ARRAY_CLASS_HANDLE: u32 = FIRST_HANDLE + 2;

/// `java.util.HashMap`: its id, written by a method of its own, two fields.
const MAP_CLASS: &[u8] =
    b"\x72\x00\x11java.util.HashMap\x05\x07\xda\xc1\xc3\x16\x60\xd1\x03\x00\x02\
    F\x00\x0aloadFactorI\x00\x09threshold\x78\x70";
/// `byte[]`.
const ARRAY_CLASS: &[u8] = b"\x72\x00\x02[B\xac\xf3\x17\xf8\x06\x08\x54\xe0\x02\x00\x00\x78\x70";

/// Reads the file.
///
/// ```
/// use walpost_takeover::java_map;
///
/// let entries = vec![(b"key".to_vec(), Some(b"value".to_vec())), (b"gone".to_vec(), None)];
/// assert_eq!(java_map::read(&java_map::write(&entries)), Ok(entries));
/// ```
///
/// # Errors
/// [`JavaMapError`] with the place at which it is something else.
pub fn read(bytes: &[u8]) -> Result<Vec<Entry>, JavaMapError> {
    let mut reader = Reader { bytes, at: 0, arrays: Vec::new(), has_class: false };
    reader.expect(&STREAM, "a stream of Java objects")?;
    reader.expect(&[OBJECT], "an object")?;
    reader.expect(MAP_CLASS, "the class java.util.HashMap")?;
    // Load factor and threshold say how the map was kept in memory.
    reader.take(8, "the fields of the map")?;
    reader.expect(&[BLOCK, 8], "a block of the map's counts")?;
    reader.take(4, "the capacity of the map")?;
    let entries = reader.number("the number of entries")?;
    let mut map = Vec::new();
    for _ in 0..entries {
        let at = reader.at;
        let key = reader.array()?;
        let key = key.ok_or(JavaMapError { at, expected: "a key that is not null" })?;
        map.push((key, reader.array()?));
    }
    reader.expect(&[END], "the end of the map")?;
    match reader.at == bytes.len() {
        true => Ok(map),
        false => Err(reader.error("nothing behind the map")),
    }
}

/// Writes the file, as Java would.
///
/// # Panics
/// With 2³⁰ entries, or 2³¹ bytes in one.
pub fn write(entries: &[Entry]) -> Vec<u8> {
    let mut bytes = [&STREAM[..], &[OBJECT], MAP_CLASS].concat();
    let count = u32::try_from(entries.len()).expect("offsets of fewer than 2³⁰ partitions");
    // Java's default load factor of 3/4, and room for all of them.
    let capacity = (count + count / 3 + 1).next_power_of_two().max(16);
    bytes.extend_from_slice(&0.75_f32.to_be_bytes());
    bytes.extend_from_slice(&(capacity / 4 * 3).to_be_bytes());
    bytes.extend_from_slice(&[BLOCK, 8]);
    bytes.extend_from_slice(&capacity.to_be_bytes());
    bytes.extend_from_slice(&count.to_be_bytes());
    let mut has_class = false;
    for (key, value) in entries {
        for array in [Some(key), value.as_ref()] {
            write_array(array, &mut has_class, &mut bytes);
        }
    }
    bytes.push(END);
    bytes
}

fn write_array(array: Option<&Vec<u8>>, has_class: &mut bool, bytes: &mut Vec<u8>) {
    let Some(array) = array else { return bytes.push(NULL) };
    bytes.push(ARRAY);
    if std::mem::replace(has_class, true) {
        bytes.push(REFERENCE);
        bytes.extend_from_slice(&ARRAY_CLASS_HANDLE.to_be_bytes());
    } else {
        bytes.extend_from_slice(ARRAY_CLASS);
    }
    let length = i32::try_from(array.len()).expect("an offset of fewer than 2³¹ bytes");
    bytes.extend_from_slice(&length.to_be_bytes());
    bytes.extend_from_slice(array);
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Those that were read, which others may refer to.
    arrays: Vec<&'a [u8]>,
    has_class: bool,
}

impl<'a> Reader<'a> {
    fn error(&self, expected: &'static str) -> JavaMapError {
        JavaMapError { at: self.at, expected }
    }

    fn take(&mut self, count: usize, expected: &'static str) -> Result<&'a [u8], JavaMapError> {
        let end = self.at.checked_add(count);
        let taken = end.and_then(|end| self.bytes.get(self.at..end));
        let taken = taken.ok_or_else(|| self.error(expected))?;
        self.at += count;
        Ok(taken)
    }

    fn expect(&mut self, what: &[u8], expected: &'static str) -> Result<(), JavaMapError> {
        match self.bytes[self.at..].starts_with(what) {
            true => {
                self.at += what.len();
                Ok(())
            }
            false => Err(self.error(expected)),
        }
    }

    fn number(&mut self, expected: &'static str) -> Result<u32, JavaMapError> {
        let at = self.at;
        let bytes = self.take(4, expected)?;
        let number = u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        // Java's are signed.
        if number > i32::MAX as u32 { Err(JavaMapError { at, expected }) } else { Ok(number) }
    }

    fn array(&mut self) -> Result<Option<Vec<u8>>, JavaMapError> {
        const EXPECTED: &str = "an array of bytes, or null";
        let at = self.at;
        match self.take(1, EXPECTED)?[0] {
            NULL => Ok(None),
            REFERENCE => {
                let handle = self.number(EXPECTED)?;
                let index = handle.checked_sub(ARRAY_CLASS_HANDLE + 1).filter(|_| self.has_class);
                let array = index.and_then(|index| self.arrays.get(index as usize));
                array
                    .map(|array| Some(array.to_vec()))
                    .ok_or(JavaMapError { at, expected: EXPECTED })
            }
            ARRAY => {
                self.array_class()?;
                let length = self.number("the length of an array")?;
                let array = self.take(length as usize, "the bytes of an array")?;
                self.arrays.push(array);
                Ok(Some(array.to_vec()))
            }
            _ => Err(JavaMapError { at, expected: EXPECTED }),
        }
    }

    /// The first array brings its class, the others refer to it.
    fn array_class(&mut self) -> Result<(), JavaMapError> {
        const EXPECTED: &str = "the class byte[]";
        if self.bytes.get(self.at) == Some(&CLASS) && !self.has_class {
            self.has_class = true;
            return self.expect(ARRAY_CLASS, EXPECTED);
        }
        let handle = ARRAY_CLASS_HANDLE.to_be_bytes();
        let reference = [REFERENCE, handle[0], handle[1], handle[2], handle[3]];
        match self.has_class {
            true => self.expect(&reference, EXPECTED),
            false => Err(self.error(EXPECTED)),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn entries() -> Vec<Entry> {
        vec![
            (b"[\"a\",{}]".to_vec(), Some(b"{}".to_vec())),
            (b"b".to_vec(), None),
            (Vec::new(), Some(vec![0, 255])),
        ]
    }

    #[test]
    fn every_cut_and_every_other_byte_is_an_error_or_another_map() {
        let bytes = write(&entries());
        for end in 0..bytes.len() {
            assert!(read(&bytes[..end]).is_err(), "cut at {end}");
        }
        assert!(read(&[&bytes[..], &[0]].concat()).unwrap_err().expected.starts_with("nothing"));
        for at in 0..bytes.len() {
            let mut other = bytes.clone();
            other[at] ^= 0x55;
            // Whatever it is, it is no panic and no endless allocation.
            drop(read(&other));
        }
    }

    #[test]
    fn other_classes_are_refused() {
        let mut bytes = write(&[]);
        let at = bytes.windows(4).position(|window| window == b"Hash").unwrap();
        bytes[at] = b'W';
        assert_eq!(read(&bytes).unwrap_err().expected, "the class java.util.HashMap");
    }

    #[test]
    fn an_array_may_stand_for_one_that_was_before() {
        let mut bytes = write(&[(b"x".to_vec(), None)]);
        // The null value becomes the key once more: the first array of all.
        let at = bytes.len() - 2;
        assert_eq!(bytes[at], NULL);
        bytes.splice(at..=at, [REFERENCE, 0, 0x7e, 0, 3]);
        assert_eq!(read(&bytes), Ok(vec![(b"x".to_vec(), Some(b"x".to_vec()))]));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            map in prop::collection::vec(
                (any::<Vec<u8>>(), prop::option::of(any::<Vec<u8>>())), 0..20)
        ) {
            prop_assert_eq!(read(&write(&map)), Ok(map));
        }
    }
}

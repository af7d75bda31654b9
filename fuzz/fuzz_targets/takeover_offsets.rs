//! A file of offsets, or else the value of one. What can be read can be judged, and
//! is written again as it was read.

#![no_main]

use libfuzzer_sys::fuzz_target;
use walpost_takeover::{OffsetKey, StoredOffset, java_map};

fuzz_target!(|input: &[u8]| {
    let judge = |value: &[u8]| {
        if let Ok(offset) = StoredOffset::parse(value) {
            drop(offset.boundary());
        }
    };
    let Ok(entries) = java_map::read(input) else { return judge(input) };
    for (key, value) in &entries {
        drop(OffsetKey::parse(key));
        value.as_deref().map(judge);
    }
    assert_eq!(java_map::read(&java_map::write(&entries)), Ok(entries));
});

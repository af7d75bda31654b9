//! A connector's file, and behind a line of `---` that of a worker. What can be
//! read is judged, with each property's verdict.

#![no_main]

use libfuzzer_sys::fuzz_target;
use walpost_connector::{Properties, Unknown, judge};

fuzz_target!(|input: &[u8]| {
    let mark = b"\n---\n";
    let end = input.windows(mark.len()).position(|found| found == mark);
    let (connector, worker) = match end {
        Some(end) => (&input[..end], Some(&input[end + mark.len()..])),
        None => (input, None),
    };
    let Ok(connector) = Properties::read(connector) else { return };
    let worker = worker.and_then(|worker| Properties::read(worker).ok());
    let judgement = judge(&connector, worker.as_ref(), Unknown::Refuse);
    let given = connector.iter().count() + worker.iter().flat_map(|w| w.iter()).count();
    let rows = judgement.verdicts.rows();
    assert_eq!(rows.iter().filter(|row| row.value.is_some()).count(), given);
    assert_eq!(judgement.connector.is_some(), judgement.verdicts.is_usable());
});

//! The content of a logical message: a row, and then a record, or an error.

#![no_main]

use libfuzzer_sys::fuzz_target;
use walpost_event::RowChange;
use walpost_router::{Router, RouterConfig};

fuzz_target!(|input: &[u8]| {
    let config = RouterConfig {
        event_timestamp: Some("at".into()),
        additional_placement: Some("p:partition,type:header,note:envelope".into()),
        ..RouterConfig::default()
    };
    let mut router = Router::new(config).expect("a legal configuration");
    if let Ok(row) = router.row_from_message(input) {
        let _ = router.identity(&row);
        let _ = router.route(&RowChange::insert(row));
    }
});

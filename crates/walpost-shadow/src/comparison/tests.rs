mod paces;

use walpost_event::Message;

use super::*;
use crate::record::testing::{made, message, observed};

const AT: fn(u64) -> Duration = Duration::from_secs;

/// Two partitions of each topic; keys are in the first one.
fn comparison() -> Comparison {
    let mut settings = Settings::new(|_, _| 0);
    settings.grace = AT(10);
    settings.expands_json = true;
    let mut comparison = Comparison::new(settings);
    for topic in ["t", "u"] {
        comparison.set_partitions(topic, 2);
    }
    comparison
}

fn event(position: u64, id: &str) -> Event {
    made(position, message("t", id, id))
}

fn record(offset: i64, id: &str) -> Observed {
    observed(offset, message("t", id, id))
}

/// Both have an event, so that what comes behind it is behind the start.
fn begun() -> Comparison {
    let mut comparison = comparison();
    comparison.expect(AT(0), event(1, "first"));
    comparison.observe(AT(0), record(10, "first"));
    assert_eq!(comparison.summary(), Summary { equal: 1, ..Summary::default() });
    comparison
}

/// What was found behind the first pair, after the grace.
fn found(mut comparison: Comparison) -> (Summary, Vec<Finding>) {
    comparison.has_events_until(AT(20));
    comparison.settle(AT(20));
    let mut summary = comparison.summary();
    summary.equal -= 1;
    (summary, comparison.take_findings())
}

#[test]
fn partners_find_each_other_whoever_comes_first() {
    let mut comparison = begun();
    comparison.expect(AT(0), event(2, "a"));
    comparison.expect(AT(0), event(3, "b"));
    comparison.observe(AT(1), record(11, "a"));
    comparison.observe(AT(1), record(12, "b"));
    comparison.observe(AT(1), record(13, "c"));
    comparison.expect(AT(2), event(4, "c"));
    assert!(comparison.is_settled());
    assert_eq!(found(comparison), (Summary { equal: 3, ..Summary::default() }, vec![]));
}

#[test]
fn what_has_no_partner_is_told_after_the_grace_and_not_before() {
    let mut comparison = begun();
    comparison.expect(AT(1), event(2, "a"));
    comparison.observe(AT(1), record(11, "b"));
    comparison.settle(AT(10));
    assert!(comparison.take_findings().is_empty() && !comparison.is_settled());
    assert_eq!(comparison.summary().pending, 2);
    let (summary, findings) = found(comparison);
    assert_eq!(summary, Summary { missing: 1, extra: 1, ..Summary::default() });
    assert!(summary.differs());
    assert!(
        matches!(&findings[..], [Finding::Extra(_), Finding::Missing(gone)] if gone.offset == 11)
    );
}

#[test]
fn what_comes_behind_the_grace_is_compared_no_more() {
    let mut comparison = begun();
    comparison.expect(AT(0), event(2, "a"));
    comparison.settle(AT(10));
    comparison.observe(AT(11), record(11, "a"));
    let (summary, _) = found(comparison);
    assert_eq!((summary.extra, summary.equal), (1, 0));
}

#[test]
fn a_record_behind_the_grace_of_its_event_is_late_and_not_missing() {
    let mut comparison = begun();
    comparison.expect(AT(0), event(2, "a"));
    comparison.settle(AT(10));
    comparison.observe(AT(10), record(11, "a"));
    comparison.observe(AT(10), record(12, "b"));
    let (summary, findings) = found(comparison);
    assert_eq!(summary, Summary { extra: 1, late: 1, missing: 1, ..Summary::default() });
    assert!(matches!(&findings[..], [.., Finding::Missing(gone)] if gone.offset == 12));
}

#[test]
fn members_that_differ_are_the_kind() {
    let mut comparison = begun();
    for (number, offset) in [(2, 11), (3, 12)] {
        let id = number.to_string();
        comparison.expect(AT(0), event(number, &id));
        let other = Message { key: Some("x".into()), ..message("t", &id, "other") };
        comparison.observe(AT(0), observed(offset, other));
    }
    let (summary, findings) = found(comparison);
    assert_eq!(summary.different, [("key, value".to_owned(), 2)].into());
    let Finding::Different { differences, observed, .. } = &findings[0] else { panic!() };
    assert_eq!((observed.offset, differences.len()), (11, 2));
}

#[test]
fn another_topic_is_a_difference_where_the_id_is_the_same() {
    for debezium_first in [true, false] {
        let mut comparison = begun();
        comparison.begins_at(&"u".into(), 0, 0);
        let elsewhere = observed(5, message("u", "a", "a"));
        if debezium_first {
            comparison.observe(AT(0), elsewhere.clone());
        }
        comparison.expect(AT(1), event(2, "a"));
        if !debezium_first {
            comparison.observe(AT(2), elsewhere);
        }
        let (summary, _) = found(comparison);
        let expected = [("topic".to_owned(), 1)].into();
        assert_eq!(summary, Summary { different: expected, ..Summary::default() });
    }
}

#[test]
fn what_is_written_again_is_a_duplicate() {
    let mut comparison = begun();
    comparison.expect(AT(0), event(2, "a"));
    comparison.observe(AT(0), record(11, "a"));
    for (offset, id) in [(12, "first"), (13, "a")] {
        comparison.observe(AT(1), record(offset, id));
    }
    assert!(comparison.is_settled());
    let (summary, findings) = found(comparison);
    assert_eq!(summary, Summary { equal: 1, duplicates: 2, ..Summary::default() });
    assert!(
        !summary.differs()
            && matches!(findings[..], [Finding::Duplicate(_), Finding::Duplicate(_)])
    );
}

#[test]
fn before_the_first_common_record_of_a_partition_nothing_is_missing() {
    let mut comparison = comparison();
    comparison.observe(AT(0), record(8, "x"));
    comparison.observe(AT(0), record(9, "y"));
    comparison.observe(AT(0), Observed { partition: 1, ..record(3, "z") });
    comparison.expect(AT(0), event(1, "first"));
    comparison.observe(AT(0), record(10, "first"));
    assert!(comparison.is_settled());
    let (summary, findings) = found(comparison);
    assert_eq!((summary, findings), (Summary { older: 3, ..Summary::default() }, vec![]));
}

#[test]
fn behind_a_known_beginning_everything_counts() {
    let mut comparison = begun();
    comparison.begins_at(&"t".into(), 1, 4);
    comparison.observe(AT(0), Observed { partition: 1, ..record(3, "x") });
    comparison.observe(AT(0), Observed { partition: 1, ..record(4, "y") });
    assert!(!comparison.is_settled());
    let (summary, _) = found(comparison);
    assert_eq!(summary, Summary { older: 1, missing: 1, ..Summary::default() });
}

#[test]
fn debezium_may_begin_anew_before_the_start() {
    let mut comparison = begun();
    // Killed, it writes what is older once more, then what both have.
    comparison.observe(AT(1), record(11, "older"));
    comparison.observe(AT(1), record(12, "older too"));
    comparison.observe(AT(1), record(13, "first"));
    comparison.expect(AT(1), event(2, "a"));
    comparison.observe(AT(1), record(14, "missing"));
    comparison.observe(AT(1), record(15, "a"));
    // What is missing before that is none of those.
    comparison.observe(AT(1), record(16, "first"));
    let (summary, _) = found(comparison);
    let expected = Summary { equal: 1, older: 2, duplicates: 2, missing: 1, ..Summary::default() };
    assert_eq!(summary, expected);
}

#[test]
fn another_order_is_a_difference() {
    let mut comparison = begun();
    comparison.expect(AT(0), event(2, "a"));
    comparison.expect(AT(0), event(3, "b"));
    comparison.observe(AT(0), record(11, "b"));
    comparison.observe(AT(0), record(12, "a"));
    let (summary, _) = found(comparison);
    assert_eq!(summary.different, [("order".to_owned(), 1)].into());
    assert_eq!(summary.equal, 1);
}

#[test]
fn partners_that_are_late_are_not_out_of_order() {
    let mut comparison = begun();
    comparison.expect(AT(0), event(3, "b"));
    comparison.observe(AT(0), record(11, "a"));
    comparison.observe(AT(0), record(12, "b"));
    comparison.expect(AT(1), event(2, "a"));
    assert_eq!(found(comparison).0, Summary { equal: 2, ..Summary::default() });
}

fn parked(id: &str) -> Event {
    let position = walpost_event::Position { commit_lsn: 2.into(), ordinal: 0 };
    let (id, reason) = (Some(id.to_owned().into()), "undecodable");
    Event::Parked(Parked { position, id, reason, detail: "no text".to_owned() })
}

#[test]
fn what_walpost_parks_is_documented_unless_debezium_has_a_record_of_it() {
    let mut comparison = begun();
    for id in ["fails", "java", "known"] {
        comparison.expect(AT(0), parked(id));
    }
    comparison.observe(AT(0), observed(11, message("t", "java", "[B@1f")));
    comparison.observe(AT(0), record(12, "known"));
    let (summary, findings) = found(comparison);
    assert_eq!(
        summary.documented,
        [(Documented::TaskFails, 1), (Documented::JavaObject, 1)].into()
    );
    assert_eq!(summary.different, [(PARKED.to_owned(), 1)].into());
    assert!(
        matches!(&findings[..], [Finding::WouldPark { observed, .. }] if observed.offset == 12)
    );
}

#[test]
fn the_order_of_members_is_documented_where_arrays_are_merged() {
    let [one, other] = [r#"[{"a":1,"b":2}]"#, r#"[{"b":2,"a":1}]"#];
    for expands_json in [true, false] {
        let mut comparison = begun();
        comparison.settings.expands_json = expands_json;
        comparison.expect(AT(0), made(2, message("t", "a", one)));
        comparison.observe(AT(0), observed(11, message("t", "a", other)));
        let (summary, _) = found(comparison);
        assert_eq!(summary.documented.len(), usize::from(expands_json));
        assert_eq!(summary.differs(), !expands_json);
        assert_eq!(summary.compared(), 1);
    }
}

fn plain(comparison: &mut Comparison, values: &[&str], records: &[&str]) {
    for (number, value) in values.iter().enumerate() {
        comparison.expect(AT(0), made(number as u64 + 2, message("t", "", value)));
    }
    for (number, value) in records.iter().enumerate() {
        comparison.observe(AT(0), observed(number as i64 + 11, message("t", "", value)));
    }
}

#[test]
fn without_an_id_the_order_of_the_key_pairs() {
    let mut comparison = begun();
    plain(&mut comparison, &["a", "b", "c"], &["a", "b", "c"]);
    assert!(comparison.is_settled());
    assert_eq!(found(comparison).0, Summary { equal: 3, ..Summary::default() });

    let mut comparison = begun();
    plain(&mut comparison, &["a", "b", "d"], &["a", "c", "b", "e"]);
    let (summary, _) = found(comparison);
    let different = [("value".to_owned(), 1)].into();
    assert_eq!(summary, Summary { equal: 2, missing: 1, different, ..Summary::default() });

    let mut comparison = begun();
    plain(&mut comparison, &["a", "b", "c"], &["a", "c", "a"]);
    let (summary, _) = found(comparison);
    assert_eq!(summary, Summary { equal: 2, extra: 1, duplicates: 1, ..Summary::default() });
}

#[test]
fn without_an_id_what_comes_before_the_first_common_record_is_older() {
    let mut comparison = comparison();
    plain(&mut comparison, &["b", "c"], &["x", "b", "c"]);
    comparison.settle(AT(20));
    assert_eq!(comparison.summary(), Summary { equal: 2, older: 1, ..Summary::default() });
}

#[test]
fn records_of_others_are_known_by_the_id_that_they_have_not() {
    let mut comparison = begun();
    comparison.observe(AT(0), observed(11, message("t", "", "x")));
    let (summary, findings) = found(comparison);
    assert_eq!((summary, findings), (Summary { foreign: 1, ..Summary::default() }, vec![]));
}

#[test]
fn behind_the_end_only_partners_count() {
    let mut comparison = begun();
    comparison.expect(AT(1), event(2, "a"));
    comparison.observe(AT(1), record(12, "b"));
    comparison.end();
    comparison.observe(AT(2), record(11, "a"));
    comparison.observe(AT(2), record(13, "new"));
    assert!(!comparison.is_settled());
    comparison.expect(AT(2), event(3, "b"));
    comparison.expect(AT(2), event(4, "newer"));
    comparison.expect(AT(2), parked("new"));
    assert!(comparison.is_settled());
    assert_eq!(found(comparison), (Summary { equal: 2, ..Summary::default() }, vec![]));
}

#[test]
fn in_a_topic_without_a_record_of_walposts_nothing_is_missing_unless_it_is_named() {
    let elsewhere: Arc<str> = "u".into();
    for (is_named, is_common) in [(false, false), (true, false), (false, true)] {
        let mut comparison = begun();
        comparison.begins_at(&elsewhere, 0, 0);
        if is_named {
            comparison.owns(&elsewhere);
        }
        if is_common {
            comparison.expect(AT(0), parked("known"));
            comparison.observe(AT(0), observed(1, message("u", "known", "[B@1f")));
        }
        comparison.observe(AT(0), observed(2, message("u", "x", "x")));
        assert_eq!(comparison.is_settled(), !is_named && !is_common);
        let (mut summary, _) = found(comparison);
        summary.documented.clear();
        let expected = match is_named || is_common {
            true => Summary { missing: 1, ..Summary::default() },
            false => {
                let foreign_topics = [(elsewhere.clone(), 1)].into();
                Summary { foreign: 1, foreign_topics, ..Summary::default() }
            }
        };
        assert_eq!(summary, expected);
    }
}

#[test]
fn of_topics_of_others_not_all_are_named() {
    let mut comparison = begun();
    for number in 0..30 {
        let topic: Arc<str> = format!("topic {number}").into();
        comparison.begins_at(&topic, 0, 0);
        for id in ["a", "b"] {
            comparison.observe(AT(0), observed(1, message(&topic, id, "")));
        }
    }
    let (summary, findings) = found(comparison);
    assert_eq!((summary.foreign, summary.foreign_topics.len()), (60, 20));
    assert!(summary.foreign_topics.values().all(|count| *count == 2) && findings.is_empty());
}

#[test]
fn an_event_whose_schema_nobody_has_registered_is_extra_without_a_record() {
    let mut comparison = begun();
    for id in ["a", "b"] {
        let Event::Parked(event) = parked(id) else { panic!() };
        comparison.expect(AT(0), Event::Unregistered(event));
    }
    comparison.observe(AT(0), record(11, "a"));
    let (summary, findings) = found(comparison);
    let different = [(UNREGISTERED.to_owned(), 1)].into();
    assert_eq!(summary, Summary { extra: 1, different, ..Summary::default() });
    let [
        Finding::Unregistered { observed: Some(record), .. },
        Finding::Unregistered { event, observed: None },
    ] = &findings[..]
    else {
        panic!("{findings:?}")
    };
    assert_eq!((record.offset, event.id.as_deref()), (11, Some(&b"b"[..])));
}

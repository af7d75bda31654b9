use proptest::prelude::*;

use super::*;

fn floors(offset: i64) -> Value {
    json!({ "t": { "id": null, "floors": [offset] } })
}

fn seen(snapshot: &str, lsn: u64) -> Seen {
    Seen { snapshot: snapshot.to_owned(), lsn: Lsn::from(lsn), at: 7 }
}

fn streaming() -> Proofs {
    Proofs::streaming(None, None, None)
}

/// A transaction with two events.
fn receive(proofs: &mut Proofs, xid: u32) {
    proofs.begin(xid);
    proofs.event();
    proofs.event();
}

fn proven(proofs: &Proofs) -> Option<(&str, i64)> {
    let pair = proofs.proven.as_ref()?;
    Some((&pair.snapshot, pair.floors["t"]["floors"][0].as_i64()?))
}

#[test]
fn a_snapshot_is_read_and_nonsense_is_none() {
    let snapshot = Snapshot::parse("5:9:5,7").unwrap();
    assert_eq!(snapshot, Snapshot { xmin: 5, xmax: 9, running: vec![5, 7] });
    assert_eq!(Snapshot::parse("9:9:").unwrap().running, [0_u64; 0]);
    for text in ["", "5:9", "9:5:", "5:9:x", "5:9:7,5", "5:9::", "-1:9:"] {
        assert_eq!(Snapshot::parse(text), None, "{text}");
    }
}

#[test]
fn a_pair_is_proven_once_all_below_its_position_is_done() {
    let mut proofs = streaming();
    receive(&mut proofs, 5);
    assert!(proofs.advance(Lsn::from(10), &floors(3)).proven.is_none());
    assert!(proofs.wants_snapshot());
    proofs.saw(seen("6:6:", 20));
    assert!(!proofs.wants_snapshot() && !proofs.is_due(Lsn::from(19)));
    let changes = proofs.advance(Lsn::from(19), &floors(4));
    assert!(changes.proven.is_none() && changes.pending.unwrap()["snapshot"] == "6:6:");
    let changes = proofs.advance(Lsn::from(20), &floors(5));
    assert_eq!(proven(&proofs), Some(("6:6:", 3)));
    let pair = Pair::from_json(&changes.proven.unwrap()).unwrap();
    assert_eq!((pair.lsn, pair.floors, pair.taken_at), (Lsn::from(20), floors(3), 7));
    assert_eq!(changes.pending, Some(Value::Null));
}

#[test]
fn a_snapshot_that_misses_what_has_come_is_no_use_and_the_floors_stay() {
    let mut proofs = streaming();
    receive(&mut proofs, 5);
    proofs.advance(Lsn::from(10), &floors(3));
    // Committed in the WAL, and not visible: running, or not below xmax.
    for snapshot in ["4:9:4,5", "4:5:4", "5:5:"] {
        proofs.saw(seen(snapshot, 20));
        receive(&mut proofs, 6);
        proofs.advance(Lsn::from(11), &floors(9));
        assert!(proofs.wants_snapshot(), "{snapshot}");
    }
    proofs.saw(seen("6:6:", 30));
    proofs.advance(Lsn::from(30), &floors(9));
    assert_eq!(proven(&proofs), Some(("6:6:", 3)), "the floors of when the first had come");
}

#[test]
fn a_pending_pair_is_not_replaced_under_lag() {
    let mut proofs = streaming();
    receive(&mut proofs, 5);
    proofs.advance(Lsn::from(10), &floors(3));
    proofs.saw(seen("6:6:", 20));
    for done in 11..20 {
        receive(&mut proofs, done);
        proofs.advance(Lsn::from(u64::from(done)), &floors(9));
        assert!(!proofs.wants_snapshot());
        proofs.saw(seen("99:99:", 90));
    }
    proofs.advance(Lsn::from(20), &floors(9));
    assert_eq!(proven(&proofs), Some(("6:6:", 3)));
    assert!(proofs.wants_snapshot(), "the next one is on its way");
}

#[test]
fn without_news_no_pair_is_wanted() {
    let mut proofs = streaming();
    proofs.advance(Lsn::from(10), &floors(3));
    proofs.saw(seen("6:6:", 20));
    proofs.advance(Lsn::from(20), &floors(3));
    proofs.begin(7);
    proofs.advance(Lsn::from(30), &floors(3));
    assert!(!proofs.wants_snapshot(), "a transaction without an event is none");
    proofs.begin(0);
    proofs.event();
    proofs.advance(Lsn::from(31), &floors(3));
    assert!(!proofs.wants_snapshot(), "one without an id has no row");
    receive(&mut proofs, 8);
    proofs.advance(Lsn::from(32), &floors(3));
    assert!(proofs.wants_snapshot());
}

#[test]
fn what_earlier_runs_may_have_received_is_waited_for() {
    let mut proofs = Proofs::streaming(None, None, Some(50));
    proofs.advance(Lsn::from(10), &floors(3));
    proofs.saw(seen("40:60:40", 20));
    assert!(proofs.wants_snapshot(), "40 may have been published by the run before");
    proofs.saw(seen("50:60:50", 20));
    assert!(!proofs.wants_snapshot());
}

#[test]
fn more_transactions_than_are_remembered_cost_time_and_no_pair() {
    let mut proofs = streaming();
    for xid in 0..XIDS_MAX as u32 {
        receive(&mut proofs, 10 + xid);
    }
    receive(&mut proofs, 7);
    assert!(proofs.received.xids.is_empty());
    let next = 10 + XIDS_MAX as u64;
    assert_eq!(proofs.received.below, Some(next as u32));
    proofs.advance(Lsn::from(10), &floors(3));
    proofs.saw(seen(&format!("{}:{next}:{}", next - 1, next - 1), 20));
    assert!(proofs.wants_snapshot());
    proofs.saw(seen(&format!("{next}:{next}:"), 20));
    assert!(!proofs.wants_snapshot());
}

#[test]
fn ids_are_compared_also_where_their_lower_half_begins_anew() {
    let epoch = 1_u64 << 32;
    let snapshot =
        Snapshot { xmin: epoch - 2, xmax: epoch + 5, running: vec![epoch - 2, epoch + 1] };
    assert!(snapshot.sees(u32::MAX) && snapshot.sees(0) && snapshot.sees(u32::MAX - 7));
    assert!(!snapshot.sees(u32::MAX - 1) && !snapshot.sees(1), "running");
    assert!(!snapshot.sees(5) && !snapshot.sees(9), "later");
    assert!(snapshot.is_past(u32::MAX - 1) && !snapshot.is_past(u32::MAX));
    assert_eq!((later(u32::MAX, 3), later(3, u32::MAX)), (3, 3));
}

#[test]
fn a_place_that_is_found_later_is_in_every_pair() {
    let mut proofs = streaming();
    receive(&mut proofs, 5);
    proofs.advance(Lsn::from(10), &floors(3));
    proofs.saw(seen("6:6:", 20));
    proofs.advance(Lsn::from(20), &floors(4));
    receive(&mut proofs, 6);
    proofs.advance(Lsn::from(21), &floors(5));
    proofs.saw(seen("7:7:", 30));
    proofs.advance(Lsn::from(22), &floors(5));
    let place = |topic: &str, partition, start| Place {
        topic: topic.into(),
        topic_id: None,
        partition,
        start,
        end: start,
    };
    proofs.open(&place("t", 0, 99));
    assert!(!proofs.proven_changed, "it is there already");
    proofs.open(&place("t", 1, 0));
    proofs.open(&place("u", 0, 40));
    let changes = proofs.advance(Lsn::from(23), &floors(5));
    for pair in [changes.proven.unwrap(), changes.pending.unwrap()] {
        assert_eq!(pair["floors"]["u"]["floors"], json!([40]));
        assert_eq!(pair["floors"]["t"]["floors"][1], 0);
    }
}

#[test]
fn a_pair_comes_back_from_the_row_and_anything_else_is_none() {
    let pair =
        Pair { snapshot: "5:9:7".to_owned(), lsn: Lsn::from(20), floors: floors(3), taken_at: 7 };
    let value = pair.to_json();
    assert_eq!(Pair::from_json(&value), Some(pair));
    for (key, wrong) in [
        ("snapshot", json!("x")),
        ("lsn", json!(20)),
        ("floors", json!([])),
        ("taken_at", json!("x")),
    ] {
        let mut value = value.clone();
        value[key] = wrong;
        assert_eq!(Pair::from_json(&value), None, "{key}");
    }
}

proptest! {
    /// Against the definition: whatever a proven pair's snapshot does not see
    /// has come after its floors were remembered.
    #[test]
    fn what_a_pair_does_not_see_came_behind_its_floors(
        steps in prop::collection::vec((0_u8..4, 0_u32..8), 1..200)
    ) {
        let mut proofs = streaming();
        // When each transaction came; the running ones are not visible yet.
        let mut came: Vec<(u32, i64)> = Vec::new();
        let mut running: Vec<u32> = Vec::new();
        let (mut next, mut now) = (100_u32, 0_i64);
        for (step, which) in steps {
            now += 1;
            match step {
                0 => {
                    came.push((next, now));
                    receive(&mut proofs, next);
                    running.push(next);
                    next += 1;
                }
                1 if !running.is_empty() => {
                    running.remove(which as usize % running.len());
                }
                2 => {
                    // As the server has it: from the last that is over on.
                    let xmax = (100..next).rev().find(|xid| !running.contains(xid));
                    let xmax = xmax.map_or(100, |xid| xid + 1);
                    let listed: Vec<String> =
                        running.iter().filter(|xid| **xid < xmax).map(u32::to_string).collect();
                    let xmin = running.iter().filter(|xid| **xid < xmax).min().unwrap_or(&xmax);
                    let text = format!("{xmin}:{xmax}:{}", listed.join(","));
                    if proofs.wants_snapshot() {
                        proofs.saw(seen(&text, now as u64));
                    }
                }
                _ => {
                    proofs.advance(Lsn::from(now as u64), &floors(now));
                }
            }
            if let Some((snapshot, remembered)) = proven(&proofs) {
                let snapshot = Snapshot::parse(snapshot).unwrap();
                for (xid, at) in &came {
                    prop_assert!(snapshot.sees(*xid) || *at > remembered, "{xid} came at {at}");
                }
            }
        }
    }
}

use proptest::prelude::*;
use walpost_event::{Lsn, Position};

use super::AckTracker;

fn lsn(value: u64) -> Lsn {
    Lsn::from(value)
}

fn transaction(tracker: &mut AckTracker, commit: u64, events: usize) -> Vec<u64> {
    tracker.begin(lsn(commit), 0);
    let tickets = (0..events).map(|_| tracker.event().0).collect();
    tracker.commit(lsn(commit + 8));
    tickets
}

#[test]
fn nothing_is_confirmed_before_its_last_event_is_done() {
    let mut tracker = AckTracker::default();
    let tickets = transaction(&mut tracker, 100, 3);
    tracker.done(tickets[2]);
    tracker.done(tickets[0]);
    assert_eq!(tracker.take_confirmed(), None);
    tracker.done(tickets[1]);
    assert_eq!(tracker.take_confirmed(), Some(lsn(108)));
    assert_eq!(tracker.take_confirmed(), None, "told once");
}

#[test]
fn events_are_unconfirmed_until_the_end_of_their_transaction_is_taken() {
    let mut tracker = AckTracker::default();
    tracker.keep_alive(lsn(50));
    assert!(!tracker.has_unconfirmed());
    tracker.begin(lsn(100), 0);
    let (ticket, _) = tracker.event();
    tracker.done(ticket);
    assert_eq!(tracker.take_confirmed(), Some(lsn(50)));
    assert!(tracker.has_unconfirmed());
    tracker.commit(lsn(108));
    assert!(tracker.has_unconfirmed());
    assert_eq!(tracker.take_confirmed(), Some(lsn(108)));
    assert!(!tracker.has_unconfirmed());
}

#[test]
fn a_later_transaction_never_passes_an_earlier_one() {
    let mut tracker = AckTracker::default();
    let first = transaction(&mut tracker, 100, 1);
    let second = transaction(&mut tracker, 200, 1);
    tracker.done(second[0]);
    assert_eq!(tracker.take_confirmed(), None);
    tracker.done(first[0]);
    assert_eq!(tracker.take_confirmed(), Some(lsn(208)));
}

#[test]
fn a_transaction_without_its_commit_is_not_confirmed() {
    let mut tracker = AckTracker::default();
    tracker.begin(lsn(100), 0);
    let (ticket, _) = tracker.event();
    tracker.done(ticket);
    assert_eq!(tracker.take_confirmed(), None);
    tracker.commit(lsn(108));
    assert_eq!(tracker.take_confirmed(), Some(lsn(108)));
}

#[test]
fn a_keep_alive_waits_behind_what_was_read_before_it() {
    let mut tracker = AckTracker::default();
    let tickets = transaction(&mut tracker, 100, 1);
    tracker.keep_alive(lsn(500));
    assert_eq!(tracker.take_confirmed(), None);
    tracker.done(tickets[0]);
    assert_eq!(tracker.take_confirmed(), Some(lsn(500)));
}

#[test]
fn a_keep_alive_within_a_transaction_does_not_confirm_it() {
    let mut tracker = AckTracker::default();
    tracker.begin(lsn(100), 0);
    let (ticket, _) = tracker.event();
    tracker.keep_alive(lsn(90));
    assert_eq!(tracker.take_confirmed(), Some(lsn(90)));
    tracker.done(ticket);
    assert_eq!(tracker.take_confirmed(), None);
    tracker.commit(lsn(108));
    assert_eq!(tracker.take_confirmed(), Some(lsn(108)));
}

#[test]
fn an_idle_stream_costs_no_memory() {
    let mut tracker = AckTracker::default();
    let tickets = transaction(&mut tracker, 100, 1);
    for wal_end in 200..10_000 {
        tracker.keep_alive(lsn(wal_end));
    }
    assert!(tracker.transactions.len() <= 2);
    tracker.done(tickets[0]);
    assert_eq!(tracker.take_confirmed(), Some(lsn(9_999)));
}

#[test]
fn positions_are_found_by_ticket() {
    let mut tracker = AckTracker::default();
    let first = transaction(&mut tracker, 100, 2);
    tracker.keep_alive(lsn(150));
    tracker.begin(lsn(200), 7);
    let (open, position) = tracker.event();
    assert_eq!(position, Position { commit_lsn: lsn(200), ordinal: 0 });
    assert_eq!(tracker.position(open), Some(position));
    let expected = Position { commit_lsn: lsn(100), ordinal: 1 };
    assert_eq!(tracker.position(first[1]), Some(expected));
    assert_eq!(tracker.position(99), None);
}

/// The same rule, written as slowly and plainly as possible.
#[derive(Default)]
struct Model {
    events: Vec<(u64, bool)>,
    ends: Vec<(usize, u64)>,
}

impl Model {
    fn confirmed(&self) -> Option<u64> {
        let prefix = self.events.iter().take_while(|(_, done)| *done).count();
        self.ends.iter().filter(|(events, _)| *events <= prefix).map(|(_, end)| *end).max()
    }

    fn first_unconfirmed(&self) -> u64 {
        let prefix = self.events.iter().take_while(|(_, done)| *done).count();
        let confirmed = self.ends.iter().map(|(events, _)| *events).filter(|end| *end <= prefix);
        confirmed.max().unwrap_or(0) as u64
    }
}

#[derive(Clone, Debug)]
enum Step {
    Transaction(usize),
    KeepAlive,
    Done(prop::sample::Index),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        (0..5usize).prop_map(Step::Transaction),
        Just(Step::KeepAlive),
        any::<prop::sample::Index>().prop_map(Step::Done),
        any::<prop::sample::Index>().prop_map(Step::Done),
    ];
    prop::collection::vec(step, 0..200)
}

proptest! {
    #[test]
    fn agrees_with_the_plain_rule(steps in steps()) {
        let mut tracker = AckTracker::default();
        let mut model = Model::default();
        let mut lsn_now = 0;
        let mut confirmed = None;
        for step in steps {
            lsn_now += 10;
            match step {
                Step::Transaction(events) => {
                    for ticket in transaction(&mut tracker, lsn_now, events) {
                        model.events.push((ticket, false));
                    }
                    model.ends.push((model.events.len(), lsn_now + 8));
                }
                Step::KeepAlive => {
                    tracker.keep_alive(lsn(lsn_now));
                    model.ends.push((model.events.len(), lsn_now));
                }
                Step::Done(_) if model.events.is_empty() => {}
                Step::Done(index) => {
                    let event = index.get(&model.events).0;
                    tracker.done(event);
                    model.events[event as usize].1 = true;
                }
            }
            confirmed = tracker.take_confirmed().map(u64::from).or(confirmed);
            prop_assert_eq!(confirmed, model.confirmed());
            prop_assert_eq!(tracker.first_unconfirmed(), model.first_unconfirmed());
        }
    }
}

//! Records without an event id: paired in order, by topic and key.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use walpost_event::{Bytes, Message};

use crate::{
    pace::{Load, Pace},
    record::{Expected, Observed},
};

/// How far a partner is looked for among what waits.
const LOOK_AHEAD: usize = 50;

/// What became of records without an id.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Aligned {
    /// Partners, alike or not.
    Pair(Expected, Observed),
    /// Walpost's, without a partner.
    Extra(Expected),
    /// Debezium's, without a partner.
    Unmatched(Observed),
}

/// By topic and key.
#[derive(Debug, Default)]
pub(crate) struct Lanes {
    lanes: HashMap<(Arc<str>, Option<Bytes>), Lane>,
    expected: Load,
    observed: Load,
}

#[derive(Debug, Default)]
struct Lane {
    expected: VecDeque<(Duration, Expected)>,
    observed: VecDeque<(Duration, Observed)>,
}

impl Lanes {
    pub(crate) fn expect(
        &mut self,
        now: Duration,
        expected: Expected,
        alike: impl Fn(&Expected, &Observed) -> bool,
    ) -> Vec<Aligned> {
        let key = key(&expected.message);
        self.expected.add(expected.message.size_bytes());
        self.lanes.entry(key.clone()).or_default().expected.push_back((now, expected));
        self.advance(&key, alike)
    }

    pub(crate) fn observe(
        &mut self,
        now: Duration,
        observed: Observed,
        alike: impl Fn(&Expected, &Observed) -> bool,
    ) -> Vec<Aligned> {
        let key = key(&observed.message);
        self.observed.add(observed.message.size_bytes());
        self.lanes.entry(key.clone()).or_default().observed.push_back((now, observed));
        self.advance(&key, alike)
    }

    /// What is due; `is_known` of records that were there before.
    pub(crate) fn settle(
        &mut self,
        now: Duration,
        pace: &Pace,
        alike: impl Fn(&Expected, &Observed) -> bool,
        is_known: impl Fn(&Observed) -> bool,
    ) -> Vec<Aligned> {
        let mut aligned = Vec::new();
        for lane in self.lanes.values_mut() {
            while let Some(next) = lane.take_due(now, pace, &is_known) {
                aligned.push(next);
                lane.advance(&alike, &mut aligned);
            }
        }
        self.lanes.retain(|_, lane| !lane.is_empty());
        self.count_out(&aligned);
        aligned
    }

    /// Takes back the record that came last for this topic and key, if it waits.
    pub(crate) fn take_last(&mut self, topic: &Arc<str>, key: &Option<Bytes>) -> Option<Observed> {
        let key = (topic.clone(), key.clone());
        let lane = self.lanes.get_mut(&key)?;
        let (_, observed) = lane.observed.pop_back()?;
        if lane.is_empty() {
            self.lanes.remove(&key);
        }
        self.observed.remove(observed.message.size_bytes());
        Some(observed)
    }

    /// Events that wait for Debezium's records.
    pub(crate) fn expected(&self) -> Load {
        self.expected
    }

    /// Records of Debezium's that wait.
    pub(crate) fn observed(&self) -> impl Iterator<Item = &Observed> {
        self.lanes.values().flat_map(|lane| &lane.observed).map(|(_, observed)| observed)
    }

    /// How much these are.
    pub(crate) fn observed_load(&self) -> Load {
        self.observed
    }

    fn advance(
        &mut self,
        key: &(Arc<str>, Option<Bytes>),
        alike: impl Fn(&Expected, &Observed) -> bool,
    ) -> Vec<Aligned> {
        let mut aligned = Vec::new();
        if let Some(lane) = self.lanes.get_mut(key) {
            lane.advance(&alike, &mut aligned);
            if lane.is_empty() {
                self.lanes.remove(key);
            }
        }
        self.count_out(&aligned);
        aligned
    }

    fn count_out(&mut self, aligned: &[Aligned]) {
        for one in aligned {
            let (expected, observed) = match one {
                Aligned::Pair(expected, observed) => (Some(expected), Some(observed)),
                Aligned::Extra(expected) => (Some(expected), None),
                Aligned::Unmatched(observed) => (None, Some(observed)),
            };
            if let Some(expected) = expected {
                self.expected.remove(expected.message.size_bytes());
            }
            if let Some(observed) = observed {
                self.observed.remove(observed.message.size_bytes());
            }
        }
    }
}

impl Lane {
    fn is_empty(&self) -> bool {
        self.expected.is_empty() && self.observed.is_empty()
    }

    /// Pairs what is alike; what stands before it on one side has no partner.
    fn advance(
        &mut self,
        alike: &impl Fn(&Expected, &Observed) -> bool,
        aligned: &mut Vec<Aligned>,
    ) {
        while let (Some((_, expected)), Some((_, observed))) =
            (self.expected.front(), self.observed.front())
        {
            let mut others = self.observed.iter().take(LOOK_AHEAD);
            if let Some(unmatched) = others.position(|(_, other)| alike(expected, other)) {
                let gone = self.observed.drain(..unmatched).map(|(_, gone)| gone);
                aligned.extend(gone.map(Aligned::Unmatched));
                aligned.extend(self.pair());
                continue;
            }
            let mut others = self.expected.iter().take(LOOK_AHEAD);
            let Some(extra) = others.position(|(_, other)| alike(other, observed)) else { return };
            let more = self.expected.drain(..extra).map(|(_, extra)| extra);
            aligned.extend(more.map(Aligned::Extra));
            aligned.extend(self.pair());
        }
    }

    fn pair(&mut self) -> Option<Aligned> {
        let (_, expected) = self.expected.pop_front()?;
        let (_, observed) = self.observed.pop_front()?;
        Some(Aligned::Pair(expected, observed))
    }

    fn take_due(
        &mut self,
        now: Duration,
        pace: &Pace,
        is_known: impl Fn(&Observed) -> bool,
    ) -> Option<Aligned> {
        let ours = self.expected.front().is_some_and(|(since, _)| pace.is_event_due(*since, now));
        let theirs =
            self.observed.front().is_some_and(|(since, _)| pace.is_record_due(*since, now));
        let known = self.observed.front().is_some_and(|(_, observed)| is_known(observed));
        // The record of an event that is not due may still come, unless there is no
        // room for it.
        let is_alone = self.expected.is_empty() || (!ours && !pace.reads_records());
        if theirs && (known || is_alone) {
            return self.observed.pop_front().map(|(_, observed)| Aligned::Unmatched(observed));
        }
        if !ours {
            return None;
        }
        if self.observed.is_empty() || known {
            return self.expected.pop_front().map(|(_, expected)| Aligned::Extra(expected));
        }
        self.pair()
    }
}

fn key(message: &Message) -> (Arc<str>, Option<Bytes>) {
    (message.topic.clone(), message.key.clone())
}

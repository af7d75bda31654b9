//! Whether brokers answer, and what is told of librdkafka's complaints, which
//! come twenty times a second: pure.

use std::time::{Duration, Instant};

use rdkafka::error::RDKafkaErrorCode;
use walpost_librdkafka::NoAccess;

use crate::tell::Reminder;

/// A silence that is shorter is not told: the first of a host's addresses may
/// be the wrong one, and a broker may restart.
const GRACE_MS: u64 = 3_000;
/// Complaints that are remembered, so as not to be told again at once.
const MAX_COMPLAINTS: usize = 16;

/// What is known of the brokers.
#[derive(Debug)]
pub(super) struct Reach {
    /// Since when none has answered.
    silent_since: Option<Instant>,
    ever_answered: bool,
    told: Reminder,
    /// Of the last connection that failed.
    reason: Option<String>,
    /// The same, where no broker has ever let us in, and none is left to try.
    no_access: NoAccessYet,
    complaints: Vec<(String, Reminder)>,
}

/// Settings that have worked are right, and the brokers come round; those that
/// never have may be wrong.
#[derive(Debug, Default)]
enum NoAccessYet {
    #[default]
    None,
    Said(NoAccess),
    Told,
}

/// What to tell of a complaint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Complaint {
    /// One connection failed.
    Connection,
    UnknownTopic,
    /// A right is missing.
    Denied,
    /// The group's other members have no strategy in common with this one.
    Strategy,
    Other,
}

impl Complaint {
    /// `None` for that no connection is left.
    fn of(code: RDKafkaErrorCode) -> Option<Self> {
        use RDKafkaErrorCode as Code;
        Some(match code {
            Code::AllBrokersDown => return None,
            Code::BrokerTransportFailure
            | Code::Resolve
            | Code::SSL
            | Code::Authentication
            | Code::SaslAuthenticationFailed
            | Code::OperationTimedOut => Self::Connection,
            Code::UnknownTopic | Code::UnknownTopicOrPartition => Self::UnknownTopic,
            Code::TopicAuthorizationFailed
            | Code::GroupAuthorizationFailed
            | Code::ClusterAuthorizationFailed => Self::Denied,
            Code::InconsistentGroupProtocol => Self::Strategy,
            _ => Self::Other,
        })
    }
}

impl Reach {
    /// Before the first answer.
    pub(super) fn new(now: Instant) -> Self {
        Self {
            silent_since: Some(now),
            ever_answered: false,
            told: Reminder::default(),
            reason: None,
            complaints: Vec::new(),
            no_access: NoAccessYet::None,
        }
    }

    pub(super) fn is_silent(&self) -> bool {
        self.silent_since.is_some()
    }

    pub(super) fn has_ever_answered(&self) -> bool {
        self.ever_answered
    }

    /// A broker has answered. For how long none had, if that was told.
    pub(super) fn answered(&mut self, now: Instant) -> Option<Duration> {
        self.ever_answered = true;
        self.reason = None;
        let since = self.silent_since.take()?;
        let told = std::mem::take(&mut self.told).was_told();
        told.then(|| now.duration_since(since))
    }

    /// For how long no broker has answered, and why, if that is to be told now.
    pub(super) fn silence(&mut self, now: Instant) -> Option<(Duration, &str)> {
        let silence = now.duration_since(self.silent_since?);
        let told = silence >= Duration::from_millis(GRACE_MS) && self.told.is_due(now);
        told.then(|| (silence, self.reason.as_deref().unwrap_or("none has said why")))
    }

    /// Why the brokers let nobody in by these settings, once, when no connection
    /// is left and none has ever been let in.
    pub(super) fn no_access(&mut self, code: RDKafkaErrorCode) -> Option<NoAccess> {
        if self.ever_answered || code != RDKafkaErrorCode::AllBrokersDown {
            return None;
        }
        match std::mem::take(&mut self.no_access) {
            NoAccessYet::None => None,
            NoAccessYet::Said(no_access) => {
                self.no_access = NoAccessYet::Told;
                Some(no_access)
            }
            NoAccessYet::Told => {
                self.no_access = NoAccessYet::Told;
                None
            }
        }
    }

    /// librdkafka complains. What to tell, if anything.
    pub(super) fn complain(
        &mut self,
        code: RDKafkaErrorCode,
        reason: &str,
        now: Instant,
    ) -> Option<Complaint> {
        let Some(complaint) = Complaint::of(code) else {
            self.silent_since.get_or_insert(now);
            return None;
        };
        // The texts of connections differ in their counts of milliseconds.
        let key = if complaint == Complaint::Connection {
            let no_access = NoAccess::of(code, reason);
            self.reason = Some(no_access.as_ref().map_or(reason.to_owned(), NoAccess::to_string));
            if !matches!(self.no_access, NoAccessYet::Told) {
                self.no_access = no_access.map_or(NoAccessYet::None, NoAccessYet::Said);
            }
            format!("{code:?}")
        } else {
            reason.to_owned()
        };
        // Then it is told as the reason of the silence.
        if complaint == Complaint::Connection && self.is_silent() {
            return None;
        }
        let index = self.complaints.iter().position(|(known, _)| *known == key);
        let index = index.unwrap_or_else(|| {
            if self.complaints.len() == MAX_COMPLAINTS {
                self.complaints.remove(0);
            }
            self.complaints.push((key, Reminder::default()));
            self.complaints.len() - 1
        });
        self.complaints[index].1.is_due(now).then_some(complaint)
    }
}

#[cfg(test)]
mod tests {
    use RDKafkaErrorCode as Code;

    use super::*;

    /// Complaints of a broker that is down, for `seconds`, and how often the
    /// silence was told.
    fn down(reach: &mut Reach, start: Instant, seconds: u64) -> Vec<u64> {
        let mut told = Vec::new();
        for tick in 0..seconds * 20 {
            let now = start + Duration::from_millis(tick * 50);
            let refused = format!("Connection refused (after {tick} ms)");
            reach.complain(Code::BrokerTransportFailure, &refused, now);
            assert_eq!(reach.complain(Code::AllBrokersDown, "1/1 brokers are down", now), None);
            if let Some((silence, reason)) = reach.silence(now) {
                assert_eq!(reason, refused);
                told.push(silence.as_secs());
            }
        }
        told
    }

    #[test]
    fn a_silence_is_told_at_a_bounded_rate_and_its_end_once() {
        let start = Instant::now();
        let mut reach = Reach::new(start);
        assert_eq!(down(&mut reach, start, 70), [3, 33, 63]);
        let end = start + Duration::from_secs(70);
        assert!(reach.is_silent() && !reach.has_ever_answered());
        assert_eq!(reach.answered(end), Some(Duration::from_secs(70)));
        assert_eq!(reach.answered(end), None);
        assert!(!reach.is_silent() && reach.has_ever_answered());
        assert_eq!(reach.silence(end + Duration::from_secs(100)), None);
    }

    #[test]
    fn a_silence_without_a_word_is_told_and_a_short_one_is_not() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut reach = Reach::new(start);
        assert_eq!(reach.silence(at(2_999)), None);
        assert_eq!(reach.answered(at(2_999)), None);
        assert_eq!(down(&mut reach, at(5_000), 2), [0; 0]);
        assert_eq!(reach.answered(at(7_000)), None);
        reach.complain(Code::AllBrokersDown, "", at(10_000));
        let silence = reach.silence(at(13_000));
        assert_eq!(silence, Some((Duration::from_secs(3), "none has said why")));
    }

    #[test]
    fn a_refusal_is_final_once_and_only_before_anybody_was_let_in() {
        let now = Instant::now();
        let mut reach = Reach::new(now);
        let refuse = |reach: &mut Reach| {
            reach.complain(Code::Authentication, "no such user", now);
            assert_eq!(reach.no_access(Code::Authentication), None, "another broker may take it");
            reach.no_access(Code::AllBrokersDown)
        };
        reach.complain(Code::BrokerTransportFailure, "refused", now);
        assert_eq!(reach.no_access(Code::AllBrokersDown), None, "it may come up");
        let told = refuse(&mut reach).unwrap();
        assert!(told.problem == "no such user" && told.remedy.contains("sasl.password"));
        assert_eq!(refuse(&mut reach), None, "it was told");
        let mut reach = Reach::new(now);
        reach.answered(now);
        assert_eq!(refuse(&mut reach), None);
        reach.complain(Code::AllBrokersDown, "", now);
        let (_, reason) = reach.silence(now + Duration::from_secs(5)).unwrap();
        assert!(reason.contains("sasl.password"), "{reason}");
    }

    #[test]
    fn one_connection_of_several_is_told_once_in_a_while() {
        let start = Instant::now();
        let mut reach = Reach::new(start);
        reach.answered(start);
        let told = (0..40).filter_map(|second| {
            let now = start + Duration::from_secs(second);
            let reason = format!("refused after {second} s");
            reach.complain(Code::BrokerTransportFailure, &reason, now)
        });
        assert_eq!(told.collect::<Vec<_>>(), [Complaint::Connection; 2]);
    }

    #[test]
    fn other_complaints_are_told_by_their_text_and_the_memory_of_them_is_bounded() {
        let now = Instant::now();
        let mut reach = Reach::new(now);
        let unknown = Code::UnknownTopicOrPartition;
        assert_eq!(reach.complain(unknown, "a", now), Some(Complaint::UnknownTopic));
        assert_eq!(reach.complain(unknown, "a", now), None);
        assert_eq!(reach.complain(unknown, "b", now), Some(Complaint::UnknownTopic));
        let denied = Code::GroupAuthorizationFailed;
        assert_eq!(reach.complain(denied, "c", now), Some(Complaint::Denied));
        let other = Code::InconsistentGroupProtocol;
        assert_eq!(reach.complain(other, "d", now), Some(Complaint::Strategy));
        for number in 0..100 {
            reach.complain(Code::Fail, &number.to_string(), now);
        }
        assert_eq!(reach.complaints.len(), MAX_COMPLAINTS);
    }
}

//! What the answers of Redis mean for a batch: pure.

use std::collections::HashSet;

/// A record, by its position and offset, and when it was claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    pub(crate) position: i32,
    pub(crate) offset: i64,
    pub(crate) epoch: i64,
}

/// What is wished for one event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) offset: i64,
    decided: Option<(bool, String)>,
}

impl Claim {
    pub(crate) fn new(offset: i64) -> Self {
        Self { offset, decided: None }
    }

    /// As the script reads it.
    pub(super) fn decided(&self) -> String {
        match &self.decided {
            Some((true, value)) => format!("d{value}"),
            Some((false, value)) => format!("m{value}"),
            None => String::new(),
        }
    }
}

/// What Redis has for one event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Nothing: it is claimed if all are.
    New,
    Done,
    /// Another record of the event is, or was, being applied, or this one was in
    /// an earlier epoch.
    Elsewhere {
        place: Place,
        value: String,
        expired: bool,
    },
    /// Nobody's.
    Odd,
}

impl Answer {
    pub(super) fn parse(text: &str) -> Option<Self> {
        match text {
            "n" => return Some(Self::New),
            "d" => return Some(Self::Done),
            "o" => return Some(Self::Odd),
            _ => {}
        }
        let expired = match text.chars().next()? {
            'x' => true,
            'w' => false,
            _ => return None,
        };
        let value = &text[1..];
        let mut parts = value.strip_prefix("p:")?.split(':');
        let place = Place {
            position: parts.next()?.parse().ok()?,
            offset: parts.next()?.parse().ok()?,
            epoch: parts.next()?.parse().ok()?,
        };
        Some(Self::Elsewhere { place, value: value.to_owned(), expired })
    }

    pub(crate) fn place(&self) -> Option<Place> {
        match self {
            Self::Elsewhere { place, .. } => Some(*place),
            Self::New | Self::Done | Self::Odd => None,
        }
    }
}

/// How a batch goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Everything is claimed or done: the offsets of the new events.
    Apply(Vec<i64>),
    /// Ask again, with what was decided.
    Again,
    /// A copy is being applied elsewhere: the offset of the first of ours.
    Wait(i64),
    /// A key that no guard has written, of the event at this offset.
    Odd(i64),
}

/// `own` is the position at work: nobody else applies anything there. `passed`
/// are the places that a committed offset has passed.
pub(crate) fn decide(
    claims: &mut [Claim],
    answers: &[Answer],
    own: i32,
    passed: &HashSet<Place>,
) -> Step {
    let mut step = Step::Apply(Vec::new());
    for (claim, answer) in claims.iter_mut().zip(answers) {
        let Answer::Elsewhere { place, value, expired } = answer else {
            match (&mut step, answer) {
                (_, Answer::Odd) => return Step::Odd(claim.offset),
                (Step::Apply(new), Answer::New) => new.push(claim.offset),
                _ => {}
            }
            continue;
        };
        let at_own = place.position == own;
        let done = passed.contains(place);
        if !done && !at_own && !expired {
            return Step::Wait(claim.offset);
        }
        claim.decided = Some((done, value.clone()));
        step = Step::Again;
    }
    step
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: i32 = 7;

    fn elsewhere(position: i32, offset: i64, expired: bool) -> Answer {
        let kind = if expired { 'x' } else { 'w' };
        Answer::parse(&format!("{kind}p:{position}:{offset}:3:99")).unwrap()
    }

    fn place_of(position: i32, offset: i64) -> Place {
        Place { position, offset, epoch: 3 }
    }

    fn step(answers: &[Answer], passed: &[Place]) -> (Step, Vec<String>) {
        let mut claims: Vec<Claim> =
            (0..answers.len() as i64).map(|n| Claim::new(100 + n)).collect();
        let step = decide(&mut claims, answers, OWN, &passed.iter().copied().collect());
        (step, claims.iter().map(Claim::decided).collect())
    }

    #[test]
    fn new_events_are_applied_when_nothing_is_undecided() {
        let (step, _) = step(&[Answer::New, Answer::Done, Answer::New], &[]);
        assert_eq!(step, Step::Apply(vec![100, 102]));
    }

    #[test]
    fn a_place_that_the_offset_has_passed_is_done_whoever_died() {
        let place = place_of(8, 5);
        let (found, decided) = step(&[elsewhere(8, 5, false), Answer::New], &[place]);
        assert_eq!(found, Step::Again);
        assert_eq!(decided, ["dp:8:5:3:99", ""]);
        let (found, decided) = step(&[elsewhere(7, 99, false)], &[place_of(7, 99)]);
        assert_eq!((found, decided), (Step::Again, vec!["dp:7:99:3:99".to_owned()]));
    }

    #[test]
    fn a_place_that_it_has_not_passed_is_waited_for_until_its_time_is_over() {
        assert_eq!(step(&[Answer::New, elsewhere(8, 5, false)], &[]).0, Step::Wait(101));
        let (found, decided) = step(&[elsewhere(8, 5, true)], &[]);
        assert_eq!((found, decided), (Step::Again, vec!["mp:8:5:3:99".to_owned()]));
    }

    #[test]
    fn nobody_else_is_at_work_on_the_own_position() {
        let (found, decided) = step(&[elsewhere(7, 105, false)], &[]);
        assert_eq!((found, decided), (Step::Again, vec!["mp:7:105:3:99".to_owned()]));
    }

    #[test]
    fn what_no_guard_wrote_stops_the_batch() {
        assert_eq!(step(&[elsewhere(8, 5, true), Answer::Odd], &[]).0, Step::Odd(101));
        assert_eq!(Answer::parse("wq:1:2:3:4"), None);
        assert_eq!(Answer::parse("wp:1:2"), None);
        assert_eq!(Answer::parse(""), None);
    }
}

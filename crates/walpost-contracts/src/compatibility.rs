use std::{fmt, str::FromStr};

use crate::{Contract, schema::Unreadable};

/// What a change of a contract has to keep, in the terms of Confluent's schema
/// registry, each for all versions there have been one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compatibility {
    /// Who knows the new schema can read what was written under the old one:
    /// a replay of old events, and consumers that are updated first.
    Backward,
    /// Who knows the old schema can read what is written under the new one:
    /// consumers that are updated last.
    Forward,
    /// Both.
    Full,
    /// Nothing. It cannot be chosen for an event that promised more.
    None,
}

impl Compatibility {
    const ALL: [Self; 4] = [Self::Backward, Self::Forward, Self::Full, Self::None];

    fn is_backward(self) -> bool {
        matches!(self, Self::Backward | Self::Full)
    }

    fn is_forward(self) -> bool {
        matches!(self, Self::Forward | Self::Full)
    }

    /// Whether whoever relied on `other` may rely on this.
    fn keeps(self, other: Self) -> bool {
        (self.is_backward() || !other.is_backward()) && (self.is_forward() || !other.is_forward())
    }
}

impl fmt::Display for Compatibility {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Backward => "backward",
            Self::Forward => "forward",
            Self::Full => "full",
            Self::None => "none",
        })
    }
}

impl FromStr for Compatibility {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        Self::ALL.into_iter().find(|one| one.to_string() == text).ok_or(())
    }
}

/// A change that consumers of an event would not survive, and what to do
/// instead.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Break {
    /// The event's type.
    pub event_type: String,
    /// What is broken, and the next step.
    pub reason: String,
}

impl fmt::Display for Break {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.event_type, self.reason)
    }
}

/// What `new` breaks of `old`, which was the same event's contract before.
pub(crate) fn compare(old: &Contract, new: &Contract) -> Vec<Break> {
    let mut reasons = Vec::new();
    if !new.compatibility.keeps(old.compatibility) {
        reasons.push(format!(
            "compatibility was {} and would be {}, which promises less; keep it, or give the new \
             events another type",
            old.compatibility, new.compatibility
        ));
    }
    for (what, old, new) in [
        ("the aggregate type, which names the topic,", &old.aggregate_type, &new.aggregate_type),
        ("the ordering key", &old.ordering_key, &new.ordering_key),
        ("the idempotency key", &old.idempotency_key, &new.idempotency_key),
    ] {
        if old != new {
            reasons.push(format!(
                "{what} was {old:?} and would be {new:?}; give the new events another type"
            ));
        }
    }
    if new.schema != old.schema && new.version <= old.version {
        reasons.push(format!(
            "the schema changed and the version stayed {}; raise it to {}",
            new.version,
            old.version.saturating_add(1)
        ));
    }
    if new.version < old.version {
        reasons.push(format!("the version fell from {} to {}", old.version, new.version));
    }
    let required = [old.compatibility, new.compatibility];
    if required.iter().any(|one| one.is_backward()) {
        reasons
            .extend(new.schema.cannot_read(&old.schema).map(|why| unreadable("new", "old", why)));
    }
    if required.iter().any(|one| one.is_forward()) {
        reasons
            .extend(old.schema.cannot_read(&new.schema).map(|why| unreadable("old", "new", why)));
    }
    let event_type = &new.event_type;
    reasons.into_iter().map(|reason| Break { event_type: event_type.clone(), reason }).collect()
}

fn unreadable(reader: &str, writer: &str, why: Unreadable) -> String {
    match why {
        Unreadable::Refused(what) => format!(
            "the {reader} schema refuses payloads of the {writer} one: {what}; allow them, or give \
             the new events another type"
        ),
        Unreadable::Unknown(what) => format!(
            "it cannot be proven that the {reader} schema takes every payload of the {writer} one \
             ({what}); write both with plainer keywords, or give the new events another type"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::{
        Compatibility::{Backward, Forward, Full, None},
        *,
    };

    #[test]
    fn a_promise_may_grow_and_not_shrink() {
        for (new, old, keeps) in [
            (Full, Backward, true),
            (Full, Forward, true),
            (Backward, None, true),
            (Backward, Full, false),
            (Backward, Forward, false),
            (Forward, Backward, false),
            (None, Backward, false),
            (None, None, true),
        ] {
            assert_eq!(new.keeps(old), keeps, "{new} after {old}");
        }
        for one in Compatibility::ALL {
            assert_eq!(one.to_string().parse(), Ok(one));
        }
    }
}

//! What to do with a partition that was just claimed: a pure decision over
//! what the database and the group hold.

use uuid::Uuid;

use crate::marker::{Known, Marker, Standing};

/// What an offset reset of the group does to effects already made.
///
/// ```
/// use walpost_consumer::{Consumer, OnReset};
///
/// let builder = Consumer::builder("shipping").on_reset(OnReset::Refuse);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnReset {
    /// Effects of the rewound range are made exactly once more. A reset forward
    /// skips, with an audit row. The default.
    #[default]
    Rerun,
    /// Only effects that are missing are made. A reset forward is refused.
    Fill,
    /// The partition halts and says how to go on.
    Refuse,
}

/// Where a partition starts that neither the database nor the group knows.
///
/// ```
/// use walpost_consumer::{Consumer, FirstStart};
///
/// let builder = Consumer::builder("mailing").first_start(FirstStart::Latest);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum FirstStart {
    /// At the oldest record: nothing is missed. The default.
    #[default]
    Earliest,
    /// At the end as it is at the first start of this consumer on the topic;
    /// partitions that the topic gains later start at their oldest record.
    Latest,
}

/// What the database holds of a claimed partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stored {
    pub(crate) next_offset: Option<i64>,
    /// Offsets that Kafka may still hold as ours.
    pub(crate) known: Vec<i64>,
}

/// What the group holds, asked for after the claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Group {
    /// No offset: never a reset.
    Nothing,
    /// An offset with a marker of ours that names it, and that the row knows.
    Ours { offset: i64 },
    /// The same, in the commit that asks for a reset of the row as it is.
    Pending { offset: i64, reset: Uuid },
    /// An offset with a marker of ours that the row does not know.
    Newer { offset: i64 },
    /// An offset without our marker, or with one that names another offset.
    Foreign { offset: i64 },
}

impl Group {
    /// An offset with a marker of this consumer, which may name another offset.
    pub(crate) fn of_marker(marker: &Marker, offset: i64, row: &Known<'_>) -> Self {
        match marker.standing(row) {
            Standing::Newer => Self::Newer { offset },
            _ if marker.offset != offset => Self::Foreign { offset },
            Standing::Known => Self::Ours { offset },
            Standing::Pending(reset) => Self::Pending { offset, reset },
        }
    }
}

/// How a reset is carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Rerun,
    Fill,
    /// Forward: the events between are not applied.
    Skip,
}

impl Mode {
    /// As the table `consumer_reset` has it.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Rerun => "rerun",
            Self::Fill => "fill",
            Self::Skip => "skip",
        }
    }
}

/// What to do before the first effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// Start at the stored offset; `mark`: commit it with our marker first.
    Resume { mark: bool },
    /// The database is older than the group: its effects end at the stored offset,
    /// so continue there and put our marker back.
    Older { group: i64 },
    /// Nothing is stored: store the group's offset, or (`None`) what the first
    /// start's choice resolves to.
    Begin { at: Option<i64> },
    /// Nothing is stored, but this consumer has read the partition before.
    NoRow { group: i64 },
    /// The group was reset to `to`. `confirmed`: Kafka already holds the reset
    /// under this id, the database does not.
    Reset { to: i64, mode: Mode, confirmed: Option<Uuid> },
    /// The group's offset may be ours, of before a crash, or a wish.
    Ambiguous { group: i64 },
    /// A reset that the policy refuses.
    Refused { to: i64 },
}

/// Decides for one partition.
pub(crate) fn decide(stored: &Stored, group: Group, policy: OnReset) -> Decision {
    let Some(next) = stored.next_offset else {
        return match group {
            Group::Nothing => Decision::Begin { at: None },
            Group::Foreign { offset } => Decision::Begin { at: Some(offset) },
            Group::Ours { offset } | Group::Pending { offset, .. } | Group::Newer { offset } => {
                Decision::NoRow { group: offset }
            }
        };
    };
    match group {
        Group::Nothing => Decision::Resume { mark: true },
        Group::Ours { .. } => Decision::Resume { mark: false },
        Group::Pending { offset, reset: id } => reset(next, offset, policy, Some(id)),
        Group::Newer { offset } => Decision::Older { group: offset },
        Group::Foreign { offset } if offset == next => Decision::Resume { mark: true },
        Group::Foreign { offset } if stored.known.contains(&offset) => {
            Decision::Ambiguous { group: offset }
        }
        Group::Foreign { offset } => reset(next, offset, policy, None),
    }
}

fn reset(next: i64, to: i64, policy: OnReset, confirmed: Option<Uuid>) -> Decision {
    let mode = match (policy, to > next) {
        (OnReset::Refuse, _) | (OnReset::Fill, true) => return Decision::Refused { to },
        (OnReset::Rerun, true) => Mode::Skip,
        (OnReset::Rerun, false) => Mode::Rerun,
        (OnReset::Fill, false) => Mode::Fill,
    };
    Decision::Reset { to, mode, confirmed }
}

#[cfg(test)]
mod tests {
    use super::{Decision::*, FirstStart, Group::*, Mode::*, *};
    use crate::marker::{self, Owner};

    const R: Uuid = Uuid::from_u128(7);
    const POLICIES: [OnReset; 3] = [OnReset::Rerun, OnReset::Fill, OnReset::Refuse];

    fn stored(next_offset: Option<i64>) -> Stored {
        Stored { next_offset, known: vec![40, 60, 100] }
    }

    #[test]
    fn the_defaults_lose_nothing() {
        assert_eq!(OnReset::default(), OnReset::Rerun);
        assert_eq!(FirstStart::default(), FirstStart::Earliest);
    }

    #[test]
    fn without_a_stored_offset_the_groups_is_adopted() {
        for policy in POLICIES {
            let begin = |group| decide(&stored(None), group, policy);
            assert_eq!(begin(Nothing), Begin { at: None });
            assert_eq!(begin(Foreign { offset: 5 }), Begin { at: Some(5) });
        }
    }

    #[test]
    fn a_partition_that_was_read_before_has_no_first_start() {
        for policy in POLICIES {
            for group in [Ours { offset: 5 }, Newer { offset: 5 }, Pending { offset: 5, reset: R }]
            {
                assert_eq!(decide(&stored(None), group, policy), NoRow { group: 5 });
            }
        }
    }

    #[test]
    fn a_database_older_than_the_group_continues_where_its_effects_end() {
        for policy in POLICIES {
            for offset in [0, 40, 99, 100, 101, 500] {
                let decision = decide(&stored(Some(100)), Newer { offset }, policy);
                assert_eq!(decision, Older { group: offset });
            }
        }
    }

    #[test]
    fn what_is_no_reset_resumes_under_every_policy() {
        for policy in POLICIES {
            let resume = |group| decide(&stored(Some(100)), group, policy);
            assert_eq!(resume(Nothing), Resume { mark: true });
            assert_eq!(resume(Foreign { offset: 100 }), Resume { mark: true });
            for offset in [0, 40, 99, 100, 101, 500] {
                assert_eq!(resume(Ours { offset }), Resume { mark: false });
            }
        }
    }

    #[test]
    fn a_known_offset_without_marker_is_ambiguous_under_every_policy() {
        for policy in POLICIES {
            for offset in [40, 60] {
                let decision = decide(&stored(Some(100)), Foreign { offset }, policy);
                assert_eq!(decision, Ambiguous { group: offset });
            }
        }
    }

    #[test]
    fn metadata_beside_another_offset_is_newer_or_foreign() {
        let owner = Owner { consumer: "c".into(), cluster: "k".into(), topic: "t".into() };
        let (next_offset, offsets) = (Some(100), &[40]);
        let row = Known { next_offset, offsets, epoch: 3, reset: None, has_reset: false };
        let of = |marker: Marker, offset| Group::of_marker(&marker, offset, &row);
        assert_eq!(of(owner.marker(40, 3, None), 40), Ours { offset: 40 });
        assert_eq!(of(owner.marker(40, 3, None), 7), Foreign { offset: 7 });
        assert_eq!(of(owner.marker(500, 3, None), 7), Newer { offset: 7 });
        let pending = Some(marker::Pending { from: 100, after: None });
        let asks = owner.marker(7, 3, Some(R)).pending(pending);
        assert_eq!(of(asks.clone(), 7), Pending { offset: 7, reset: R });
        assert_eq!(of(asks, 8), Foreign { offset: 8 });
    }

    #[test]
    fn another_offset_is_a_reset() {
        let table = [
            (OnReset::Rerun, 0, Reset { to: 0, mode: Rerun, confirmed: None }),
            (OnReset::Rerun, 99, Reset { to: 99, mode: Rerun, confirmed: None }),
            (OnReset::Rerun, 101, Reset { to: 101, mode: Skip, confirmed: None }),
            (OnReset::Fill, 0, Reset { to: 0, mode: Fill, confirmed: None }),
            (OnReset::Fill, 101, Refused { to: 101 }),
            (OnReset::Refuse, 0, Refused { to: 0 }),
            (OnReset::Refuse, 101, Refused { to: 101 }),
        ];
        for (policy, offset, expected) in table {
            let decision = decide(&stored(Some(100)), Foreign { offset }, policy);
            assert_eq!(decision, expected, "{policy:?} to {offset}");
        }
    }

    #[test]
    fn a_reset_that_kafka_has_and_the_database_not_is_finished() {
        let pending = |offset| Pending { offset, reset: R };
        let table = [
            (OnReset::Rerun, 0, Reset { to: 0, mode: Rerun, confirmed: Some(R) }),
            (OnReset::Rerun, 40, Reset { to: 40, mode: Rerun, confirmed: Some(R) }),
            (OnReset::Rerun, 100, Reset { to: 100, mode: Rerun, confirmed: Some(R) }),
            (OnReset::Rerun, 101, Reset { to: 101, mode: Skip, confirmed: Some(R) }),
            (OnReset::Fill, 0, Reset { to: 0, mode: Fill, confirmed: Some(R) }),
            (OnReset::Fill, 101, Refused { to: 101 }),
            (OnReset::Refuse, 0, Refused { to: 0 }),
        ];
        for (policy, offset, expected) in table {
            let decision = decide(&stored(Some(100)), pending(offset), policy);
            assert_eq!(decision, expected, "{policy:?} to {offset}");
        }
    }
}

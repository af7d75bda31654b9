//! Where a reset goes to: pure.

/// As it was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    Earliest,
    Latest,
    Offset(i64),
    /// The first record at a time or later.
    Time,
    ShiftBy(i64),
}

/// What is done with the events in between.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Mode {
    /// Back: all are applied once more
    #[default]
    Rerun,
    /// Back: those are applied whose effect is missing
    Fill,
    /// Forward: they are not applied
    Skip,
}

impl Mode {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Rerun => "rerun",
            Self::Fill => "fill",
            Self::Skip => "skip",
        }
    }
}

/// One partition, as far as a target needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Standing {
    /// The stored offset.
    pub(super) next: i64,
    /// The log's ends.
    pub(super) low: i64,
    pub(super) high: i64,
    /// The offset of the time that was asked for.
    pub(super) at_time: Option<i64>,
}

impl Target {
    /// The offset, if the log has it.
    pub(super) fn resolve(self, standing: Standing) -> Result<i64, String> {
        let Standing { next, low, high, at_time } = standing;
        let to = match self {
            Self::Earliest => low,
            Self::Latest => high,
            Self::Offset(offset) => offset,
            Self::Time => at_time.unwrap_or(high),
            Self::ShiftBy(by) => next.saturating_add(by),
        };
        if (low..=high).contains(&to) {
            return Ok(to);
        }
        Err(format!("offset {to} is not in the log, which goes from {low} to {high}"))
    }
}

/// Whether the mode is one for this way.
pub(super) fn check(mode: Mode, from: i64, to: i64) -> Result<(), String> {
    match mode {
        Mode::Skip if to < from => Err(format!("{to} lies before {from}, and skip goes forward")),
        Mode::Rerun | Mode::Fill if to > from => {
            Err(format!("{to} lies behind {from}, and {} goes back", mode.as_str()))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_offsets_that_the_log_has() {
        let standing = Standing { next: 50, low: 10, high: 90, at_time: Some(30) };
        let resolve = |target: Target| target.resolve(standing);
        assert_eq!(resolve(Target::Earliest), Ok(10));
        assert_eq!(resolve(Target::Latest), Ok(90));
        assert_eq!(resolve(Target::Time), Ok(30));
        assert_eq!(Target::Time.resolve(Standing { at_time: None, ..standing }), Ok(90));
        for (offset, fits) in [(9, false), (10, true), (90, true), (91, false), (-1, false)] {
            assert_eq!(resolve(Target::Offset(offset)).is_ok(), fits, "{offset}");
        }
        for (by, expected) in
            [(-40, Some(10)), (0, Some(50)), (40, Some(90)), (-41, None), (41, None)]
        {
            assert_eq!(resolve(Target::ShiftBy(by)).ok(), expected, "{by}");
        }
        assert_eq!(resolve(Target::ShiftBy(i64::MAX)).ok(), None);
        let text = resolve(Target::Offset(9)).unwrap_err();
        assert_eq!(text, "offset 9 is not in the log, which goes from 10 to 90");
    }

    #[test]
    fn a_mode_has_its_way() {
        for (mode, back, forward) in
            [(Mode::Rerun, true, false), (Mode::Fill, true, false), (Mode::Skip, false, true)]
        {
            assert_eq!(check(mode, 50, 40).is_ok(), back, "{mode:?}");
            assert_eq!(check(mode, 50, 60).is_ok(), forward, "{mode:?}");
            assert_eq!(check(mode, 50, 50), Ok(()), "{mode:?}");
        }
    }
}

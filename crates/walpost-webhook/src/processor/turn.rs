//! How much a processor claims, and for how long it waits then: pure.

use std::time::Duration;

use super::upkeep::UPKEEP;
use crate::breaker::Permit;

/// Once this part of what may be claimed is free there is a new claim, if the last
/// one took all that it could.
pub(super) const FREE_PART: usize = 4;
/// No turn follows another one sooner.
const PAUSE_MIN: Duration = Duration::from_millis(1);

/// What counts at a moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    /// Deliveries that are claimed, and how many may be.
    pub(super) claimed: usize,
    pub(super) claimed_max: usize,
    /// Of their bodies.
    pub(super) bytes_free: usize,
    pub(super) bytes_max: usize,
    /// Of one claim.
    pub(super) batch: u32,
    /// From one look to the next.
    pub(super) poll: Duration,
    /// Until that is due; nothing where it is.
    pub(super) poll_in: Duration,
    /// Until a look may be made whose cause is somebody's word.
    pub(super) woken_in: Duration,
    /// Whether the last claim took all that it could: there may be more.
    pub(super) was_full: bool,
    /// Whether somebody has said since that there may be something.
    pub(super) is_woken: bool,
    /// What the rate lets through, and how long until that is some more.
    pub(super) tokens: u32,
    pub(super) tokens_in: Duration,
    /// What the breaker lets through.
    pub(super) permit: Permit,
    /// Whether the destination is known to be disabled.
    pub(super) is_gone: bool,
    /// Until its secrets are looked at again that cannot be read.
    pub(super) unread_for: Option<Duration>,
    /// Until the database is asked again that has failed.
    pub(super) failed_for: Option<Duration>,
}

/// How to wait for the next turn: also somebody's word ends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pause {
    pub(super) at_most: Duration,
    /// It ends as well once no more than these are claimed.
    pub(super) claimed: Option<usize>,
}

impl Seen {
    /// How many deliveries to claim.
    pub(super) fn deliveries(&self) -> u32 {
        let is_awaited = self.was_full || (self.is_woken && self.woken_in.is_zero());
        let is_time = self.poll_in.is_zero() || (is_awaited && self.has_room());
        if !is_time {
            return 0;
        }
        let free = self.claimed_max.saturating_sub(self.claimed);
        self.batch.min(u32::try_from(free).unwrap_or(u32::MAX)).min(self.allowed())
    }

    /// How long to wait.
    pub(super) fn pause(&self) -> Pause {
        let has_none = self.claimed >= self.claimed_max;
        let barred = self.barred();
        let at_most = match (self.failed_for, barred) {
            (Some(failed_for), _) => failed_for,
            (None, Some(barred)) if self.was_full => barred.min(UPKEEP),
            (None, Some(barred)) => barred.max(self.poll_in).min(UPKEEP),
            (None, None) if has_none => UPKEEP,
            (None, None) => self.poll_in.min(UPKEEP),
        };
        let is_free = barred.is_none() && self.failed_for.is_none();
        let goes_at_once = is_free && self.is_woken && self.has_room();
        let at_most = if goes_at_once { at_most.min(self.woken_in) } else { at_most };
        let is_awaited = self.was_full || self.is_woken;
        let some = if is_awaited { self.some() } else { 1 };
        let waits_for_room = is_free && (self.was_full || has_none);
        Pause {
            at_most: at_most.max(PAUSE_MIN),
            claimed: waits_for_room.then(|| self.claimed_max.saturating_sub(some)),
        }
    }

    /// Whether there is enough of it for a claim that somebody's word or a full one
    /// before it is the cause of.
    fn has_room(&self) -> bool {
        self.claimed_max.saturating_sub(self.claimed) >= self.some()
            && self.bytes_free >= self.bytes_max / FREE_PART
    }

    fn some(&self) -> usize {
        (self.claimed_max / FREE_PART).max(1)
    }

    /// How many deliveries the destination, its breaker and its rate let through.
    fn allowed(&self) -> u32 {
        match self.permit {
            _ if self.is_gone || self.unread_for.is_some() => 0,
            Permit::Any => self.tokens,
            Permit::Probe => self.tokens.min(1),
            Permit::Nothing(_) => 0,
        }
    }

    /// For how long nothing is let through, as far as that is known.
    fn barred(&self) -> Option<Duration> {
        match self.permit {
            _ if self.is_gone => Some(UPKEEP),
            _ if self.unread_for.is_some() => self.unread_for,
            Permit::Any | Permit::Probe => Some(self.tokens_in).filter(|wait| !wait.is_zero()),
            Permit::Nothing(wait) => Some(wait.unwrap_or(self.poll)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// Nothing is claimed, and a look was made 50 ms ago.
    const QUIET: Seen = Seen {
        claimed: 0,
        claimed_max: 40,
        bytes_free: 1_000,
        bytes_max: 1_000,
        batch: 100,
        poll: millis(200),
        poll_in: millis(150),
        woken_in: Duration::ZERO,
        was_full: false,
        is_woken: false,
        tokens: u32::MAX,
        tokens_in: Duration::ZERO,
        permit: Permit::Any,
        is_gone: false,
        unread_for: None,
        failed_for: None,
    };
    const DUE: Seen = Seen { poll_in: Duration::ZERO, ..QUIET };
    const FULL: Seen = Seen { was_full: true, ..QUIET };
    const WOKEN: Seen = Seen { is_woken: true, ..QUIET };

    #[test]
    fn a_claim_has_a_cause_and_room() {
        for (seen, expected, why) in [
            (QUIET, 0, "nobody asks"),
            (DUE, 40, "its time has come"),
            (Seen { batch: 7, ..DUE }, 7, "no more than a batch"),
            (Seen { claimed: 39, ..DUE }, 1, "due, whatever the room"),
            (Seen { claimed: 40, ..DUE }, 0, "no hand"),
            (FULL, 40, "there was more"),
            (Seen { claimed: 30, ..FULL }, 10, "a quarter is free"),
            (Seen { claimed: 31, ..FULL }, 0, "less than that"),
            (Seen { bytes_free: 249, ..FULL }, 0, "no room for bodies"),
            (WOKEN, 40, "somebody's word"),
            (Seen { woken_in: millis(3), ..WOKEN }, 0, "too soon behind the last one"),
            (Seen { tokens: 3, ..DUE }, 3, "by its rate"),
            (Seen { permit: Permit::Probe, ..DUE }, 1, "a probe"),
            (Seen { permit: Permit::Probe, tokens: 0, ..DUE }, 0, "a probe costs a token"),
            (Seen { permit: Permit::Nothing(None), ..FULL }, 0, "the breaker is open"),
            (Seen { is_gone: true, ..DUE }, 0, "it is disabled"),
            (Seen { unread_for: Some(millis(0)), ..DUE }, 0, "a secret cannot be read"),
        ] {
            assert_eq!(seen.deliveries(), expected, "{why}");
        }
    }

    #[test]
    fn a_pause_ends_with_what_it_waits_for() {
        let pause = |at_most, claimed| Pause { at_most: millis(at_most), claimed };
        let failed_for = Some(millis(5_000));
        for (seen, expected, why) in [
            (QUIET, pause(150, None), "the next look"),
            (DUE, pause(1, None), "at once"),
            (Seen { poll_in: millis(9_000), ..QUIET }, pause(500, None), "upkeep comes first"),
            (FULL, pause(150, Some(30)), "a quarter free"),
            (Seen { claimed: 40, ..DUE }, pause(500, Some(39)), "any hand, not the time"),
            (Seen { claimed: 40, ..WOKEN }, pause(500, Some(30)), "as many as make a claim"),
            (WOKEN, pause(1, None), "woken"),
            (Seen { woken_in: millis(4), ..WOKEN }, pause(4, None), "woken, a little later"),
            (Seen { claimed: 31, ..WOKEN }, pause(150, None), "woken, and no room"),
            (Seen { tokens_in: millis(300), ..QUIET }, pause(300, None), "the rate"),
            (Seen { tokens_in: millis(20), ..QUIET }, pause(150, None), "the look is later"),
            (Seen { tokens_in: millis(20), ..FULL }, pause(20, None), "the rate alone"),
            (Seen { permit: Permit::Nothing(None), ..DUE }, pause(200, None), "a look each time"),
            (Seen { is_gone: true, ..WOKEN }, pause(500, None), "until it is enabled"),
            (Seen { unread_for: Some(millis(90)), ..FULL }, pause(90, None), "its secrets"),
            (Seen { unread_for: Some(millis(9_000)), ..DUE }, pause(500, None), "upkeep"),
            (Seen { failed_for, ..FULL }, pause(5_000, None), "the database"),
        ] {
            assert_eq!(seen.pause(), expected, "{why}");
        }
        // One at a time: the end of the one is what the next one waits for.
        let one = Seen { claimed: 1, claimed_max: 1, ..FULL };
        assert_eq!(one.pause(), pause(500, Some(0)));
        assert_eq!(Seen { claimed: 0, ..one }.deliveries(), 1);
    }
}

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Whether a destination wants anything, as far as its processor knows.
#[derive(Debug, Default)]
pub(super) struct Standing(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// Answers 410 that are not written down yet.
    unwritten: usize,
    /// As its row said last.
    is_disabled: bool,
    /// How often something was learnt, so that an older look changes nothing.
    learnt: u64,
}

/// When a look at the row began.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look(u64);

impl Standing {
    /// It has answered 410.
    pub(super) fn gone(&self) {
        let mut known = self.known();
        known.unwritten += 1;
        known.learnt += 1;
    }

    /// Ends of attempts are written down, among them so many answers 410.
    pub(super) fn written(&self, gone: usize, is_disabled: bool) {
        let mut known = self.known();
        known.unwritten -= gone;
        known.is_disabled |= is_disabled;
        known.learnt += u64::from(gone > 0 || is_disabled);
    }

    /// Before its row is looked at.
    pub(super) fn look(&self) -> Look {
        Look(self.known().learnt)
    }

    /// What the row said.
    pub(super) fn seen(&self, look: Look, is_disabled: bool) {
        let mut known = self.known();
        if look.0 == known.learnt {
            known.is_disabled = is_disabled;
        }
    }

    /// Whether an answer 410 is about to be written down.
    pub(super) fn is_gone(&self) -> bool {
        self.known().unwritten > 0
    }

    /// Whether nothing is to be sent.
    pub(super) fn is_closed(&self) -> bool {
        let known = self.known();
        known.unwritten > 0 || known.is_disabled
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_learnt_since_a_look_began_outlasts_it() {
        let standing = Standing::default();
        let early = standing.look();
        standing.gone();
        assert!(standing.is_closed() && standing.is_gone());
        standing.written(1, true);
        assert!(standing.is_closed() && !standing.is_gone());
        standing.seen(early, false);
        assert!(standing.is_closed(), "the look was from before the answer");
        standing.seen(standing.look(), false);
        assert!(!standing.is_closed(), "somebody has enabled it");
    }

    #[test]
    fn an_answer_whose_claim_was_lost_closes_nothing_for_good() {
        let standing = Standing::default();
        standing.gone();
        standing.written(1, false);
        assert!(!standing.is_closed());
        standing.seen(standing.look(), true);
        assert!(standing.is_closed());
    }
}

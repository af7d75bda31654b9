//! Which claims may have parked events without a dead letter, and when to look.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard},
    time::Instant,
};

use tokio::{sync::Notify, time::sleep_until};

use crate::sql::ClaimKey;

/// Where partitions say what they have claimed and parked. Never waits.
#[derive(Clone, Debug, Default)]
pub(crate) struct Desk {
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// By position.
    claims: Mutex<BTreeMap<i32, Claim>>,
    changed: Notify,
}

#[derive(Debug)]
struct Claim {
    key: ClaimKey,
    due: Option<Instant>,
}

/// A claim that is known to the desk until this is dropped.
#[derive(Debug)]
pub(crate) struct Hold {
    desk: Desk,
    key: ClaimKey,
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.desk.forget(self.key);
    }
}

impl Desk {
    /// A partition was claimed. `any`: something of it is parked.
    pub(crate) fn claimed(&self, key: ClaimKey, any: bool) -> Hold {
        let due = any.then(Instant::now);
        self.claims().insert(key.position, Claim { key, due });
        self.inner.changed.notify_one();
        Hold { desk: self.clone(), key }
    }

    /// An event of the position was parked.
    pub(crate) fn parked(&self, position: i32) {
        if let Some(claim) = self.claims().get_mut(&position) {
            claim.due_at(Instant::now());
        }
        self.inner.changed.notify_one();
    }

    /// Waits until there is somewhere to look.
    pub(super) async fn due(&self) {
        loop {
            let at = self.claims().values().filter_map(|claim| claim.due).min();
            match at {
                Some(at) if at <= Instant::now() => return,
                Some(at) => tokio::select! {
                    () = self.inner.changed.notified() => {}
                    () = sleep_until(at.into()) => {}
                },
                None => self.inner.changed.notified().await,
            }
        }
    }

    /// The claim to look at now that has waited longest. What is parked from
    /// here on makes it due again.
    pub(super) fn next(&self, now: Instant) -> Option<ClaimKey> {
        let mut claims = self.claims();
        let due = claims.values_mut().filter(|claim| claim.due.is_some_and(|at| at <= now));
        let claim = due.min_by_key(|claim| claim.due)?;
        claim.due = None;
        Some(claim.key)
    }

    /// Looks again, at this time at the latest.
    pub(super) fn again(&self, key: ClaimKey, at: Instant) {
        if let Some(claim) = self.claims().get_mut(&key.position).filter(|claim| claim.is(key)) {
            claim.due_at(at);
        }
    }

    /// The claim has ended.
    pub(super) fn forget(&self, key: ClaimKey) {
        let mut claims = self.claims();
        if claims.get(&key.position).is_some_and(|claim| claim.is(key)) {
            claims.remove(&key.position);
        }
    }

    /// Whether it lasts, as far as is known here.
    pub(super) fn has(&self, position: i32, epoch: i64) -> bool {
        self.claims().get(&position).is_some_and(|claim| claim.key.epoch == epoch)
    }

    fn claims(&self) -> MutexGuard<'_, BTreeMap<i32, Claim>> {
        self.inner.claims.lock().expect("no code panics while it holds the lock")
    }
}

impl Claim {
    fn is(&self, key: ClaimKey) -> bool {
        self.key.epoch == key.epoch
    }

    /// At the latest.
    fn due_at(&mut self, at: Instant) {
        self.due = Some(self.due.map_or(at, |due| due.min(at)));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::FutureExt;

    use super::*;

    fn key(position: i32, epoch: i64) -> ClaimKey {
        ClaimKey { position, epoch, next_offset: 0, leader_epoch: None }
    }

    #[test]
    fn only_claims_with_something_parked_are_looked_at_and_each_once() {
        let desk = Desk::default();
        let _holds = [desk.claimed(key(1, 1), false), desk.claimed(key(2, 1), true)];
        let now = || Instant::now() + Duration::from_millis(1);
        assert_eq!(desk.next(now()), Some(key(2, 1)));
        assert_eq!(desk.next(now()), None);
        assert_eq!(desk.due().now_or_never(), None);
        desk.parked(1);
        assert_eq!(desk.due().now_or_never(), Some(()));
        assert_eq!(desk.next(now()), Some(key(1, 1)));
        desk.parked(9);
        assert_eq!(desk.next(now()), None, "nobody has claimed it");
    }

    #[tokio::test]
    async fn a_look_that_is_put_off_comes_earlier_where_something_is_parked() {
        let desk = Desk::default();
        let _hold = desk.claimed(key(1, 1), true);
        let later = Instant::now() + Duration::from_secs(60);
        assert_eq!(desk.next(Instant::now()), Some(key(1, 1)));
        desk.again(key(1, 1), later);
        assert_eq!(desk.due().now_or_never(), None);
        desk.parked(1);
        desk.again(key(1, 1), later);
        assert_eq!(desk.due().now_or_never(), Some(()));
    }

    #[test]
    fn an_older_claim_neither_ends_nor_puts_off_the_newer_one() {
        let desk = Desk::default();
        let old = desk.claimed(key(1, 1), true);
        let _new = desk.claimed(key(1, 2), true);
        drop(old);
        desk.forget(key(1, 1));
        assert!(desk.has(1, 2) && !desk.has(1, 1));
        assert_eq!(desk.next(Instant::now()), Some(key(1, 2)));
        desk.again(key(1, 1), Instant::now());
        assert_eq!(desk.next(Instant::now()), None);
    }

    #[test]
    fn one_that_is_put_off_comes_behind_the_others() {
        let desk = Desk::default();
        let _holds = [1, 2, 3].map(|position| desk.claimed(key(position, 1), true));
        let mut seen = Vec::new();
        for _ in 0..4 {
            let now = Instant::now() + Duration::from_millis(1);
            let claim = desk.next(now).unwrap();
            desk.again(claim, Instant::now());
            seen.push(claim.position);
        }
        assert_eq!(seen, [1, 2, 3, 1]);
    }

    #[test]
    fn what_is_dropped_is_not_looked_at() {
        let desk = Desk::default();
        drop(desk.claimed(key(1, 1), true));
        assert_eq!(desk.next(Instant::now()), None);
    }
}

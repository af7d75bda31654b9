use std::{
    collections::VecDeque,
    future::pending,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use axum::{
    Router,
    body::Bytes,
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::post,
};
use tokio::time::sleep;

/// Shorter than a caller waits.
const SLOW: Duration = Duration::from_millis(300);

/// What goes wrong with a request to a server of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// 503, and nothing is done.
    Fail,
    /// It is done, and the answer never comes.
    Lose,
    /// It is done, and answered after a while.
    Slow,
    /// It is done when nobody waits for it any more.
    Late,
}

/// What goes wrong with the requests to a server of others: what it is told to,
/// or some of them. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Faults {
    told: Arc<Mutex<VecDeque<Fault>>>,
    count: Arc<AtomicU64>,
    percent: u64,
    late: Duration,
}

impl Fault {
    const ALL: [Self; 4] = [Self::Fail, Self::Lose, Self::Slow, Self::Late];

    fn name(self) -> &'static str {
        match self {
            Self::Fail => "fail",
            Self::Lose => "lose",
            Self::Slow => "slow",
            Self::Late => "late",
        }
    }
}

impl Faults {
    /// Of 100 requests so many have a fault; what is late is done after that time,
    /// which should be longer than a caller waits.
    #[must_use]
    pub fn new(percent: u64, late: Duration) -> Self {
        Self { told: Arc::default(), count: Arc::default(), percent, late }
    }

    /// `POST /faults` with names, one in each line, for the next requests.
    pub fn router(&self) -> Router {
        let told = Arc::clone(&self.told);
        let tell = move |body: Bytes| {
            let told = Arc::clone(&told);
            async move { hear(&told, &body) }
        };
        Router::new().route("/faults", post(tell))
    }

    /// Does the work with the fault whose turn it is. What was begun is ended,
    /// whether or not the caller waits.
    pub async fn around(&self, work: impl Future<Output = Response> + Send + 'static) -> Response {
        let fault = self.next();
        if fault == Some(Fault::Fail) {
            return StatusCode::SERVICE_UNAVAILABLE.into_response();
        }
        let late = self.late;
        let done = tokio::spawn(async move {
            if fault == Some(Fault::Late) {
                sleep(late).await;
            }
            work.await
        });
        let Ok(answer) = done.await else {
            return StatusCode::INTERNAL_SERVER_ERROR.into_response();
        };
        match fault {
            Some(Fault::Lose | Fault::Late) => pending().await,
            Some(Fault::Slow) => sleep(SLOW).await,
            Some(Fault::Fail) | None => {}
        }
        answer
    }

    fn next(&self) -> Option<Fault> {
        let told = self.told.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        let drawn = || {
            let number = scatter(self.count.fetch_add(1, Ordering::Relaxed));
            let is_hit = number % 100 < self.percent;
            is_hit.then(|| Fault::ALL[(number / 100 % 4) as usize])
        };
        told.or_else(drawn)
    }
}

fn hear(told: &Mutex<VecDeque<Fault>>, body: &[u8]) -> StatusCode {
    let Ok(text) = std::str::from_utf8(body) else { return StatusCode::BAD_REQUEST };
    let known = |name: &str| Fault::ALL.into_iter().find(|fault| fault.name() == name.trim());
    let faults: Option<Vec<Fault>> = text.lines().map(known).collect();
    let Some(faults) = faults else { return StatusCode::BAD_REQUEST };
    told.lock().unwrap_or_else(PoisonError::into_inner).extend(faults);
    StatusCode::NO_CONTENT
}

/// The finalizer of SplitMix64: numbers in a row become numbers all over.
fn scatter(number: u64) -> u64 {
    let mut z = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_hundred_about_as_many_have_a_fault_as_asked_for() {
        let faults = Faults::new(20, Duration::ZERO);
        let all: Vec<Fault> = (0..1_000).filter_map(|_| faults.next()).collect();
        assert!((150..250).contains(&all.len()), "{}", all.len());
        assert!(Fault::ALL.iter().all(|fault| all.contains(fault)));
        assert_eq!(Faults::new(0, Duration::ZERO).next(), None);
    }

    #[test]
    fn what_is_told_comes_first_and_in_its_order() {
        let faults = Faults::new(0, Duration::ZERO);
        assert_eq!(hear(&faults.told, b"late\nfail"), StatusCode::NO_CONTENT);
        assert_eq!(hear(&faults.told, b"slow\nsleep"), StatusCode::BAD_REQUEST);
        assert_eq!([faults.next(), faults.next()], [Some(Fault::Late), Some(Fault::Fail)]);
        assert_eq!(faults.next(), None);
    }
}

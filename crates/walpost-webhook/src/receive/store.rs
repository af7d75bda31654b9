//! An event in the database: one transaction, and what is done where it fails.

use std::{fmt, panic::AssertUnwindSafe, time::Duration};

use futures_util::{FutureExt, future::join};
use tokio::time::sleep;
use tokio_postgres::{Client, IsolationLevel, Transaction};
use walpost_inbox::{
    Applied, ApplyError, ClaimTerms, Duplicate, Error, Handler, HandlerError, Inbox, Insert,
    NewEvent, State,
};

use super::{OnChanged, problem::Problem, receiver::Shared};
use crate::failpoint::Failpoint;

/// The type of what `walpost webhook test` sends. Who has a handler for it gets it.
const TRIAL: &str = "walpost.test";
/// How often a transaction that met another one is made again at once.
const CONFLICTS_MAX: u32 = 5;
/// Between those, doubling.
const CONFLICT_FIRST: Duration = Duration::from_millis(5);

/// What is answered with 200.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Stored {
    /// It is in the inbox, for a processor.
    Pending,
    /// Its effect is committed.
    Succeeded,
    /// It is in the inbox as one that the handler gave up.
    GivenUp,
    /// It was there.
    Duplicate(State),
    /// It was there with other contents, which its source may do.
    Changed(State),
    /// It was no event but a trial: all but the end was done, and nothing is kept.
    Trial,
    /// It is no event.
    Challenge(String),
}

impl Stored {
    /// As a label.
    pub(super) fn outcome(&self) -> &'static str {
        match self {
            Self::Pending => "stored",
            Self::Succeeded => "processed",
            Self::GivenUp => "given_up",
            Self::Duplicate(_) => "duplicate",
            Self::Changed(_) => "changed",
            Self::Trial => "trial",
            Self::Challenge(_) => "challenge",
        }
    }
}

/// Where events of one source go, and by whom they are applied at once.
pub(super) struct Store<'a, H> {
    pub(super) shared: &'a Shared,
    pub(super) inbox: &'a Inbox,
    pub(super) handler: &'a H,
    pub(super) on_changed: OnChanged,
}

/// Why a transaction has stored nothing, as far as is known.
enum Failed {
    /// It met another one.
    Conflict(String),
    /// The connection, or the server, is away.
    Away(String),
    /// The same while it committed, so that nobody knows.
    InCommit(String),
    /// The handler says that something else is away.
    Later(String),
    /// The handler will never apply the event.
    GivenUp(HandlerError),
    /// The connection may be in the middle of something.
    Panicked,
    Refused(String),
    /// The event is what cannot be stored.
    Unfit(String),
}

impl<H: Handler> Store<'_, H> {
    /// Stores the event, or says why not. If this future is dropped, its
    /// transaction is rolled back, unless its COMMIT is on its way.
    pub(super) async fn store(&self, event: &NewEvent) -> Result<Stored, Problem> {
        let (mut conflicts, mut is_fresh, mut given_up) = (0, false, None);
        let mut pause = CONFLICT_FIRST;
        loop {
            let mut lent = self.shared.connections.get().await.map_err(|error| away(&error))?;
            let failed = match self.attempt(lent.client(), event, given_up.as_ref()).await {
                Ok(stored) => {
                    lent.give_back();
                    return self.judged(stored);
                }
                Err(failed) => failed,
            };
            let is_used = lent.is_used;
            match &failed {
                Failed::Away(_) | Failed::InCommit(_) | Failed::Later(_) | Failed::Panicked => {
                    drop(lent);
                }
                _ => lent.give_back(),
            }
            match failed {
                Failed::Conflict(_) if conflicts < CONFLICTS_MAX => {
                    conflicts += 1;
                    sleep(pause).await;
                    pause *= 2;
                }
                Failed::Away(_) if is_used && !is_fresh => {
                    is_fresh = true;
                    self.shared.connections.forget_idle();
                }
                Failed::GivenUp(why) => given_up = Some(why),
                Failed::Conflict(reason)
                | Failed::Away(reason)
                | Failed::InCommit(reason)
                | Failed::Later(reason) => return Err(away(&reason)),
                Failed::Panicked => return Err(failed_for("the handler panicked")),
                Failed::Refused(reason) => return Err(failed_for(&reason)),
                Failed::Unfit(detail) => return Err(Problem::Unfit { detail }),
            }
        }
    }

    async fn attempt(
        &self,
        client: &mut Client,
        event: &NewEvent,
        given_up: Option<&HandlerError>,
    ) -> Result<Stored, Failed> {
        // A role may have another level, under which a twin is no duplicate.
        let tx = client.build_transaction().isolation_level(IsolationLevel::ReadCommitted);
        let tx = tx.start().await.map_err(of_driver)?;
        // Both go out before an answer is waited for, in this order.
        let bounds = bounds(self.shared.settings.answer_within);
        let (bounded, written) =
            join(tx.batch_execute(&bounds), self.write(&tx, event, given_up)).await;
        bounded.map_err(of_driver)?;
        let stored = written?;
        if stored == Stored::Pending && event.event_type() == TRIAL {
            tx.rollback().await.map_err(of_driver)?;
            return Ok(Stored::Trial);
        }
        Failpoint::Written.reached();
        tx.commit().await.map_err(in_commit)?;
        Failpoint::Committed.reached();
        Ok(stored)
    }

    async fn write(
        &self,
        tx: &Transaction<'_>,
        event: &NewEvent,
        given_up: Option<&HandlerError>,
    ) -> Result<Stored, Failed> {
        let lease_ms = self.shared.settings.answer_within.as_millis();
        let lease_ms = u32::try_from(lease_ms).unwrap_or(u32::MAX).saturating_add(1_000);
        let terms = ClaimTerms::new("webhook").lease_ms(lease_ms);
        if let Some(why) = given_up {
            let insert = self.inbox.insert_given_up(tx, event, why, &terms).await?;
            return Ok(match insert {
                Insert::Duplicate(found) => of_duplicate(found),
                _ => {
                    let reason = why.to_string();
                    tracing::error!(?event, reason, "an event was given up as it was received");
                    Stored::GivenUp
                }
            });
        }
        let applying = self.inbox.insert_and_apply(tx, event, self.handler, &terms);
        match AssertUnwindSafe(applying).catch_unwind().await {
            Ok(Ok(Applied::Succeeded(_))) => Ok(Stored::Succeeded),
            Ok(Ok(Applied::Duplicate(found))) => Ok(of_duplicate(found)),
            Ok(Ok(_)) => Ok(Stored::Pending),
            Ok(Err(ApplyError::Handler(error))) => Err(of_handler(error)),
            Ok(Err(ApplyError::Inbox(error))) => Err(error.into()),
            Ok(Err(error)) => Err(Failed::Refused(error.to_string())),
            Err(_) => Err(Failed::Panicked),
        }
    }

    fn judged(&self, stored: Stored) -> Result<Stored, Problem> {
        match (stored, self.on_changed) {
            (Stored::Changed(_), OnChanged::Refuse) => Err(Problem::IdReused),
            (stored, _) => Ok(stored),
        }
    }
}

/// What waits for a twin, or is paused, shall not stay in the way for longer than
/// anybody waits for the answer. A role may have bounds of its own.
fn bounds(limit: Duration) -> String {
    let limit_ms = limit.as_millis();
    let bound = |name: &str| {
        format!(
            "select set_config('{name}', '{limit_ms}', true) where current_setting('{name}') = '0'"
        )
    };
    [bound("lock_timeout"), bound("idle_in_transaction_session_timeout")].join("; ")
}

fn of_duplicate(found: Duplicate) -> Stored {
    if found.is_same { Stored::Duplicate(found.state) } else { Stored::Changed(found.state) }
}

fn of_driver(error: tokio_postgres::Error) -> Failed {
    let error = HandlerError::from(error);
    let reason = error.to_string();
    match (error.is_conflict(), error.is_transient()) {
        (true, _) => Failed::Conflict(reason),
        (_, true) => Failed::Away(reason),
        (false, false) => Failed::Refused(reason),
    }
}

fn in_commit(error: tokio_postgres::Error) -> Failed {
    // With a SQLSTATE it was refused, and is rolled back.
    let is_known = error.code().is_some();
    match of_driver(error) {
        Failed::Away(reason) if !is_known => Failed::InCommit(reason),
        failed => failed,
    }
}

fn of_handler(error: HandlerError) -> Failed {
    if error.is_final() {
        return Failed::GivenUp(error);
    }
    let reason = error.to_string();
    match (error.is_conflict(), error.is_transient()) {
        (true, _) => Failed::Conflict(reason),
        (_, true) => Failed::Later(reason),
        (false, false) => Failed::Refused(reason),
    }
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        let text = error.to_string();
        match error {
            Error::Bounds { .. } | Error::Nul { .. } => Self::Unfit(text),
            Error::Conflict { .. } => Self::Conflict(text),
            Error::Unavailable { .. } | Error::NotMigrated { .. } | Error::Denied { .. } => {
                Self::Away(text)
            }
            _ => Self::Refused(text),
        }
    }
}

fn away(reason: &dyn fmt::Display) -> Problem {
    tracing::error!(%reason, "an event was not stored for want of the database");
    Problem::StoreUnavailable
}

fn failed_for(reason: &str) -> Problem {
    tracing::error!(reason, "an event was not applied, and is not stored");
    Problem::HandlerFailed
}

use std::{fmt, sync::Arc, time::Duration};

use tokio_postgres::IsolationLevel;
use walpost_event::RetrySchedule;
use walpost_prepared::Types;

use crate::{Database, Error, Handler, Inbox, Processor, State, metrics::Metrics};

/// Attempts are counted up to here, where the schedule has no end.
const ATTEMPTS_MAX: u32 = 1_000_000;
/// What a lease has beyond the handler's time, for BEGIN, COMMIT and the state.
const LEASE_MARGIN_MS: u32 = 500;

/// In which order events are processed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Order {
    /// As they are due, several at a time, also by several processors.
    Concurrent,
    /// One after another in the order of their numbers, by however many
    /// processors with the same source. An event that waits for its next attempt
    /// holds up those behind it; one that was given up, or waits for review,
    /// does not. Numbers are in the order of insertion: where two transactions
    /// insert at once, the later number may commit, and be processed, first.
    Serial,
}

/// What becomes of an event that [`Handler::select`] does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnUnknown {
    /// It is ignored, for good.
    Ignore,
    /// It waits for an operator, who has it processed after all, or ignored.
    Review,
}

impl OnUnknown {
    pub(crate) fn state(self) -> State {
        match self {
            Self::Ignore => State::Ignored,
            Self::Review => State::Review,
        }
    }
}

/// What a [`Processor`] is to do. Made by [`Processor::builder`].
///
/// ```
/// use std::time::Duration;
/// use walpost_inbox::{
///     Database, Event, Handler, HandlerError, Head, OnUnknown, Processor, RetrySchedule,
///     tokio_postgres::Transaction,
/// };
///
/// struct Count;
///
/// impl Handler for Count {
///     type Work = ();
///
///     fn select(&self, event: &Head) -> Option<()> {
///         event.event_type().starts_with("invoice.").then_some(())
///     }
///
///     async fn process(
///         &self,
///         tx: &Transaction<'_>,
///         (): &(),
///         _: &Event,
///     ) -> Result<(), HandlerError> {
///         tx.execute("update total set events = events + 1", &[]).await?;
///         Ok(())
///     }
/// }
///
/// let processor = Processor::builder(Database::config("host=localhost user=app".parse()?))
///     .source("bank")
///     .concurrency(4)
///     .on_unknown(OnUnknown::Ignore)
///     .retries(RetrySchedule::new([1, 10, 60].map(Duration::from_secs)))
///     .handler(Count)?;
/// assert_eq!(processor.snapshot().succeeded, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Builder {
    pub(crate) settings: Settings,
    database: Database,
    inbox: Inbox,
}

/// What was set.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) name: String,
    pub(crate) source: Option<String>,
    pub(crate) order: Order,
    pub(crate) concurrency: u32,
    pub(crate) batch_events: u32,
    pub(crate) poll_ms: u32,
    pub(crate) lease_ms: u32,
    pub(crate) handler_timeout_ms: u32,
    pub(crate) retries: RetrySchedule,
    pub(crate) attempts_max: u32,
    pub(crate) on_unknown: OnUnknown,
    pub(crate) isolation: IsolationLevel,
    pub(crate) listen: bool,
}

impl Builder {
    pub(crate) fn new(database: Database) -> Self {
        let settings = Settings {
            name: "inbox".to_owned(),
            source: None,
            order: Order::Concurrent,
            concurrency: 8,
            batch_events: 32,
            poll_ms: 200,
            lease_ms: 60_000,
            handler_timeout_ms: 30_000,
            retries: RetrySchedule::new(
                [5, 30, 300, 1_800, 14_400, 14_400, 14_400].map(Duration::from_secs),
            ),
            attempts_max: 0,
            on_unknown: OnUnknown::Review,
            isolation: IsolationLevel::ReadCommitted,
            listen: true,
        };
        Self { settings, database, inbox: Inbox::new() }
    }

    /// Name of this processor, in the column `claimed_by` and the label
    /// `processor`; `inbox` unless set.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.settings.name = name.into();
        self
    }

    /// Schema of the tables, as stored, without quotes; `walpost` unless set.
    pub fn schema(mut self, schema: impl Into<String>) -> Self {
        self.inbox = Inbox::in_schema(schema);
        self
    }

    /// Events of this source alone; of all unless set.
    pub fn source(mut self, source: impl Into<String>) -> Self {
        self.settings.source = Some(source.into());
        self
    }

    /// Concurrent unless set. Processors of one table and source should agree.
    pub fn order(mut self, order: Order) -> Self {
        self.settings.order = order;
        self
    }

    /// How many events are worked on at a time, each on a connection of its own:
    /// 1 to 256, 8 unless set. With [`Order::Serial`] it is 1.
    pub fn concurrency(mut self, concurrency: u32) -> Self {
        self.settings.concurrency = concurrency;
        self
    }

    /// How many events a claim takes at most, as far as there are hands for
    /// them: 1 to 1,000, 32 unless set.
    pub fn batch_events(mut self, batch_events: u32) -> Self {
        self.settings.batch_events = batch_events;
        self
    }

    /// How long to wait before looking again, where nothing was found and
    /// nobody notifies: 10 to 60,000 ms, 200 unless set.
    pub fn poll_ms(mut self, poll_ms: u32) -> Self {
        self.settings.poll_ms = poll_ms;
        self
    }

    /// After which time a claim may be taken away: 1,000 to 86,400,000 ms,
    /// 60,000 unless set. At least 500 more than the handler's time.
    pub fn lease_ms(mut self, lease_ms: u32) -> Self {
        self.settings.lease_ms = lease_ms;
        self
    }

    /// How long the handler may take: 30,000 ms unless set. Then its attempt has
    /// failed, and the server ends its statement, unless the role has a
    /// `statement_timeout` of its own.
    pub fn handler_timeout_ms(mut self, handler_timeout_ms: u32) -> Self {
        self.settings.handler_timeout_ms = handler_timeout_ms;
        self
    }

    /// The waits before further attempts; 5 s, 30 s, 5 min, 30 min and three
    /// times 4 h unless set, so eight attempts. After the last an event is given
    /// up: it stays failed until an operator lets it go on.
    pub fn retries(mut self, retries: RetrySchedule) -> Self {
        self.settings.retries = retries;
        self
    }

    /// What becomes of unknown events; review unless set.
    pub fn on_unknown(mut self, on_unknown: OnUnknown) -> Self {
        self.settings.on_unknown = on_unknown;
        self
    }

    /// Isolation of the effects' transactions; `read committed` unless set.
    pub fn isolation(mut self, isolation: IsolationLevel) -> Self {
        self.settings.isolation = isolation;
        self
    }

    /// Opens no connection that listens; events are found by looking.
    pub fn without_listen(mut self) -> Self {
        self.settings.listen = false;
        self
    }

    /// The processor, with the two functions that are the application's.
    ///
    /// # Errors
    /// [`Error::Setting`] when a setting is out of its bounds.
    pub fn handler<H: Handler>(self, handler: H) -> Result<Processor<H>, Error> {
        let Self { mut settings, database, inbox } = self;
        settings.check()?;
        if settings.order == Order::Serial {
            settings.concurrency = 1;
        }
        settings.attempts_max = attempts_max(&settings.retries);
        let metrics = Metrics::new(&settings.name);
        let types = Types::default();
        let shared = Shared { settings, database, inbox, handler, metrics, types };
        Ok(Processor { shared: Arc::new(shared) })
    }
}

/// What all parts of a processor use.
pub(crate) struct Shared<H> {
    pub(crate) settings: Settings,
    pub(crate) database: Database,
    pub(crate) inbox: Inbox,
    pub(crate) handler: H,
    pub(crate) metrics: Metrics,
    /// Of the connections on which handlers write.
    pub(crate) types: Types,
}

impl<H> fmt::Debug for Shared<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("settings", &self.settings)
            .field("database", &self.database)
            .finish_non_exhaustive()
    }
}

impl Settings {
    fn check(&self) -> Result<(), Error> {
        let bounds: [(&'static str, u32, u32, u32); 5] = [
            ("concurrency", self.concurrency, 1, 256),
            ("batch_events", self.batch_events, 1, 1_000),
            ("poll_ms", self.poll_ms, 10, 60_000),
            ("lease_ms", self.lease_ms, 1_000, 86_400_000),
            ("handler_timeout_ms", self.handler_timeout_ms, 1, 86_400_000),
        ];
        for (setting, value, min, max) in bounds {
            if !(min..=max).contains(&value) {
                let problem = format!("it is {value}; it lies between {min} and {max}");
                return Err(Error::Setting { setting, problem });
            }
        }
        if self.lease_ms < self.handler_timeout_ms.saturating_add(LEASE_MARGIN_MS) {
            let problem = format!(
                "it is {}, and handler_timeout_ms {}; it is at least {LEASE_MARGIN_MS} more",
                self.lease_ms, self.handler_timeout_ms
            );
            return Err(Error::Setting { setting: "lease_ms", problem });
        }
        if self.name.len() > 63 || self.name.contains('\0') {
            let problem = "it has at most 63 bytes, and no NUL".to_owned();
            return Err(Error::Setting { setting: "name", problem });
        }
        Ok(())
    }
}

/// The attempt behind which `retries` has no other.
fn attempts_max(retries: &RetrySchedule) -> u32 {
    (1..ATTEMPTS_MAX).find(|failures| retries.delay(*failures, 0.0).is_none()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn builder() -> Builder {
        Processor::<()>::builder(Database::config("host=localhost".parse().unwrap()))
    }

    #[test]
    fn attempts_end_with_the_schedule() {
        assert_eq!(attempts_max(&builder().settings.retries), 8);
        assert_eq!(attempts_max(&RetrySchedule::new([])), 1);
        let endless = RetrySchedule::new([Duration::ZERO]).repeating_last();
        assert_eq!(attempts_max(&endless), u32::MAX);
    }

    #[test]
    fn settings_have_bounds() {
        builder().settings.check().unwrap();
        for (builder, setting) in [
            (builder().concurrency(0), "concurrency"),
            (builder().batch_events(1_001), "batch_events"),
            (builder().poll_ms(9), "poll_ms"),
            (builder().lease_ms(999), "lease_ms"),
            (builder().handler_timeout_ms(0), "handler_timeout_ms"),
            (builder().handler_timeout_ms(59_501), "lease_ms"),
            (builder().name("n".repeat(64)), "name"),
        ] {
            let error = builder.settings.check().unwrap_err();
            assert!(
                matches!(error, Error::Setting { setting: of, .. } if of == setting),
                "{error}"
            );
        }
    }
}

use std::fmt;

use walpost_consumer::{Builder, Event, Handler, tokio_postgres::Client};
use walpost_migrate::{Migrator, Set};

use crate::{
    Error, Repetition, Report, Step, TestDatabase, Way, Ways,
    difference::{Comparing, compare},
    step::Fault,
    tables::Scope,
    ways::compare_ways,
    world::{Plan, SCHEMA, Setup, World},
};

const MAX_ROWS: usize = 10_000;
const LIMIT_MS: u64 = 60_000;

/// A handler under test, with a database and a log of events.
///
/// What is delivered goes through the real [`Consumer`], on the log in memory
/// instead of Kafka: claims, fence, deduplication, transactions and parking are
/// those of production. See the [crate's documentation](crate).
///
/// [`Consumer`]: walpost_consumer::Consumer
pub struct HandlerTest<H> {
    /// As the setup has left it; copied for each comparison.
    base: TestDatabase,
    world: World,
    setup: Setup<H>,
    scope: Scope,
    contents: bool,
}

impl<H: Handler> HandlerTest<H> {
    /// Tests the handler that `handler` makes, on copies of `database` as it is
    /// now. Connections to it are ended.
    ///
    /// Like your process at its start, each consumer that a test starts gets a
    /// handler of its own: `handler` is called with the URL of the database
    /// that it works on, for handlers that bring a pool, or `|_| Shipping`. A
    /// handler that keeps its own state in a `static` is not told apart.
    ///
    /// # Errors
    /// If the consumer's tables cannot be created, or the database not copied.
    pub async fn new(
        database: TestDatabase,
        handler: impl Fn(&str) -> H + Send + Sync + 'static,
    ) -> Result<Self, Error> {
        let mut client = database.client().await?;
        let migrator = Migrator::new().schema(SCHEMA).set(Set::Consumer);
        migrator.migrate(&mut client).await.map_err(|error| Error::Migration {
            database: database.name().to_owned(),
            source: error.into(),
        })?;
        drop(client);
        let world = World::copy_of(&database).await?;
        Ok(Self {
            base: database,
            world,
            setup: Setup {
                make: Box::new(handler),
                configure: Box::new(|builder| builder),
                limit_ms: LIMIT_MS,
            },
            scope: Scope { tables: None, left_out: Default::default(), max_rows: MAX_ROWS },
            contents: false,
        })
    }

    /// Settings of the consumer, as your service has them. Name, topics, group,
    /// schema, database and Kafka are the test's. Unless set, attempts follow
    /// each other after a millisecond.
    ///
    /// ```no_run
    /// use walpost_consumer::Handler;
    /// use walpost_consumer_test::HandlerTest;
    ///
    /// fn as_in_production<H: Handler>(test: HandlerTest<H>) -> HandlerTest<H> {
    ///     test.consumer(|builder| builder.lanes(4).max_attempts(3))
    /// }
    /// ```
    #[must_use]
    pub fn consumer(
        mut self,
        configure: impl Fn(Builder) -> Builder + Send + Sync + 'static,
    ) -> Self {
        self.setup.configure = Box::new(configure);
        self
    }

    /// Compares these tables alone: names as `shipment`, or `app.shipment` in
    /// another schema than `public`. All but the consumer's own unless set; those of extensions are never.
    #[must_use]
    pub fn tables<N: Into<String>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.scope.tables = Some(names.into_iter().map(Into::into).collect());
        self
    }

    /// Leaves a column out when runs are compared, such as one that keeps the
    /// offset or the time.
    #[must_use]
    pub fn leave_out(mut self, table: &str, column: &str) -> Self {
        self.scope.left_out.insert((table.to_owned(), column.to_owned()));
        self
    }

    /// Most rows of all compared tables together; 10,000 unless set. A table of
    /// more than 64 MiB is refused in any case.
    #[must_use]
    pub fn max_rows(mut self, rows: usize) -> Self {
        self.scope.max_rows = rows;
        self
    }

    /// Longest time for one delivery, in milliseconds; 60,000 unless set.
    #[must_use]
    pub fn limit_ms(mut self, milliseconds: u64) -> Self {
        self.setup.limit_ms = milliseconds;
        self
    }

    /// Shows values of columns that differ, not only their names. Primary keys
    /// are always shown.
    #[must_use]
    pub fn show_contents(mut self) -> Self {
        self.contents = true;
        self
    }

    /// Delivers `events`, and waits until each is done.
    ///
    /// They are appended to their topics and partitions; offsets are given by the
    /// log. What was delivered before stays: an event that is delivered again is a
    /// copy of it at a later offset.
    ///
    /// # Errors
    /// If the consumer does not start, or takes too long. What the handler does
    /// is in the report.
    pub async fn deliver(&self, events: &[Event]) -> Result<Report, Error> {
        self.deliver_with(events, None).await
    }

    /// Deliveries in which the process dies at `step`.
    pub fn crash_at(&self, step: Step) -> Interrupted<'_, H> {
        Interrupted { test: self, fault: Fault::Crash(step) }
    }

    /// Deliveries in which the connection is lost at `step` and the process
    /// lives.
    pub fn disconnect_at(&self, step: Step) -> Interrupted<'_, H> {
        Interrupted { test: self, fault: Fault::Disconnect(step) }
    }

    /// Runs with the deduplication off.
    pub fn without_guard(&self) -> Unguarded<'_, H> {
        Unguarded { test: self }
    }

    /// Delivers `events` once undisturbed, and once for each of
    /// [`Way::INTERRUPTED`], each time to a fresh copy of the database, and
    /// compares what is in the tables.
    ///
    /// # Errors
    /// [`Error::Undisturbed`] if the handler halts or fails for ever even so,
    /// [`Error::Unsteady`] if it depends on more than its events, and those of
    /// [`deliver`](Self::deliver).
    pub async fn crash_at_every_step(&self, events: &[Event]) -> Result<Ways, Error> {
        self.ways(&Way::INTERRUPTED, events).await
    }

    /// The same for all ways: [`Way::REORDERED`] too.
    ///
    /// # Errors
    /// As [`crash_at_every_step`](Self::crash_at_every_step).
    pub async fn every_way(&self, events: &[Event]) -> Result<Ways, Error> {
        self.ways(&[&Way::REORDERED[..], &Way::INTERRUPTED[..]].concat(), events).await
    }

    /// The same for these ways.
    ///
    /// ```no_run
    /// use walpost_consumer::{Event, Handler};
    /// use walpost_consumer_test::{Error, HandlerTest, Step, Way};
    ///
    /// async fn dies<H: Handler>(test: &HandlerTest<H>, events: &[Event]) -> Result<(), Error> {
    ///     let ways = [Way::OneByOne, Way::Crash(Step::BeforeCommit)];
    ///     test.ways(&ways, events).await?.assert_same();
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`crash_at_every_step`](Self::crash_at_every_step).
    pub async fn ways(&self, ways: &[Way], events: &[Event]) -> Result<Ways, Error> {
        compare_ways(&self.base, &self.setup, &self.scope, self.contents, (events, ways)).await
    }

    /// The address of the database that [`deliver`](Self::deliver) works on.
    pub fn url(&self) -> &str {
        self.world.database.url()
    }

    /// A connection to it.
    pub fn client(&self) -> &Client {
        &self.world.client
    }

    /// One number from it, such as of `select count(*) from shipment`.
    ///
    /// # Errors
    /// What the server says, also of a value that is no `bigint`.
    pub async fn number(&self, query: &str) -> Result<i64, Error> {
        let asked = async { self.world.client.query_one(query, &[]).await?.try_get(0) };
        asked.await.map_err(|error| {
            Error::database("asking for a number failed; select one bigint", error)
        })
    }

    async fn deliver_with(&self, events: &[Event], fault: Option<Fault>) -> Result<Report, Error> {
        if events.is_empty() {
            return Err(Error::NoEvents);
        }
        self.world.append(events, 0);
        self.world.run(&self.setup, Plan { fault, ..Plan::default() }).await
    }
}

impl<H> fmt::Debug for HandlerTest<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HandlerTest({})", self.world.database.name())
    }
}

/// Deliveries that are interrupted. Made by [`HandlerTest::crash_at`] and
/// [`HandlerTest::disconnect_at`].
#[must_use]
pub struct Interrupted<'a, H> {
    test: &'a HandlerTest<H>,
    fault: Fault,
}

impl<H: Handler> Interrupted<'_, H> {
    /// [`HandlerTest::deliver`], interrupted in each of its transactions once.
    ///
    /// # Errors
    /// [`Error::NotReached`] if none came to the step.
    pub async fn deliver(&self, events: &[Event]) -> Result<Report, Error> {
        self.test.deliver_with(events, Some(self.fault)).await
    }
}

impl<H> fmt::Debug for Interrupted<'_, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Interrupted({:?})", self.fault)
    }
}

/// Runs with the deduplication off. Made by [`HandlerTest::without_guard`].
#[must_use]
pub struct Unguarded<'a, H> {
    test: &'a HandlerTest<H>,
}

impl<H: Handler> Unguarded<'_, H> {
    /// Applies `events` to a fresh copy of the database, and once more by a
    /// consumer that knows nothing of the first, and says which rows that
    /// changed: none if the transition itself is idempotent.
    ///
    /// Of a transition that is, even a copy that no guard knows is harmless:
    /// after a reset, or when effects were forgotten. Others need the guard, and
    /// that is what it is for.
    ///
    /// ```no_run
    /// use walpost_consumer::{Event, Handler};
    /// use walpost_consumer_test::{Error, HandlerTest};
    ///
    /// async fn repeats<H: Handler>(test: &HandlerTest<H>, events: &[Event]) -> Result<(), Error> {
    ///     let repetition = test.without_guard().twice(events).await?;
    ///     for change in &repetition.changes {
    ///         let (inserted, updated, deleted) = change.counts();
    ///         println!("{}: {inserted}, {updated}, {deleted}", change.table);
    ///     }
    ///     repetition.assert_idempotent();
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// [`Error::Undisturbed`] if the first run does not come to its end, and
    /// those of [`HandlerTest::deliver`].
    pub async fn twice(&self, events: &[Event]) -> Result<Repetition, Error> {
        if events.is_empty() {
            return Err(Error::NoEvents);
        }
        let HandlerTest { base, setup, scope, contents, .. } = self.test;
        let world = World::copy_of(base).await?;
        let tables = scope.tables(&world.client).await?;
        world.append(events, 0);
        let first = world.run(setup, Plan::default()).await?;
        if let Some(reason) = first.unfinished() {
            return Err(Error::Undisturbed { reason });
        }
        let before = scope.read(&world.client, &tables).await?;
        let second = world.run(setup, Plan { again: true, ..Plan::default() }).await?;
        let after = scope.read(&world.client, &tables).await?;
        let how = Comparing { whole: true, contents: *contents };
        let changes = compare(&tables, &before, &after, how);
        Ok(Repetition { first, second, changes })
    }
}

impl<H> fmt::Debug for Unguarded<'_, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Unguarded")
    }
}

use std::time::SystemTime;

use tokio_postgres::{Client, IsolationLevel};

use crate::{
    Entry, Error, Form, Migration, PlanError, Script, Set,
    names::Names,
    plan, render,
    sql::{self, Failure, Recorded},
};

const DEFAULT_NAME: &str = "walpost";
const DEFAULT_LOCK_TIMEOUT_MS: u32 = 60_000;
const MAX_LOCK_TIMEOUT_MS: u32 = 3_600_000;

/// Creates Walpost's tables and brings them up to date.
///
/// Default: [`Set::DEFAULT`] and what else the database has already, schema
/// `walpost`, publication `walpost`, 60 s for locks.
#[derive(Clone, Debug)]
pub struct Migrator {
    schema: String,
    publication: String,
    sets: Vec<Set>,
    /// Not what else the database has already.
    no_others: bool,
    form: Form,
    lock_timeout_ms: u32,
}

/// A migration that [`Migrator::migrate`] applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// Its set.
    pub set: Set,
    /// Its number.
    pub number: u32,
    /// Its name.
    pub name: &'static str,
}

/// How a migration stands in a database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// Its set.
    pub set: Set,
    /// Its number.
    pub number: u32,
    /// Its name.
    pub name: String,
    /// Whether it is applied.
    pub state: State,
    /// Which text was applied, where it has one for each form.
    pub form: Option<Form>,
}

/// Whether a migration is applied.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum State {
    /// Not yet.
    Pending,
    /// Applied.
    Applied {
        /// When, by the server's clock.
        at: SystemTime,
        /// By which role.
        by: String,
    },
    /// Applied with another text than this version has.
    Changed,
    /// Applied by a version that knows it; this one does not.
    Unknown,
}

/// A set that is to be brought up to date.
#[derive(Clone, Copy)]
struct Choice {
    set: Set,
    /// Not where nothing of it was ever applied.
    only_if_there: bool,
}

enum Turn {
    Applied(Applied),
    UpToDate,
}

/// What ends a turn early.
enum TurnError {
    Plan(PlanError),
    NotPartitioned,
    Failed(Failure),
}

impl Default for Migrator {
    fn default() -> Self {
        Self::new()
    }
}

impl Migrator {
    /// The defaults.
    pub fn new() -> Self {
        Self {
            schema: DEFAULT_NAME.to_owned(),
            publication: DEFAULT_NAME.to_owned(),
            sets: Set::DEFAULT.to_vec(),
            no_others: false,
            form: Form::Table,
            lock_timeout_ms: DEFAULT_LOCK_TIMEOUT_MS,
        }
    }

    /// Schema of all of Walpost's tables, as stored, without quotes.
    #[must_use]
    pub fn schema(mut self, schema: impl Into<String>) -> Self {
        self.schema = schema.into();
        self
    }

    /// Publication of the outbox, as stored, without quotes. A publication
    /// belongs to a database, so a second schema needs another one.
    #[must_use]
    pub fn publication(mut self, publication: impl Into<String>) -> Self {
        self.publication = publication.into();
        self
    }

    /// This set alone.
    #[must_use]
    pub fn set(self, set: Set) -> Self {
        self.sets([set])
    }

    /// These sets, in this order, and no others.
    #[must_use]
    pub fn sets(mut self, sets: impl IntoIterator<Item = Set>) -> Self {
        self.no_others = true;
        self.at_least(sets)
    }

    /// These sets in place of the default ones, and what else the database has
    /// already.
    #[must_use]
    pub fn at_least(mut self, sets: impl IntoIterator<Item = Set>) -> Self {
        self.sets = sets.into_iter().collect();
        self
    }

    /// A new outbox in partitions, one for each day. Which form a schema has is
    /// recorded with its first migration: one in partitions goes on without this,
    /// and printed SQL needs it each time.
    #[must_use]
    pub fn partitioned(mut self) -> Self {
        self.form = Form::Partitioned;
        self
    }

    /// How long to wait for another migrator, and for each lock on a table: 1
    /// to 3,600,000 ms.
    #[must_use]
    pub fn lock_timeout_ms(mut self, lock_timeout_ms: u32) -> Self {
        self.lock_timeout_ms = lock_timeout_ms;
        self
    }

    /// Applies what is missing and returns it, in the order applied.
    ///
    /// Each migration is a READ COMMITTED transaction of its own, which also
    /// takes the lock, looks what is missing, and records what it did. An error
    /// therefore leaves the migrations before it applied, and nothing of its
    /// own. The role becomes the owner of what is created; a missing schema,
    /// and the publication, need `create` on the database.
    ///
    /// # Errors
    /// See [`Error`]; each says what to do.
    pub async fn migrate(&self, client: &mut Client) -> Result<Vec<Applied>, Error> {
        let names = self.names()?;
        if !(1..=MAX_LOCK_TIMEOUT_MS).contains(&self.lock_timeout_ms) {
            return Err(Error::LockTimeoutBounds { lock_timeout_ms: self.lock_timeout_ms });
        }
        sql::check_server(client).await?;
        let mut done = Vec::new();
        for choice in self.choices() {
            loop {
                match self.turn(client, &names, choice).await {
                    Ok(Turn::Applied(applied)) => done.push(applied),
                    Ok(Turn::UpToDate) => break,
                    Err(TurnError::Plan(error)) => return Err(error.into()),
                    Err(TurnError::NotPartitioned) => {
                        return Err(Error::NotPartitioned { schema: self.schema.clone() });
                    }
                    Err(TurnError::Failed(failure)) => {
                        return Err(self.explain(client, &names, failure).await);
                    }
                }
            }
        }
        Ok(done)
    }

    /// Every migration of the sets, and those that were applied and are not
    /// known. Changes nothing.
    ///
    /// # Errors
    /// When a name cannot be used, or the tables cannot be read.
    pub async fn status(&self, client: &Client) -> Result<Vec<Status>, Error> {
        let names = self.names()?;
        match self.read_status(client, &names).await {
            Ok(status) => Ok(status),
            Err(failure) => Err(self.explain(client, &names, failure).await),
        }
    }

    /// The SQL of a set, for other tools: its [`Migrator::scripts`] one after
    /// another.
    ///
    /// Without `begin` and `commit`, which such tools add; with `psql`, run it
    /// with `--single-transaction --set ON_ERROR_STOP=1`.
    ///
    /// # Errors
    /// When a name cannot be used.
    pub fn render(&self, set: Set) -> Result<String, Error> {
        let scripts = self.scripts(set)?;
        Ok(scripts.iter().map(|script| script.sql.as_str()).collect::<Vec<_>>().join("\n"))
    }

    /// The SQL of a set, one script per migration, to be run in this order.
    ///
    /// # Errors
    /// When a name cannot be used.
    pub fn scripts(&self, set: Set) -> Result<Vec<Script>, Error> {
        let names = self.names()?;
        let script = |one| render::script(&names, set, one, self.form);
        Ok(set.migrations().iter().map(script).collect())
    }

    fn names(&self) -> Result<Names, Error> {
        Ok(Names::new(&self.schema, &self.publication)?)
    }

    /// Applies the first that is missing, in one transaction.
    async fn turn(
        &self,
        client: &mut Client,
        names: &Names,
        Choice { set, only_if_there }: Choice,
    ) -> Result<Turn, TurnError> {
        // What was applied must be read after the lock was waited for, which a
        // snapshot of the whole transaction would prevent.
        let tx = client
            .build_transaction()
            .isolation_level(IsolationLevel::ReadCommitted)
            .start()
            .await
            .map_err(sql::failure("beginning a transaction"))?;
        sql::lock(&tx, names, self.lock_timeout_ms).await?;
        if !sql::has_table(&tx, names).await? {
            // `if not exists` asks for the right to create even if it exists.
            if !sql::has_schema(&tx, names).await? {
                run(&tx, "creating the schema", &render::create_schema(names)).await?;
            }
            run(&tx, "creating the table migration", &render::create_table(names)).await?;
        }
        let recorded = sql::recorded(&tx, names, set).await?;
        if only_if_there && recorded.is_empty() {
            return Ok(Turn::UpToDate);
        }
        let entries: Vec<Entry> = recorded.into_iter().map(|one| one.entry).collect();
        let steps = plan(set, &entries, set.migrations()).map_err(TurnError::Plan)?;
        let form = plan::form(&entries, set.migrations()).unwrap_or(self.form);
        if set == Set::Relay && self.form == Form::Partitioned && form == Form::Table {
            return Err(TurnError::NotPartitioned);
        }
        let turn = match steps.first() {
            None => Turn::UpToDate,
            Some(migration) => {
                let Migration { number, name, .. } = **migration;
                let attempt = format!("migration {set}/{number:04}_{name}");
                run(&tx, &attempt, &names.fill(migration.text(form))).await?;
                run(&tx, &attempt, &render::insert_entry(names, set, migration, form)).await?;
                Turn::Applied(Applied { set, number, name })
            }
        };
        tx.commit().await.map_err(sql::failure("committing a migration"))?;
        Ok(turn)
    }

    async fn read_status(&self, client: &Client, names: &Names) -> Result<Vec<Status>, Failure> {
        let present = sql::has_table(client, names).await?;
        let mut all = Vec::new();
        for Choice { set, only_if_there } in self.choices() {
            let recorded =
                if present { sql::recorded(client, names, set).await? } else { Vec::new() };
            if !(only_if_there && recorded.is_empty()) {
                all.extend(status(set, recorded));
            }
        }
        Ok(all)
    }

    /// Those that were chosen; without a choice also those that the database has
    /// already, which would otherwise stay behind.
    fn choices(&self) -> Vec<Choice> {
        let others = Set::ALL.iter().filter(|set| !self.no_others && !self.sets.contains(set));
        let others = others.map(|set| Choice { set: *set, only_if_there: true });
        let chosen = self.sets.iter().map(|set| Choice { set: *set, only_if_there: false });
        chosen.chain(others).collect()
    }

    async fn explain(&self, client: &Client, names: &Names, failure: Failure) -> Error {
        sql::explain(client, names, self.lock_timeout_ms, failure).await
    }
}

impl From<Failure> for TurnError {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

async fn run(
    tx: &tokio_postgres::Transaction<'_>,
    attempt: &str,
    sql: &str,
) -> Result<(), Failure> {
    tx.batch_execute(sql).await.map_err(sql::failure(attempt))
}

fn status(set: Set, mut recorded: Vec<Recorded>) -> Vec<Status> {
    let mut all = Vec::new();
    for migration in set.migrations() {
        let at = recorded.iter().position(|one| one.entry.number == migration.number);
        let found = at.map(|index| recorded.remove(index));
        let form = found.as_ref().and_then(|one| migration.form_of(&one.entry.checksum));
        let state = match found {
            None => State::Pending,
            Some(_) if form.is_none() => State::Changed,
            Some(Recorded { at, by, .. }) => State::Applied { at, by },
        };
        let name = migration.name.to_owned();
        let form = form.filter(|_| migration.partitioned.is_some());
        all.push(Status { set, number: migration.number, name, state, form });
    }
    let unknown = |one: Recorded| Status {
        set,
        number: one.entry.number,
        name: one.entry.name,
        state: State::Unknown,
        form: None,
    };
    all.extend(recorded.into_iter().map(unknown));
    all
}

//! The tables are still those that the row has noted, at each snapshot that is taken
//! and each position that is written.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use serde_json::Value;
use tokio_postgres::types::Type;
use walpost_event::error_chain;
use walpost_postgres::Database;

use super::CheckpointStore;
use crate::{
    config::RelayConfig,
    error::RelayError,
    sql::{Parameter, Sql},
    wal::{
        membership, quote_identifier,
        relations::{self, Change, Fact, Facts, Noted, holds_older, how_to_publish},
    },
};

/// The first whose stream knows at once that a table has become a partition.
const NOTICES_PARTITIONS: u32 = 150_000;
/// To look into a partition that is new.
const LOOK_MAX: Duration = Duration::from_secs(5);

/// The relations of a session.
pub(crate) struct Watched {
    database: Database,
    config: RelayConfig,
    server_version: u32,
    /// What was there when the session began.
    at_start: BTreeSet<u32>,
    /// An SQL expression that changes with them.
    digest: String,
    state: Mutex<State>,
}

struct State {
    noted: Noted,
    /// Of the catalog that was last compared with what is noted.
    digest: Option<i64>,
}

impl Watched {
    /// Those that a session begins with; `before` is what the row has.
    pub(crate) fn new(
        database: &Database,
        config: &RelayConfig,
        server_version: u32,
        before: Option<&Noted>,
        facts: &Facts,
    ) -> Self {
        let noted = Noted::at_start(before, facts);
        Self {
            database: database.clone(),
            config: config.clone(),
            server_version,
            at_start: facts.oids(),
            digest: relations::digest(&config.tables, &noted.tables()),
            state: Mutex::new(State { noted, digest: None }),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From which transaction on the rows of a new partition are surely younger than
    /// its place; none where all are.
    async fn since(&self, sql: &Sql, table: &str, fact: &Fact) -> Result<Option<u64>, RelayError> {
        let (oid, attempt) = (fact.oid(), "looking at a new partition");
        // A partition that was made by the transaction that attached it nobody else
        // could fill before. Ids in the catalog are the lower halves.
        let query = format!(
            "select a.xmin::text = $1, (now.id - (now.id - $1::int8) % 4294967296 + 1)::text, \
             now.id::text from pg_attribute a, \
             (select pg_snapshot_xmax(pg_current_snapshot())::text::int8) now (id) \
             where a.attrelid = {oid} and a.attnum = -1"
        );
        let attached = fact.attached().unwrap_or_default();
        // A parent may have got its place later.
        let (is_direct, attached) = match attached.rsplit_once('/') {
            Some((_, last)) => (false, last),
            None => (true, attached),
        };
        let row = sql.opt(attempt, &query, &[(&attached, Type::TEXT)]).await?;
        let Some(row) = row else { return Err(gone(&self.config, fact)) };
        let is_own = is_direct && row.get(0);
        if !is_own && self.server_version < NOTICES_PARTITIONS && !self.at_start.contains(&oid) {
            // The stream of this session takes it for what it was.
            return Err(gone(&self.config, fact));
        }
        let text: &str = row.get(if is_own { 1 } else { 2 });
        let since: u64 = text.parse().expect("the server prints numbers");
        match self.holds_older((table, fact), since, is_own).await {
            Ok(false) => return Ok(None),
            Ok(true) => tracing::warn!(
                partition = fact.name(),
                next_step = how_to_publish(fact.name(), table),
                "a partition was attached that holds rows which no stream has brought; they \
                 are not published, and not pruned"
            ),
            Err(error) => tracing::warn!(
                partition = fact.name(),
                error = error_chain(&error),
                "cannot tell whether a new partition holds rows which no stream has brought; \
                 those that it holds now are not pruned"
            ),
        }
        Ok(Some(since))
    }

    /// Whether it holds a row that may be older than its place, on a session of its
    /// own, whose wait for a lock holds up nothing.
    async fn holds_older(
        &self,
        (table, fact): (&str, &Fact),
        since: u64,
        is_own: bool,
    ) -> Result<bool, RelayError> {
        let attempt = "looking into a new partition";
        let connected = tokio::time::timeout(LOOK_MAX, self.database.connect()).await;
        let client =
            connected.map_err(|_| RelayError::SqlTimeout { attempt, limit: LOOK_MAX })??;
        let sql = Sql::new(Arc::new(client), LOOK_MAX);
        sql.batch(attempt, "set lock_timeout = '500ms'; set statement_timeout = '4s'").await?;
        let (since, attached) = match is_own {
            true => (since, fact.attached()),
            // Whatever it holds may be.
            false => (u64::MAX, None),
        };
        let part = (table, fact.name(), fact.oid());
        Ok(holds_older(&sql, part, since, attached).await?.unwrap_or(true))
    }
}

fn gone(config: &RelayConfig, fact: &Fact) -> RelayError {
    let detail = format!("partition {} is new", fact.name());
    RelayError::TableChanged { pipeline: config.pipeline.clone(), detail }
}

impl CheckpointStore {
    /// The relations are these from now on, and are compared whenever something is
    /// taken for published.
    pub(crate) fn expect_relations(&mut self, watched: Watched) {
        let known = watched.state().noted.tables_json();
        self.publication = membership::expression(&watched.config, Some(&known));
        self.relations = Some(Arc::new(watched));
    }

    /// What the row is to say of them.
    pub(super) fn noted_relations(&self) -> Option<Value> {
        self.relations.as_ref().map(|watched| watched.state().noted.to_json())
    }

    /// An SQL expression that is what [`settled`](Self::settled) says as long as
    /// nothing has happened to them.
    pub(super) fn digest(&self) -> &str {
        self.relations.as_ref().map_or("0", |watched| &watched.digest)
    }

    /// The digest of the catalog that agrees with what is noted.
    pub(super) async fn settled(&self) -> Result<Option<i64>, RelayError> {
        let Some(watched) = &self.relations else { return Ok(None) };
        let digest = watched.state().digest;
        match digest {
            Some(digest) => Ok(Some(digest)),
            None => self.settle(watched).await.map(Some),
        }
    }

    /// Something has happened to them.
    pub(super) fn unsettle(&self) {
        if let Some(watched) = &self.relations {
            watched.state().digest = None;
        }
    }

    /// They are still what they were.
    pub(crate) async fn look_again(&self) -> Result<(), RelayError> {
        self.unsettle();
        self.settled().await.map(drop)
    }

    /// Compares them with the catalog, and notes which have come and gone.
    async fn settle(&self, watched: &Watched) -> Result<i64, RelayError> {
        let mut noted = watched.state().noted.clone();
        let facts = relations::read(&self.sql, &watched.config, &noted.tables()).await?;
        let before = noted.clone();
        match noted.change(&facts) {
            Change::Nothing => {}
            Change::Parts(parts) => {
                for fact in &parts {
                    let table = facts.name(fact.root()).unwrap_or_default();
                    let since = watched.since(&self.sql, table, fact).await?;
                    noted.add(fact, since);
                }
            }
            Change::Other(detail) => return Err(self.table_changed(detail)),
            Change::Unlogged(detail) => {
                note_unlogged(&self.sql, &watched.config).await?;
                return Err(self.table_changed(detail));
            }
        }
        for (name, now) in noted.renamed(&facts) {
            tracing::warn!(
                table = name,
                now,
                "an outbox table has another name; its events are published as before, and \
                 the next start needs it in `tables` under the name that it has then"
            );
        }
        noted.keep(&facts);
        if noted != before {
            self.note_relations(&noted).await?;
        }
        let mut state = watched.state();
        (state.noted, state.digest) = (noted, Some(facts.digest()));
        Ok(facts.digest())
    }

    async fn note_relations(&self, noted: &Noted) -> Result<(), RelayError> {
        let sql = format!(
            // Another process may have noted that a table was unlogged.
            "update {} set relations = $3::jsonb || case when relations @> '{{\"was_unlogged\": \
             true}}' then '{{\"was_unlogged\": true}}' else '{{}}' end::jsonb, \
             updated_at = clock_timestamp() where pipeline = $1 and token = $2",
            self.table
        );
        let noted = noted.to_json();
        let parameters: [Parameter<'_>; 3] =
            [(&self.pipeline, Type::TEXT), (&self.token, Type::UUID), (&noted, Type::JSONB)];
        let updated = self.execute("noting the outbox tables", &sql, &parameters).await?;
        self.owned(updated)
    }
}

/// Notes that a relation of the pipeline is unlogged, if one is: what was inserted
/// meanwhile is missing in the stream, whoever reads it.
pub(crate) async fn note_unlogged(sql: &Sql, config: &RelayConfig) -> Result<(), RelayError> {
    let update = format!(
        "update {}.checkpoint set relations = relations || '{{\"was_unlogged\": true}}', \
         updated_at = clock_timestamp() where pipeline = $1 and exists ( \
         select from jsonb_object_keys(relations -> 'parts') part join pg_class c \
         on c.oid = part::oid where c.relpersistence = 'u')",
        quote_identifier(&config.schema)
    );
    let pipeline = [(&config.pipeline as _, Type::TEXT)];
    sql.query("noting that a table is unlogged", &update, &pipeline).await.map(drop)
}

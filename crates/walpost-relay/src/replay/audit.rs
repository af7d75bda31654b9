use serde_json::Value as Json;
use tokio_postgres::{Row, types::Type};
use uuid::Uuid;

use super::filter::ReplayFilter;
use crate::{
    config::{RelayConfig, TableName},
    error::RelayError,
    sql::{Parameter, Sql},
};

/// Rows of one list.
const LIST_MAX: i64 = 1_000;
/// Details may name topics, which come from events.
const DETAIL_MAX_CHARS: usize = 1_000;

/// A replay as its row has it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ReplayRow {
    /// Its number.
    pub id: i64,
    /// The outbox table.
    pub source: String,
    /// What was asked for, as JSON.
    pub filter: Json,
    /// The topic that was named.
    pub to_topic: Option<String>,
    /// Most events a second.
    pub rate_per_s: u32,
    /// How it ended, if it has.
    pub state: ReplayState,
    /// Why it has not come to its end.
    pub detail: Option<String>,
    /// Rows that were found.
    pub selected: u64,
    /// Records that were acknowledged.
    pub sent: u64,
    /// Rows that could not be sent.
    pub unsendable: u64,
    /// Who asked for it: the role, and the user and host as they said.
    pub asked_by: String,
    /// When, in UTC.
    pub started_at: String,
    /// When it was heard of last, in UTC.
    pub updated_at: String,
}

/// What became of a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplayState {
    /// It is being sent.
    Running,
    /// Its row says that it is being sent, and nobody does: it was killed.
    Unfinished,
    /// Somebody stopped it.
    Stopped,
    /// It failed.
    Failed,
    /// All of it was sent.
    Done,
}

impl ReplayState {
    /// One word for people and programs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Unfinished => "unfinished",
            Self::Stopped => "stopped",
            Self::Failed => "failed",
            Self::Done => "done",
        }
    }

    /// As the table has it; only a session that holds the pipeline's lock can be
    /// running.
    fn read(text: &str, is_held: bool) -> Self {
        match text {
            "running" if is_held => Self::Running,
            "stopped" => Self::Stopped,
            "failed" => Self::Failed,
            "done" => Self::Done,
            _ => Self::Unfinished,
        }
    }
}

/// How far a replay is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Dealt {
    pub(super) sent: u64,
    pub(super) unsendable: u64,
    /// All rows up to here.
    pub(super) last_seq: Option<i64>,
}

/// What a row says to whoever goes on with it.
pub(super) struct Kept {
    pub(super) id: i64,
    pub(super) table: TableName,
    pub(super) filter: ReplayFilter,
    pub(super) to_topic: Option<String>,
    pub(super) rate_per_s: u32,
    pub(super) boundary: String,
    pub(super) selected: u64,
    pub(super) dealt: Dealt,
}

/// The table `replay`, as one process sees it that replays events of a pipeline.
#[derive(Clone)]
pub(super) struct Audit {
    sql: Sql,
    table: String,
    pipeline: String,
    /// Of the pipeline, as they are configured now.
    outboxes: Vec<TableName>,
    token: Uuid,
}

impl Audit {
    pub(super) fn new(sql: Sql, config: &RelayConfig) -> Self {
        let table = TableName { schema: config.schema.clone(), name: "replay".to_owned() };
        let (pipeline, token) = (config.pipeline.clone(), Uuid::new_v4());
        Self { sql, table: table.quoted(), pipeline, outboxes: config.tables.clone(), token }
    }

    /// One replay of a pipeline at a time: two would mix the events of an
    /// aggregate. The lock goes with the session.
    pub(super) async fn lock(&self) -> Result<(), RelayError> {
        let lock = "select pg_try_advisory_lock(hashtext('walpost replay'), hashtext($1))";
        let pipeline = [(&self.pipeline as _, Type::TEXT)];
        let row = self.sql.one("locking the replays of the pipeline", lock, &pipeline).await?;
        if row.get(0) {
            return Ok(());
        }
        Err(RelayError::prerequisite(
            format!("another replay of pipeline {:?} is running", self.pipeline),
            "wait for it, or stop it: see `walpost replay --list`",
        ))
    }

    /// Notes what is about to be sent; its number.
    pub(super) async fn create(
        &self,
        kept: &Kept,
        asked_from: Option<&str>,
    ) -> Result<i64, RelayError> {
        let text = format!(
            "insert into {} (pipeline, token, source, filter, to_topic, rate_per_s, boundary, \
             selected, asked_from) values ($1, $2, $3, $4, $5, $6, $7::text::pg_snapshot, $8, $9) \
             returning id",
            self.table
        );
        let (source, filter) = (kept.table.to_string(), kept.filter.to_json());
        let rate = i32::try_from(kept.rate_per_s).unwrap_or(i32::MAX);
        let selected = kept.selected.cast_signed();
        let parameters: [Parameter<'_>; 9] = [
            (&self.pipeline, Type::TEXT),
            (&self.token, Type::UUID),
            (&source, Type::TEXT),
            (&filter, Type::JSONB),
            (&kept.to_topic, Type::TEXT),
            (&rate, Type::INT4),
            (&kept.boundary, Type::TEXT),
            (&selected, Type::INT8),
            (&asked_from, Type::TEXT),
        ];
        Ok(self.sql.one("noting the replay", &text, &parameters).await?.get(0))
    }

    /// Takes the row of a replay that did not come to its end.
    pub(super) async fn take(&self, id: i64) -> Result<Kept, RelayError> {
        let text = format!(
            "update {} set token = $3, state = 'running', detail = null, \
             updated_at = clock_timestamp() \
             where id = $1 and pipeline = $2 and state <> 'done' \
             returning source, filter, to_topic, rate_per_s, boundary::text, selected, sent, \
             unsendable, last_seq",
            self.table
        );
        let parameters: [Parameter<'_>; 3] =
            [(&id, Type::INT8), (&self.pipeline, Type::TEXT), (&self.token, Type::UUID)];
        let Some(row) = self.sql.opt("taking the replay", &text, &parameters).await? else {
            return Err(RelayError::prerequisite(
                format!("pipeline {:?} has no unfinished replay {id}", self.pipeline),
                "see their numbers with `walpost replay --list`",
            ));
        };
        let corrupt =
            |what: &str| RelayError::Config(format!("the row of replay {id} holds {what}"));
        let source: &str = row.get(0);
        let table = self.outboxes.iter().find(|table| table.to_string() == source).cloned();
        let filter = ReplayFilter::from_json(&row.get(1));
        Ok(Kept {
            id,
            table: table.ok_or_else(|| corrupt("a table that is no outbox of the pipeline"))?,
            filter: filter.ok_or_else(|| corrupt("a filter of another version"))?,
            to_topic: row.get(2),
            rate_per_s: row.get::<_, i32>(3).unsigned_abs(),
            boundary: row.get(4),
            selected: unsigned(&row, 5),
            dealt: Dealt {
                sent: unsigned(&row, 6),
                unsendable: unsigned(&row, 7),
                last_seq: row.get(8),
            },
        })
    }

    /// Notes how far it is, and with a state how it has ended.
    pub(super) async fn note(
        &self,
        id: i64,
        dealt: Dealt,
        ended: Option<(ReplayState, Option<&str>)>,
    ) -> Result<(), RelayError> {
        let text = format!(
            "update {} set sent = $3, unsendable = $4, last_seq = $5, \
             state = coalesce($6, state), detail = $7, updated_at = clock_timestamp() \
             where id = $1 and token = $2 returning 1",
            self.table
        );
        let (state, detail) = ended.unzip();
        let state = state.map(ReplayState::as_str);
        let detail: Option<String> =
            detail.flatten().map(|detail| detail.chars().take(DETAIL_MAX_CHARS).collect());
        let parameters: [Parameter<'_>; 7] = [
            (&id, Type::INT8),
            (&self.token, Type::UUID),
            (&dealt.sent.cast_signed(), Type::INT8),
            (&dealt.unsendable.cast_signed(), Type::INT8),
            (&dealt.last_seq, Type::INT8),
            (&state, Type::TEXT),
            (&detail, Type::TEXT),
        ];
        match self.sql.opt("noting how far the replay is", &text, &parameters).await? {
            Some(_) => Ok(()),
            None => Err(RelayError::Fatal(format!("another process goes on with replay {id}"))),
        }
    }

    /// The last ones of the pipeline, the newest first.
    pub(super) async fn list(&self) -> Result<Vec<ReplayRow>, RelayError> {
        // Both keys of the lock as pg_locks shows them.
        let text = format!(
            "select id, source, filter, to_topic, rate_per_s, state, detail, selected, sent, \
                 unsendable, asked_by || coalesce(' (' || asked_from || ')', ''), \
                 {}, {}, \
                 exists (select from pg_locks where locktype = 'advisory' and granted \
                     and objsubid = 2 \
                     and classid::int8 = hashtext('walpost replay')::int8 & 4294967295 \
                     and objid::int8 = hashtext($1)::int8 & 4294967295 \
                     and database = (select oid from pg_database \
                         where datname = current_database())) \
             from {} where pipeline = $1 order by id desc limit {LIST_MAX}",
            utc("started_at"),
            utc("updated_at"),
            self.table
        );
        let parameters = [(&self.pipeline as _, Type::TEXT)];
        let rows = self.sql.query("reading the replays", &text, &parameters).await?;
        Ok(rows.iter().map(listed).collect())
    }
}

fn utc(column: &str) -> String {
    format!("to_char({column} at time zone 'utc', 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"')")
}

fn listed(row: &Row) -> ReplayRow {
    ReplayRow {
        id: row.get(0),
        source: row.get(1),
        filter: row.get(2),
        to_topic: row.get(3),
        rate_per_s: row.get::<_, i32>(4).unsigned_abs(),
        state: ReplayState::read(row.get(5), row.get(13)),
        detail: row.get(6),
        selected: unsigned(row, 7),
        sent: unsigned(row, 8),
        unsendable: unsigned(row, 9),
        asked_by: row.get(10),
        started_at: row.get(11),
        updated_at: row.get(12),
    }
}

fn unsigned(row: &Row, index: usize) -> u64 {
    u64::try_from(row.get::<_, i64>(index)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_session_holds_is_running() {
        assert_eq!(ReplayState::read("running", true), ReplayState::Running);
        assert_eq!(ReplayState::read("running", false), ReplayState::Unfinished);
        for state in [ReplayState::Stopped, ReplayState::Failed, ReplayState::Done] {
            assert_eq!(ReplayState::read(state.as_str(), true), state);
        }
    }
}

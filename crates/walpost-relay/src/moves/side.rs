//! A pipeline of a move, as its checkpoint and the catalogue have it.

use serde_json::Value;
use tokio_postgres::types::Type;

use crate::{
    config::{RelayConfig, TableName},
    error::RelayError,
    sql::Sql,
    wal::{membership, quote_identifier},
};

/// What stands in the way, and what to do.
pub(super) type Obstacle = (String, String);

#[derive(Clone, Debug)]
pub(super) struct Side {
    pub(super) pipeline: String,
    pub(super) publication: String,
    pub(super) tables: Vec<TableName>,
    /// What the checkpoint has noted of the publication.
    pub(super) noted: Value,
    generation: i64,
}

impl Side {
    /// A pipeline that streams, or could.
    pub(super) async fn find(
        sql: &Sql,
        config: &RelayConfig,
        pipeline: &str,
    ) -> Result<Result<Self, Obstacle>, RelayError> {
        #[cfg(test)]
        if let Some(server) = sql.simulation() {
            let row = server.side(pipeline).await?;
            let side = row.map(|row| Self {
                pipeline: pipeline.to_owned(),
                publication: pipeline.to_owned(),
                tables: config.tables.clone(),
                noted: Value::Null,
                generation: u32::from(row.generation).into(),
            });
            return Ok(side.ok_or_else(|| (format!("{pipeline:?} does not stream"), String::new())));
        }
        let query = query(config);
        let name = [(&pipeline as _, Type::TEXT)];
        let row = sql.opt("looking for the pipelines of a move", &query, &name).await?;
        let Some(row) = row.filter(|row| row.get::<_, Option<bool>>(6) == Some(true)) else {
            return Ok(Err((
                format!("pipeline {pipeline:?} has no checkpoint on this server"),
                "start it once with `walpost run`; a new one gets no row with row_filter = \
                 \"false\" and initial = \"skip\""
                    .to_owned(),
            )));
        };
        if !row.get::<_, bool>(8) {
            return Ok(Err((
                format!("pipeline {pipeline:?} polls its outbox table, or its source is switched"),
                "rows move between pipelines that read the WAL; see `walpost source switch`"
                    .to_owned(),
            )));
        }
        let (Some(publication), Some(tables), Some(noted)) =
            (row.get(0), row.get::<_, Option<Vec<String>>>(1), row.get(2))
        else {
            return Ok(Err((
                format!("the publication of pipeline {pipeline:?} is not known, or is gone"),
                "start it with this version of walpost, which says what to do".to_owned(),
            )));
        };
        if !row.get::<_, bool>(4) || !row.get::<_, bool>(5) {
            return Ok(Err((
                format!(
                    "pipeline {pipeline:?} has not finished its first start, or its slot is lost"
                ),
                "have it stream first; see `walpost status` and `walpost check`".to_owned(),
            )));
        }
        if row.get::<_, Option<bool>>(7) != Some(true) {
            return Ok(Err((
                format!(
                    "the publication of pipeline {pipeline:?} is not as its checkpoint has noted it"
                ),
                "run `walpost check` under its name, which says what to do".to_owned(),
            )));
        }
        let mut parsed: Vec<TableName> =
            tables.iter().filter_map(|table| table.parse().ok()).collect();
        parsed.sort_by_key(TableName::quoted);
        let (pipeline, generation) = (pipeline.to_owned(), row.get(3));
        Ok(Ok(Self { pipeline, publication, tables: parsed, noted, generation }))
    }

    /// Whether messages are events of the pipeline, as its last start has noted.
    pub(super) fn takes_messages(&self) -> bool {
        self.noted["messages"].as_array().is_some_and(|prefixes| !prefixes.is_empty())
    }

    /// Whether it is as it was found.
    pub(super) fn is_as(&self, other: &Self) -> bool {
        self.publication == other.publication
            && self.tables == other.tables
            && self.noted == other.noted
            && self.generation == other.generation
    }
}

/// `$1` the pipeline's name.
fn query(config: &RelayConfig) -> String {
    let schema = quote_identifier(&config.schema);
    format!(
        "select p.pubname::text, c.tables, c.publication, c.generation, \
             c.initial = 'done' and c.recovery is null, \
             exists (select from pg_replication_slots s where s.slot_name = c.slot \
                 and s.wal_status is distinct from 'lost'), \
             c.system_id = s.system_identifier::text, \
             c.publication -> 'tables' = {}, \
             c.source = 'wal' and c.switch is null \
             from pg_control_system() s, {schema}.checkpoint c \
             left join pg_publication p on p.oid::int8 = (c.publication ->> 'oid')::int8 \
             where c.pipeline = $1",
        membership::tables("c.tables", "p.oid", "(c.relations -> 'tables')")
    )
}

/// What stands between the two.
pub(super) async fn between(
    sql: &Sql,
    config: &RelayConfig,
    from: &Side,
    to: &Side,
) -> Result<Vec<Obstacle>, RelayError> {
    let mut found = Vec::new();
    if from.tables != to.tables || from.tables.is_empty() {
        found.push((
            format!(
                "pipelines {:?} and {:?} do not read the same tables",
                from.pipeline, to.pipeline
            ),
            "rows move between pipelines of one outbox table".to_owned(),
        ));
    }
    let Between { parked, uncrossed, sharing } = look(sql, config, from, to).await?;
    if parked > 0 {
        found.push((
            format!(
                "pipeline {:?} has {parked} parked events: behind the move, later ones of their \
                 aggregates would overtake them",
                from.pipeline
            ),
            "send them on or discard them with `walpost parked`".to_owned(),
        ));
    }
    if let Some(id) = uncrossed {
        found.push((
            format!("move {id} of one of the two pipelines is not finished"),
            format!(
                "have both of its pipelines run, and try again; where the receiver's slot was made \
                 anew by hand since, set crossed_at of its entry in {}.move",
                quote_identifier(&config.schema)
            ),
        ));
    }
    if let Some(other) = sharing {
        found.push((
            format!("a publication of the two is that of pipeline {other:?} too"),
            "give each pipeline a publication of its own".to_owned(),
        ));
    }
    Ok(found)
}

/// What the rows say of two pipelines.
struct Between {
    /// Open ones of the giver.
    parked: i64,
    /// The first move that is not finished.
    uncrossed: Option<i64>,
    /// Another pipeline with the publication of one of them.
    sharing: Option<String>,
}

async fn look(
    sql: &Sql,
    config: &RelayConfig,
    from: &Side,
    to: &Side,
) -> Result<Between, RelayError> {
    #[cfg(test)]
    if let Some(server) = sql.simulation() {
        let uncrossed = server.uncrossed_of([&from.pipeline, &to.pipeline]).await?;
        return Ok(Between { parked: 0, uncrossed, sharing: None });
    }
    let schema = quote_identifier(&config.schema);
    let query = format!(
        "select (select count(*) from {schema}.parked \
             where pipeline = $1 and state in ('open', 'sending')), \
         (select min(id) from {schema}.move where crossed_at is null \
             and array[from_pipeline, to_pipeline] && array[$1, $2]), \
         (select min(o.pipeline) from {schema}.checkpoint o, {schema}.checkpoint c \
             where c.pipeline in ($1, $2) and o.pipeline <> c.pipeline \
             and o.publication -> 'oid' = c.publication -> 'oid')"
    );
    let names = [(&from.pipeline as _, Type::TEXT), (&to.pipeline as _, Type::TEXT)];
    let row = sql.one("looking what stands between the pipelines", &query, &names).await?;
    Ok(Between { parked: row.get(0), uncrossed: row.get(1), sharing: row.get(2) })
}

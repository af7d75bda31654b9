//! Every statement of this crate, with the schema's name in it.

use postgres_protocol::escape::escape_identifier;

#[cfg(feature = "axum")]
use crate::Lookup;

/// Everything of a row but its response and its fingerprint.
const ENTRY: &str = "lookup, route, status, created_at, completed_at, expires_at, gone_until, \
                     lease_until, recovery_point, response_status, \
                     lease_until <= clock_timestamp()";
/// What nobody needs any more: neither a response nor a tombstone nor a run.
const LEAVES: &str = "coalesce(gone_until, expires_at) <= now() \
                      and (lease_until is null or lease_until <= now())";
/// Responses that have become tombstones.
const FADES: &str = "status = 'completed' and gone_until is not null and expires_at <= now() \
                     and gone_until > now()";

/// The statements for one schema.
#[derive(Debug)]
pub(crate) struct Sql {
    /// The schema, quoted.
    pub(crate) schema: String,
    pub(crate) look: String,
    /// First of a transaction with a handler.
    #[cfg(feature = "axum")]
    pub(crate) keep_session: String,
    pub(crate) complete: String,
    pub(crate) take: String,
    pub(crate) keep_gone: String,
    pub(crate) recovery_point: String,
    pub(crate) hold: String,
    pub(crate) reach: String,
    pub(crate) renew: String,
    pub(crate) release: String,
    pub(crate) finish: String,
    #[cfg(feature = "axum")]
    pub(crate) has_finished: String,
    pub(crate) show: String,
    pub(crate) remove: String,
    pub(crate) prunable: String,
    pub(crate) prune_responses: String,
    pub(crate) prune_rows: String,
}

#[cfg(feature = "axum")]
impl Sql {
    /// Behind a handler: undoes what it set in its session, but for the limits of
    /// statements and of being idle that its transaction began with, in milliseconds.
    pub(crate) fn undo_session(
        &self,
        lookup: Option<&Lookup>,
        statement_ms: Option<i64>,
        idle_ms: Option<i64>,
    ) -> String {
        let number = |ms: Option<i64>| ms.map_or_else(|| "null".to_owned(), |ms| ms.to_string());
        let marker = lookup.map_or_else(|| "null".to_owned(), |lookup| format!("'{lookup}'"));
        format!(
            "reset session authorization; reset role; \
             select {}.idempotency_undo_session({marker}, {}, {})",
            self.schema,
            number(statement_ms),
            number(idle_ms)
        )
    }

    /// Rolls a transaction with a handler back, and what a rollback leaves of its
    /// session. Another transaction has begun then, which has to end.
    pub(crate) fn roll_back(&self) -> String {
        format!("rollback; select {}.idempotency_forget_session(); begin", self.schema)
    }
}

impl Sql {
    pub(crate) fn new(schema: &str) -> Self {
        let schema = escape_identifier(schema);
        let table = format!("{schema}.idempotency");
        let mine = "lookup = $1 and fence = $2 and status = 'in_progress'";
        Self {
            look: format!("select * from {schema}.idempotency_look($1, $2, $3)"),
            #[cfg(feature = "axum")]
            keep_session: format!("select {schema}.idempotency_keep_session()"),
            complete: format!(
                "select {schema}.idempotency_complete($1, $2, $3, $4, $5, $6, $7, $8, $9)"
            ),
            take: format!("select {schema}.idempotency_take($1, $2, $3, $4, $5, $6)"),
            keep_gone: format!(
                "update {table} set gone_until = expires_at + $2::int8 * interval '1 ms' \
                 where lookup = $1"
            ),
            recovery_point: format!("select recovery_point from {table} where lookup = $1"),
            hold: format!("select {schema}.idempotency_hold($1, $2, $3)"),
            reach: format!("select {schema}.idempotency_reach($1, $2, $3)"),
            renew: format!(
                "update {table} set lease_until = clock_timestamp() + $3::int8 * interval '1 ms' \
                 where {mine}"
            ),
            release: format!("update {table} set lease_until = clock_timestamp() where {mine}"),
            finish: format!("select {schema}.idempotency_finish($1, $2, $3, $4, $5, $6, $7, $8)"),
            #[cfg(feature = "axum")]
            has_finished: format!(
                "select from {table} where lookup = $1 and fence = $2 and status = 'completed' \
                 and (response_status, header_names, header_values, body) = ($3, $4, $5, $6)"
            ),
            show: format!("select {ENTRY} from {table} where lookup = $1"),
            remove: format!(
                "delete from {table} where lookup = $1 \
                 and (lease_until is null or lease_until <= clock_timestamp())"
            ),
            prunable: format!(
                "select (select count(*) from {table} where {FADES}), \
                 (select count(*) from {table} where {LEAVES})"
            ),
            prune_responses: format!(
                "with old as (select lookup from {table} where {FADES} order by expires_at \
                 limit $1 for update skip locked) \
                 update {table} i set status = 'tombstone', response_status = null, \
                 header_names = null, header_values = null, body = null \
                 from old where i.lookup = old.lookup"
            ),
            prune_rows: format!(
                "with old as (select lookup from {table} where {LEAVES} \
                 order by coalesce(gone_until, expires_at) limit $1 for update skip locked) \
                 delete from {table} i using old where i.lookup = old.lookup"
            ),
            schema,
        }
    }
}

//! Statements of operators, of pruning and of the watch.

use super::DeliveryState;

/// Everything of a delivery but what is sent.
const ENTRY: &str = "id, destination, event_id, event_type, idempotency_key, state, attempts, \
                     fence, created_at, \
                     case when next_attempt_at < 'infinity' then next_attempt_at end \
                     as next_attempt_at, lease_until, claimed_by, finished_at, outcome, \
                     retry_limit, retry_wait_ms, null::timestamptz as archived_at, order_key, \
                     source";
/// The same of one in the archive.
const ARCHIVED: &str = "id, destination, event_id, event_type, idempotency_key, \
                        'delivered' as state, attempts, fence, created_at, \
                        null::timestamptz as next_attempt_at, null::timestamptz as lease_until, \
                        claimed_by, finished_at, outcome, null::int4 as retry_limit, \
                        null::int8 as retry_wait_ms, archived_at, null::text as order_key, \
                        source";
/// Attempts that are shown of one delivery.
const ATTEMPTS_MAX: u32 = 1_000;
/// What the prune counts at most.
pub(super) const PRUNABLE_MAX: u32 = 100_000;

#[derive(Debug)]
pub(crate) struct OperatorSql {
    schema: String,
    deliveries: String,
    by_event: [String; 2],
    pub(super) show: String,
    pub(super) attempts: String,
    pub(super) archived_attempts: String,
    pub(super) body: String,
    pub(super) response: String,
    pub(super) states: String,
    pub(super) retry: String,
    /// Of the ids that stand in the place of `$1`, as a literal of an array.
    pub(super) give_up: String,
    pub(super) settle_delivered: String,
    pub(super) destinations: String,
    pub(super) backlog: String,
    pub(super) prunable: String,
    pub(super) archive: String,
    pub(super) delete: String,
}

impl OperatorSql {
    /// `schema` is quoted.
    pub(super) fn new(schema: &str) -> Self {
        let deliveries = format!("{schema}.webhook_delivery");
        let attempts = format!("{schema}.webhook_attempt");
        let archive = format!("{schema}.webhook_archive");
        Self {
            by_event: [false, true].map(|newest| by_event(schema, newest)),
            show: shown(
                schema,
                false,
                &format!(
                    "select {ENTRY} from {deliveries} where id = $1 \
                     union all select {ARCHIVED} from {archive} where id = $1"
                ),
            ),
            attempts: format!(
                "select number, ended_at, outcome, status, elapsed_ms, detail from {attempts} \
                 where delivery = $1 order by number desc limit {ATTEMPTS_MAX}"
            ),
            archived_attempts: format!(
                "select l.number, l.ended_at, l.outcome, l.status, l.elapsed_ms, l.detail \
                 from {archive} a, jsonb_to_recordset(a.attempt_log) as l (number int8, \
                 ended_at timestamptz, outcome text, status int4, elapsed_ms int4, detail text) \
                 where a.id = $1 order by l.number desc limit {ATTEMPTS_MAX}"
            ),
            body: format!("select substring(body for $2) from {deliveries} where id = $1"),
            response: format!(
                "select substring(response for $2) from {attempts} \
                 where delivery = $1 and response is not null order by number desc limit 1"
            ),
            states: format!("select id, state from {deliveries} where id = any ($1)"),
            retry: format!(
                "update {deliveries} set state = 'pending', attempts = 0, \
                 next_attempt_at = clock_timestamp() \
                 where id = any ($1) and state in ('failed', 'held', 'unknown') \
                 returning id, destination"
            ),
            settle_delivered: settle(&deliveries, DeliveryState::Delivered, "state = 'unknown'"),
            give_up: format!(
                "update {deliveries} set state = 'held', next_attempt_at = null \
                 where id = any ($1) and state = 'pending'; {}",
                settle(
                    &deliveries,
                    DeliveryState::Failed,
                    "(state in ('unknown', 'held') \
                     or (state = 'failed' and outcome is distinct from 'settled'))",
                ),
            ),
            destinations: destinations(schema),
            backlog: backlog(schema),
            prunable: prunable(&deliveries, &archive),
            archive: moved(&deliveries, &attempts, &archive),
            delete: format!(
                "with old as (select id from {archive} \
                 where finished_at < now() - $1::float8 * interval '1 day' \
                 order by finished_at limit $2 for update skip locked) \
                 delete from {archive} a using old where a.id = old.id"
            ),
            deliveries,
            schema: schema.to_owned(),
        }
    }

    /// Deliveries in these states, of destination `$1` or of all where that is
    /// null, at most `$2`. A query for each state, so that each has its index.
    pub(super) fn list(&self, states: &[DeliveryState], newest: bool) -> String {
        let by_id = by_id(newest);
        let of = |state: &DeliveryState| {
            format!(
                "(select {ENTRY} from {} where state = '{state}' \
                 and ($1::text is null or destination = $1) order by {by_id} limit $2)",
                self.deliveries
            )
        };
        let parts: Vec<String> = states.iter().map(of).collect();
        let parts = parts.join(" union all ");
        let all = format!("select * from ({parts}) as each order by {by_id} limit $2");
        shown(&self.schema, newest, &all)
    }

    /// Those of event `$3`, also where they are in the archive, in one of the
    /// states `$4`.
    pub(super) fn list_by_event(&self, newest: bool) -> &str {
        &self.by_event[usize::from(newest)]
    }
}

fn by_id(newest: bool) -> &'static str {
    if newest { "id desc" } else { "id" }
}

/// What was chosen, with what each of it waits for and the status of its last attempt.
fn shown(schema: &str, newest: bool, chosen: &str) -> String {
    format!(
        "select c.*, case when state = 'pending' and order_key is not null \
         then {schema}.webhook_waits_for(destination, order_key, id) end, \
         case when c.archived_at is null then (select a.status from {schema}.webhook_attempt a \
         where a.delivery = c.id order by a.number desc limit 1) \
         else (select (z.attempt_log -> -1 ->> 'status')::int4 from {schema}.webhook_archive z \
         where z.id = c.id) end from ({chosen}) as c order by {}",
        by_id(newest)
    )
}

fn by_event(schema: &str, newest: bool) -> String {
    let by_id = by_id(newest);
    let chosen = format!(
        "select * from (select {ENTRY} from {schema}.webhook_delivery where event_id = $3 \
         union all select {ARCHIVED} from {schema}.webhook_archive where event_id = $3) as each \
         where ($1::text is null or destination = $1) and state = any ($4) \
         order by {by_id} limit $2"
    );
    shown(schema, newest, &chosen)
}

fn settle(deliveries: &str, to: DeliveryState, from: &str) -> String {
    format!(
        "update {deliveries} set state = '{to}', next_attempt_at = null, outcome = 'settled' \
         where id = any ($1) and {from} returning id, destination"
    )
}

/// What is not done of destination `$1`, or of each where that is null, up to `$2`
/// deliveries of each state.
fn backlog(schema: &str) -> String {
    format!(
        "select name, state, reason, changed_at, pending, sending, failed, held, unknown, \
         oldest_pending_seconds, ordering, blocked from {schema}.webhook_backlog($1, $2)"
    )
}

/// The same, with what arrived within a day, and the last failure.
fn destinations(schema: &str) -> String {
    let deliveries = format!("{schema}.webhook_delivery");
    let last = |state: &str| {
        format!(
            "(select id, fence from {deliveries} where destination = n.name \
             and state = '{state}' order by id desc limit 1)"
        )
    };
    format!(
        "select n.*, coalesce(done.count, 0), error.outcome, error.status, error.ended_at, \
         case when place.breaker_open_until > now() then place.breaker_open_until end \
         from ({backlog}) n \
         left join {schema}.webhook_destination place on place.name = n.name \
         left join (select destination, count(*) from (select destination from {deliveries} \
         where state = 'delivered' and finished_at > now() - interval '1 day' \
         order by finished_at desc limit $2) as each group by destination) done \
         on done.destination = n.name \
         left join lateral (select a.outcome, a.status, a.ended_at from ({failed} union all \
         {unknown} union all (select id, fence from {deliveries} where destination = n.name \
         and state = 'pending' and least(attempts, 1) = 1 and next_attempt_at < 'infinity' \
         order by next_attempt_at desc, id desc limit 1)) as last \
         join {schema}.webhook_attempt a on a.delivery = last.id and a.number = last.fence \
         order by a.ended_at desc limit 1) error on true order by n.name",
        backlog = backlog(schema),
        failed = last("failed"),
        unknown = last("unknown"),
    )
}

/// What is older than `$1` days and has to move, and what is older than `$2` and
/// would leave, also what would move before.
fn prunable(deliveries: &str, archive: &str) -> String {
    let count = |table: &str, condition: &str, days: &str| {
        format!(
            "(select count(*) from (select from {table} where {condition} \
             finished_at < now() - {days}::float8 * interval '1 day' \
             order by finished_at limit {PRUNABLE_MAX}) as each)"
        )
    };
    let delivered = "state = 'delivered' and";
    format!(
        "select {}, {} + {}",
        count(deliveries, delivered, "$1"),
        count(deliveries, delivered, "$2"),
        count(archive, "", "$2"),
    )
}

/// From the one table to the other, in one statement.
fn moved(deliveries: &str, attempts: &str, archive: &str) -> String {
    let kept = "id, destination, event_id, event_type, idempotency_key, created_at, \
                finished_at, attempts, fence, claimed_by, outcome, source";
    let returned: Vec<String> = kept.split(", ").map(|name| format!("d.{name}")).collect();
    format!(
        "with old as (select id from {deliveries} where state = 'delivered' \
         and finished_at < now() - $1::float8 * interval '1 day' \
         order by finished_at limit $2 for update skip locked), \
         gone as (delete from {deliveries} d using old where d.id = old.id returning {}) \
         insert into {archive} ({kept}, attempt_log) select {kept}, coalesce((select \
         jsonb_agg(jsonb_build_object('number', a.number, 'ended_at', a.ended_at, \
         'outcome', a.outcome, 'status', a.status, 'elapsed_ms', a.elapsed_ms, \
         'detail', a.detail) order by a.number) from {attempts} a where a.delivery = gone.id), \
         '[]') from gone",
        returned.join(", ")
    )
}

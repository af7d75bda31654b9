use postgres_protocol::escape::escape_identifier;

use super::{
    operator_sql::OperatorSql,
    order_sql::{CLAIMED, OrderSql},
};
use crate::bell::CHANNEL;

/// The statements, with their schema.
#[derive(Debug)]
pub(crate) struct Sql {
    /// Quoted where it has to be.
    pub(crate) schema: String,
    #[cfg(feature = "relay")]
    pub(crate) probe: String,
    pub(crate) insert: Insert,
    #[cfg(feature = "relay")]
    pub(crate) insert_in_order: Insert,
    pub(crate) is_disabled: String,
    pub(crate) claim: String,
    pub(crate) lapsed: String,
    pub(crate) finish: String,
    pub(crate) finished: String,
    pub(crate) give_back: String,
    pub(crate) register: String,
    pub(crate) note_breaker: String,
    pub(crate) disable: String,
    pub(crate) enable: String,
    pub(crate) hold: String,
    pub(crate) release: String,
    pub(crate) operator: OperatorSql,
    pub(crate) order: OrderSql,
}

/// Creates deliveries.
#[derive(Debug)]
pub(crate) struct Insert {
    plain: String,
    /// The same, and who sends is told.
    told: String,
}

impl Sql {
    pub(crate) fn new(schema: &str) -> Self {
        let schema = escape_identifier(schema);
        let deliveries = format!("{schema}.webhook_delivery");
        let destinations = format!("{schema}.webhook_destination");
        let is = |state: &str| {
            format!("select from {destinations} where name = $1 and state = '{state}'")
        };
        Self {
            #[cfg(feature = "relay")]
            probe: format!(
                "insert into {deliveries} (destination, event_id, event_type, idempotency_key, \
                 path, content_type, body, retry_limit, retry_wait_ms, next_attempt_at, \
                 order_key, source) \
                 select d, '', null, '', null, null, ''::bytea, null, null, null, null, '' \
                 from (values ('')) as none (d) where false \
                 on conflict (event_id, destination, source) do nothing"
            ),
            // In one order, so that no two inserters wait for each other. Of one order key as
            // given: whoever waits for its lock holds none of its rows.
            insert: Insert::new(
                &schema,
                "d collate \"C\", (k is null), case when k is null then e collate \"C\" end, \
                 case when k is null then s collate \"C\" end, o",
            ),
            #[cfg(feature = "relay")]
            insert_in_order: Insert::new(&schema, "o"),
            is_disabled: is("disabled"),
            claim: claim(&deliveries, &is("active")),
            lapsed: format!(
                "select id, fence, attempts, retry_limit, retry_wait_ms from {deliveries} \
                 where destination = $1 and state = 'sending' \
                 and lease_until <= statement_timestamp() \
                 order by lease_until limit $2 for update skip locked"
            ),
            finish: finish(&schema),
            finished: finished(&schema),
            give_back: format!(
                "update {deliveries} d set state = 'pending', attempts = attempts - 1, \
                 lease_until = null, next_attempt_at = clock_timestamp() \
                 from unnest($1, $2) as back (id, fence) \
                 where d.id = back.id and d.fence = back.fence and d.state = 'sending'"
            ),
            register: register(&destinations),
            note_breaker: format!(
                "update {destinations} set breaker_open_until = \
                 clock_timestamp() + $2::int8 * interval '1 ms' where name = $1"
            ),
            disable: format!(
                "insert into {destinations} as d (name, state, reason) \
                 values ($1, 'disabled', $2) on conflict (name) do update \
                 set state = 'disabled', reason = excluded.reason, \
                 changed_at = clock_timestamp() where d.state <> 'disabled'"
            ),
            enable: format!(
                "update {destinations} set state = 'active', reason = null, \
                 changed_at = clock_timestamp() where name = $1 and state = 'disabled'"
            ),
            hold: moved(&deliveries, ("pending", "held"), &is("disabled")),
            release: moved(&deliveries, ("held", "pending"), &is("active")),
            operator: OperatorSql::new(&schema),
            order: OrderSql::new(&schema, &is("active")),
            schema,
        }
    }
}

/// What a sender begins with: its order, and no breaker that is open.
fn register(destinations: &str) -> String {
    let is_new = "(p.ordering, p.failed_are_passed) \
                  is distinct from (excluded.ordering, excluded.failed_are_passed)";
    format!(
        "insert into {destinations} as p (name, ordering, failed_are_passed) \
         values ($1, $2, $3) on conflict (name) do update \
         set ordering = excluded.ordering, \
         failed_are_passed = excluded.failed_are_passed, \
         cursor_id = case when {is_new} then 0 else p.cursor_id end, \
         breaker_open_until = null \
         where {is_new} or p.breaker_open_until is not null"
    )
}

/// Up to `$2` deliveries of destination `$1`, up to `$7` of them retries, `$5` bytes of
/// them together, or with `$6` the first one whatever it has. Behind the columns of a claim
/// what [`claim_by_key`](super::order_sql) says as well, then what is sent. In the order of
/// an index, also where statistics are old, as those of a queue often are.
fn claim(deliveries: &str, is_active: &str) -> String {
    let due = |lane: u8, limit: &str| {
        format!(
            "select id, next_attempt_at, octet_length(body) as bytes \
             from {deliveries} where destination = $1 and state = 'pending' \
             and least(attempts, 1) = {lane} and next_attempt_at <= statement_timestamp() \
             and exists ({is_active}) order by next_attempt_at, id limit {limit} \
             for update skip locked"
        )
    };
    let again = due(1, "least($7, $2)");
    let first = due(0, "$2 - (select count(*) from due_again)");
    format!(
        "with due_again as materialized ({again}), due_first as materialized ({first}), \
         due as (select * from due_again union all select * from due_first), \
         summed as (select id, sum(bytes) over upto as bytes, row_number() over upto as place \
         from due window upto as (order by next_attempt_at, id)), \
         fit as (select id from summed where bytes <= $5 or (place = 1 and $6)) \
         update {deliveries} d set state = 'sending', attempts = attempts + 1, \
         fence = fence + 1, claimed_by = $4, next_attempt_at = null, \
         lease_until = clock_timestamp() + $3::int8 * interval '1 ms' \
         from fit where d.id = fit.id \
         returning {CLAIMED}, (select count(*) from due) > (select count(*) from fit), \
         (select count(*) from due_again) >= $7, false, 0::int8, \
         d.idempotency_key, d.path, d.content_type, d.body"
    )
}

/// Up to `$2` deliveries of destination `$1` from one state to another while its
/// row says so, which is locked against a change.
fn moved(deliveries: &str, (from, to): (&str, &str), condition: &str) -> String {
    let next = if to == "pending" { "clock_timestamp()" } else { "null" };
    format!(
        "with place as ({condition} for share), \
         moved as (select id from {deliveries} where destination = $1 and state = '{from}' \
         and exists (select from place) order by id limit $2 for update skip locked) \
         update {deliveries} d set state = '{to}', next_attempt_at = {next} \
         from moved where d.id = moved.id"
    )
}

impl Insert {
    /// Of columns as arrays, in their order as `o`, with their order keys as `q`: `k` where
    /// the destination has a say.
    fn new(schema: &str, order: &str) -> Self {
        let columns = "destination, event_id, event_type, idempotency_key, path, content_type, \
                       body, retry_limit, retry_wait_ms, next_attempt_at, order_key, source";
        // All locks first and in one order, so that no two inserters wait for each other.
        let plain = format!(
            "with given as materialized (select n.*, \
             case when p.ordering = 'all' then '' else n.q end as k \
             from unnest($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) \
             with ordinality as n (d, e, t, i, p, c, b, l, w, n, q, s, o) \
             left join {schema}.webhook_destination p on p.name = n.d), \
             keys as materialized (select distinct {schema}.webhook_order_lock(d, k) as key \
             from given where k is not null order by 1), \
             locks as materialized \
             (select pg_advisory_xact_lock(hashtext('walpost.webhook_order'), key) from keys) \
             insert into {schema}.webhook_delivery ({columns}) \
             select d, e, t, i, p, c, b, l, w, coalesce(n, clock_timestamp()), q, s \
             from (select count(*) from locks) as locked, given order by {order} \
             on conflict (event_id, destination, source) do nothing"
        );
        let told = told(&plain);
        Self { plain, told }
    }

    pub(crate) fn of(&self, notifies: bool) -> &str {
        if notifies { &self.told } else { &self.plain }
    }
}

/// How many were made, and one notification for each destination, however many.
fn told(made: &str) -> String {
    format!(
        "with made as ({made} returning destination), \
         told as materialized (select pg_notify('{CHANNEL}', n.destination) \
         from (select distinct destination from made) as n) \
         select (select count(*) from made), (select count(*) from told)"
    )
}

/// Ends claims whose fences still hold, and writes down what came of them.
fn finish(schema: &str) -> String {
    format!(
        "with ended as (select * from unnest($1, $2, $3, $4, $5, $6, $7, $8, $9) \
         as e (id, fence, state, wait_ms, outcome, status, elapsed_ms, detail, response)), \
         done as (update {schema}.webhook_delivery d set state = e.state, lease_until = null, \
         outcome = e.outcome, next_attempt_at = case when e.state = 'pending' \
         then clock_timestamp() + e.wait_ms * interval '1 ms' end from ended e \
         where d.id = e.id and d.fence = e.fence and d.state = 'sending' \
         returning d.id, d.fence, d.destination), \
         noted as (insert into {schema}.webhook_attempt \
         (delivery, number, outcome, status, elapsed_ms, detail, response) \
         select e.id, e.fence, e.outcome, e.status, e.elapsed_ms, e.detail, e.response \
         from ended e join done on (done.id, done.fence) = (e.id, e.fence)) \
         select id, fence, exists (select from {schema}.webhook_destination w \
         where w.name = done.destination and w.state = 'disabled') from done"
    )
}

/// Of claims with outcomes those that have ended with them.
fn finished(schema: &str) -> String {
    format!(
        "select d.id, a.number, exists (select from {schema}.webhook_destination w \
         where w.name = d.destination and w.state = 'disabled') \
         from unnest($1, $2, $3) as e (id, fence, outcome) \
         join {schema}.webhook_attempt a \
         on (a.delivery, a.number, a.outcome) = (e.id, e.fence, e.outcome) \
         join {schema}.webhook_delivery d on d.id = a.delivery"
    )
}

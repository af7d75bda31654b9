//! Statements of destinations whose deliveries go in order.

/// States in which a delivery blocks those behind it, as the index `webhook_order` has
/// them.
const OPEN: &str = "state in ('pending', 'sending', 'held', 'unknown')";
/// The same of `webhook_order_failed`, where those that failed are not passed.
const FAILED: &str = "state = 'failed' and outcome is distinct from 'settled'";
/// Columns of a claim, as those without an order have them.
const CLAIMED: &str = "d.id, d.fence, d.attempts, d.retry_limit, d.retry_wait_ms, \
                       d.idempotency_key, d.path, d.content_type, d.body";

#[derive(Debug)]
pub(crate) struct OrderSql {
    pub(crate) lock: String,
    pub(crate) claim_by_key: String,
    pub(crate) claim_all: String,
    pub(crate) let_all_go: String,
    pub(crate) let_passed_go: String,
    pub(crate) adopt: String,
}

impl OrderSql {
    /// `schema` is quoted; `is_active` selects the row of destination `$1`.
    pub(super) fn new(schema: &str, is_active: &str) -> Self {
        let deliveries = format!("{schema}.webhook_delivery");
        let let_go = |which: &str| {
            format!(
                "update {deliveries} d set blocked_by = null where d.id in (select b.id \
                 from {deliveries} b where b.destination = $1 and b.blocked_by is not null \
                 {which} limit $2)"
            )
        };
        Self {
            adopt: format!(
                "update {deliveries} set order_key = '', blocked_by = null where id in \
                 (select id from {deliveries} where destination = $1 \
                 and state in ('pending', 'sending', 'failed', 'held', 'unknown') \
                 and order_key is distinct from '' limit $2 for update skip locked)"
            ),
            lock: "select pg_advisory_xact_lock(hashtext('walpost.webhook_claim'), hashtext($1))"
                .to_owned(),
            claim_by_key: claim_by_key(&deliveries, is_active),
            claim_all: claim_all(schema),
            let_all_go: let_go(""),
            let_passed_go: let_go(&format!(
                "and not exists (select from {deliveries} p where p.id = b.blocked_by \
                 and ({OPEN} or ({FAILED} and not $3)))"
            )),
        }
    }
}

/// The nearest delivery before `due` of its order key that is not done. By the order of
/// the whole index, which no statistics turn into another plan.
fn before(deliveries: &str, condition: &str) -> String {
    format!(
        "(select e.id from (select e.id, e.destination, e.order_key from {deliveries} e \
         where (e.destination, e.order_key, e.id) < ($1, due.order_key, due.id) \
         and e.order_key is not null and {condition} \
         order by e.destination desc, e.order_key desc, e.id desc limit 1) e \
         where e.destination = $1 and e.order_key = due.order_key)"
    )
}

/// As the claim without an order, of the first `$8` that are due for the first time, with
/// `$9` where those that failed are passed. Whoever is behind another one is not claimed,
/// and is not due any more until that one is done, so that it is looked at once; whoever
/// is first waits for what is on its way of its key. To be asked under the lock of claims:
/// then what it sees of other claims is all that there are.
///
/// Last come whether all `$8` were due, and how many are behind others.
fn claim_by_key(deliveries: &str, is_active: &str) -> String {
    let open = before(deliveries, OPEN);
    let failed = before(deliveries, FAILED);
    let due = |lane: u8, limit: &str| {
        format!(
            "select id, order_key, next_attempt_at, octet_length(body) as bytes \
             from {deliveries} where destination = $1 and state = 'pending' \
             and least(attempts, 1) = {lane} and next_attempt_at <= statement_timestamp() \
             and exists ({is_active}) order by next_attempt_at, id limit {limit}"
        )
    };
    let (again, first) = (due(1, "$7"), due(0, "$8"));
    format!(
        "with due_again as materialized ({again}), due_first as materialized ({first}), \
         due as (select * from due_again union all select * from due_first), \
         flying as materialized (select order_key from {deliveries} where destination = $1 \
         and state = 'sending' and order_key is not null), \
         seen as materialized (select id, order_key, next_attempt_at, bytes, \
         case when order_key is not null \
         then greatest({open}, case when not $9 then {failed} end) end as before from due), \
         free as (select id, next_attempt_at, bytes from seen where before is null \
         and (order_key is null or order_key not in (select order_key from flying)) \
         order by next_attempt_at, id limit $2), \
         taken as materialized (select d.id, f.next_attempt_at, f.bytes from free f \
         join {deliveries} d on d.id = f.id where d.state = 'pending' \
         for update of d skip locked), \
         summed as (select id, sum(bytes) over upto as bytes, row_number() over upto as place \
         from taken window upto as (order by next_attempt_at, id)), \
         fit as (select id from summed where bytes <= $5 or (place = 1 and $6)), \
         claimed as (update {deliveries} d set state = 'sending', attempts = attempts + 1, \
         fence = fence + 1, claimed_by = $4, next_attempt_at = null, \
         lease_until = clock_timestamp() + $3::int8 * interval '1 ms' \
         from fit where d.id = fit.id returning {CLAIMED}), \
         ahead as materialized (select id from {deliveries} \
         where id in (select before from seen) \
         and ({OPEN} or ({FAILED} and not $9)) for share skip locked), \
         blocked as (update {deliveries} d set blocked_by = s.before from seen s \
         join ahead a on a.id = s.before where d.id = s.id and d.state = 'pending' \
         returning d.id) \
         select c.*, (select count(*) from taken) > (select count(*) from fit), \
         (select count(*) from due_again) >= $7, (select count(*) from due_first) >= $8, \
         (select count(*) from blocked) \
         from (values (0)) as one left join claimed c on true"
    )
}

/// The first one behind the cursor, where it is due and nothing is on its way; with `$4`
/// those that failed are passed. The cursor moves up to it, unless somebody has moved it
/// meanwhile.
fn claim_all(schema: &str) -> String {
    let deliveries = format!("{schema}.webhook_delivery");
    let destinations = format!("{schema}.webhook_destination");
    let first = |condition: &str| {
        format!(
            "(select h.id from (select e.id, e.destination, e.order_key from {deliveries} e \
             where (e.destination, e.order_key, e.id) > ($1, '', place.cursor_id) \
             and e.order_key is not null and {condition} \
             order by e.destination, e.order_key, e.id limit 1) h \
             where h.destination = $1 and h.order_key = '')"
        )
    };
    let open = first(OPEN);
    let failed = first(FAILED);
    format!(
        "with place as materialized (select cursor_id from {destinations} \
         where name = $1 and state = 'active'), \
         head as materialized (select least({open}, case when not $4 then {failed} end) as id, \
         place.cursor_id from place), \
         moved as (update {destinations} w set cursor_id = head.id - 1 from head \
         where w.name = $1 and w.cursor_id = head.cursor_id and head.id - 1 > head.cursor_id), \
         taken as materialized (select d.id from head join {deliveries} d on d.id = head.id \
         where d.state = 'pending' and d.next_attempt_at <= statement_timestamp() \
         and not exists (select from {deliveries} s where s.destination = $1 \
         and s.state = 'sending' and s.order_key = '') for update of d skip locked) \
         update {deliveries} d set state = 'sending', attempts = attempts + 1, \
         fence = fence + 1, claimed_by = $3, next_attempt_at = null, \
         lease_until = clock_timestamp() + $2::int8 * interval '1 ms' \
         from taken where d.id = taken.id returning {CLAIMED}"
    )
}

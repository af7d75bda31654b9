//! Statements of destinations whose deliveries go in order.

/// States in which a delivery blocks those behind it, as the index `webhook_order` has
/// them.
const OPEN: &str = "state in ('pending', 'sending', 'held', 'unknown')";
/// The same of `webhook_order_failed`, where those that failed are not passed.
const FAILED: &str = "state = 'failed' and outcome is distinct from 'settled'";
/// Columns of a claim without what is sent, which is read once the claim is committed: a
/// claimer that reads slowly keeps no lock meanwhile.
pub(super) const CLAIMED: &str = "d.id, d.fence, d.attempts, d.retry_limit, d.retry_wait_ms";
/// Of a transaction of a processor: nobody waits for it long. Whoever sleeps in it is cut
/// off by the server. Not of the session, so that it is nobody else's behind a pooler.
macro_rules! bounds {
    () => {
        "set local lock_timeout = '10s'; set local idle_in_transaction_session_timeout = '10s'"
    };
}

pub(crate) const BOUNDS: &str = bounds!();
/// Begins what has to see all that was committed before it got its locks, whatever the
/// database's default is.
pub(super) const BEGIN: &str = concat!("begin isolation level read committed; ", bounds!());

#[derive(Debug)]
pub(crate) struct OrderSql {
    pub(crate) lock: String,
    pub(crate) claim_by_key: String,
    pub(crate) claim_all: String,
    pub(crate) contents: String,
    pub(crate) let_all_go: String,
    pub(crate) let_passed_go: String,
    pub(crate) adopt: String,
    pub(crate) mark_again: String,
}

impl OrderSql {
    /// `schema` is quoted; `is_active` selects the row of destination `$1`.
    pub(super) fn new(schema: &str, is_active: &str) -> Self {
        let deliveries = format!("{schema}.webhook_delivery");
        Self {
            adopt: adopt(schema),
            lock: "select pg_advisory_xact_lock(hashtext('walpost.webhook_claim'), hashtext($1))"
                .to_owned(),
            claim_by_key: claim_by_key(&deliveries, is_active),
            claim_all: claim_all(schema),
            contents: format!(
                "select d.id, d.idempotency_key, d.path, d.content_type, d.body \
                 from unnest($1, $2) as c (id, fence) join {deliveries} d \
                 on d.id = c.id and d.fence = c.fence where d.state = 'sending'"
            ),
            let_all_go: format!(
                "update {deliveries} d set blocked_by = null where d.id in (select b.id \
                 from {deliveries} b where b.destination = $1 and b.blocked_by is not null \
                 limit $2 for update skip locked)"
            ),
            let_passed_go: let_passed_go(&deliveries),
            mark_again: format!("select {schema}.webhook_marked_again($1)"),
        }
    }
}

/// Up to `$2` that have no order yet, by id, and as many that are being sent; the cursor
/// goes back before them in the same transaction, so that the next claim finds them. What
/// somebody has locked is none of them. Under the lock of claims.
fn adopt(schema: &str) -> String {
    let deliveries = format!("{schema}.webhook_delivery");
    format!(
        "with open as materialized (select id from {deliveries} where destination = $1 \
         and state in ('pending', 'failed', 'held', 'unknown') \
         and order_key is distinct from '' order by id limit $2 for update skip locked), \
         sending as materialized (select id from {deliveries} where destination = $1 \
         and state = 'sending' and order_key is distinct from '' \
         order by lease_until limit $2 for update skip locked), \
         found as (select id from open union all select id from sending), \
         back as (update {schema}.webhook_destination w set cursor_id = first.id - 1 \
         from (select min(id) as id from found) as first \
         where w.name = $1 and w.cursor_id >= first.id) \
         update {deliveries} d set order_key = '', blocked_by = null \
         from found where d.id = found.id"
    )
}

/// Of up to `$2` that are blocked, those behind `$3` and `$4` in the order of the index,
/// lets those go whose delivery ahead is done; how many were looked at, and the last.
fn let_passed_go(deliveries: &str) -> String {
    format!(
        "with seen as materialized (select b.id, b.blocked_by from {deliveries} b \
         where (b.destination, b.blocked_by, b.id) > ($1, $3, $4) and b.destination = $1 \
         and b.blocked_by is not null order by b.destination, b.blocked_by, b.id limit $2), \
         passed as materialized (select d.id from seen s join {deliveries} d on d.id = s.id \
         where d.blocked_by = s.blocked_by and not exists (select from {deliveries} p \
         where p.id = s.blocked_by and ({OPEN} or ({FAILED} and not $5))) \
         for update of d skip locked), \
         freed as (update {deliveries} d set blocked_by = null from passed \
         where d.id = passed.id) \
         select blocked_by, id, (select count(*) from seen) from seen \
         order by blocked_by desc, id desc limit 1"
    )
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
/// Behind the columns of a claim: whether more are due for which there is no room, whether
/// more retries may be, whether all `$8` were due, and how many are behind others.
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
         behind as materialized (select d.id, s.before from seen s \
         join ahead a on a.id = s.before join {deliveries} d on d.id = s.id \
         where d.state = 'pending' for update of d skip locked), \
         blocked as (update {deliveries} d set blocked_by = b.before from behind b \
         where d.id = b.id returning d.id) \
         select c.*, (select count(*) from taken) > (select count(*) from fit), \
         (select count(*) from due_again) >= $7, (select count(*) from due_first) >= $8, \
         (select count(*) from blocked) \
         from (values (0)) as one left join claimed c on true"
    )
}

/// The first one behind the cursor, or of those that are sent again before it, where it is
/// due and nothing is on its way; with `$4` those that failed are passed. The cursor moves
/// to it, and what is sent again is forgotten only with that: where somebody has locked the
/// destination's row neither happens now. To be asked under the lock of claims, as whatever
/// else moves the cursor.
fn claim_all(schema: &str) -> String {
    let deliveries = format!("{schema}.webhook_delivery");
    let destinations = format!("{schema}.webhook_destination");
    let again = format!("{schema}.webhook_sent_again");
    let first = |condition: &str| {
        format!(
            "(select h.id from (select e.id, e.destination, e.order_key from {deliveries} e \
             where (e.destination, e.order_key, e.id) > ($1, '', start.id) \
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
         start as materialized (select cursor_id, least(cursor_id, \
         (select min(delivery) - 1 from {again} where destination = $1)) as id from place), \
         head as materialized (select least({open}, case when not $4 then {failed} end) as id, \
         start.id as start, start.cursor_id from start), \
         goal as materialized (select coalesce(id - 1, start) as cursor_id, \
         cursor_id = coalesce(id - 1, start) as is_there from head), \
         free as materialized (select w.name from {destinations} w, goal where w.name = $1 \
         and not goal.is_there for update of w skip locked), \
         moved as (update {destinations} w set cursor_id = goal.cursor_id from goal, free \
         where w.name = free.name), \
         forgotten as (delete from {again} where destination = $1 \
         and exists (select from goal where goal.is_there or exists (select from free))), \
         taken as materialized (select d.id from head join {deliveries} d on d.id = head.id \
         where d.state = 'pending' and d.next_attempt_at <= statement_timestamp() \
         and not exists (select from {deliveries} s where s.destination = $1 \
         and s.state = 'sending') for update of d skip locked) \
         update {deliveries} d set state = 'sending', attempts = attempts + 1, \
         fence = fence + 1, claimed_by = $3, next_attempt_at = null, \
         lease_until = clock_timestamp() + $2::int8 * interval '1 ms' \
         from taken where d.id = taken.id returning {CLAIMED}, false, false, false, 0::int8"
    )
}

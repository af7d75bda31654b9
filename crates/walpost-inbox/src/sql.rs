//! Every statement of this crate, with the schema's name in it.

use postgres_protocol::escape::escape_identifier;

/// What wakes processors; its contents are the schema.
pub(crate) const CHANNEL: &str = "walpost_inbox";

/// Of the source `$1`, or of all where that is null.
const SCOPE: &str = "($1::text is null or source = $1)";
/// What a claim is told of an event.
const HEAD: &str = "seq, source, event_id, event_type, related_reference, attempts, fence, \
                    processing_state, extract(epoch from now() - received_at)::float8";
const DUE: &str = "processing_state in ('pending', 'failed') and next_attempt_at <= now()";

/// Everything of an event but its payload.
const ENTRY: &str = "seq, source, event_id, event_type, related_reference, processing_state, \
                     received_at, processed_at, attempts, fence, claimed_by, lease_until, \
                     next_attempt_at, reason, payload_bytes, has_payload";
const DONE: &str = "processing_state in ('succeeded', 'ignored')";
/// Older than a number of days, which follows.
const OLD: &str = "processed_at < now() - interval '1 day' * ";

/// Up to how many events are counted.
pub(crate) const BACKLOG_MAX: u32 = 100_000;

/// The statements for one schema.
#[derive(Debug)]
pub(crate) struct Sql {
    /// The schema, quoted.
    pub(crate) schema: String,
    pub(crate) insert: String,
    pub(crate) insert_and_notify: String,
    pub(crate) duplicate: String,
    pub(crate) probe: String,
    pub(crate) expire: String,
    pub(crate) due: String,
    pub(crate) first: String,
    pub(crate) lock_first: String,
    pub(crate) take: String,
    pub(crate) set_aside: String,
    pub(crate) give_up: String,
    pub(crate) begin: String,
    pub(crate) succeed: String,
    pub(crate) fail: String,
    pub(crate) backlog: String,
    pub(crate) operator: OperatorSql,
}

/// What operators and pruning need.
#[derive(Debug)]
pub(crate) struct OperatorSql {
    pub(crate) list: String,
    pub(crate) payload: String,
    pub(crate) retry: String,
    pub(crate) ignore: String,
    pub(crate) states: String,
    pub(crate) window: String,
    pub(crate) prunable: String,
    pub(crate) prune_payloads: String,
    pub(crate) prune_rows: String,
}

impl Sql {
    pub(crate) fn new(schema: &str) -> Self {
        let schema = escape_identifier(schema);
        let inbox = format!("{schema}.inbox");
        let insert = format!(
            "with fresh as (insert into {inbox} (source, event_id, event_type, related_reference, \
             payload) values ($1, $2, $3, $4, $5) on conflict (source, event_id) do nothing \
             returning seq) select seq"
        );
        Self {
            insert_and_notify: format!("{insert}, pg_notify('{CHANNEL}', $6) from fresh"),
            insert: format!("{insert} from fresh"),
            duplicate: format!(
                "select seq, processing_state, event_type = $3 and payload_hash = sha256($4) \
                 from {inbox} where source = $1 and event_id = $2"
            ),
            probe: format!(
                "select exists (select from {inbox} where {DUE} and {SCOPE}) or exists \
                 (select from {inbox} where processing_state = 'processing' \
                 and lease_until <= now() and {SCOPE})"
            ),
            expire: format!(
                "with stuck as (select seq from {inbox} where processing_state = 'processing' \
                 and lease_until <= now() and {SCOPE} order by lease_until limit $2 \
                 for update skip locked) \
                 update {inbox} i set processing_state = 'failed', reason = 'lease_expired', \
                 lease_until = null, next_attempt_at = case when i.attempts < $3 then now() end \
                 from stuck where i.seq = stuck.seq returning i.seq, i.next_attempt_at is null"
            ),
            due: format!(
                "select {HEAD} from {inbox} where {DUE} and {SCOPE} \
                 order by next_attempt_at, seq limit $2 for update skip locked"
            ),
            first: format!(
                "select seq, {DUE} from {inbox} where next_attempt_at is not null and {SCOPE} \
                 order by seq limit 1"
            ),
            lock_first: format!(
                "select {HEAD} from {inbox} where seq = $1 and {DUE} for update skip locked"
            ),
            take: format!(
                "update {inbox} set processing_state = 'processing', fence = fence + 1, \
                 attempts = attempts + 1, claimed_by = $3, \
                 lease_until = clock_timestamp() + $2::int8 * interval '1 ms' where seq = any ($1)"
            ),
            set_aside: format!(
                "update {inbox} set processing_state = $2, reason = $3 \
                 where seq = $1 and processing_state = 'pending'"
            ),
            give_up: format!(
                "update {inbox} set next_attempt_at = null, reason = $2 \
                 where seq = $1 and processing_state = 'failed'"
            ),
            begin: format!("select {schema}.inbox_begin($1, $2, $3, $4)"),
            succeed: format!("select {schema}.inbox_succeed($1, $2)"),
            fail: format!("select {schema}.inbox_fail($1, $2, $3, $4, $5)"),
            backlog: backlog(&inbox),
            operator: OperatorSql::new(&schema, &inbox),
            schema,
        }
    }
}

impl OperatorSql {
    fn new(schema: &str, inbox: &str) -> Self {
        Self {
            list: format!(
                "select {ENTRY} from {inbox} where (cardinality($1::text[]) = 0 \
                 or processing_state = any ($1)) and ($2::text is null or source = $2) \
                 and ($3::text is null or event_type = $3) \
                 and ($4::text is null or event_id = $4) and ($5::int8 is null or seq = $5) \
                 order by seq limit $6"
            ),
            payload: format!("select substring(payload for $2) from {inbox} where seq = $1"),
            retry: format!(
                "with changed as (update {inbox} set attempts = 0, next_attempt_at = now(), \
                 processing_state = case processing_state when 'review' then 'pending' \
                 else 'failed' end, reason = case processing_state when 'failed' then reason end \
                 where seq = any ($1) and processing_state in ('failed', 'review') returning seq) \
                 select seq, pg_notify('{CHANNEL}', $2) from changed"
            ),
            ignore: format!(
                "update {inbox} set processing_state = 'ignored', reason = 'operator' \
                 where seq = any ($1) and processing_state in ('pending', 'review') returning seq"
            ),
            states: format!("select seq, processing_state from {inbox} where seq = any ($1)"),
            window: format!(
                "select ceil(extract(epoch from dedup_window) / 86400)::int8 \
                 from {schema}.inbox_window"
            ),
            prunable: format!(
                "select (select count(*) from {inbox} where {DONE} and has_payload and {OLD}$1), \
                 (select count(*) from {inbox} where {DONE} and {OLD}$2)"
            ),
            prune_payloads: format!(
                "with old as (select seq from {inbox} where {DONE} and has_payload and {OLD}$1 \
                 order by processed_at limit $2 for update skip locked) \
                 update {inbox} i set payload = null from old where i.seq = old.seq"
            ),
            prune_rows: format!(
                "with old as (select seq from {inbox} where {DONE} and {OLD}$1 \
                 order by processed_at limit $2 for update skip locked) \
                 delete from {inbox} i using old where i.seq = old.seq"
            ),
        }
    }
}

/// Five counts, each bounded, and the age of the oldest pending event.
fn backlog(inbox: &str) -> String {
    let count = |condition: &str| {
        format!(
            "(select count(*) from (select from {inbox} where {condition} and {SCOPE} \
             limit {BACKLOG_MAX}) as each)"
        )
    };
    let open = "next_attempt_at is not null and processing_state in ('pending', 'failed')";
    format!(
        "select {}, {}, {}, {}, {}, coalesce((select extract(epoch from now() - received_at) \
         from {inbox} where next_attempt_at is not null and processing_state = 'pending' \
         and {SCOPE} order by seq limit 1), 0)::float8",
        count(&format!("{open} and processing_state = 'pending'")),
        count("processing_state = 'processing'"),
        count(&format!("{open} and processing_state = 'failed'")),
        count("processing_state = 'failed' and next_attempt_at is null"),
        count("processing_state = 'review'"),
    )
}

//! Every statement of this crate, with the schema's name in it.

use postgres_protocol::escape::escape_identifier;

/// What wakes processors; its contents are the schema.
pub(crate) const CHANNEL: &str = "walpost_inbox";

/// What a claim is told of an event.
const HEAD: &str = "seq, source, event_id, event_type, related_reference, attempts, fence, \
                    processing_state, extract(epoch from now() - received_at)::float8";
const WAITS: &str = "processing_state in ('pending', 'failed') and next_attempt_at is not null";
const DUE: &str = "processing_state in ('pending', 'failed') and next_attempt_at is not null \
                   and next_attempt_at <= now()";
/// Of one source, and of all: see the indexes. Each condition has the parameter
/// `$1`, so that both are called alike.
const OF_SOURCE: &str = "source = $1";
const OF_ALL: &str = "fence >= 0 and $1::text is null";

/// Everything of an event but its payload.
const ENTRY: &str = "seq, source, event_id, event_type, related_reference, processing_state, \
                     received_at, processed_at, attempts, fence, claimed_by, lease_until, \
                     next_attempt_at, reason, payload_bytes, has_payload";
const DONE: &str = "processing_state in ('succeeded', 'ignored')";
/// Older than a number of days, which follows.
const OLD: &str = "processed_at < now() - interval '1 day' * ";

/// Up to how many events are counted.
pub(crate) const BACKLOG_MAX: u32 = 10_000;

/// The statements for one schema.
#[derive(Debug)]
pub(crate) struct Sql {
    /// The schema, quoted.
    pub(crate) schema: String,
    pub(crate) insert: String,
    pub(crate) insert_and_notify: String,
    pub(crate) duplicate: String,
    pub(crate) lock_first: String,
    pub(crate) take: String,
    pub(crate) set_aside: String,
    pub(crate) give_up: String,
    pub(crate) begin: String,
    /// The same without the payload.
    pub(crate) begin_unread: String,
    /// $1 what `inbox_begin` sets as its marker. First of an effect's transaction.
    pub(crate) keep_session: String,
    pub(crate) succeed: String,
    pub(crate) fail: String,
    pub(crate) operator: OperatorSql,
    of_source: ScopedSql,
    of_all: ScopedSql,
}

/// Those that are about one source or about all, by a parameter `$1` that is the
/// source or null.
#[derive(Debug)]
pub(crate) struct ScopedSql {
    pub(crate) probe: String,
    pub(crate) expire: String,
    pub(crate) due: String,
    pub(crate) first: String,
    pub(crate) backlog: String,
}

/// What operators and pruning need.
#[derive(Debug)]
pub(crate) struct OperatorSql {
    pub(crate) list: String,
    pub(crate) list_not_done: String,
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
    /// The statements for one source, or for all.
    pub(crate) fn scoped(&self, source: Option<&str>) -> &ScopedSql {
        if source.is_some() { &self.of_source } else { &self.of_all }
    }

    /// Behind a handler: undoes what it set in its session.
    pub(crate) fn undo_session(&self, marker: &str, statement_ms: i64, idle_ms: i64) -> String {
        let Self { schema, .. } = self;
        format!(
            "reset session authorization; reset role; \
             select {schema}.inbox_undo_session('{marker}', {statement_ms}, {idle_ms})"
        )
    }

    /// Rolls an effect back, and what a rollback leaves of its session. Another
    /// transaction has begun then, which has to end.
    pub(crate) fn roll_back(&self) -> String {
        format!("rollback; select {}.inbox_forget_session(); begin", self.schema)
    }

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
            begin_unread: format!("select {schema}.inbox_begin($1, $2, $3, $4) is not null"),
            keep_session: format!("select {schema}.inbox_keep_session($1)"),
            succeed: format!("select {schema}.inbox_succeed($1, $2)"),
            fail: format!("select {schema}.inbox_fail($1, $2, $3, $4, $5)"),
            operator: OperatorSql::new(&schema, &inbox),
            of_source: ScopedSql::new(&inbox, OF_SOURCE),
            of_all: ScopedSql::new(&inbox, OF_ALL),
            schema,
        }
    }
}

impl OperatorSql {
    fn new(schema: &str, inbox: &str) -> Self {
        Self {
            list: list(inbox, "true"),
            list_not_done: not_done(inbox),
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

impl ScopedSql {
    fn new(inbox: &str, scope: &str) -> Self {
        // Ordered, so that an index is chosen also where statistics are old, as
        // those of a queue often are.
        Self {
            probe: format!(
                "select (select seq from {inbox} where {DUE} and {scope} \
                 order by next_attempt_at, seq limit 1) is not null or \
                 (select seq from {inbox} where processing_state = 'processing' \
                 and lease_until <= now() and {scope} order by lease_until limit 1) is not null"
            ),
            expire: format!(
                "with stuck as (select seq from {inbox} where processing_state = 'processing' \
                 and lease_until <= now() and {scope} order by lease_until limit $2 \
                 for update skip locked) \
                 update {inbox} i set processing_state = 'failed', reason = 'lease_expired', \
                 lease_until = null, next_attempt_at = case when i.attempts < $3 then now() end \
                 from stuck where i.seq = stuck.seq returning i.seq, i.next_attempt_at is null"
            ),
            due: format!(
                "select {HEAD} from {inbox} where {DUE} and {scope} \
                 order by next_attempt_at, seq limit $2 for update skip locked"
            ),
            first: format!(
                "select seq, {DUE} from {inbox} where next_attempt_at is not null and {scope} \
                 order by seq limit 1"
            ),
            backlog: backlog(inbox, scope),
        }
    }
}

/// Five counts, each bounded, and the age of the oldest pending event.
fn backlog(inbox: &str, scope: &str) -> String {
    let count = |condition: &str, order: &str| {
        format!(
            "(select count(*) from (select from {inbox} where {condition} and {scope} \
             order by {order} limit {BACKLOG_MAX}) as each)"
        )
    };
    format!(
        "select pending, {}, waiting, {}, {}, \
         coalesce((select extract(epoch from now() - received_at) from {inbox} where {WAITS} \
         and processing_state = 'pending' and {scope} order by next_attempt_at, seq limit 1), \
         0)::float8 \
         from (select count(*) filter (where processing_state = 'pending') as pending, \
         count(*) filter (where processing_state = 'failed') as waiting \
         from (select processing_state from {inbox} where {WAITS} and {scope} \
         order by next_attempt_at, seq limit {BACKLOG_MAX}) as each) as counts",
        count("processing_state = 'processing'", "lease_until"),
        count("processing_state = 'failed' and next_attempt_at is null", "seq"),
        count("processing_state = 'review'", "seq"),
    )
}

/// Events by the filter of parameters `$1` to `$5`, at most `$6`.
fn list(inbox: &str, condition: &str) -> String {
    format!(
        "select {ENTRY} from {inbox} where {condition} and (cardinality($1::text[]) = 0 \
         or processing_state = any ($1)) and ($2::text is null or source = $2) \
         and ($3::text is null or event_type = $3) and ($4::text is null or event_id = $4) \
         and ($5::int8 is null or seq = $5) order by seq limit $6"
    )
}

/// The same where none of them is done, without a walk through those that are.
fn not_done(inbox: &str) -> String {
    let parts = [
        "next_attempt_at is not null and fence >= 0",
        "processing_state = 'failed' and next_attempt_at is null",
        "processing_state = 'review'",
    ];
    let parts = parts.map(|condition| format!("({})", list(inbox, condition)));
    format!("select * from ({}) as each order by seq limit $6", parts.join(" union all "))
}

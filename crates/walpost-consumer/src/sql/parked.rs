//! Statements about parked events.

use std::fmt::Write;

/// Those of one consumer.
#[derive(Clone, Debug)]
pub(crate) struct ParkedSql {
    schema: String,
    /// A parked event, see `ParkedRow`.
    pub(crate) park: String,
    /// The same of an event that waits behind one of its key.
    pub(crate) wait: String,
    /// $1 position, $2 offsets: a replay has made the effects of parked events.
    pub(crate) unpark_replayed: String,
    /// $1 position: whether anything is parked.
    pub(crate) any: String,
    /// $1 position: how many are parked, and how many wait; at most 100,000.
    pub(crate) count: String,
    /// $1 position: keys that are held back.
    pub(crate) held_keys: String,
    /// $1 position, $2 next offset, $3 rows whose retry waits, $4 rows that wait
    /// whatever is wanted of them, $5 whether retries are full: the next row that
    /// somebody has a request for, and the request. For a retry of a held key the
    /// first row of the key.
    pub(crate) request: String,
    /// $1 id: whether a retry that was read is still to be made.
    pub(crate) still_retries: String,
    /// Parameters as of a deduplication: a row unless the effect was made by
    /// another record.
    pub(crate) stamp: String,
    /// $1 id: the effect was made. See `next_of_key`.
    pub(crate) unpark: String,
    /// $1 id: given up. See `next_of_key`.
    pub(crate) discard: String,
    /// $1 position, $2 id, $3 offset, $4 key: asks for the row behind, if this
    /// one was the first of its key; whether any row of the key is left.
    pub(crate) next_of_key: String,
    /// $1 position, $2 key: whether any row of the key is there.
    pub(crate) key_waits: String,
    /// $1 position, $2 id, $3 key, $4 reason, $5 attempts more: stays parked,
    /// and no retry of its key is wanted any more. A discard still is.
    pub(crate) keep: String,
}

impl ParkedSql {
    /// `s` is the schema, quoted.
    pub(crate) fn new(s: &str) -> Self {
        Self {
            park: park(
                s,
                "do update set run = excluded.run, reason = excluded.reason, \
                 attempts = excluded.attempts, state = excluded.state, \
                 holds_key = excluded.holds_key, parked_at = now(), request = null, \
                 settled_at = null",
            ),
            wait: park(
                s,
                "do update set run = excluded.run, reason = excluded.reason, \
                 attempts = excluded.attempts, state = excluded.state, \
                 holds_key = excluded.holds_key, settled_at = null where p.state = 'discarded'",
            ),
            unpark_replayed: format!(
                "delete from {s}.consumer_parked where pos_id = $1 and off = any($2)"
            ),
            any: format!(
                "select exists (select from {s}.consumer_parked \
                 where pos_id = $1 and state <> 'discarded')"
            ),
            count: format!(
                "select count(*) filter (where state = 'parked'), \
                 count(*) filter (where state = 'waiting') \
                 from (select state from {s}.consumer_parked \
                 where pos_id = $1 and state <> 'discarded' limit 100000) p"
            ),
            held_keys: format!(
                "select distinct key from {s}.consumer_parked \
                 where pos_id = $1 and holds_key and state <> 'discarded'"
            ),
            request: request(s),
            still_retries: format!(
                "select exists (select from {s}.consumer_parked where id = $1 \
                 and state <> 'discarded' and request is distinct from 'discard')"
            ),
            stamp: format!(
                "insert into {s}.done as d (consumer, source, event_id, pos_id, off, run) \
                 select $1, u.src, u.id, $2, u.off, $6 \
                 from unnest($3::text[], $4::text[], $5::bigint[]) u(src, id, off) \
                 on conflict (consumer, source, event_id) do update set run = excluded.run \
                 where d.pos_id = excluded.pos_id and d.off = excluded.off returning d.off"
            ),
            schema: s.to_owned(),
            unpark: format!("delete from {s}.consumer_parked where id = $1"),
            discard: format!(
                "update {s}.consumer_parked set state = 'discarded', request = null, \
                 settled_at = now() where id = $1"
            ),
            next_of_key: next_of_key(s),
            key_waits: format!(
                "select exists (select from {s}.consumer_parked where pos_id = $1 and holds_key \
                 and state <> 'discarded' and sha256(key) = sha256($2))"
            ),
            keep: keep_parked(s),
        }
    }

    /// A list of offsets follows, in parentheses.
    pub(crate) fn unpark_where(&self, position: i32) -> String {
        format!("delete from {}.consumer_parked where pos_id = {position} and off in", self.schema)
    }

    /// What a retry ends with, as text: the row leaves, and the one behind it is
    /// asked for.
    pub(crate) fn leave(&self, id: i64, holds_key: bool) -> String {
        let s = &self.schema;
        let mut text = String::new();
        if holds_key {
            let _ = write!(
                text,
                "update {s}.consumer_parked p set request = 'retry', requested_at = now() \
                 from (select q.id from {s}.consumer_parked one, {s}.consumer_parked q \
                 where one.id = {id} and q.pos_id = one.pos_id and q.id <> one.id \
                 and q.holds_key and q.state <> 'discarded' \
                 and sha256(q.key) = sha256(one.key) order by q.off limit 1) n \
                 where p.id = n.id and p.request is null; "
            );
        }
        let _ = write!(text, "delete from {s}.consumer_parked where id = {id}");
        text
    }
}

/// Columns of a parked row, in the order of the parameters.
fn park(schema: &str, conflict: &str) -> String {
    format!(
        "insert into {schema}.consumer_parked as p (consumer, pos_id, topic, part, off, run, \
         source, event_id, key, value, header_names, header_values, timestamp_ms, reason, \
         attempts, state, holds_key) \
         values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17) \
         on conflict (pos_id, off) {conflict}"
    )
}

/// Of the events behind the stored offset: a replay comes to the others by
/// itself, in their order. A retry that waits has those of its key wait, too.
fn request(schema: &str) -> String {
    format!(
        "with asked as (select a.request, f.id from {schema}.consumer_parked a \
         cross join lateral (select case when a.request = 'retry' and a.holds_key \
         then (select q.id from {schema}.consumer_parked q where q.pos_id = $1 and q.holds_key \
         and q.state <> 'discarded' and sha256(q.key) = sha256(a.key) order by q.off limit 1) \
         else a.id end as id) f \
         where a.pos_id = $1 and a.off < $2 and a.request is not null \
         and f.id <> all($4) and (a.request = 'discard' or not $5 and f.id <> all($3) \
         and not exists (select from {schema}.consumer_parked w where w.id = any($3 || $4) \
         and w.off < a.off and w.key = a.key)) order by a.off limit 1) \
         select a.request, p.id, p.state, p.topic, p.part, p.off, p.event_id, p.key, p.value, \
         p.header_names, p.header_values, p.timestamp_ms, p.holds_key \
         from asked a join {schema}.consumer_parked p on p.id = a.id"
    )
}

fn next_of_key(schema: &str) -> String {
    format!(
        "with next as (select q.id, q.off from {schema}.consumer_parked q \
         where q.pos_id = $1 and q.id <> $2 and q.holds_key and q.state <> 'discarded' \
         and sha256(q.key) = sha256($4) order by q.off limit 1), \
         asked as (update {schema}.consumer_parked p set request = 'retry', requested_at = now() \
         from next n where p.id = n.id and n.off > $3 and p.request is null) \
         select exists (select from next)"
    )
}

fn keep_parked(schema: &str) -> String {
    format!(
        "with calm as (update {schema}.consumer_parked set request = null \
         where pos_id = $1 and id <> $2 and request = 'retry' and holds_key \
         and sha256(key) = sha256($3)) \
         update {schema}.consumer_parked set state = 'parked', \
         request = case when request = 'discard' then request end, reason = $4, \
         attempts = attempts + $5, parked_at = now() where id = $2"
    )
}

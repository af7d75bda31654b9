//! Every statement of the consumer, with the schema's name in it.

mod parked;

use std::fmt::Write;

use postgres_protocol::escape::{escape_identifier, escape_literal};

pub(crate) use self::parked::ParkedSql;
use crate::{Event, settings::Settings};

/// Statements of one consumer.
#[derive(Clone, Debug)]
pub(crate) struct Sql {
    schema: String,
    claim_timeout_ms: u64,
    pub(crate) session: SessionSql,
    /// $1 schema: the role, whether the newest function is there, usage of the
    /// schema, execute on the functions, and which rights on tables are missing.
    pub(crate) rights: String,
    /// $1 consumer, $2 topic, $3 part, $4 group, $5 cluster, $6 topic id. Nothing
    /// where the name is another group's.
    pub(crate) ensure_position: String,
    /// $1 consumer, $2 topic, $3 part: the id.
    pub(crate) find_position: String,
    /// $1 consumer, $2 topic: whether any partition is known.
    pub(crate) knows_topic: String,
    /// $1 to $6 as `ensure_position`, $7 first offset.
    pub(crate) place_position: String,
    /// $1 position, $2 reset: whether it was carried out.
    pub(crate) has_reset: String,
    /// $1 position, $2 run, $3 next offset: how far resets have still to go, the
    /// latest first, each farther than the one before: mode, end, limit.
    pub(crate) ranges: String,
    /// $1 position: the epoch and the stored offset.
    pub(crate) epoch: String,
    /// $1 consumer, $2 topic, $3 part, $4 group, $5 epoch or null, $6 reason: the
    /// partition is halted, unless somebody has claimed it since.
    pub(crate) halted: String,
    /// $1 consumer, $2 position, $3 sources, $4 ids, $5 offsets, $6 run: the
    /// offsets of new events.
    pub(crate) dedup: String,
    /// The same where effects of earlier runs are made again.
    pub(crate) dedup_rerun: String,
    /// The same where missing effects are made, and those that were chosen.
    pub(crate) dedup_fill: String,
    /// The same where those are made that were chosen, and no others.
    pub(crate) dedup_chosen: String,
    /// $1 consumer, $2 position, $3 source, $4 ids, $5 offsets: an event whose
    /// effect another record made: id, offset, and where that record is.
    pub(crate) copy: String,
    pub(crate) parked: ParkedSql,
    /// $1 consumer: id, topic and partition of its positions.
    pub(crate) positions: String,
    /// $1 consumer, $2 positions, $3 oldest offsets, $4 days, $5 page, $6 pages:
    /// how many effects were forgotten, null behind the last page.
    pub(crate) prune: String,
    /// $1 position, $2 epoch, $3 old, $4 new, $5 reset, $6 mode: the run.
    pub(crate) reset_to: String,
    /// $1 position, $2 epoch, $3 offset, $4 known.
    pub(crate) start_at: String,
}

impl Sql {
    pub(crate) fn new(settings: &Settings) -> Self {
        let schema = escape_identifier(&settings.schema);
        let s = &schema;
        let columns = "consumer, topic, part, group_id, cluster_id, topic_id";
        // No row of a group that is refused stands in another one's way.
        let in_its_group = format!(
            "not exists (select from {s}.consumer n where n.name = $1 and n.group_id <> $4)"
        );
        let dedup = |conflict: &str| {
            format!(
                "insert into {s}.done as d (consumer, source, event_id, pos_id, off, run) \
                 select $1, u.src, u.id, $2, u.off, $6 \
                 from unnest($3::text[], $4::text[], $5::bigint[]) u(src, id, off) \
                 order by u.src collate \"C\", u.id collate \"C\", u.off \
                 on conflict {conflict} returning d.off"
            )
        };
        Self {
            rights: rights(),
            ensure_position: format!(
                "insert into {s}.position ({columns}) select $1, $2, $3, $4, $5, $6 \
                 where {in_its_group} on conflict (consumer, topic, part) do nothing"
            ),
            find_position: format!(
                "select id from {s}.position where consumer = $1 and topic = $2 and part = $3"
            ),
            knows_topic: format!(
                "select exists (select from {s}.position where consumer = $1 and topic = $2)"
            ),
            place_position: format!(
                "insert into {s}.position ({columns}, next_offset) \
                 select $1, $2, $3, $4, $5, $6, $7 where {in_its_group} \
                 on conflict (consumer, topic, part) do nothing"
            ),
            has_reset: format!(
                "select exists (select from {s}.consumer_reset where pos_id = $1 and id = $2)"
            ),
            ranges: format!(
                "select mode, until, events_per_s from (select mode, until, events_per_s, epoch, \
                 max(until) over (order by epoch desc rows between unbounded preceding \
                 and 1 preceding) as nearer from (select mode, events_per_s, epoch, \
                 coalesce(fill_until, chosen_until, from_offset) as until \
                 from {s}.consumer_reset where pos_id = $1 and run = $2 and mode <> 'skip') e) r \
                 where until > greatest(nearer, $3) order by epoch desc"
            ),
            halted: note_halted(s),
            epoch: format!("select epoch, next_offset from {s}.position where id = $1"),
            dedup: dedup("do nothing"),
            dedup_rerun: dedup(
                "(consumer, source, event_id) do update set run = excluded.run \
                 where d.pos_id = excluded.pos_id and d.off = excluded.off \
                 and d.run < excluded.run",
            ),
            dedup_fill: dedup_chosen(s, ""),
            dedup_chosen: dedup_chosen(s, "join again g on g.off = u.off"),
            copy: find_copy(s),
            parked: ParkedSql::new(s),
            positions: format!("select id, topic, part from {s}.position where consumer = $1"),
            prune: format!(
                "select {s}.prune_done($1, $2, $3, now() - $4 * interval '1 day', $5, $6)"
            ),
            reset_to: format!("select {s}.reset_to($1, $2, $3, $4, $5, $6)"),
            start_at: format!("select {s}.start_at($1, $2, $3, $4)"),
            session: SessionSql::new(s, settings),
            claim_timeout_ms: settings.claim_timeout_ms,
            schema,
        }
    }

    /// What a role needs, as statements for the owner of the schema.
    pub(crate) fn grants(&self, role: &str, on_functions: bool) -> String {
        let (schema, role) = (&self.schema, escape_identifier(role));
        let mut text = format!("grant usage on schema {schema} to {role};");
        for (rights, tables) in GRANTS {
            let tables: Vec<String> =
                tables.iter().map(|table| format!("{schema}.{table}")).collect();
            let tables = tables.join(", ");
            let _ = write!(text, " grant {rights} on {tables} to {role};");
        }
        if on_functions {
            let _ = write!(text, " grant execute on all functions in schema {schema} to {role};");
        }
        text
    }

    /// The schema, quoted.
    pub(crate) fn schema(&self) -> &str {
        &self.schema
    }

    /// The whole claim as one message, so that a paused client cannot hold it.
    /// `nonce` finds its backend in `pg_stat_activity`.
    pub(crate) fn claim(&self, nonce: &str, position: i32, owner: [&str; 4]) -> String {
        let [group, cluster, topic, guard] = owner.map(escape_literal);
        let Self { schema, claim_timeout_ms, .. } = self;
        format!(
            "/* walpost claim {nonce} */ begin isolation level read committed; \
             set local lock_timeout = {claim_timeout_ms}; \
             select epoch, next_offset, run, reset_id, known, leader_epoch \
             from {schema}.claim({position}, {group}, {cluster}, {topic}, {guard}); commit"
        )
    }

    /// Ends the transactions that block the claim and wait for nobody.
    /// $1 the claim's nonce.
    pub(crate) fn end_blockers() -> &'static str {
        "select b.pid, pg_terminate_backend(b.pid, 5000) from pg_stat_activity a, \
         unnest(pg_blocking_pids(a.pid)) b(pid) \
         where a.pid <> pg_backend_pid() and starts_with(a.query, '/* walpost claim ' || $1) \
         and cardinality(pg_blocking_pids(b.pid)) = 0"
    }

    /// After BEGIN: limits, then fence and offset.
    pub(crate) fn batch_begin(&self, old: &ClaimKey, new: &ClaimKey, known: &[i64]) -> String {
        let (schema, begin) = (&self.schema, &self.session.begin);
        let ClaimKey { position, epoch, next_offset, .. } = old;
        let ClaimKey { next_offset: new_offset, leader_epoch, .. } = new;
        let mut list = String::with_capacity(known.len() * 12);
        for (index, offset) in known.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            let _ = write!(list, "{comma}{offset}");
        }
        format!(
            "{begin}; select {schema}.batch_begin({position}, {epoch}, {next_offset}, {new_offset}, \
             '{{{list}}}', {})",
            leader_epoch.map_or_else(|| "null".to_owned(), |epoch| epoch.to_string())
        )
    }

    /// The same for a lane, whose transactions move no offset.
    pub(crate) fn lane_begin(&self, key: &ClaimKey) -> String {
        let ClaimKey { position, epoch, .. } = key;
        format!("{}; select {}.lane_begin({position}, {epoch})", self.session.begin, self.schema)
    }

    /// Refuses to go on where fewer transactions of the claim's lanes are there.
    pub(crate) fn lanes_hold(&self, key: &ClaimKey, committed: i64) -> String {
        let ClaimKey { position, epoch, .. } = key;
        format!("select {}.lanes_hold({position}, {epoch}, {committed})", self.schema)
    }

    /// As [`lane_begin`](Self::lane_begin), for a transaction that the offset follows.
    pub(crate) fn lane_work(&self, key: &ClaimKey) -> String {
        let ClaimKey { position, epoch, .. } = key;
        format!("{}; select {}.lane_work({position}, {epoch})", self.session.begin, self.schema)
    }

    pub(crate) fn lane_end(&self, key: &ClaimKey) -> String {
        let ClaimKey { position, epoch, .. } = key;
        format!("select {}.batch_end('{position}:{epoch}')", self.schema)
    }

    /// Before COMMIT: whether the transaction is still the one that began.
    pub(crate) fn batch_end(&self, new: &ClaimKey) -> String {
        let ClaimKey { position, epoch, next_offset, .. } = new;
        format!("select {}.batch_end('{position}:{epoch}:{next_offset}')", self.schema)
    }
}

/// What goes around handlers, the same in each transaction.
#[derive(Clone, Debug)]
pub(crate) struct SessionSql {
    /// First of a transaction: how long it may wait, and be waited for.
    begin: String,
    /// Behind a handler: undoes what it set in its session.
    pub(crate) undo: String,
    /// The same before the handler of another event.
    pub(crate) undo_between: String,
    /// Rolls the handler's transaction back, and what a rollback leaves of its
    /// session. Another transaction has begun then, which has to end.
    pub(crate) roll_back: String,
}

impl SessionSql {
    fn new(s: &str, settings: &Settings) -> Self {
        let lock_ms = settings.lock_timeout_ms;
        let idle_ms = idle_timeout_ms(settings.handler_timeout_ms);
        let undo = |next: bool| {
            format!(
                "reset session authorization; reset role; \
                 select {s}.undo_session({lock_ms}, {idle_ms}, {next})"
            )
        };
        Self {
            begin: format!("select {s}.begin_session({lock_ms}, {idle_ms})"),
            undo: undo(false),
            undo_between: undo(true),
            roll_back: format!("rollback; select {s}.forget_session(); begin"),
        }
    }
}

/// An event whose effect another record made.
fn find_copy(s: &str) -> String {
    format!(
        "select u.id, u.off, coalesce(q.topic || '[' || q.part || ']@' || d.off, \
         'a partition that is gone') \
         from unnest($4::text[], $5::bigint[]) u(id, off) join {s}.done d \
         on d.consumer = $1 and d.source = $3 and d.event_id = u.id \
         and (d.pos_id <> $2 or d.off <> u.off) \
         left join {s}.position q on q.id = d.pos_id order by u.off limit 1"
    )
}

/// Why a partition is halted, behind the fence.
fn note_halted(s: &str) -> String {
    format!(
        "insert into {s}.consumer_halted as h (pos_id, epoch, reason) \
         select q.id, q.epoch, $6 from {s}.position q where q.consumer = $1 \
         and q.topic = $2 and q.part = $3 and q.group_id = $4 \
         and ($5::bigint is null or q.epoch = $5) for share \
         on conflict (pos_id) do update set epoch = excluded.epoch, \
         reason = excluded.reason, at = excluded.at"
    )
}

/// Chosen events by their own records, so that a copy is none; and of those
/// without an effect the ones that `of` leaves.
fn dedup_chosen(schema: &str, of: &str) -> String {
    let given = "unnest($3::text[], $4::text[], $5::bigint[]) u(src, id, off)";
    format!(
        "with again as (delete from {schema}.consumer_again a \
         where a.pos_id = $2 and a.off = any($5) returning a.off), \
         made as (update {schema}.done d set run = $6 from {given} join again g on g.off = u.off \
         where d.consumer = $1 and d.source = u.src and d.event_id = u.id \
         and d.pos_id = $2 and d.off = u.off returning d.off), \
         missing as (insert into {schema}.done as d (consumer, source, event_id, pos_id, off, run) \
         select $1, u.src, u.id, $2, u.off, $6 from {given} {of} \
         order by u.src collate \"C\", u.id collate \"C\", u.off \
         on conflict do nothing returning d.off) \
         select off from made union all select off from missing"
    )
}

/// After so long a silence in a transaction the server ends it.
pub(crate) fn idle_timeout_ms(handler_timeout_ms: u64) -> u64 {
    handler_timeout_ms + 5_000
}

/// Rights on the tables, and on which: the one list of them.
pub(crate) const GRANTS: [(&str, &[&str]); 4] = [
    ("select, insert, update", &["position", "done", "consumer"]),
    ("select, insert, update, delete", &["consumer_parked", "consumer_lane", "consumer_halted"]),
    ("select, insert", &["consumer_reset"]),
    ("select, delete", &["consumer_again"]),
];
/// Those that a consumer calls.
const FUNCTIONS: &str = "'claim', 'start_at', 'reset_to', 'batch_begin', 'lane_begin', 'lane_work', \
                         'lanes_hold', 'batch_end', 'begin_session', 'session_values', \
                         'undo_session', 'forget_session'";
/// The newest function of the set, which a consumer of this version needs.
pub(crate) const NEWEST: &str = "lanes_hold";

/// What a role needs, in words.
pub(crate) fn needed_rights() -> String {
    let on_tables =
        GRANTS.iter().map(|(rights, tables)| format!("{rights} on {}", tables.join(", ")));
    let on_tables: Vec<String> = on_tables.collect();
    format!("usage on the schema; {}; execute on the functions", on_tables.join("; "))
}

/// Reads the catalogs alone: a name in a schema without usage would fail.
fn rights() -> String {
    let mut values = String::new();
    for (rights, tables) in GRANTS {
        for (table, right) in
            tables.iter().flat_map(|table| rights.split(", ").map(move |right| (table, right)))
        {
            let comma = if values.is_empty() { "" } else { ", " };
            let _ = write!(values, "{comma}('{table}', '{right}')");
        }
    }
    format!(
        "select current_user::text, \
         exists (select from pg_proc p where p.pronamespace = n.oid and p.proname = '{NEWEST}'), \
         coalesce(has_schema_privilege(n.oid, 'usage'), false), \
         not exists (select from pg_proc p where p.pronamespace = n.oid \
         and p.proname in ({FUNCTIONS}) and not has_function_privilege(p.oid, 'execute')), \
         array(select string_agg(r.name, ', ' order by r.name) || ' on ' || r.of \
         from (values {values}) r(of, name) \
         join pg_class c on c.relname = r.of and c.relnamespace = n.oid \
         where not case r.name when 'delete' then has_table_privilege(c.oid, r.name) \
         else has_any_column_privilege(c.oid, r.name) end group by r.of order by r.of), \
         current_setting('server_encoding'), \
         current_setting('transaction_read_only')::bool \
         from (select $1::text as name) s left join pg_namespace n on n.nspname = s.name"
    )
}

/// What a batch has to find in the row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClaimKey {
    pub(crate) position: i32,
    pub(crate) epoch: i64,
    pub(crate) next_offset: i64,
    /// Of the record before `next_offset`, where that is known.
    pub(crate) leader_epoch: Option<i32>,
}

impl ClaimKey {
    /// What the next batch has to find after one of `events`.
    pub(crate) fn after(self, events: &[Event]) -> Self {
        events.last().map_or(self, |last| Self {
            next_offset: last.offset() + 1,
            leader_epoch: last.leader_epoch(),
            ..self
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_names_its_claim_and_the_known_offsets() {
        let sql = Sql::new(&Settings::new("c".into()));
        let old = ClaimKey { position: 3, epoch: 7, next_offset: 10, leader_epoch: None };
        let last = Event::builder("t").position(0, 11).leader_epoch(Some(5)).build();
        let new = old.after(&[last]);
        let begin = sql.batch_begin(&old, &new, &[4, 10]);
        assert!(
            begin.ends_with("select \"walpost\".batch_begin(3, 7, 10, 12, '{4,10}', 5)"),
            "{begin}"
        );
        assert!(sql.batch_begin(&old, &old, &[]).ends_with("10, '{}', null)"));
        assert_eq!(sql.batch_end(&new), "select \"walpost\".batch_end('3:7:12')");
        assert_eq!(old.after(&[]), old);
    }
}

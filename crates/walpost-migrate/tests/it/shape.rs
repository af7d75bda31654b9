use tokio_postgres::{Client, error::SqlState};
use walpost_migrate::{Migrator, Set};
use walpost_testkit::fresh_database;

async fn relay() -> Client {
    let mut client = fresh_database().await.connect().await;
    Migrator::new().set(Set::Relay).migrate(&mut client).await.unwrap();
    client
}

async fn columns(client: &Client, table: &str) -> Vec<String> {
    let rows = client
        .query(
            "select attname || ' ' || format_type(atttypid, atttypmod) || \
             case when attnotnull then ' not null' else '' end \
             from pg_attribute where attrelid = ('walpost.' || $1::text)::regclass \
             and attnum > 0 order by attnum",
            &[&table],
        )
        .await
        .unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

#[tokio::test]
async fn the_outbox_has_the_columns_that_its_readers_name() {
    let client = relay().await;
    assert_eq!(
        columns(&client, "outbox").await,
        [
            "id uuid not null",
            "aggregatetype text not null",
            "aggregateid text not null",
            "type text not null",
            "payload jsonb",
            "headers jsonb",
            "traceparent text",
            "tracestate text",
            "idempotency_key text",
            "created_at timestamp with time zone not null",
            "xid xid8 not null",
            "seq bigint not null",
        ]
    );
}

#[tokio::test]
async fn five_columns_are_enough_and_the_rest_is_filled_in() {
    let mut client = relay().await;
    let tx = client.transaction().await.unwrap();
    tx.batch_execute(
        "insert into walpost.outbox (aggregatetype, aggregateid, type, payload) \
         values ('order', '1', 'placed', '{}'), ('order', '1', 'paid', null)",
    )
    .await
    .unwrap();
    let rows = tx
        .query(
            "select type, xid = pg_current_xact_id(), seq, created_at > now() \
             from walpost.outbox order by seq",
            &[],
        )
        .await
        .unwrap();
    let row = |index: usize| -> (&str, bool, i64, bool) {
        let row = &rows[index];
        (row.get(0), row.get(1), row.get(2), row.get(3))
    };
    assert_eq!(row(0), ("placed", true, 1, true));
    assert_eq!(row(1), ("paid", true, 2, true));
}

#[tokio::test]
async fn only_inserts_into_the_outbox_are_published() {
    let client = relay().await;
    let row = client
        .query_one(
            "select pubinsert, pubupdate or pubdelete or pubtruncate, pubviaroot, puballtables, \
             (select string_agg(schemaname || '.' || tablename, ',') from pg_publication_tables \
              where pubname = 'walpost') from pg_publication where pubname = 'walpost'",
            &[],
        )
        .await
        .unwrap();
    let flags: Vec<bool> = (0..4).map(|index| row.get(index)).collect();
    assert_eq!(flags, [true, false, true, false]);
    assert_eq!(row.get::<_, &str>(4), "walpost.outbox");
    // Without a replica identity of old rows, published deletes would fail.
    client.batch_execute("delete from walpost.outbox").await.unwrap();
}

#[tokio::test]
async fn a_key_is_taken_once_and_no_key_any_number_of_times() {
    let client = relay().await;
    let insert = |key: &str| {
        format!(
            "insert into walpost.outbox (aggregatetype, aggregateid, type, idempotency_key) \
             values ('order', '1', 'placed', {key})"
        )
    };
    for key in ["null", "null", "'a'", "'b'"] {
        client.batch_execute(&insert(key)).await.unwrap();
    }
    let error = client.batch_execute(&insert("'a'")).await.unwrap_err();
    assert_eq!(error.code(), Some(&SqlState::UNIQUE_VIOLATION));
}

#[tokio::test]
async fn the_relay_finds_its_columns() {
    let client = relay().await;
    assert_eq!(
        columns(&client, "checkpoint").await,
        [
            "pipeline text not null",
            "token uuid not null",
            "generation bigint not null",
            "system_id text not null",
            "timeline bigint not null",
            "slot text not null",
            "confirmed_lsn pg_lsn not null",
            "initial text not null",
            "initial_boundary text",
            "floors jsonb not null",
            "clean boolean not null",
            "fence text",
            "updated_at timestamp with time zone not null",
            "proven jsonb",
            "pending jsonb",
            "recovery jsonb",
            "recovery_requested jsonb",
            "tables text[]",
            "has_messages boolean not null",
            "publication jsonb",
            "source text not null",
            "switch jsonb",
            "taken_over_at text",
            "relations jsonb",
        ]
    );
    assert_eq!(
        columns(&client, "parked").await,
        [
            "id bigint not null",
            "pipeline text not null",
            "generation bigint not null",
            "commit_lsn pg_lsn not null",
            "ordinal bigint not null",
            "source text not null",
            "event_id text",
            "aggregate_type text",
            "aggregate_id text",
            "reason text not null",
            "detail text",
            "attempts integer not null",
            "state text not null",
            "requested text",
            "requested_at timestamp with time zone",
            "sending_floor jsonb",
            "topic text",
            "record_partition integer",
            "record_key bytea",
            "record_value bytea",
            "record_headers jsonb",
            "record_timestamp_ms bigint",
            "row_columns jsonb",
            "message_content bytea",
            "parked_at timestamp with time zone not null",
            "updated_at timestamp with time zone not null",
            "dead_letter_topic text",
            "dead_letter_at timestamp with time zone",
            "dead_letter_error text",
            "id_space uuid",
            "retry_from_table boolean not null",
        ]
    );
}

#[tokio::test]
async fn a_replay_has_the_columns_that_tell_who_asked_and_how_far_it_is() {
    let client = relay().await;
    assert_eq!(
        columns(&client, "replay").await,
        [
            "id bigint not null",
            "pipeline text not null",
            "source text not null",
            "filter jsonb not null",
            "to_topic text",
            "rate_per_s integer not null",
            "boundary pg_snapshot not null",
            "state text not null",
            "detail text",
            "selected bigint not null",
            "sent bigint not null",
            "unsendable bigint not null",
            "last_seq bigint",
            "token uuid not null",
            "asked_by text not null",
            "asked_from text",
            "started_at timestamp with time zone not null",
            "updated_at timestamp with time zone not null",
        ]
    );
}

#[tokio::test]
async fn closed_sets_are_closed() {
    let client = relay().await;
    let checkpoint = |initial: &str, boundary: &str| {
        format!(
            "insert into walpost.checkpoint (pipeline, token, generation, system_id, timeline, \
             slot, confirmed_lsn, initial, initial_boundary) \
             values (gen_random_uuid()::text, gen_random_uuid(), 4294967295, '1', 1, 's', '0/1', \
             '{initial}', {boundary})"
        )
    };
    let parked = |reason: &str, state: &str| {
        format!(
            "insert into walpost.parked \
             (pipeline, generation, commit_lsn, ordinal, source, reason, state) \
             values (gen_random_uuid()::text, 1, '0/1', 0, 's', '{reason}', '{state}')"
        )
    };
    for (initial, boundary) in [("creating", "null"), ("publish", "'5:9:7'"), ("done", "null")] {
        client.batch_execute(&checkpoint(initial, boundary)).await.unwrap();
    }
    for reason in ["unroutable", "oversize", "rejected", "undecodable", "no_topic", "behind"] {
        client.batch_execute(&parked(reason, "open")).await.unwrap();
    }
    for state in ["done", "discarded"] {
        client.batch_execute(&parked("behind", state)).await.unwrap();
    }
    let set = |columns: &str| {
        format!(
            "{}; update walpost.parked set {columns} where id = lastval()",
            parked("behind", "open")
        )
    };
    let sending = "state = 'sending', sending_floor = '{}'";
    for columns in [sending, "requested = 'retry'", "requested = 'discard'"] {
        client.batch_execute(&set(columns)).await.unwrap();
    }
    for wrong in [
        checkpoint("other", "null"),
        checkpoint("publish", "null"),
        checkpoint("done", "'5:9:7'"),
        parked("other", "open"),
        parked("behind", "other"),
        parked("behind", "sending"),
        set("requested = 'other'"),
        set("requested = 'retry', state = 'done'"),
        set("sending_floor = '{}'"),
    ] {
        let error = client.batch_execute(&wrong).await.unwrap_err();
        assert_eq!(error.code(), Some(&SqlState::CHECK_VIOLATION), "{wrong}");
    }
}

#[tokio::test]
async fn a_position_holds_one_parked_event_for_each_id_of_whatever_length() {
    let client = relay().await;
    let park = async |id: Option<&str>| {
        let sql = "insert into walpost.parked \
                   (pipeline, generation, commit_lsn, ordinal, source, event_id, aggregate_id, reason) \
                   values ('shop', 1, '0/1', 0, 's', $1, $1, 'rejected')";
        client.execute(sql, &[&id]).await
    };
    // Beyond what an index entry takes, and not to be compressed below it.
    let digests =
        "select string_agg(sha256(n::text::bytea)::text, '') from generate_series(1, 200) n";
    let long: String = client.query_one(digests, &[]).await.unwrap().get(0);
    for id in [None, Some("a"), Some("b"), Some(&*long)] {
        park(id).await.unwrap();
        let error = park(id).await.unwrap_err();
        assert_eq!(error.code(), Some(&SqlState::UNIQUE_VIOLATION), "{:?}", id.map(str::len));
    }
}

#[tokio::test]
async fn a_parked_event_is_kept_in_one_form() {
    let client = relay().await;
    let park = async |columns: &str, values: &str| {
        let sql = format!(
            "insert into walpost.parked \
             (pipeline, generation, commit_lsn, ordinal, source, reason, {columns}) \
             values (gen_random_uuid()::text, 1, '0/1', 0, 's', 'rejected', {values})"
        );
        client.batch_execute(&sql).await
    };
    for (columns, values) in [("topic", "'t'"), ("row_columns", "'[]'"), ("message_content", "'x'")]
    {
        park(columns, values).await.unwrap();
    }
    for (columns, values) in
        [("topic, row_columns", "'t', '[]'"), ("topic, message_content", "'t', 'x'")]
    {
        let error = park(columns, values).await.unwrap_err();
        assert_eq!(error.code(), Some(&SqlState::CHECK_VIOLATION), "{columns}");
    }
}

#[tokio::test]
async fn parked_events_are_not_for_everybody_also_where_new_tables_are() {
    let mut client = fresh_database().await.connect().await;
    client
        .batch_execute("alter default privileges grant select on tables to public")
        .await
        .unwrap();
    Migrator::new().set(Set::Relay).migrate(&mut client).await.unwrap();
    let may_read = async |table: &str| -> bool {
        let sql = "select has_table_privilege('public', 'walpost.' || $1::text, 'select')";
        client.query_one(sql, &[&table]).await.unwrap().get(0)
    };
    assert!(may_read("checkpoint").await);
    assert!(!may_read("parked").await && !may_read("outbox_archive").await);
}

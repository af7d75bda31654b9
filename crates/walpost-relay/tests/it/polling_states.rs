//! Polled tables whose column of states is of another kind than text: booleans, NULL
//! and a time, numbers, enums, domains.

use std::time::Duration;

use walpost_relay::{CheckResult, Outcome, PollingConfig, Requeue, check_polling};
use walpost_testkit::until;

use crate::{
    polling_rig::Polled,
    rig::{Rig, SOON, status, stop},
};

/// A column of states, and how it is configured.
struct States {
    column: &'static str,
    ddl: &'static str,
    /// Pending, published, failed.
    values: [&'static str; 3],
    /// That a row is published.
    published: &'static str,
}

const EVERYDAY: [States; 2] = [
    States {
        column: "published",
        ddl: "published boolean not null default false",
        values: ["false", "true", ""],
        published: "published",
    },
    States {
        column: "published_at",
        ddl: "published_at timestamptz",
        values: ["", "", ""],
        published: "published_at > now() - interval '1 minute'",
    },
];

const DEEP: [States; 10] = [
    States {
        column: "processed_at",
        ddl: "processed_at timestamp",
        values: ["", "", ""],
        published: "processed_at > (now() at time zone 'UTC') - interval '1 minute'",
    },
    States {
        column: "sent_on",
        ddl: "sent_on date",
        values: ["", "", ""],
        published: "sent_on is not null",
    },
    States {
        column: "state",
        ddl: "state smallint not null default 0",
        values: ["0", "1", "2"],
        published: "state = 1",
    },
    States {
        column: "state",
        ddl: "state int not null default 0 check (state in (0, 1))",
        values: ["0", "1", ""],
        published: "state = 1",
    },
    States {
        column: "state",
        ddl: "state outbox_state not null default 'new'",
        values: ["new", "done", "dead"],
        published: "state = 'done'",
    },
    States {
        column: "Status",
        ddl: "\"Status\" varchar(8) not null default 'new' check (\"Status\" in ('new', 'done'))",
        values: ["new", "done", ""],
        published: "\"Status\" = 'done'",
    },
    States {
        column: "state",
        ddl: "state outbox_text not null default 'new'",
        values: ["new", "done", "dead"],
        published: "state = 'done'",
    },
    States {
        column: "state",
        ddl: "state outbox_flag not null default false",
        values: ["false", "true", ""],
        published: "state",
    },
    States {
        column: "sent",
        ddl: "sent boolean",
        values: ["", "true", "false"],
        published: "sent",
    },
    States {
        column: "state",
        ddl: "state char(1) not null default 'N'",
        values: ["N", "P", "F"],
        published: "state = 'P'",
    },
];

const TYPES: &str = "create type outbox_state as enum ('new', 'done', 'dead'); \
    create domain outbox_text as text check (value in ('new', 'done', 'dead')); \
    create domain outbox_flag as boolean";

/// A poller of a table with such a column, and no other column for what it does.
async fn polled_by(states: &States, rig: Rig) -> Polled {
    let table = format!(
        "drop table if exists public.box cascade; delete from walpost.polling_attempts; \
         create table public.box (id bigint generated always as identity primary key, \
         aggregatetype text not null, aggregateid text not null, payload text, {})",
        states.ddl
    );
    rig.client.batch_execute(&table).await.unwrap();
    let mut polled = Polled { rig, polling: PollingConfig::default() };
    polled.rig.config.tables = vec!["public.box".parse().unwrap()];
    let polling = &mut polled.polling;
    polling.poll_interval_ms = 10;
    polling.retry_delays = vec![Duration::from_millis(40)];
    polling.order_columns = vec!["id".to_owned()];
    polling.status_column = states.column.to_owned();
    let values = states.values.map(str::to_owned);
    [polling.pending_value, polling.published_value, polling.failed_value] = values;
    for column in [
        &mut polling.attempts_column,
        &mut polling.next_attempt_at_column,
        &mut polling.published_at_column,
        &mut polling.last_error_column,
        &mut polling.created_at_column,
    ] {
        column.clear();
    }
    polled
}

async fn insert(rig: &Rig, aggregate: &str, value: &str) {
    let sql = format!(
        "insert into public.box (aggregatetype, aggregateid, payload) \
         values ('order', '{aggregate}', '{value}')"
    );
    rig.client.batch_execute(&sql).await.unwrap();
}

/// Publishes, gives a row up that holds others back, and publishes it once it is
/// requeued.
async fn lives(states: &States, rig: Rig) -> Polled {
    let mut polled = polled_by(states, rig).await;
    polled.polling.max_attempts = 2;
    polled.mend().await;
    for name in ["outbox table", "statements", "partial index"] {
        let (outcome, detail, _) = polled.checked(name).await;
        assert_eq!(outcome, Outcome::Ok, "{}: {detail}", states.ddl);
    }
    let published = format!("select count(*) from public.box where {}", states.published);
    let reaches = async |polled: &Polled, count: i64| {
        let what = format!("{count} published, {}", states.ddl);
        until(SOON, &what, async || polled.rig.count(&published).await == count).await;
    };
    let before = polled.rig.world.count();
    polled.rig.world.never("2");
    let relay = polled.polling().await;
    for (aggregate, value) in [("a", "1"), ("b", "2"), ("b", "3"), ("c", "4")] {
        insert(&polled.rig, aggregate, value).await;
    }
    reaches(&polled, 2).await;
    status(&relay, "the count of what failed", |status| {
        status.polling.is_some_and(|sight| (sight.failed, sight.pending) == (1, 1))
    })
    .await;
    // It stays so for relays that come later.
    stop(relay).await;
    let relay = polled.polling().await;
    assert_eq!(polled.rig.world.count(), before + 2);
    assert_eq!(polled.requeue(Requeue::Waiting, true).await.len(), 0);
    polled.rig.world.mend();
    assert_eq!(polled.requeue(Requeue::All, true).await.len(), 1);
    assert_eq!(polled.requeue(Requeue::All, false).await.len(), 1);
    reaches(&polled, 4).await;
    stop(relay).await;
    assert_eq!(polled.rig.world.values()[before + 2..], ["2", "3"]);
    assert_eq!(polled.rig.count("select count(*) from walpost.polling_attempts").await, 0);
    polled
}

#[tokio::test]
async fn a_boolean_state_and_a_time_that_is_null_are_polled() {
    let mut rig = Rig::new().await;
    for states in &EVERYDAY {
        rig = lives(states, rig).await.rig;
    }
}

#[tokio::test]
#[ignore = "deep: ten tables"]
async fn states_of_every_kind_are_polled() {
    let mut rig = Rig::new().await;
    rig.client.batch_execute(TYPES).await.unwrap();
    for states in &DEEP {
        rig = lives(states, rig).await.rig;
    }
}

/// What a start refuses, `check` refuses with the same words, whether rows are pending
/// or not, and nothing is sent.
#[tokio::test]
async fn a_state_that_the_column_does_not_take_is_refused_before_anything_is_sent() {
    let mut rig = Rig::new().await;
    rig.client.batch_execute(TYPES).await.unwrap();
    for (ddl, values, parts) in [
        (
            "state boolean not null default false",
            ["NEW", "PUBLISHED", "FAILED"],
            ["polling.pending_value, \"NEW\"", "pending_value = \"false\""],
        ),
        (
            "state timestamptz",
            ["", "PUBLISHED", ""],
            ["polling.published_value, \"PUBLISHED\"", "published_value = \"\""],
        ),
        (
            "state varchar(4) not null default 'NEW'",
            ["NEW", "PUBLISHED", ""],
            ["polling.published_value, \"PUBLISHED\"", "character varying(4)"],
        ),
        (
            "state text not null default 'NEW' check (state in ('NEW', 'DONE'))",
            ["NEW", "DONE", "FAILED"],
            ["polling.failed_value, \"FAILED\"", "box_state_check"],
        ),
        (
            "state outbox_text not null default 'new'",
            ["new", "done", "gone"],
            ["polling.failed_value, \"gone\"", "outbox_text"],
        ),
        (
            "state smallint not null default 0",
            ["0", "70000", ""],
            ["polling.published_value, \"70000\"", "smallint"],
        ),
        (
            "state timestamptz not null default 'epoch'",
            ["", "", ""],
            ["\"state\" of public.box, which polling.status_column names", "drop not null"],
        ),
        (
            "state bigint",
            ["", "", ""],
            ["is of type bigint but expression is of type timestamp with time zone", "[polling]"],
        ),
        ("state json", ["", "1", ""], ["does not exist", "[polling]"]),
    ] {
        for is_empty in [true, false] {
            let states = States { column: "state", ddl, values, published: "true" };
            let mut polled = polled_by(&states, rig).await;
            if ddl.contains("json") {
                polled.polling.pending_value = "0".to_owned();
            }
            if !is_empty {
                insert(&polled.rig, "a", "1").await;
            }
            let (outcome, detail, next_step) = polled.checked("statements").await;
            let found = format!("{detail}; {}", next_step.unwrap_or_default());
            assert_eq!(outcome, Outcome::Fail, "{ddl}: {found}");
            let ended = tokio::time::timeout(SOON, polled.start().finished()).await;
            let refused = ended.expect("the start is refused").unwrap_err().to_string();
            for part in parts {
                assert!(found.contains(part), "expected {part:?} of check in: {found}");
                assert!(refused.contains(part), "expected {part:?} in: {refused}");
            }
            assert_eq!(polled.rig.world.count(), 0);
            rig = polled.rig;
        }
    }
}

/// What only a row shows: triggers, and columns that take no NULL.
#[tokio::test]
async fn what_would_fail_behind_the_sending_is_refused_before_it() {
    let mut polled = Polled::new().await;
    polled.rig.insert("a", &["1"]).await;
    let run = async |rig: &Rig, sql: &str| rig.client.batch_execute(sql).await.unwrap();
    for (spoil, mend, parts) in [
        (
            "alter table walpost.outbox alter last_error set default ''; \
             update walpost.outbox set last_error = ''; \
             alter table walpost.outbox alter last_error set not null",
            "alter table walpost.outbox alter last_error drop not null",
            "which polling.last_error_column names, does not take NULL",
        ),
        (
            "create function keep() returns trigger language plpgsql as \
             $$ begin raise exception 'rows are kept: %', new.payload; end $$; \
             create trigger keep before update on walpost.outbox for each row \
             execute function keep()",
            "drop trigger keep on walpost.outbox",
            "noting what was published failed: ERROR P0001",
        ),
        (
            "create constraint trigger keep after update on walpost.outbox deferrable \
             initially deferred for each row execute function keep()",
            "drop trigger keep on walpost.outbox",
            "marking a row as published failed: ERROR P0001",
        ),
        (
            "alter table walpost.outbox alter published_at type bigint using 0",
            "alter table walpost.outbox alter published_at type timestamptz using null",
            "\"published_at\" is of type bigint",
        ),
    ] {
        run(&polled.rig, spoil).await;
        let (outcome, detail, _) = polled.checked("statements").await;
        assert_eq!(outcome, Outcome::Fail, "{detail}");
        let ended = tokio::time::timeout(SOON, polled.start().finished()).await;
        let refused = ended.expect("the start is refused").unwrap_err().to_string();
        assert!(detail.contains(parts), "expected {parts:?} of check in: {detail}");
        assert!(refused.contains(parts), "expected {parts:?} in: {refused}");
        assert!(!refused.contains("rows are kept"), "no contents: {refused}");
        run(&polled.rig, mend).await;
    }
    assert_eq!(polled.rig.world.count(), 0, "nothing was sent");
    // What was tried has left no trace.
    let untouched = "select count(*) from walpost.outbox where status = 'NEW' and attempts = 0 \
                     and published_at is null and next_attempt_at is null";
    assert_eq!(polled.rig.count(untouched).await, 1);
    assert_eq!(polled.rig.count("select count(*) from walpost.polling_attempts").await, 0);
    polled.polling.claim_max_aggregates = 1;
    stop(polled.polling().await).await;
}

/// An index may be dropped while a poller runs: no row is marked that was not sent.
#[tokio::test]
async fn no_more_rows_are_marked_than_were_sent() {
    let polled = Polled::new().await;
    let mut relay = polled.polling().await;
    let twins = "alter table walpost.outbox drop constraint outbox_pkey; \
                 insert into walpost.outbox (id, aggregatetype, aggregateid, type, payload) \
                 values ('00000000-0000-0000-0000-000000000001', 'order', 'a', 'Placed', '1'), \
                 ('00000000-0000-0000-0000-000000000001', 'order', 'b', 'Placed', '2')";
    polled.rig.client.batch_execute(twins).await.unwrap();
    let ended = tokio::time::timeout(SOON, relay.finished()).await;
    let text = ended.expect("it marks rows that it has not sent").unwrap_err().to_string();
    assert!(text.contains("2 rows of table walpost.outbox have the ids of 1 row"), "{text}");
    assert_eq!(polled.count("NEW").await, 2);
}

#[tokio::test]
async fn an_order_that_may_be_null_or_of_the_transaction_is_a_warning() {
    let mut polled = Polled::new().await;
    polled.polling.order_columns = vec!["created_at".to_owned()];
    let warnings = async |polled: &Polled| {
        let Rig { database, config, router, .. } = &polled.rig;
        let results = check_polling(database, config, &polled.polling, router).await;
        let of_order = results.into_iter().filter(|result| result.name == "insert order");
        of_order.map(|result| (result.outcome, result.detail)).collect::<Vec<_>>()
    };
    assert_eq!(warnings(&polled).await, [], "the clock's time");
    let nullable = "alter table walpost.outbox alter status drop not null";
    polled.rig.client.batch_execute(nullable).await.unwrap();
    let (outcome, detail, _) = polled.checked("states").await;
    assert!(outcome == Outcome::Warn && detail.contains("is never published"), "{detail}");
    for (alter, told) in [
        ("alter created_at drop not null", "may be NULL"),
        ("alter created_at set not null, alter created_at set default now()", "the start of the"),
        ("alter created_at set default current_timestamp", "the start of the transaction"),
    ] {
        let alter = format!("alter table walpost.outbox {alter}");
        polled.rig.client.batch_execute(&alter).await.unwrap();
        let found = warnings(&polled).await;
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].0 == Outcome::Warn && found[0].1.contains(told), "{found:?}");
    }
}

#[tokio::test]
async fn an_id_of_the_stream_that_is_not_unique_is_a_warning() {
    let mut rig = Rig::new().await;
    rig.router.event_id = "aggregateid".to_owned();
    let results = walpost_relay::check(&rig.database, &rig.config, &rig.router).await;
    let told = "which router.event_id names, is not declared unique";
    let warned =
        |result: &CheckResult| result.outcome == Outcome::Warn && result.detail.contains(told);
    assert!(results.iter().any(warned), "{results:?}");
    rig.router.event_id = "id".to_owned();
    let results = walpost_relay::check(&rig.database, &rig.config, &rig.router).await;
    assert!(!results.iter().any(warned), "{results:?}");
}

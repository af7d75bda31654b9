//! Whatever a start refuses, `check` finds beforehand, with the same words.
//!
//! Long because it is one table of all refusals.

use walpost_event::error_chain;
use walpost_postgres::Database;
use walpost_relay::{
    CheckResult, Initial, NamedColumn, Outcome, PollingRelay, RelayError, SelectOverride,
    check_polling,
};
use walpost_router::{NameFilter, Pattern};
use walpost_testkit::local::Postgres;

use crate::{
    polling_rig::Polled,
    rig::{Rig, SOON, raw, stop},
};

/// A start that is refused.
struct Refusal {
    /// The kind of the error, and a part of its text.
    kind: &'static str,
    told: &'static str,
    /// Whether the pipeline has published before.
    ran: bool,
    /// What is wrong in the database; `{slot}` is the pipeline's.
    sql: &'static str,
    /// What is wrong in the configuration.
    change: fn(&mut Rig),
    /// Each push of the everyday tier, else of the deep tier.
    everyday: bool,
}

const NONE: Refusal = Refusal {
    kind: "Prerequisite",
    told: "",
    ran: false,
    sql: "",
    change: |_| (),
    everyday: false,
};

const EVENT: &str = "insert into walpost.outbox (aggregatetype, aggregateid, type, payload) \
                     values ('order', 'a', 'Placed', '1')";

/// Of `preflight.rs`, `publication.rs`, `row_filter.rs`, `slot.rs`, `start.rs`, `history.rs`,
/// `overlap.rs`, `marking.rs`, `feed.rs`, `checkpoint.rs`, `snapshot.rs`: a refusal that is
/// added there belongs here.
const REFUSALS: &[Refusal] = &[
    Refusal {
        kind: "Config",
        told: "max_event_bytes is 1;",
        change: |rig| rig.config.max_event_bytes = 1,
        everyday: true,
        ..NONE
    },
    Refusal {
        kind: "Config",
        told: "route.topic.regex",
        change: |rig| rig.router.topic_regex = "(".to_owned(),
        ..NONE
    },
    Refusal {
        kind: "Config",
        told: "dead_letter_topic",
        change: |rig| rig.config.dead_letter_topic = Some("outbox.event.order".to_owned()),
        ..NONE
    },
    Refusal {
        kind: "Config",
        told: "the checkpoint row holds",
        ran: true,
        sql: "update walpost.checkpoint set source = 'polling', switch = '{}'",
        ..NONE
    },
    Refusal {
        kind: "Connect",
        told: "\"nowhere\" does not exist",
        change: |rig| {
            let (host, port) = rig.database.first_target();
            let url = format!("host={host} port={port} user=postgres dbname=nowhere");
            rig.database = Database::parse(&url).unwrap();
        },
        everyday: true,
        ..NONE
    },
    Refusal {
        kind: "Sql",
        told: "reading the checkpoint failed",
        sql: "alter table walpost.checkpoint rename column floors to other",
        everyday: true,
        ..NONE
    },
    Refusal {
        told: "is a view, whose rows are in no WAL",
        sql: "drop publication walpost; create view public.v as select * from walpost.outbox",
        change: |rig| rig.config.tables = vec!["public.v".parse().unwrap()],
        ..NONE
    },
    Refusal {
        told: "outbox table walpost.outbox does not exist",
        sql: "drop table walpost.outbox cascade",
        everyday: true,
        ..NONE
    },
    Refusal {
        told: "no column \"payload\"",
        sql: "alter table walpost.outbox rename payload to body",
        ..NONE
    },
    Refusal {
        told: "has to be timestamp",
        change: |rig| rig.router.event_timestamp = Some("aggregateid".to_owned()),
        ..NONE
    },
    Refusal {
        told: "is not read",
        change: |rig| {
            let hidden = Pattern::ignoring_case(r"walpost\.outbox\.payload").unwrap();
            rig.config.columns = NameFilter::Exclude(vec![hidden]);
        },
        ..NONE
    },
    Refusal {
        told: "no column \"headrs\", which router.headers_column names",
        change: |rig| {
            let (name, key) = ("headrs".to_owned(), "router.headers_column");
            rig.config.named_columns = vec![NamedColumn { name, key, is_required: true }];
        },
        ..NONE
    },
    Refusal { told: "walpost.parked does not exist", sql: "drop table walpost.parked", ..NONE },
    Refusal {
        told: "table walpost.checkpoint is of an earlier version",
        sql: "alter table walpost.checkpoint drop column relations cascade",
        ..NONE
    },
    Refusal {
        told: "table walpost.parked is of an earlier version",
        sql: "alter table walpost.parked drop column dead_letter_at cascade",
        change: |rig| rig.config.dead_letter_topic = Some("letters".to_owned()),
        ..NONE
    },
    Refusal {
        told: "publication \"walpost\" does not exist",
        sql: "drop publication walpost",
        change: |rig| rig.config.create_publication = false,
        ..NONE
    },
    Refusal {
        told: "does not publish inserts",
        sql: "alter publication walpost set (publish = 'delete')",
        ..NONE
    },
    Refusal {
        told: "by its schema alone",
        sql: "drop publication walpost; create publication walpost for tables in schema walpost",
        ..NONE
    },
    Refusal {
        told: "does not contain outbox table",
        sql: "alter publication walpost drop table walpost.outbox",
        everyday: true,
        ..NONE
    },
    Refusal {
        told: "publishes its rows under the names of the partitions",
        sql: "create table public.ob (like walpost.outbox) partition by list (type); \
              create publication plain for table public.ob",
        change: |rig| {
            rig.config.tables = vec!["public.ob".parse().unwrap()];
            rig.config.publication = "plain".to_owned();
        },
        ..NONE
    },
    Refusal {
        told: "is unlogged: its rows are in no WAL",
        ran: true,
        sql: "alter publication walpost drop table walpost.outbox; \
              alter table walpost.outbox set unlogged",
        everyday: true,
        ..NONE
    },
    Refusal {
        told: "inherits from walpost.outbox",
        sql: "create table public.child () inherits (walpost.outbox)",
        ..NONE
    },
    Refusal {
        told: "unless publication \"plain\" publishes deletes",
        sql: "create table public.ob (like walpost.outbox including defaults, primary key (id, type)) \
              partition by list (type); \
              create table public.ob_placed partition of public.ob for values in ('Placed'); \
              create publication plain for table public.ob \
              with (publish = 'insert', publish_via_partition_root = true)",
        change: |rig| {
            rig.config.tables = vec!["public.ob".parse().unwrap()];
            rig.config.publication = "plain".to_owned();
        },
        ..NONE
    },
    Refusal {
        told: "the table that the pipeline has read under that name is walpost.renamed",
        ran: true,
        sql: "alter table walpost.outbox rename to renamed",
        ..NONE
    },
    Refusal {
        told: "is no condition over the columns",
        change: |rig| {
            rig.config.row_filter = Some("tenants = 'a'".to_owned());
            rig.config.publication = "filtered".to_owned();
        },
        ..NONE
    },
    Refusal {
        told: "no publication takes row_filter",
        change: |rig| {
            rig.config.row_filter = Some("created_at < now()".to_owned());
            rig.config.publication = "filtered".to_owned();
        },
        ..NONE
    },
    Refusal {
        told: "has no row filter for table",
        change: |rig| rig.config.row_filter = Some("type = 'Placed'".to_owned()),
        ..NONE
    },
    Refusal {
        told: "both publish the rows",
        sql: "insert into walpost.checkpoint (pipeline, token, generation, system_id, timeline, \
              slot, confirmed_lsn, initial, tables) select 'other', gen_random_uuid(), 1, \
              system_identifier::text, 1, 'nowhere', '0/0', 'creating', \
              array['\"walpost\".\"outbox\"'] from pg_control_system()",
        ..NONE
    },
    Refusal {
        told: "were moved to or from an earlier pipeline of that name",
        sql: "insert into walpost.move (from_pipeline, to_pipeline, tables, boundary) values \
              ('shop', 'other', '{\"\\\"walpost\\\".\\\"outbox\\\"\": \
              {\"from\": [null, null], \"to\": [null, null]}}', pg_current_snapshot())",
        ..NONE
    },
    Refusal {
        told: "test_decoding, not with pgoutput",
        sql: "select pg_create_logical_replication_slot('{slot}', 'test_decoding')",
        everyday: true,
        ..NONE
    },
    Refusal {
        told: "is a physical slot",
        sql: "select pg_create_physical_replication_slot('{slot}')",
        ..NONE
    },
    Refusal { told: "does not exist", change: |rig| rig.config.create_slot = false, ..NONE },
    Refusal {
        told: "belongs to pipeline \"shop\"",
        ran: true,
        change: |rig| {
            rig.config.pipeline = "seventh".to_owned();
            rig.config.initial = Some(Initial::Skip);
            rig.config.allow_overlap = true;
        },
        ..NONE
    },
    Refusal {
        told: "ahead of",
        ran: true,
        sql: "select pg_logical_emit_message(false, 'other', 'x'); \
              select pg_replication_slot_advance('{slot}', pg_current_wal_lsn())",
        everyday: true,
        ..NONE
    },
    Refusal { told: "{slot}", ran: true, sql: "select pg_drop_replication_slot('{slot}')", ..NONE },
    Refusal { told: "holds rows that no slot has seen", sql: EVENT, everyday: true, ..NONE },
    Refusal {
        told: "is there already, pipeline \"shop\" has no checkpoint",
        sql: "select pg_create_logical_replication_slot('{slot}', 'pgoutput'); \
              insert into walpost.outbox (aggregatetype, aggregateid, type) values ('o', 'a', 't')",
        ..NONE
    },
    Refusal {
        told: "table public.more is new to pipeline \"shop\"",
        ran: true,
        sql: "create table public.more (like walpost.outbox including defaults); \
              alter publication walpost add table public.more; \
              insert into public.more (aggregatetype, aggregateid, type, seq) \
              values ('o', 'a', 't', 1)",
        change: |rig| rig.config.tables.push("public.more".parse().unwrap()),
        everyday: true,
        ..NONE
    },
    Refusal { told: "", ran: true, sql: "update walpost.checkpoint set system_id = '1'", ..NONE },
    Refusal { told: "", ran: true, sql: "update walpost.checkpoint set timeline = 7", ..NONE },
    Refusal {
        told: "polls its outbox table",
        ran: true,
        sql: "update walpost.checkpoint set source = 'polling'",
        ..NONE
    },
    Refusal {
        told: "is being switched to the WAL",
        ran: true,
        sql: "update walpost.checkpoint set source = 'polling', switch = '{\"to\": \"wal\"}'",
        ..NONE
    },
    Refusal {
        told: "not all that mark_published needs",
        change: |rig| rig.config.mark_published = true,
        ..NONE
    },
    Refusal {
        told: "lacks column \"payload\"",
        change: |rig| {
            rig.config.initial = Some(Initial::Publish);
            let table = rig.config.tables[0].clone();
            let statement = "select id, aggregatetype, aggregateid from walpost.outbox".to_owned();
            rig.config.snapshot.overrides = vec![SelectOverride { table, statement }];
        },
        ..NONE
    },
    Refusal {
        told: "the initial load was interrupted, and table walpost.outbox has no column xid",
        ran: true,
        sql: "update walpost.checkpoint set initial = 'publish', initial_boundary = '1:1:'; \
              alter table walpost.outbox drop column xid cascade",
        ..NONE
    },
];

/// Errors that no start ends with before it sends, or that no check can know.
const OTHERS: [(&str, &str); 12] = [
    ("Source", "the server refuses the stream; each reason that is known is a Prerequisite"),
    ("Parking", "while events are parked"),
    ("SqlTimeout", "heals by itself"),
    ("TakenOver", "heals by itself"),
    ("PublicationChanged", "heals by itself"),
    ("TableChanged", "heals by itself"),
    ("NewTable", "while events are published; heals by itself"),
    ("Waits", "heals by itself"),
    ("Sink", "of the brokers: `walpost check` asks them"),
    ("SinkAccess", "of the brokers: `walpost check` asks them"),
    ("RegistryAccess", "of the registry: `walpost check` asks it"),
    ("Halted", "while events are published"),
];

/// The same, of a fatal row.
const FATAL: (&str, &str) = ("Fatal", "while events are published");

#[test]
fn every_kind_of_error_is_provoked_or_is_none_of_a_start() {
    for kind in RelayError::KINDS {
        let is_provoked = REFUSALS.iter().any(|refusal| refusal.kind == *kind);
        let is_other = OTHERS.iter().chain([&FATAL]).any(|(other, _)| other == kind);
        assert!(is_provoked != is_other, "{kind} needs a start that is refused with it");
    }
}

/// The chain of an error; of one that says what to do, the problem alone.
fn problem(error: &RelayError) -> String {
    if let RelayError::Prerequisite { problem, .. } = error {
        return problem.clone();
    }
    error_chain(error)
}

fn failures(results: Vec<CheckResult>) -> Vec<String> {
    let failed = results.into_iter().filter(|result| result.outcome == Outcome::Fail);
    failed.map(|result| result.detail).collect()
}

async fn refused_and_found(refusal: &Refusal) {
    let Refusal { kind, told, ran, sql, change, .. } = refusal;
    let mut rig = Rig::new().await;
    let slot = rig.config.slot.clone();
    let with_slot = |text: &str| text.replace("{slot}", &slot);
    if *ran {
        let relay = rig.streaming().await;
        rig.insert("a", &["1"]).await;
        rig.landed(1).await;
        stop(relay).await;
        rig.released().await;
    }
    rig.client.batch_execute(&with_slot(sql)).await.unwrap();
    change(&mut rig);
    let before = rig.world.count();
    let found = failures(walpost_relay::check(&rig.database, &rig.config, &rig.router).await);
    let what = format!("{sql} {told}");
    let error = match rig.relay() {
        Err(error) => error,
        Ok(_) => {
            let ended = tokio::time::timeout(SOON, rig.start().finished()).await;
            ended.unwrap_or_else(|_| panic!("it starts: {what}")).unwrap_err()
        }
    };
    let problem = problem(&error);
    assert_eq!(error.kind(), *kind, "{what}: {problem}");
    assert!(problem.contains(&with_slot(told)), "expected {told:?} in: {problem}");
    // A statement that is tried has another name.
    let cause = problem.rsplit("failed: ").next().unwrap_or(&problem);
    assert!(found.iter().any(|found| found.contains(cause)), "{problem:?} is not in {found:?}");
    assert_eq!(rig.world.count(), before, "nothing was sent: {what}");
    let slots = format!("select count(*) from pg_replication_slots where slot_name = '{slot}'");
    let _ = rig.client.batch_execute(&format!("select pg_drop_replication_slot('{slot}')")).await;
    assert_eq!(rig.count(&slots).await, 0);
}

#[tokio::test]
async fn check_finds_what_a_start_refuses() {
    for refusal in REFUSALS.iter().filter(|refusal| refusal.everyday) {
        refused_and_found(refusal).await;
    }
}

#[tokio::test]
#[ignore = "deep: thirty databases"]
async fn check_finds_everything_that_a_start_refuses() {
    for refusal in REFUSALS.iter().filter(|refusal| !refusal.everyday) {
        refused_and_found(refusal).await;
    }
}

#[tokio::test]
#[ignore = "deep: a server of its own"]
async fn check_finds_that_no_slot_is_free() {
    let server =
        Postgres::builder().throwaway().setting("max_replication_slots", "1").start().unwrap();
    let mut rig = Rig::at(&server.url("postgres")).await;
    rig.config.start_timeout_ms = Some(1);
    let taken = "select pg_create_physical_replication_slot('taken')";
    rig.client.batch_execute(taken).await.unwrap();
    let found = failures(walpost_relay::check(&rig.database, &rig.config, &rig.router).await);
    let cause = "all replication slots are in use";
    assert!(found.iter().any(|found| found.contains(cause)), "{found:?}");
    assert!(rig.refusal().await.contains(cause));
    rig.client.batch_execute("select pg_drop_replication_slot('taken')").await.unwrap();
    let found = failures(walpost_relay::check(&rig.database, &rig.config, &rig.router).await);
    assert!(found.is_empty(), "{found:?}");
    assert_eq!(rig.count("select count(*) from pg_replication_slots").await, 0);
}

/// A start of a poller that is refused: what is wrong in the database, and in its
/// configuration.
type PollerRefusal = (&'static str, &'static str, &'static str, fn(&mut Polled));

/// Of `polling/check` and `polling/table.rs`, beside those of `polling_states.rs`.
const POLLERS: &[PollerRefusal] = &[
    ("Config", "2 tables", "", |polled| {
        polled.rig.config.tables.push("public.other".parse().unwrap());
    }),
    ("Config", "row_filter is set", "", |polled| {
        polled.rig.config.row_filter = Some("true".to_owned());
    }),
    ("Config", "dead_letter_topic is set", "", |polled| {
        polled.rig.config.dead_letter_topic = Some("letters".to_owned());
    }),
    ("Config", "status_column is \"\"", "", |polled| polled.polling.status_column.clear()),
    ("Config", "the checkpoint row holds", CORRUPT, |_| ()),
    (
        "Prerequisite",
        "polling_attempts does not exist",
        "drop table walpost.polling_attempts",
        |_| (),
    ),
    (
        "Prerequisite",
        "polling_attempts is of an earlier version",
        "alter table walpost.polling_attempts drop column failed",
        |_| (),
    ),
    ("Prerequisite", "outbox does not exist", "drop table walpost.outbox cascade", |_| ()),
    ("Prerequisite", "has no column \"state\"", "", |polled| {
        polled.polling.status_column = "state".to_owned();
    }),
    ("Prerequisite", "has no column \"ordr\"", "", |polled| {
        polled.polling.order_columns = vec!["ordr".to_owned()];
    }),
    (
        "Prerequisite",
        "is not declared unique",
        "alter table walpost.outbox drop constraint outbox_pkey",
        |_| (),
    ),
    ("Prerequisite", "has null in a column of its order", NO_ORDER, |polled| {
        polled.polling.order_columns = vec!["created_at".to_owned()];
    }),
    ("Prerequisite", "reads the WAL, and this relay polls", "", |polled| {
        polled.rig.config.pipeline = "wal".to_owned();
    }),
];

const CORRUPT: &str = "insert into walpost.checkpoint (pipeline, token, generation, system_id, \
    timeline, slot, confirmed_lsn, initial, source, switch) values ('shop', gen_random_uuid(), 1, \
    '1', 1, 's', '0/0', 'creating', 'polling', '{}')";
const NO_ORDER: &str = "alter table walpost.outbox alter column created_at drop not null; \
    insert into walpost.outbox (aggregatetype, aggregateid, type, payload, created_at) \
    values ('order', 'a', 'Placed', '1', null)";
const OF_WAL: &str = "insert into walpost.checkpoint (pipeline, token, generation, system_id, \
    timeline, slot, confirmed_lsn, initial, tables) values ('wal', gen_random_uuid(), 1, '1', 1, \
    's', '0/0', 'done', '{}')";

#[tokio::test]
#[ignore = "deep: a database each"]
async fn check_finds_everything_that_a_start_of_a_poller_refuses() {
    for (kind, told, sql, change) in POLLERS {
        let mut polled = Polled::new().await;
        polled.rig.client.batch_execute(OF_WAL).await.unwrap();
        polled.rig.client.batch_execute(sql).await.unwrap();
        change(&mut polled);
        let Rig { database, config, router, .. } = &polled.rig;
        let found = failures(check_polling(database, config, &polled.polling, router).await);
        let (polling, router) = (polled.polling.clone(), router.clone());
        let relay = PollingRelay::new(database.clone(), config.clone(), polling, router, raw());
        let error = match relay {
            Err(error) => error,
            Ok(_) => {
                let ended = tokio::time::timeout(SOON, polled.start().finished()).await;
                ended.unwrap_or_else(|_| panic!("it starts: {told}")).unwrap_err()
            }
        };
        let problem = problem(&error);
        assert_eq!(error.kind(), *kind, "{problem}");
        assert!(problem.contains(told), "expected {told:?} in: {problem}");
        assert!(
            found.iter().any(|found| found.contains(&problem)),
            "{problem:?} is not in {found:?}"
        );
        assert_eq!(polled.rig.world.count(), 0);
    }
}

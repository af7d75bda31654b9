//! The outbox in partitions.

use tokio_postgres::{Client, error::SqlState};
use walpost_migrate::{Error, Form, Migrator, Set};
use walpost_testkit::{fresh_database, postgres_of};

use crate::{all_applied, tables, total};

async fn text(client: &Client, sql: &str) -> String {
    let row = client.query_one(sql, &[]).await.unwrap();
    row.get::<_, Option<String>>(0).unwrap_or_default()
}

/// Name, type, whether it may be null, default, identity of the root, comment.
async fn columns(client: &Client, table: &str) -> String {
    let sql = format!(
        "select string_agg(concat_ws(' ', attname, format_type(atttypid, atttypmod), attnotnull, \
         pg_get_expr(adbin, adrelid), attidentity, col_description(attrelid, attnum)), ', ' \
         order by attnum) from pg_attribute left join pg_attrdef on adrelid = attrelid \
         and adnum = attnum where attrelid = 'walpost.{table}'::regclass and attnum > 0"
    );
    text(client, &sql).await
}

const PARTITION: &str = "select tableoid::regclass::text from walpost.outbox order by seq desc";

fn insert(columns: &str, values: &str) -> String {
    format!(
        "insert into walpost.outbox (aggregatetype, aggregateid, type{columns}) \
         values ('order', '1', 'placed'{values})"
    )
}

async fn partitioned(major: u32) -> Client {
    let mut client = postgres_of(major).fresh_database().await.connect().await;
    let migrator = Migrator::new().partitioned();
    assert_eq!(migrator.migrate(&mut client).await.unwrap().len(), total(), "{major}");
    assert!(all_applied(&migrator, &client).await, "{major}");
    // Whoever does not know of the form just goes on.
    assert_eq!(Migrator::new().migrate(&mut client).await.unwrap(), [], "{major}");
    assert!(all_applied(&Migrator::new(), &client).await, "{major}");
    client
}

#[tokio::test]
#[ignore = "deep: an older PostgreSQL"]
async fn it_has_the_columns_of_the_table_and_a_partition_for_each_day_on_every_server() {
    let mut plain = fresh_database().await.connect().await;
    Migrator::new().migrate(&mut plain).await.unwrap();
    for major in [14, 15, 17, 18] {
        let client = partitioned(major).await;
        for table in ["outbox", "outbox_archive"] {
            assert_eq!(columns(&client, table).await, columns(&plain, table).await, "{major}");
        }
        let days = "select count(*) from generate_series(0, 6) n, lateral (select to_regclass( \
                    'walpost.outbox_' || to_char(now() at time zone 'UTC' + n * interval '1 day', \
                    'YYYYMMDD')) as day) d where day in \
                    (select relid from pg_partition_tree('walpost.outbox'))";
        let days: i64 = client.query_one(days, &[]).await.unwrap().get(0);
        assert_eq!(days, 7, "{major}");
        let all = "select count(*) from pg_partition_tree('walpost.outbox') \
                   where relid::text ~ 'outbox_[0-9]{8}$'";
        let all: i64 = client.query_one(all, &[]).await.unwrap().get(0);
        assert_eq!(all, 8, "{major}: one more, should the day end meanwhile");
        let published = "select string_agg(tablename, ' ') from pg_publication_tables";
        assert_eq!(text(&client, published).await, "outbox");
        client.batch_execute(&insert("", "")).await.unwrap();
        let today = "select 'walpost.outbox_' || to_char(created_at at time zone 'UTC', \
                     'YYYYMMDD') from walpost.outbox";
        assert_eq!(text(&client, PARTITION).await, text(&client, today).await);
        // A day that has none.
        client.batch_execute(&insert(", created_at", ", '2020-01-01'")).await.unwrap();
        assert_eq!(text(&client, &format!("{PARTITION} limit 1")).await, "walpost.outbox_default");
        client.batch_execute("select from walpost.outbox_archive").await.unwrap();
        let numbers = "select string_agg(seq::text, ' ' order by seq) from walpost.outbox \
                       where xid < pg_current_xact_id()";
        assert_eq!(text(&client, numbers).await, "1 2");
    }
}

#[tokio::test]
#[ignore = "deep: an older PostgreSQL"]
async fn a_key_is_taken_once_over_all_days_and_by_those_who_may_only_insert() {
    for major in [14, 18] {
        let client = partitioned(major).await;
        let role = walpost_testkit::unique_name("writer").replace('-', "_");
        let roles = format!(
            "create role {role}; grant usage on schema walpost to {role}; \
             grant insert on walpost.outbox to {role}; set role {role}"
        );
        client.batch_execute(&roles).await.unwrap();
        let keyed = |key: &str, at: &str| {
            insert(", idempotency_key, created_at", &format!(", {key}, {at}"))
        };
        for key in ["null", "null", "'a'", "'b'"] {
            client.batch_execute(&keyed(key, "now()")).await.unwrap();
        }
        for at in ["now()", "now() + interval '1 day'", "'2020-01-01'"] {
            let error = client.batch_execute(&keyed("'a'", at)).await.unwrap_err();
            assert_eq!(error.code(), Some(&SqlState::UNIQUE_VIOLATION), "{major} {at}");
        }
        // With its transaction a key comes and goes.
        let gone = format!("begin; {}; rollback", keyed("'c'", "now()"));
        client.batch_execute(&gone).await.unwrap();
        client.batch_execute(&keyed("'c'", "now()")).await.unwrap();
        let as_owner = format!("reset role; drop owned by {role}; drop role {role}");
        client.batch_execute(&as_owner).await.unwrap();
        let rows = client.query("select from walpost.outbox", &[]).await.unwrap();
        assert_eq!(rows.len(), 5, "{major}");
    }
}

#[tokio::test]
async fn a_schema_with_one_table_refuses_partitions_with_the_steps() {
    let mut client = fresh_database().await.connect().await;
    let scripts = Migrator::new().scripts(Set::Relay).unwrap();
    client.batch_execute(&scripts[0].sql).await.unwrap();
    let error = Migrator::new().partitioned().migrate(&mut client).await.unwrap_err();
    assert!(matches!(&error, Error::NotPartitioned { schema } if schema == "walpost"), "{error:?}");
    assert!(error.to_string().contains("--partitioned --schema NEW"), "{error}");
    assert!(!tables(&client).await.contains(&"walpost.checkpoint".to_owned()));
    // What it has, it goes on with.
    Migrator::new().migrate(&mut client).await.unwrap();
    let other = Migrator::new().schema("other").publication("other").partitioned();
    assert_eq!(other.migrate(&mut client).await.unwrap().len(), total());
}

#[tokio::test]
async fn printed_sql_has_the_form_and_is_recorded_with_it() {
    let mut client = fresh_database().await.connect().await;
    let odd = "Wal.post \"x\"'; %s -- ünï";
    let migrator = Migrator::new().schema(odd).publication("events").partitioned();
    let tx = client.transaction().await.unwrap();
    tx.batch_execute(&migrator.render(Set::Relay).unwrap()).await.unwrap();
    tx.commit().await.unwrap();
    let plain = Migrator::new().schema(odd).publication("events").set(Set::Relay);
    assert_eq!(plain.migrate(&mut client).await.unwrap(), []);
    let status = plain.status(&client).await.unwrap();
    let forms: Vec<Option<Form>> = status.iter().map(|one| one.form).collect();
    assert_eq!(forms[0], Some(Form::Partitioned));
    assert!(forms[1..].iter().all(Option::is_none));
    let there = tables(&client).await;
    for table in ["outbox", "outbox_default", "outbox_key", "outbox_archive_default"] {
        assert!(there.contains(&format!("{odd}.{table}")), "{table}: {there:?}");
    }
}

async fn make(client: &Client, day: &str) -> Result<String, tokio_postgres::Error> {
    let sql = format!("select walpost.make_day({day})");
    client.query_one(&sql, &[]).await.map(|row| row.get(0))
}

#[tokio::test]
#[ignore = "deep: an older PostgreSQL"]
async fn a_day_is_made_beside_writers_and_says_what_stands_in_its_way() {
    for major in [14, 18] {
        let database = postgres_of(major).fresh_database().await;
        let mut client = database.connect().await;
        Migrator::new().set(Set::Relay).partitioned().migrate(&mut client).await.unwrap();
        let role = walpost_testkit::unique_name("reader").replace('-', "_");
        let grant = format!(
            "create role {role}; grant usage on schema walpost to {role}; \
             grant select on walpost.outbox to {role}; \
             alter default privileges in schema walpost grant all on tables to {role}, public"
        );
        client.batch_execute(&grant).await.unwrap();
        // A writer of today does not hold it up.
        let writer = database.connect().await;
        writer.batch_execute(&format!("begin; {}", insert("", ""))).await.unwrap();
        assert_eq!(make(&client, "'2040-01-01'").await.unwrap(), "made");
        assert_eq!(make(&client, "'2040-01-01'").await.unwrap(), "there");
        // It is reached through the outbox alone.
        let granted = format!(
            "select has_table_privilege('{role}', 'walpost.outbox_20400101', 'select')::text"
        );
        assert_eq!(text(&client, &granted).await, "false");
        let through = insert(", created_at", ", '2040-01-01 12:00Z'");
        client.batch_execute(&format!("{through}; set role {role}")).await.unwrap();
        let seen = "select count(*)::text from walpost.outbox where created_at > '2040-01-01'";
        assert_eq!(text(&client, seen).await, "1");
        client.batch_execute("reset role").await.unwrap();
        // Who has read the table, or written to the default partition, is waited
        // for, and not long.
        let reader = database.connect().await;
        reader.batch_execute("begin; select from walpost.outbox").await.unwrap();
        let error = make(&client, "'2040-01-03'").await.unwrap_err();
        assert_eq!(error.code(), Some(&SqlState::LOCK_NOT_AVAILABLE), "{error:?}");
        reader.batch_execute("commit").await.unwrap();
        writer.batch_execute(&insert(", created_at", ", '2040-01-02 12:00Z'")).await.unwrap();
        let error = make(&client, "'2040-01-03'").await.unwrap_err();
        assert_eq!(error.code(), Some(&SqlState::LOCK_NOT_AVAILABLE), "{error:?}");
        writer.batch_execute("commit").await.unwrap();
        assert_eq!(make(&client, "'2040-01-03'").await.unwrap(), "made");
        assert_eq!(make(&client, "'2040-01-02'").await.unwrap(), "default");
        client.batch_execute("create table walpost.outbox_20400104 ()").await.unwrap();
        assert_eq!(make(&client, "'2040-01-04'").await.unwrap(), "taken");
        let week = "create table walpost.week partition of walpost.outbox \
                    for values from ('2040-02-01') to ('2040-02-08')";
        client.batch_execute(week).await.unwrap();
        assert_eq!(make(&client, "'2040-02-03'").await.unwrap(), "there");
        client.batch_execute(&format!("drop owned by {role}; drop role {role}")).await.unwrap();
    }
}

/// Days that an earlier version has made, one of them in the archive by now.
#[tokio::test]
#[ignore = "deep: an older PostgreSQL"]
async fn days_are_left_to_their_owner_by_the_migration() {
    for major in [14, 18] {
        let mut client = partitioned(major).await;
        let role = walpost_testkit::unique_name("app").replace('-', "_");
        for day in ["2040-01-01", "2040-01-02"] {
            assert_eq!(make(&client, &format!("'{day}'")).await.unwrap(), "made");
        }
        let before = format!(
            "create role {role}; grant all on walpost.outbox, walpost.outbox_20400101, \
             walpost.outbox_20400102 to {role} with grant option; \
             grant select on walpost.outbox_20400102 to public; \
             grant update (type) on walpost.outbox_20400102 to {role}; \
             alter table walpost.outbox detach partition walpost.outbox_20400102; \
             alter table walpost.outbox_20400102 add archived_at timestamptz not null default now(); \
             alter table walpost.outbox_archive attach partition walpost.outbox_20400102 \
             for values from ('2040-01-02 00:00Z') to ('2040-01-03 00:00Z'); \
             delete from walpost.migration where name in ('days', 'taken_over', 'relations'); \
             alter table walpost.checkpoint drop column taken_over_at, drop column relations; \
             drop function walpost.close_day"
        );
        client.batch_execute(&before).await.unwrap();
        let applied = Migrator::new().migrate(&mut client).await.unwrap();
        assert_eq!(applied.len(), 3);
        for day in ["20400101", "20400102"] {
            let may = format!(
                "select has_any_column_privilege('{role}', 'walpost.outbox_{day}', \
                 'select, update')::text || has_table_privilege('{role}', \
                 'walpost.outbox_{day}', 'insert, delete')::text"
            );
            assert_eq!(text(&client, &may).await, "falsefalse", "{day}");
        }
        let may = format!("select has_table_privilege('{role}', 'walpost.outbox', 'delete')::text");
        assert_eq!(text(&client, &may).await, "true");
        assert_eq!(make(&client, "'2040-01-03'").await.unwrap(), "made");
        client.batch_execute(&format!("drop owned by {role}; drop role {role}")).await.unwrap();
    }
}

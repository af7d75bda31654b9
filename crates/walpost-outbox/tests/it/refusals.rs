use tokio_postgres::{Client, NoTls};
use walpost_outbox::{Error, OutboxTable, write, write_all, write_once};
use walpost_testkit::{Database, MARKER, QUOTING_SCHEMA, Quoting, unique_name};

use crate::{event, outbox};

/// A session of a role with these rights; `{role}` is its name.
async fn role(database: &Database, rights: &str) -> Client {
    let role = unique_name("writer");
    let admin = database.connect().await;
    admin.batch_execute(&format!("create role {role} login password 'writer'")).await.unwrap();
    admin.batch_execute(&rights.replace("{role}", &role)).await.unwrap();
    let mut config = database.config();
    config.user(&role).password("writer");
    let (client, connection) = config.connect(NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

#[tokio::test]
async fn the_right_to_insert_is_enough_to_write_and_to_learn_of_duplicates() {
    let (database, _client) = outbox().await;
    let rights =
        "grant usage on schema walpost to {role}; grant insert on walpost.outbox to {role}";
    let mut client = role(&database, rights).await;
    let table = OutboxTable::default();
    let keyed = event().idempotency_key("k");
    let tx = client.transaction().await.unwrap();
    let id = write_all(&tx, &table, &[event(), keyed.clone()]).await.unwrap().remove(0);
    tx.commit().await.unwrap();
    let tx = client.transaction().await.unwrap();
    let error = write(&tx, &table, &keyed).await.unwrap_err();
    assert!(matches!(error, Error::DuplicateKey { .. }), "{error:?}");
    drop(tx);
    let tx = client.transaction().await.unwrap();
    let error = write(&tx, &table, &event().id(id)).await.unwrap_err();
    assert!(matches!(error, Error::DuplicateId { .. }), "{error:?}");
    drop(tx);
    let tx = client.transaction().await.unwrap();
    let error = write_once(&tx, &table, &keyed).await.unwrap_err();
    assert!(error.to_string().contains("grant usage on the schema, and insert and select"));
}

#[tokio::test]
async fn a_key_whose_event_the_role_may_not_see_is_never_written_twice() {
    let (database, client) = outbox().await;
    client
        .batch_execute(
            "alter table walpost.outbox enable row level security;
             create policy mine on walpost.outbox using (aggregateid = current_user)",
        )
        .await
        .unwrap();
    let rights = "grant usage on schema walpost to {role}; \
                  grant insert, select on walpost.outbox to {role}";
    let mut written = Vec::new();
    for _ in 0..2 {
        let mut client = role(&database, rights).await;
        let name: String = client.query_one("select current_user::text", &[]).await.unwrap().get(0);
        let event = walpost_outbox::NewEvent::new("order", name, "placed").idempotency_key("k");
        let tx = client.transaction().await.unwrap();
        written.push(write_once(&tx, &OutboxTable::default(), &event).await);
        tx.commit().await.unwrap();
    }
    assert!(written[0].is_ok(), "{written:?}");
    assert!(matches!(written[1], Err(Error::KeyUnstable { .. })), "{written:?}");
}

#[tokio::test]
async fn a_trigger_that_drops_the_row_is_noticed() {
    let (_database, mut client) = outbox().await;
    client
        .batch_execute(
            "create function nothing() returns trigger language plpgsql as $$ begin \
             if new.aggregateid = '2' then return null; end if; return new; end $$;
             create trigger nothing before insert on walpost.outbox for each row \
             execute function nothing()",
        )
        .await
        .unwrap();
    let tx = client.transaction().await.unwrap();
    let events = [event(), walpost_outbox::NewEvent::new("order", "2", "placed")];
    let error = write_all(&tx, &OutboxTable::default(), &events).await.unwrap_err();
    assert!(matches!(error, Error::NotWritten { expected: 2, written: 1, .. }), "{error:?}");
}

#[tokio::test]
async fn a_refusal_names_the_table_and_the_way_out_and_no_contents() {
    let (_database, mut client) = outbox().await;
    client
        .batch_execute("alter table walpost.outbox add check (aggregateid <> '13')")
        .await
        .unwrap();
    let missing = OutboxTable::shipped("nowhere").unwrap();
    let tx = client.transaction().await.unwrap();
    let error = write(&tx, &missing, &event()).await.unwrap_err();
    assert!(error.to_string().contains("nowhere.outbox"), "{error}");
    assert!(error.to_string().contains("walpost migrate"), "{error}");
    let error = write(&tx, &OutboxTable::default(), &event()).await.unwrap_err();
    assert!(error.to_string().contains("an earlier statement"), "{error}");
    drop(tx);

    let tx = client.transaction().await.unwrap();
    let thirteen = walpost_outbox::NewEvent::new("order", "13", "placed")
        .json("secret")
        .unwrap()
        .header("a", "secret");
    let error = write(&tx, &OutboxTable::default(), &thirteen).await.unwrap_err();
    assert!(matches!(error, Error::Refused { .. }), "{error:?}");
    assert!(!format!("{error} {error:?}").contains("secret"), "{error:?}");
    drop(tx);

    let tx = client.transaction().await.unwrap();
    let broken = event().raw_json("\"\\u0000secret\"").unwrap();
    let error = write(&tx, &OutboxTable::default(), &broken).await.unwrap_err();
    assert!(matches!(error, Error::Refused { .. }), "{error:?}");
    assert!(!format!("{error} {error:?}").contains("secret"), "{error:?}");
}

#[tokio::test]
async fn a_value_that_a_trigger_quotes_is_in_no_text() {
    let (_database, mut client) = outbox().await;
    client.batch_execute(QUOTING_SCHEMA).await.unwrap();
    for quoting in Quoting::ALL {
        let trigger = quoting.trigger("before insert on walpost.outbox", "new.payload #>> '{}'");
        client.batch_execute(&trigger).await.unwrap();
        let tx = client.transaction().await.unwrap();
        let event = event().json(MARKER).unwrap();
        let error = write(&tx, &OutboxTable::default(), &event).await.unwrap_err();
        let chain =
            walpost_postgres::shown::chain(&error, walpost_postgres::shown::Author::Walpost);
        assert!(chain.contains(quoting.state), "{}: {chain}", quoting.name);
        quoting.is_hidden_in(&[error.to_string(), format!("{error:?}"), chain]);
    }
}

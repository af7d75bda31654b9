use tokio_postgres::Error;
use walpost_postgres::shown::{Author, StatementError, chain};
use walpost_testkit::{MARKER, QUOTING_SCHEMA, Quoting, fresh_database};

/// As the texts of an error are made.
fn texts(error: Error) -> Vec<String> {
    #[derive(Debug, thiserror::Error)]
    #[error("saving a note")]
    struct Saving(#[source] Box<Error>);
    let of = |author| chain(&error, author);
    let mut texts = vec![of(Author::Walpost), of(Author::Application)];
    let nested = Saving(Box::new(error));
    texts.push(chain(&nested, Author::Walpost));
    let statement = StatementError::from(*nested.0);
    texts.extend([
        statement.to_string(),
        format!("{statement:?}"),
        chain(&statement, Author::Walpost),
    ]);
    texts
}

#[tokio::test]
async fn a_value_that_the_server_quotes_is_in_no_text() {
    let database = fresh_database().await;
    let client = database.connect().await;
    client.batch_execute(QUOTING_SCHEMA).await.unwrap();
    for quoting in Quoting::ALL {
        let error = client.query(quoting.statement, &[&MARKER]).await.unwrap_err();
        assert_eq!(error.code().unwrap().code(), quoting.state, "{}", quoting.name);
        assert!(format!("{error:?}").contains(MARKER), "{}: {error:?}", quoting.name);
        let texts = texts(error);
        quoting.is_hidden_in(&texts);
        assert!(texts.iter().all(|text| text.contains(quoting.state)), "{texts:?}");
    }
}

#[tokio::test]
async fn a_value_in_the_text_of_a_statement_is_shown_to_be_of_walposts_alone() {
    let client = fresh_database().await.connect().await;
    let error = client.batch_execute(&format!("select * from {MARKER}")).await.unwrap_err();
    let shown = chain(&error, Author::Walpost);
    assert_eq!(shown, format!("ERROR 42P01: relation \"{MARKER}\" does not exist"));
    let hidden = "ERROR 42P01 (undefined table), full text in the server's log";
    assert_eq!(chain(&error, Author::Application), hidden);
}

#[tokio::test]
async fn rights_states_and_what_exists_are_shown() {
    let client = fresh_database().await.connect().await;
    let role = walpost_testkit::unique_name("shown");
    client.batch_execute(&format!("create table t (); create role {role}")).await.unwrap();
    for (statements, shown) in [
        (format!("set role {role}; select * from t"), "42501: permission denied for table t"),
        ("begin read only; create table u ()".into(), "25006: cannot execute CREATE TABLE in a"),
        (
            "set statement_timeout = 1; select pg_sleep(9)".into(),
            "57014: canceling statement due to",
        ),
        (
            "do $$ begin execute 'set transaction read only'; delete from t; end $$".into(),
            "25006: cannot execute DELETE",
        ),
    ] {
        let error = client.batch_execute(&statements).await.unwrap_err();
        for author in [Author::Walpost, Author::Application] {
            let text = chain(&error, author);
            assert!(text.contains(shown), "{text}");
        }
        client.batch_execute("rollback; reset role; reset statement_timeout").await.unwrap();
    }
    let error = client.batch_execute("create table t ()").await.unwrap_err();
    let shown = "ERROR 42P07: relation \"t\" already exists";
    assert_eq!(chain(&error, Author::Walpost), shown);
}

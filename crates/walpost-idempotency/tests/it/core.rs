//! The core on a transaction, without HTTP.

use tokio_postgres::Client;
use walpost_idempotency::{
    Claim, Error, Fingerprint, Idempotency, Key, Lookup, Policy, Request, Response, Scope,
    http::TxError,
};
use walpost_outbox::{NewEvent, OutboxTable, write};
use walpost_testkit::{MARKER, QUOTING_SCHEMA, Quoting};

use crate::support::{World, answer, lookup, policy, print};

#[tokio::test]
#[ignore = "deep: an older PostgreSQL"]
async fn a_request_is_carried_out_once_and_replayed_on_the_oldest_and_the_newest_server() {
    for major in [14, 18] {
        let world = World::of(major).await;
        let one = ("alice", "k", "body");
        assert_eq!(world.request(one, &policy()).await.unwrap(), Claim::New(()));
        for _ in 0..2 {
            let again = world.request(one, &policy()).await.unwrap();
            assert_eq!(again, Claim::Replay(answer("k")), "{major}");
        }
        assert_eq!(world.effects().await, ["k"], "{major}");
    }
}

#[tokio::test]
async fn another_request_under_the_key_is_refused_and_another_users_is_not() {
    let world = World::new().await;
    assert_eq!(world.request(("alice", "k", "a"), &policy()).await.unwrap(), Claim::New(()));
    assert_eq!(world.request(("alice", "k", "b"), &policy()).await.unwrap(), Claim::Mismatch);
    assert_eq!(world.request(("bob", "k", "b"), &policy()).await.unwrap(), Claim::New(()));
    assert_eq!(world.effects().await, ["k", "k"]);
    // Nothing of a principal, a key or a request is in the table.
    let sql = "select count(*) from walpost.idempotency i where i::text ~ 'alice|bob|body'";
    assert_eq!(world.number(sql).await, 0);
}

#[tokio::test]
async fn a_twin_is_not_waited_for() {
    let world = World::new().await;
    let mut client = world.database.connect().await;
    let tx = world.idempotency.begin(&mut client).await.unwrap();
    let first = world.idempotency.claim(&tx, &lookup("alice", "k"), &print("a"), &policy()).await;
    let Claim::New(claimed) = first.unwrap() else { panic!("it is the first") };
    for body in ["a", "b"] {
        let twin = world.request(("alice", "k", body), &policy()).await.unwrap();
        assert!(matches!(twin, Claim::InFlight { .. }), "{twin:?}");
    }
    let other = world.request(("alice", "other", "a"), &policy()).await.unwrap();
    assert_eq!(other, Claim::New(()));
    world.idempotency.complete_and_commit(tx, &claimed, &answer("k")).await.unwrap();
    let twin = world.request(("alice", "k", "a"), &policy()).await.unwrap();
    assert_eq!(twin, Claim::Replay(answer("k")));
}

#[tokio::test]
async fn whoever_replays_an_answer_keeps_nobody_from_it() {
    let world = World::new().await;
    assert_eq!(world.request(("alice", "k", "a"), &policy()).await.unwrap(), Claim::New(()));
    let mut client = world.database.connect().await;
    let tx = world.idempotency.begin(&mut client).await.unwrap();
    let first = world.idempotency.claim(&tx, &lookup("alice", "k"), &print("a"), &policy()).await;
    assert_eq!(first.unwrap(), Claim::Replay(answer("k")));
    let twin = world.request(("alice", "k", "a"), &policy()).await.unwrap();
    assert_eq!(twin, Claim::Replay(answer("k")));
    assert_eq!(world.request(("alice", "k", "b"), &policy()).await.unwrap(), Claim::Mismatch);
    // What has expired is nobody's, and one at a time begins it anew.
    world.shift("25 hours").await;
    let twin = world.request(("alice", "k", "a"), &policy()).await.unwrap();
    assert!(matches!(twin, Claim::InFlight { .. }), "{twin:?}");
}

#[tokio::test]
async fn a_rollback_frees_the_key() {
    let world = World::new().await;
    let mut client = world.database.connect().await;
    let tx = world.idempotency.begin(&mut client).await.unwrap();
    let claim = world.idempotency.claim(&tx, &lookup("alice", "k"), &print("a"), &policy()).await;
    let Claim::New(claimed) = claim.unwrap() else { panic!("it is the first") };
    world.idempotency.complete(&tx, &claimed, &answer("k")).await.unwrap();
    tx.rollback().await.unwrap();
    assert_eq!(world.request(("alice", "k", "b"), &policy()).await.unwrap(), Claim::New(()));
}

#[tokio::test]
async fn a_handler_that_ends_the_transaction_is_refused_with_its_answer() {
    let world = World::new().await;
    for how in ["commit", "rollback", "commit; begin"] {
        let mut client = world.database.connect().await;
        let tx = world.idempotency.begin(&mut client).await.unwrap();
        let claim = world.idempotency.claim(&tx, &lookup("a", how), &print("a"), &policy()).await;
        let Claim::New(claimed) = claim.unwrap() else { panic!("it is the first") };
        tx.batch_execute(how).await.unwrap();
        let ended = world.idempotency.complete_and_commit(tx, &claimed, &answer("k")).await;
        assert!(matches!(ended, Err(Error::HandlerEnded { .. })), "{how}: {ended:?}");
    }
    assert_eq!(world.number("select count(*) from walpost.idempotency").await, 0);
}

#[tokio::test]
async fn an_error_is_stored_without_the_effects_before_it() {
    let world = World::new().await;
    let mut client = world.database.connect().await;
    let tx = world.idempotency.begin(&mut client).await.unwrap();
    let claim = world.idempotency.claim(&tx, &lookup("a", "k"), &print("a"), &policy()).await;
    let Claim::New(claimed) = claim.unwrap() else { panic!("it is the first") };
    tx.batch_execute("insert into effect (name) values ('half')").await.unwrap();
    tx.batch_execute("select 1/0").await.unwrap_err();
    world.idempotency.undo(&tx).await.unwrap();
    let refused = Response::new(422, "no such item");
    world.idempotency.complete_and_commit(tx, &claimed, &refused).await.unwrap();
    assert_eq!(world.effects().await, [""; 0]);
    let again = world.request(("a", "k", "a"), &policy()).await.unwrap();
    assert_eq!(again, Claim::Replay(refused));
}

#[tokio::test]
async fn a_response_comes_back_byte_by_byte() {
    let world = World::new().await;
    let response = Response::new(207, (0..=255).cycle().take(100_000).collect::<Vec<u8>>())
        .header("link", "</a>; rel=next")
        .header("Link", b"\xff\x80".to_vec())
        .header("etag", "");
    let mut client = world.database.connect().await;
    let tx = world.idempotency.begin(&mut client).await.unwrap();
    let claim = world.idempotency.claim(&tx, &lookup("a", "k"), &print("a"), &policy()).await;
    let Claim::New(claimed) = claim.unwrap() else { panic!("it is the first") };
    world.idempotency.complete_and_commit(tx, &claimed, &response).await.unwrap();
    let again = world.request(("a", "k", "a"), &policy()).await.unwrap();
    assert_eq!(again, Claim::Replay(response));
}

/// What a gRPC server hands over: a principal, metadata, and a message.
struct Place<'a> {
    principal: &'a str,
    key: &'a str,
    message: &'a [u8],
}

/// A handler that knows nothing of HTTP: status 0 is OK, 6 ALREADY_EXISTS, 10
/// ABORTED.
async fn place(client: &mut Client, call: &Place<'_>) -> Result<Response, Error> {
    let policy = Policy::new("shop.Orders/Place");
    let key = Key::new(call.key).unwrap();
    let lookup = Lookup::new(&Scope::principal_and_route(call.principal, policy.route()), &key);
    let request = Request { route: policy.route(), body: call.message, ..Request::default() };
    let idempotency = Idempotency::new();
    let tx = idempotency.begin(client).await?;
    match idempotency.claim(&tx, &lookup, &Fingerprint::of(&request), &policy).await? {
        Claim::New(claimed) => {
            let sql = "insert into effect (name) values ('order') returning number";
            let number: i64 = tx.query_one(sql, &[]).await.unwrap().get(0);
            let event = NewEvent::new("order", number.to_string(), "OrderPlaced");
            let event = event.json(&number).unwrap();
            write(&tx, &OutboxTable::default(), &event).await.unwrap();
            let response = Response::new(0, number.to_be_bytes().to_vec());
            idempotency.complete_and_commit(tx, &claimed, &response).await?;
            Ok(response)
        }
        Claim::Replay(response) => Ok(response),
        Claim::InFlight { .. } => Ok(Response::new(10, "in flight")),
        _ => Ok(Response::new(6, "the key belongs to another call")),
    }
}

#[tokio::test]
async fn a_grpc_handler_uses_the_core_and_its_event_is_written_once() {
    let world = World::new().await;
    let mut client = world.database.connect().await;
    let call = Place { principal: "alice", key: "k", message: b"\x08\x01" };
    let first = place(&mut client, &call).await.unwrap();
    assert_eq!(first.status(), 0);
    for _ in 0..3 {
        assert_eq!(place(&mut client, &call).await.unwrap(), first);
    }
    let other = Place { message: b"\x08\x02", ..call };
    assert_eq!(place(&mut client, &other).await.unwrap().status(), 6);
    assert_eq!(world.effects().await, ["order"]);
    assert_eq!(world.number("select count(*) from walpost.outbox").await, 1);
}

#[tokio::test]
async fn without_the_table_the_error_says_what_to_run() {
    let database = walpost_testkit::fresh_database().await;
    let mut client = database.connect().await;
    let idempotency = Idempotency::in_schema("shop");
    let tx = idempotency.begin(&mut client).await.unwrap();
    let error = idempotency.claim(&tx, &lookup("a", "k"), &print("a"), &policy()).await;
    let text = error.unwrap_err().to_string();
    assert!(text.contains("walpost migrate --set idempotency"), "{text}");
}

#[tokio::test]
async fn a_value_that_the_server_quotes_is_in_no_error() {
    let world = World::new().await;
    world.client.batch_execute(QUOTING_SCHEMA).await.unwrap();
    let value = format!("'{MARKER}'");
    for quoting in Quoting::ALL {
        let failed = world.client.query(quoting.statement, &[&MARKER]).await.unwrap_err();
        let of_handler = TxError::from(failed);
        let trigger = quoting.trigger("before insert on walpost.idempotency", &value);
        world.client.batch_execute(&trigger).await.unwrap();
        let error = world.request(("alice", "k", "a"), &policy()).await.unwrap_err();
        let texts = [error.to_string(), of_handler.to_string()];
        assert!(texts.iter().all(|text| text.contains(quoting.state)), "{texts:?}");
        quoting.is_hidden_in(&texts);
        quoting.is_hidden_in(&[format!("{error:?}"), format!("{of_handler:?}")]);
    }
}

//! Roles have what `idempotency_grant` gives them, and no response with it.

use tokio_postgres::{Client, NoTls, error::SqlState};
use walpost_idempotency::{Claim, Error};
use walpost_testkit::unique_name;

use crate::support::{World, answer, lookup, policy, print};

/// A session of a new role that was granted `kind`, and something else before.
pub(crate) async fn role(world: &World, kind: &str, before: &str) -> Client {
    let role = unique_name(kind);
    let before = before.replace("$role", &role);
    let sql = format!(
        "create role {role} login password 'x'; {before}; \
         select walpost.idempotency_grant('{kind}', '{role}')"
    );
    world.client.batch_execute(&sql).await.unwrap();
    let mut config = world.database.config();
    config.user(&role).password("x");
    let (client, connection) = config.connect(NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

async fn denied(client: &Client, sql: &str) {
    let error = client.batch_execute(sql).await.expect_err(sql);
    assert_eq!(error.code(), Some(&SqlState::INSUFFICIENT_PRIVILEGE), "{sql}: {error:?}");
}

#[tokio::test]
async fn an_application_needs_no_more_than_its_grant() {
    let world = World::new().await;
    let mut client = role(&world, "application", "").await;
    let idempotency = &world.idempotency;
    for turn in 0..2 {
        let tx = idempotency.begin(&mut client).await.unwrap();
        match idempotency.claim(&tx, &lookup("a", "k"), &print("a"), &policy()).await.unwrap() {
            Claim::New(claimed) if turn == 0 => {
                idempotency.complete_and_commit(tx, &claimed, &answer("k")).await.unwrap();
            }
            Claim::Replay(response) if turn == 1 => assert_eq!(response, answer("k")),
            other => panic!("{other:?}"),
        }
    }
    let lease = idempotency.lease(&mut client, &lookup("a", "l"), &print("a"), &policy()).await;
    let Claim::New(lease) = lease.unwrap() else { panic!("it is the first") };
    idempotency.renew(&client, &lease).await.unwrap();
    idempotency.finish(&client, &lease, &answer("l")).await.unwrap();
    denied(&client, "delete from walpost.idempotency").await;
}

#[tokio::test]
async fn a_reader_sees_everything_but_responses() {
    let world = World::new().await;
    let _ = world.request(("alice", "k", "a"), &policy()).await.unwrap();
    let mut reader = role(&world, "reader", "grant all on walpost.idempotency to $role").await;
    for sql in [
        "select body from walpost.idempotency",
        "select header_values from walpost.idempotency",
        "select fingerprint from walpost.idempotency",
        "select * from walpost.idempotency",
        "update walpost.idempotency set lease_until = now()",
        "delete from walpost.idempotency",
    ] {
        denied(&reader, sql).await;
    }
    let entry = world.idempotency.show(&reader, &lookup("alice", "k")).await.unwrap().unwrap();
    assert_eq!((&*entry.route, entry.response_status), ("r", Some(201)));
    let error = world.idempotency.prune(&reader, 10).await.unwrap_err();
    assert!(matches!(error, Error::Denied { kind: "pruner", .. }), "{error:?}");
    // Whoever has no grant is told which one to ask for.
    let tx = world.idempotency.begin(&mut reader).await.unwrap();
    let claim = world.idempotency.claim(&tx, &lookup("a", "k"), &print("a"), &policy()).await;
    let text = claim.unwrap_err().to_string();
    assert!(text.contains("idempotency_grant('application'"), "{text}");
}

#[tokio::test]
async fn a_pruner_and_an_operator_do_their_work_without_seeing_responses() {
    let world = World::new().await;
    let _ = world.request(("alice", "k", "a"), &policy()).await.unwrap();
    let _ = world.request(("alice", "other", "a"), &policy()).await.unwrap();
    let operator = role(&world, "operator", "").await;
    let pruner = role(&world, "pruner", "").await;
    for client in [&operator, &pruner] {
        denied(client, "select body from walpost.idempotency").await;
    }
    assert!(world.idempotency.remove(&operator, &lookup("alice", "k")).await.unwrap());
    assert!(!world.idempotency.remove(&operator, &lookup("alice", "k")).await.unwrap());
    world.shift("25 hours").await;
    assert_eq!(world.idempotency.prunable(&pruner).await.unwrap().rows, 1);
    assert_eq!(world.idempotency.prune(&pruner, 10).await.unwrap().rows, 1);
}

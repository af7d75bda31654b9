//! What the role of a receiver needs.

use walpost_inbox::Database;
use walpost_testkit::unique_name;
use walpost_webhook::receive::Receiver;

use super::{
    handler::ByType,
    server::{ALREADY, OK, Server},
    sign::Sender,
    world::World,
};
use crate::world::LIMIT;

#[tokio::test]
async fn who_inserts_alone_needs_the_rights_of_a_receiver_and_inline_those_of_a_processor() {
    let world = World::new().await;
    let role = unique_name("receiver");
    let sql = format!(
        "create role {role} login password 'x'; grant all on effect to {role}; \
         select walpost.inbox_grant('receiver', '{role}')"
    );
    world.client.batch_execute(&sql).await.unwrap();
    let mut config = world.database.config();
    config.user(&role).password("x");
    let receiver = Receiver::builder(Database::config(config))
        .answer_within(LIMIT)
        .inbox("/webhooks/github", Sender::Github.source())
        .inline("/webhooks/standard", Sender::Standard.source(), ByType::new())
        .build()
        .unwrap();
    let server = Server::start(receiver.router()).await;
    assert_eq!(server.event(Sender::Github, "a", "apply").await.what(), (200, OK));
    let refused = server.event(Sender::Standard, "a", "apply").await;
    assert_eq!(refused.problem(), (503, "store-unavailable"));
    let grant = format!("select walpost.inbox_grant('processor', '{role}')");
    world.client.batch_execute(&grant).await.unwrap();
    for answer in [OK, ALREADY] {
        assert_eq!(server.event(Sender::Standard, "a", "apply").await.what(), (200, answer));
    }
}

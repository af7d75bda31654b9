//! Kills wherever a process happens to be, under load.

use std::time::Duration;

use tokio::{task::JoinSet, time::interval};
use walpost_testkit::until;

use crate::world::{LIMIT, Part, World, signed_up};

const ACCOUNTS: usize = 60;
const KILLS: usize = 9;

#[tokio::test(flavor = "multi_thread")]
async fn parts_that_are_killed_again_and_again_send_no_second_mail() {
    let mut world = World::new().await;
    let (api, mut clients) = (world.api(), JoinSet::new());
    clients.spawn(async move {
        let mut pace = interval(Duration::from_millis(100));
        let mut requests = JoinSet::new();
        for number in 0..ACCOUNTS {
            pace.tick().await;
            requests.spawn(async move {
                let (key, email) = (format!("k{number}"), format!("user-{number}@example.org"));
                let (one, other) =
                    tokio::join!(signed_up(api, &key, &email), signed_up(api, &key, &email));
                assert_eq!((one.status, &one.body), (201, &other.body));
            });
        }
        requests.join_all().await;
    });
    for kill in 0..KILLS {
        let wanted = (kill + 1) * ACCOUNTS / (2 * KILLS);
        until(LIMIT, "some mails", async || world.mails().len() >= wanted).await;
        let part = Part::ALL[kill % Part::ALL.len()];
        world.kill(part);
        world.start(part, None).await;
    }
    clients.join_all().await;
    let states = world.ended(ACCOUNTS).await;
    assert!(world.mails().values().all(|mails| *mails == 1), "{:?}", world.mails());
    if states.values().any(|state| state == "unknown") {
        world.operator(true).await;
    }
    world.is_well(ACCOUNTS.try_into().unwrap()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mailer_that_wakes_beside_its_successor_sends_nothing() {
    let mut world = World::with(Some((Part::Mailer, "signup/before_smtp:stop"))).await;
    assert_eq!(world.signed_up("k", "ada@example.org").await.status, 201);
    let states = world.ended(1).await;
    assert_eq!(states.values().collect::<Vec<_>>(), ["unknown"]);
    let paused = world.replace_mailer().await;
    assert!(world.operator(true).await.contains("1 by the mailer"));
    world.is_well(1).await;
    paused.resume();
    until(LIMIT, "an end of what was paused", async || paused.log().contains("a lease was lost"))
        .await;
    world.is_well(1).await;
}

//! Kills wherever a process happens to be, under load.

use std::time::Duration;

use tokio::{task::JoinSet, time::interval};
use walpost_testkit::until;

use crate::{
    pictures::picture,
    world::{ALICE, LIMIT, Part, World, uploaded},
};

const FILES: u32 = 40;
const KILLS: u32 = 6;

#[tokio::test(flavor = "multi_thread")]
async fn parts_that_are_killed_again_and_again_do_each_job_once() {
    let mut world = World::new().await;
    let (api, mut clients) = (world.api(), JoinSet::new());
    clients.spawn(async move {
        let mut pace = interval(Duration::from_millis(100));
        let mut uploads = JoinSet::new();
        for number in 0..FILES {
            pace.tick().await;
            uploads.spawn(async move {
                let (key, body) = (format!("k{number}"), picture(number));
                let twins =
                    (uploaded(api, (ALICE, &key), &body), uploaded(api, (ALICE, &key), &body));
                let (one, other) = tokio::join!(twins.0, twins.1);
                assert_eq!((one.status, &one.body), (201, &other.body));
            });
        }
        uploads.join_all().await;
    });
    for kill in 0..KILLS {
        let wanted = i64::from((kill + 1) * FILES / (2 * KILLS));
        until(LIMIT, "some thumbnails", async || {
            world.number("select count(*) from thumbnail").await >= wanted
        })
        .await;
        let part = if kill % 2 == 0 { Part::Api } else { Part::Worker };
        world.kill(part);
        world.start(part, None).await;
    }
    clients.join_all().await;
    world.ended(i64::from(FILES)).await;
    world.sweep().await;
    world.is_well(i64::from(FILES)).await;
}

//! Requests that come again, at once, late, in part, and under other keys.

use std::fs;

use image::ImageFormat;
use stand::{post_a_part, post_and_go};
use tokio::task::JoinSet;
use walpost_testkit::until;

use crate::{
    pictures::{bomb, encoded, picture},
    world::{ALICE, BOB, LIMIT, Part, World, upload, uploaded},
};

const MIB: u64 = 1_024 * 1_024;

fn headers(key: &str) -> [(&str, &str); 3] {
    [("content-type", "image/png"), ("authorization", ALICE), ("idempotency-key", key)]
}

#[tokio::test(flavor = "multi_thread")]
async fn twins_and_retries_get_one_answer_and_one_job() {
    let world = World::new().await;
    let (api, mut twins) = (world.api(), JoinSet::new());
    for _ in 0..10 {
        twins.spawn(async move { uploaded(api, (ALICE, "k"), &picture(0)).await });
    }
    let answers: Vec<_> = twins.join_all().await;
    assert!(answers.iter().all(|one| (one.status, &one.body) == (201, &answers[0].body)));
    assert_eq!(answers.iter().filter(|one| !one.is_replay()).count(), 1);
    post_and_go(api, "/files", &headers("gone"), &picture(1)).await;
    assert_eq!(world.uploaded("gone", &picture(1)).await.status, 201);
    assert!(world.uploaded("k", &picture(0)).await.is_replay());
    world.ended(2).await;
    world.is_well(2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn other_bytes_under_a_key_are_refused_and_leave_nothing() {
    let world = World::new().await;
    let first = world.uploaded("k", &picture(0)).await;
    let other = world.uploaded("k", &picture(1)).await;
    assert_eq!(other.status, 422, "{other:?}");
    assert_eq!(world.uploaded("k", &picture(0)).await.body, first.body);
    let stranger = upload(world.api(), ("Bearer of none", "s"), &picture(2)).await.unwrap();
    assert_eq!(stranger.status, 401, "{stranger:?}");
    world.ended(1).await;
    world.is_well(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_bytes_under_other_keys_are_files_of_their_own_and_one_content() {
    let world = World::new().await;
    let (api, mut uploads) = (world.api(), JoinSet::new());
    for (token, key) in [(ALICE, "k"), (ALICE, "l"), (BOB, "k"), (BOB, "l")] {
        uploads.spawn(async move { uploaded(api, (token, key), &picture(0)).await });
    }
    let answers = uploads.join_all().await;
    assert!(answers.iter().all(|answer| answer.status == 201), "{answers:?}");
    world.ended(4).await;
    world.is_well(4).await;
    assert_eq!(world.names("files").len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_breaks_off_leaves_nothing() {
    let world = World::new().await;
    let body = picture(0);
    let part = (&body[..], body.len() / 2);
    let client = post_a_part(world.api(), "/files", &headers("k"), part).await.unwrap();
    until(LIMIT, "a temporary file", async || !world.names("tmp").is_empty()).await;
    drop(client);
    until(LIMIT, "no temporary file", async || world.names("tmp").is_empty()).await;
    let rows = "select (select count(*) from file) + (select count(*) from walpost.inbox) \
                + (select count(*) from walpost.idempotency)";
    assert_eq!(world.number(rows).await, 0);
    assert!(world.names("files").is_empty());
    assert!(!world.uploaded("k", &body).await.is_replay());
    world.ended(1).await;
    world.is_well(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_file_is_streamed_and_one_that_is_too_large_refused() {
    let world = World::new().await;
    assert_eq!(world.uploaded("small", &picture(0)).await.status, 201);
    let before = world.memory_max(Part::Api);
    let large = vec![7; 40 * 1_024 * 1_024];
    assert_eq!(world.uploaded("large", &large).await.status, 201);
    let grown = world.memory_max(Part::Api).saturating_sub(before);
    assert!(grown < 8 * MIB, "{grown} bytes");
    world.ended(2).await;
    let larger = vec![7; 64 * 1_024 * 1_024 + 1];
    assert_eq!(world.uploaded("larger", &larger).await.status, 413);
    until(LIMIT, "no temporary file", async || world.names("tmp").is_empty()).await;
    assert_eq!(world.number("select count(*) from file").await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_picture_or_a_bomb_is_given_up_and_holds_nobody_up() {
    let world = World::new().await;
    assert_eq!(world.uploaded("first", &picture(0)).await.status, 201);
    world.ended(1).await;
    let before = world.memory_max(Part::Worker);
    let half = &picture(1)[..200];
    let unfit = [&bomb(60_000)[..], &bomb(9_000)[..], b"no picture", half];
    for (number, body) in unfit.into_iter().enumerate() {
        assert_eq!(world.uploaded(&format!("unfit-{number}"), body).await.status, 201);
    }
    let jpeg = encoded(2, ImageFormat::Jpeg);
    assert_eq!(world.uploaded("last", &jpeg).await.status, 201);
    world.ended(6).await;
    let grown = world.memory_max(Part::Worker).saturating_sub(before);
    assert!(grown < 16 * MIB, "{grown} bytes");
    let reasons = "select reason from walpost.inbox where processing_state = 'failed' order by seq";
    let rows = world.client.query(reasons, &[]).await.unwrap();
    let reasons: Vec<&str> = rows.iter().map(|row| row.get(0)).collect();
    let (large, none) = ("the picture is too large", "this is no PNG or JPEG");
    assert_eq!(reasons, [large, large, none, none]);
    assert_eq!(world.number("select count(*) from thumbnail").await, 2);
    assert_eq!(world.names("thumbnails").len(), 2);
    assert!(world.names("tmp").is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retry_after_two_days_is_told_so_and_makes_no_second_file() {
    let world = World::new().await;
    assert_eq!(world.uploaded("k", &picture(0)).await.status, 201);
    let shift = ["created_at", "completed_at", "expires_at", "gone_until"]
        .map(|time| format!("{time} = {time} - interval '48 hours'"))
        .join(", ");
    world.client.batch_execute(&format!("update walpost.idempotency set {shift}")).await.unwrap();
    let late = world.uploaded("k", &picture(0)).await;
    assert_eq!(late.status, 410, "{late:?}");
    world.ended(1).await;
    world.is_well(1).await;
    let name = world.names("files").pop_first().unwrap();
    assert_eq!(fs::read(world.path("files", &name)).unwrap(), picture(0));
}

//! A kill at every point that the code has a name for.

use std::fs;

use tokio::task::{JoinSet, LocalSet};
use walpost_testkit::{covers_points, until};

use crate::{
    failpoint::Failpoint,
    pictures::picture,
    world::{
        ALICE, LIMIT,
        Part::{self, Api, Worker},
        World, upload,
    },
};

/// Whose points they are: a crate's, or the example's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Of {
    Idempotency,
    Example,
}

impl Of {
    fn name(self) -> &'static str {
        match self {
            Self::Idempotency => "idempotency",
            Self::Example => "upload",
        }
    }
}

use Of::{Example, Idempotency};

/// Which process is killed where, and what is on the disk then: temporary files,
/// contents, thumbnails.
const KILLS: &[(Part, Of, &str, [usize; 3])] = &[
    (Api, Example, "after_body:kill", [1, 0, 0]),
    (Api, Idempotency, "after_claim:kill", [1, 0, 0]),
    (Api, Example, "after_place:kill", [0, 1, 0]),
    (Api, Idempotency, "before_commit:kill", [0, 1, 0]),
    (Api, Idempotency, "after_commit:kill", [0, 1, 0]),
    (Worker, Example, "before_thumbnail:kill", [0, 1, 0]),
    (Worker, Example, "after_thumbnail_bytes:kill", [1, 1, 0]),
    (Worker, Example, "after_thumbnail_name:kill", [0, 1, 1]),
    (Worker, Example, "after_thumbnail_row:kill", [0, 1, 1]),
];

/// Points of requests under a lease, which these are not.
const ELSEWHERE: [&str; 4] = ["after_lease", "after_phase", "before_finish", "after_finish"];

/// A point that is new, or gone, fails this until there is a line for it.
#[test]
fn every_point_of_an_upload_has_a_line() {
    let lines = |whose: Of| {
        let lines = KILLS.iter().filter(move |(_, of, ..)| *of == whose);
        lines.map(|(.., point, _)| point.split(':').next().unwrap())
    };
    covers_points(lines(Idempotency).chain(ELSEWHERE), walpost_idempotency::failpoints());
    covers_points(lines(Example), Failpoint::ALL.into_iter().map(Failpoint::name));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_passed_elsewhere_is_passed_by_no_upload() {
    for point in ELSEWHERE {
        let armed = format!("{}/{point}:kill", Idempotency.name());
        let world = World::with(Some((Api, &*armed))).await;
        assert_eq!(world.uploaded("k", &picture(0)).await.status, 201, "{point}");
        world.ended(1).await;
        assert!(world.is_running(Api), "{point}");
        world.is_well(1).await;
    }
}

/// All of a part at once, each in a world of its own.
async fn kills(part: Part) {
    let (local, mut worlds) = (LocalSet::new(), JoinSet::new());
    for (_, of, point, left) in KILLS.iter().filter(|(one, ..)| *one == part) {
        worlds.spawn_local_on(killed(part, *of, point, *left), &local);
    }
    local.run_until(worlds.join_all()).await;
}

async fn killed(part: Part, of: Of, point: &'static str, left: [usize; 3]) {
    let armed = format!("{}/{point}", of.name());
    let mut world = World::with(Some((part, &*armed))).await;
    if part == Api {
        // It makes a thumbnail of what was committed before anybody has looked.
        world.kill(Worker);
    }
    let body = picture(0);
    let first = upload(world.api(), (ALICE, "k"), &body).await;
    world.killed(part).await;
    let found = ["tmp", "files", "thumbnails"].map(|folder| world.names(folder).len());
    assert_eq!(found, left, "{point}");
    world.start(part, None).await;
    // The client, which may have its answer, comes again with a twin.
    let (one, other) = tokio::join!(world.uploaded("k", &body), world.uploaded("k", &body));
    assert_eq!((one.status, &one.body), (201, &other.body), "{point}");
    assert_eq!(first.is_none(), part == Api, "{point}: {first:?}");
    assert!(first.is_none_or(|first| first.body == one.body), "{point}");
    if part == Api {
        world.start(Worker, None).await;
    }
    world.ended(1).await;
    let swept = world.sweep().await;
    assert!(swept.contains(&format!("{} temporary, 0 without", left[0])), "{point}: {swept}");
    world.is_well(1).await;
    let name = world.names("files").pop_first().unwrap();
    assert_eq!(fs::read(world.path("files", &name)).unwrap(), body, "{point}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_anywhere_in_an_upload_leaves_one_file_and_one_job() {
    kills(Api).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_anywhere_in_a_job_leaves_one_thumbnail() {
    kills(Worker).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_whose_upload_was_killed_for_good_leaves_with_the_sweep() {
    let world = World::new().await;
    let body = picture(0);
    assert_eq!(world.uploaded("k", &body).await.status, 201);
    world.ended(1).await;
    // As a kill between its name and its row leaves it.
    let orphan = "0".repeat(64);
    fs::write(world.path("files", &orphan), "orphan").unwrap();
    fs::write(world.path("tmp", "orphan"), "orphan").unwrap();
    until(LIMIT, "a sweep of both", async || {
        world.sweep().await.contains("1 temporary, 1 without a row")
    })
    .await;
    world.is_well(1).await;
}

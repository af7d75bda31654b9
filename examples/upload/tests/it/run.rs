//! The example as a newcomer runs it, and kills it.

use std::os::unix::fs::PermissionsExt;

use stand::patiently;
use tempfile::TempDir;
use walpost_testkit::{
    Process,
    local::{Postgres, Signal},
    until,
};

use crate::world::LIMIT;

const FILES: usize = 160;

/// Time enough to be killed half-way.
fn start_slowly(environment: &[(&str, &str)]) -> Process {
    start(&[environment, &[("PACE_MS", "300")]].concat())
}

fn start(environment: &[(&str, &str)]) -> Process {
    let files = FILES.to_string();
    let all = environment.iter().copied().chain([("FILES", files.as_str())]);
    Process::start(env!("CARGO_BIN_EXE_upload"), [""; 0], all)
}

/// The figure before `word` in the last line that has it.
fn told(process: &Process, word: &str) -> usize {
    let log = process.log();
    let figure = log.lines().rev().find_map(|line| {
        let (before, _) = line.split_once(word)?;
        before.split_whitespace().last()?.parse().ok()
    });
    figure.unwrap_or(0)
}

async fn some_thumbnails(process: &Process, wanted: usize) {
    until(LIMIT, "some thumbnails", async || {
        assert!(process.is_running(), "{}", process.log());
        told(process, " thumbnails ") >= wanted
    })
    .await;
}

const COUNTS: &str = "select count(*), count(distinct file_id), (select count(*) from file), \
                      (select count(*) from walpost.inbox where processing_state = 'succeeded') \
                      from thumbnail";

#[tokio::test(flavor = "multi_thread")]
async fn one_command_makes_one_thumbnail_of_each_file_also_when_it_is_killed() {
    let folder = TempDir::new().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let environment = [("FOLDER", folder.path().to_str().unwrap())];
    for wanted in [5, 30] {
        let process = start_slowly(&environment);
        some_thumbnails(&process, wanted).await;
        assert!(told(&process, " thumbnails ") < FILES, "it was too fast to be killed half-way");
        process.kill();
    }
    let last = start(&environment);
    assert!(last.wait(LIMIT).success(), "{}", last.log());
    let done = format!("done: {FILES} files, {FILES} thumbnails, none twice");
    assert_eq!(last.log().lines().last(), Some(&*done), "{}", last.log());
    let names = |name: &str| std::fs::read_dir(folder.path().join(name)).unwrap().count();
    assert_eq!((names("store/files"), names("store/thumbnails")), (FILES, FILES));
    let home = folder.path().join("postgres");
    let postgres = patiently(|| Postgres::builder().home(&home).start()).unwrap();
    let counts = postgres.psql("postgres", COUNTS).unwrap();
    assert_eq!(counts.trim(), format!("{FILES}|{FILES}|{FILES}|{FILES}"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_of_ones_own_does_as_well_and_ctrl_c_ends_in_order() {
    let database = walpost_testkit::fresh_database().await;
    let folder = TempDir::new().unwrap();
    let store = folder.path().to_str().unwrap();
    let environment = [("DATABASE_URL", database.url()), ("STORE", store)];
    let first = start_slowly(&environment);
    some_thumbnails(&first, 5).await;
    first.signal(Signal::Interrupt);
    assert!(first.wait(LIMIT).success(), "{}", first.log());
    assert!(first.log().contains("none twice; the next start goes on"), "{}", first.log());
    let second = start(&environment);
    assert!(second.wait(LIMIT).success(), "{}", second.log());
    let done = format!("done: {FILES} files, {FILES} thumbnails, none twice");
    assert_eq!(second.log().lines().last(), Some(&*done), "{}", second.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_thumbnail_ends_it_as_broken_at_once_and_at_each_start() {
    let database = walpost_testkit::fresh_database().await;
    let folder = TempDir::new().unwrap();
    let store = folder.path().to_str().unwrap();
    let environment = [("DATABASE_URL", database.url()), ("STORE", store)];
    let first = start_slowly(&environment);
    some_thumbnails(&first, 5).await;
    let again = "insert into thumbnail (file_id, width, height) \
                 select file_id, width, height from thumbnail order by file_id limit 1";
    assert_eq!(database.connect().await.execute(again, &[]).await.unwrap(), 1);
    let ends_as_broken = |process: Process| {
        let status = process.wait(LIMIT);
        let log = process.log();
        assert_eq!(status.code(), Some(1), "{log}");
        let last = log.lines().find(|line| line.starts_with("upload: BROKEN: of ")).unwrap();
        assert!(last.contains(" files 1 have two thumbnails"), "{log}");
    };
    ends_as_broken(first);
    ends_as_broken(start(&environment));
}

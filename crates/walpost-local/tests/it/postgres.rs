use std::{
    fs,
    net::TcpStream,
    os::unix::net::UnixStream,
    time::{Duration, Instant},
};

use walpost_local::{Auth, Postgres, is_alive};

fn local() -> Postgres {
    let start = Instant::now();
    let postgres = Postgres::builder().throwaway().start().unwrap();
    println!("PostgreSQL {} started in {:?}", postgres.major(), start.elapsed());
    postgres
}

#[test]
fn a_server_answers_on_tcp_and_socket_and_leaves_nothing_behind() {
    let postgres = local();
    let (pid, data) = (postgres.pid().unwrap(), postgres.data_dir());
    TcpStream::connect((postgres.host(), postgres.port())).unwrap();
    let socket = postgres.socket_dir().join(format!(".s.PGSQL.{}", postgres.port()));
    UnixStream::connect(&socket).unwrap();
    let sql = "select current_setting('wal_level'), current_setting('fsync')";
    assert_eq!(postgres.psql("postgres", sql).unwrap(), "logical|off\n");
    drop(postgres);
    assert!(!is_alive(pid));
    assert!(!data.parent().unwrap().exists());
}

#[test]
fn committed_rows_survive_every_way_to_stop() {
    let postgres = local();
    let port = postgres.port();
    postgres.psql("postgres", "create table t (n int)").unwrap();
    let stops = [Postgres::stop_fast, Postgres::stop_immediate, Postgres::kill];
    for (n, stop) in stops.iter().enumerate() {
        postgres.psql("postgres", &format!("insert into t values ({n})")).unwrap();
        stop(&postgres).unwrap();
        assert_eq!(postgres.pid(), None);
        let start = Instant::now();
        postgres.start().unwrap();
        println!("started again in {:?}", start.elapsed());
    }
    assert_eq!(postgres.psql("postgres", "select n from t order by n").unwrap(), "0\n1\n2\n");
    assert_eq!(postgres.port(), port);
}

#[test]
fn a_setting_holds_after_a_reload() {
    let postgres = local();
    postgres.set("wal_sender_timeout", "12345ms").unwrap();
    postgres.reload().unwrap();
    let start = Instant::now();
    while postgres.psql("postgres", "show wal_sender_timeout").unwrap() != "12345ms\n" {
        assert!(start.elapsed() < Duration::from_secs(20));
    }
}

#[test]
fn a_home_is_kept_and_used_again() {
    let folder = tempfile::tempdir().unwrap();
    open_to_all(folder.path());
    let builder = Postgres::builder().throwaway().home(folder.path().join("home"));
    let first = builder.clone().start().unwrap();
    first.psql("postgres", "create table kept (n int)").unwrap();
    drop(first);
    let second = builder.start().unwrap();
    assert_eq!(second.psql("postgres", "select count(*) from kept").unwrap(), "0\n");
}

#[test]
fn a_long_home_still_has_a_working_socket() {
    let folder = tempfile::tempdir().unwrap();
    open_to_all(folder.path());
    let home = folder.path().join("long".repeat(25));
    let postgres = Postgres::builder().throwaway().home(home).start().unwrap();
    assert_eq!(postgres.psql("postgres", "select 1").unwrap(), "1\n");
}

#[test]
fn passwords_are_asked_for_on_tcp() {
    for auth in [Auth::ScramSha256("p w'".into()), Auth::Md5("p w'".into())] {
        let postgres = Postgres::builder().throwaway().auth(auth).start().unwrap();
        let psql = |conninfo: &str| {
            std::process::Command::new("psql")
                .args(["-w", "-X", "-A", "-t", "-d", conninfo, "-c", "select 1"])
                .output()
                .unwrap()
        };
        assert_eq!(psql(&postgres.conninfo("postgres")).stdout, b"1\n");
        assert_eq!(psql(&postgres.url("postgres")).stdout, b"1\n");
        let without = postgres.url("postgres").replace("p%20w%27", "");
        assert!(!psql(&without).status.success());
    }
}

#[test]
fn a_setting_that_does_not_exist_is_reported_from_the_log() {
    let error = Postgres::builder().setting("no_such_setting", "1").start().unwrap_err();
    assert!(error.to_string().contains("no_such_setting"), "{error}");
}

#[test]
#[ignore = "deep: fetches an older PostgreSQL"]
fn the_oldest_and_the_newest_major_version_are_fetched_and_start() {
    for major in [14, 18] {
        let start = Instant::now();
        assert!(walpost_local::fetch_postgres(Some(major)).unwrap().join("initdb").is_file());
        println!("fetched in {:?}", start.elapsed());
        let start = Instant::now();
        let postgres = Postgres::builder().version(Some(major)).throwaway().start().unwrap();
        println!("PostgreSQL {major} started in {:?}", start.elapsed());
        assert_eq!(postgres.major(), major);
        let version = postgres.psql("postgres", "show server_version_num").unwrap();
        assert!(version.starts_with(&major.to_string()), "{version}");
        let slot = "select pg_create_logical_replication_slot('s', 'pgoutput') is not null";
        assert_eq!(postgres.psql("postgres", slot).unwrap(), "t\n");
    }
}

#[test]
fn a_copy_goes_on_follows_or_begins_a_timeline() {
    let first = local();
    first.psql("postgres", "create table t (n int); insert into t values (1)").unwrap();
    let identity = "select system_identifier from pg_control_system()";
    let same = first.psql("postgres", identity).unwrap();
    let running = Postgres::builder().throwaway().clone_of(&first).start().unwrap_err();
    assert!(running.to_string().contains("stopped"), "{running}");
    first.stop_fast().unwrap();
    let builder = || Postgres::builder().throwaway();
    let clone = builder().clone_of(&first).start().unwrap();
    let conninfo = first.conninfo("postgres");
    let standby = builder().standby_of(&first).setting("primary_conninfo", conninfo);
    let standby = standby.start().unwrap();
    let restored = builder().restore_of(&first).start().unwrap();
    let state = "select pg_is_in_recovery(), (select sum(n) from t)";
    assert_eq!(standby.psql("postgres", state).unwrap(), "t|1\n");
    assert_eq!(clone.psql("postgres", state).unwrap(), "f|1\n");
    let deadline = Instant::now() + Duration::from_secs(20);
    while restored.psql("postgres", state).unwrap() != "f|1\n" {
        assert!(Instant::now() < deadline, "the recovery ends");
    }
    let timeline = "select timeline_id from pg_control_checkpoint()";
    assert_eq!(clone.psql("postgres", timeline).unwrap(), "1\n");
    restored.psql("postgres", "checkpoint").unwrap();
    assert_eq!(restored.psql("postgres", timeline).unwrap(), "2\n");
    for copy in [&clone, &standby, &restored] {
        assert_eq!(copy.psql("postgres", identity).unwrap(), same);
        assert!(copy.port() != first.port());
    }
}

/// When we are root, the server runs as someone else.
fn open_to_all(folder: &std::path::Path) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).unwrap();
}

//! Handlers with types of their own, behind a pooler in transaction mode.

use std::{
    error::Error as StdError,
    sync::atomic::{AtomicUsize, Ordering},
};

use bytes::BytesMut;
use tokio_postgres::{
    Config,
    types::{IsNull, ToSql, Type},
};
use walpost_consumer::{
    Builder, Database, Event, Guard, Handler, HandlerError, OnReset, tokio_postgres::Transaction,
};
use walpost_testkit::{Pooler, Process, until};

use crate::support::{LIMIT, World, each, ids, run};

const TYPES: &str = "create type mood as enum ('glad', 'sad'); \
    create domain amount as int check (value >= 0); \
    create type spot as (x int, y int); \
    create table typed (event_id text not null, mood mood, amount amount, spot spot, \
    moods mood[], constraint typed_key unique (event_id))";

/// A value as text, of whichever type the parameter is.
#[derive(Debug)]
struct Text(&'static str);

impl ToSql for Text {
    fn to_sql(
        &self,
        _: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn StdError + Sync + Send>> {
        out.extend_from_slice(self.0.as_bytes());
        Ok(IsNull::No)
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    fn encode_format(&self, _: &Type) -> tokio_postgres::types::Format {
        tokio_postgres::types::Format::Text
    }

    tokio_postgres::types::to_sql_checked!();
}

/// Writes a value of another type for each event, and reads one.
#[derive(Default)]
struct Typed {
    calls: AtomicUsize,
}

impl Handler for Typed {
    async fn handle(&self, tx: &Transaction<'_>, event: &Event) -> Result<(), HandlerError> {
        let id = event.id();
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        let of: (&str, &str, Text) = match (id, call % 4) {
            ("new", _) => ("typed2", "colour", Text("red")),
            (_, 0) => ("typed", "mood", Text("glad")),
            (_, 1) => ("typed", "amount", Text("7")),
            (_, 2) => ("typed", "spot", Text("(1,2)")),
            _ => ("typed", "moods", Text("{glad,sad}")),
        };
        let (table, column, value) = of;
        let insert = format!("insert into {table} (event_id, {column}) values ($1, $2)");
        tx.execute(&insert, &[&id, &value]).await?;
        tx.query(&format!("select {column} from {table} where event_id = $1"), &[&id]).await?;
        if id == "bad" {
            return Err(HandlerError::retry("as told"));
        }
        Ok(())
    }
}

/// Behind the test's own pooler, with so many connections at most.
async fn applies(change: impl Fn(Builder) -> Builder) {
    let world = World::new(2).await;
    let pooler = Pooler::before(&world.database).await;
    applies_by(&world, pooler.config(), change).await;
    let clients = pooler.clients();
    assert!(clients < 40, "{clients} connections");
}

/// Events of all types, then one of a type that did not exist before.
async fn applies_by(world: &World, config: Config, change: impl Fn(Builder) -> Builder) {
    world.client.batch_execute(TYPES).await.unwrap();
    let database = Database::config(config);
    let mut events = ids("a", 60);
    world.publish(0, &events[..30]).await;
    world.publish(1, &events[30..]).await;
    let builder = world.consumer().database(database).max_batch_events(3).max_connections(4);
    let mut running = run(change(builder).handler(Typed::default()).unwrap());
    running.until_applied(60).await;
    world
        .client
        .batch_execute(
            "create type colour as enum ('red'); \
             create table typed2 (event_id text not null unique, colour colour)",
        )
        .await
        .unwrap();
    world.publish(0, ["new"]).await;
    world.publish(1, ["bad"]).await;
    running.until_applied(61).await;
    world.until_number("select count(*) from walpost.consumer_parked", 1).await;
    let late = ids("late", 20);
    world.publish(1, &late).await;
    running.until_applied(81).await;
    running.stop().await.unwrap();
    events.extend(late);
    let rows = world.client.query("select event_id, count(*) from typed group by 1", &[]).await;
    let made = rows.unwrap().iter().map(|row| (row.get(0), row.get(1))).collect();
    assert_eq!(each(&events, 1), made);
    let parked = "select count(*) from walpost.consumer_parked where event_id = 'bad' \
                  and reason like '%as told%'";
    assert_eq!(world.number(parked).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_with_its_own_types_goes_on_over_all_servers_of_a_pooler() {
    applies(|builder| builder).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_a_business_key_types_are_no_trouble_behind_a_pooler() {
    applies(|builder| builder.guard(Guard::business_key(["typed_key"])).on_reset(OnReset::Fill))
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn in_lanes_types_are_no_trouble_behind_a_pooler() {
    applies(|builder| builder.lanes(3)).await;
}

/// PgBouncer before the world's server, and how clients connect to it.
async fn pgbouncer(world: &World) -> (Process, tempfile::TempDir, Config) {
    let server = world.database.config();
    let [tokio_postgres::config::Host::Tcp(host), ..] = server.get_hosts() else {
        panic!("no TCP host")
    };
    let port = server.get_ports().first().copied().unwrap_or(5432);
    let user = server.get_user().unwrap();
    let free = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let listens = free.local_addr().unwrap().port();
    drop(free);
    let folder = tempfile::tempdir().unwrap();
    let (users, settings) = (folder.path().join("users"), folder.path().join("ini"));
    std::fs::write(&users, format!("\"{user}\" \"\"\n")).unwrap();
    let ini = format!(
        "[databases]\n* = host={host} port={port}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
         listen_port = {listens}\nunix_socket_dir =\nauth_type = trust\nauth_file = {}\n\
         pool_mode = transaction\ndefault_pool_size = 3\nserver_round_robin = 1\n",
        users.display()
    );
    std::fs::write(&settings, ini).unwrap();
    // It does not run as root.
    for path in [folder.path(), &users, &settings] {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(path, mode).unwrap();
    }
    let mut args = vec![settings.to_str().unwrap()];
    if rustix::process::getuid().is_root() {
        args.extend(["-u", "nobody"]);
    }
    let process = Process::start("/usr/sbin/pgbouncer", args, [("LANG", "C")]);
    let mut config = Config::new();
    config.host("127.0.0.1").port(listens).dbname(world.database.name()).user(user);
    until(LIMIT, "PgBouncer", async || config.connect(tokio_postgres::NoTls).await.is_ok()).await;
    (process, folder, config)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "deep: PgBouncer"]
async fn types_are_no_trouble_behind_pgbouncer_in_transaction_mode() {
    for lanes in [1, 3] {
        let world = World::new(2).await;
        let (bouncer, _folder, config) = pgbouncer(&world).await;
        applies_by(&world, config, |builder| builder.lanes(lanes)).await;
        bouncer.kill();
    }
}

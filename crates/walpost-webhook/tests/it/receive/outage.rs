//! Without the database nothing is taken, and nothing lost.

use std::{net::SocketAddr, time::Duration};

use futures_util::future::join_all;
use tokio_postgres::{Config, config::Host};
use walpost_inbox::Database;
use walpost_testkit::{Direction, Proxy, Target, until};
use walpost_webhook::receive::{Builder, Receiver};

use super::{
    handler::ByType,
    server::{ALREADY, OK, Server, event},
    sign::Sender,
    world::World,
};
use crate::world::LIMIT;

const SENDER: Sender = Sender::Standard;
const QUEUED: Sender = Sender::Github;

/// A database behind a proxy.
struct Rig {
    world: World,
    proxy: Proxy,
    place: Database,
}

impl Rig {
    async fn new() -> Self {
        let world = World::new().await;
        let config = world.database.config();
        let (hosts, ports) = (config.get_hosts(), config.get_ports());
        let Host::Tcp(host) = &hosts[0] else { panic!("a URL names a host") };
        let host = if host == "localhost" { "127.0.0.1" } else { host };
        let target = SocketAddr::new(host.parse().unwrap(), ports[0]);
        let proxy = Proxy::start(Target::Tcp(target)).await;
        let mut through = Config::new();
        through.host("127.0.0.1").port(proxy.port()).dbname(world.database.name());
        if let Some(user) = config.get_user() {
            through.user(user);
        }
        if let Some(password) = config.get_password() {
            through.password(password);
        }
        Self { world, proxy, place: Database::config(through) }
    }

    /// One source in each mode.
    fn builder(&self, handler: ByType) -> Builder {
        Receiver::builder(self.place.clone())
            .inline(SENDER.path(), SENDER.source(), handler)
            .inbox(QUEUED.path(), QUEUED.source())
            .answer_within(LIMIT)
    }

    async fn start(&self, builder: Builder) -> Server {
        Server::start(builder.build().unwrap().router()).await
    }
}

#[tokio::test]
async fn without_the_database_senders_are_told_to_come_again_and_nothing_is_lost() {
    let rig = Rig::new().await;
    let server = rig.start(rig.builder(ByType::new())).await;
    assert_eq!(server.event(SENDER, "a", "apply").await.what(), (200, OK));
    rig.proxy.cut();
    for sender in [SENDER, QUEUED] {
        for id in ["a", "b"] {
            let refused = server.event(sender, id, "apply").await;
            assert_eq!(refused.problem(), (503, "store-unavailable"), "{sender:?}");
        }
    }
    rig.proxy.restore();
    for (sender, id, answer) in
        [(SENDER, "a", ALREADY), (SENDER, "b", OK), (QUEUED, "a", OK), (QUEUED, "b", OK)]
    {
        assert_eq!(server.event(sender, id, "apply").await.what(), (200, answer), "{sender:?}");
    }
    assert_eq!(rig.world.effects().await, ["a", "b"]);
    assert_eq!(rig.world.rows().await.len(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_from_before_a_restart_costs_no_sender_its_answer() {
    let rig = Rig::new().await;
    let server = rig.start(rig.builder(ByType::new())).await;
    let port = server.port;
    for (round, sender) in [SENDER, QUEUED].into_iter().enumerate() {
        assert_eq!(server.event(sender, "a", "apply").await.what(), (200, OK));
        // The session ends, and nobody hears of it until it is used.
        rig.proxy.hold(Direction::ToClient);
        let others = "from pg_stat_activity where datname = current_database() \
                      and pid <> pg_backend_pid() and backend_type = 'client backend'";
        let end = format!("select count(pg_terminate_backend(pid)) {others}");
        assert_eq!(rig.world.number(&end).await, 1, "{round}");
        let left = format!("select count(*) {others}");
        until(LIMIT, "its end", async || rig.world.number(&left).await == 0).await;
        let sent = rig.proxy.bytes_to_target();
        let next = tokio::spawn(async move { event(port, sender, "b", "apply").await.unwrap() });
        until(LIMIT, "a statement", async || rig.proxy.bytes_to_target() > sent).await;
        rig.proxy.restore();
        assert_eq!(next.await.unwrap().what(), (200, OK), "{sender:?}");
    }
    assert_eq!(rig.world.effects().await, ["a", "b"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_whose_answer_is_lost_is_a_duplicate_when_it_comes_again() {
    let rig = Rig::new().await;
    let server = rig.start(rig.builder(ByType::new())).await;
    let locker = rig.world.database.connect().await;
    locker.batch_execute("select pg_advisory_lock(7)").await.unwrap();
    let port = server.port;
    let first = tokio::spawn(async move { event(port, SENDER, "a", "slow_commit").await.unwrap() });
    let waiting = "select count(*) from pg_stat_activity where datname = current_database() \
                   and wait_event = 'advisory'";
    until(LIMIT, "a COMMIT", async || rig.world.number(waiting).await == 1).await;
    rig.proxy.hold(Direction::ToClient);
    locker.batch_execute("select pg_advisory_unlock(7)").await.unwrap();
    until(LIMIT, "its end", async || rig.world.effects().await.len() == 1).await;
    rig.proxy.cut();
    assert_eq!(first.await.unwrap().problem(), (503, "store-unavailable"));
    rig.proxy.restore();
    let again = server.event(SENDER, "a", "slow_commit").await;
    assert_eq!(again.what(), (200, ALREADY));
    assert_eq!(rig.world.effects().await, ["a"]);
}

#[tokio::test]
async fn a_database_that_does_not_answer_counts_as_away_in_time() {
    let rig = Rig::new().await;
    let builder = rig.builder(ByType::new()).answer_within(Duration::from_millis(500));
    let server = rig.start(builder).await;
    let first = async || server.event(SENDER, "a", "apply").await.status == 200;
    until(LIMIT, "a first event", first).await;
    rig.proxy.swallow(Direction::Both);
    for sender in [SENDER, QUEUED] {
        let refused = server.event(sender, "b", "apply").await;
        assert_eq!(refused.problem(), (503, "timed-out"), "{sender:?}");
    }
    rig.proxy.restore();
    let again = async || server.event(SENDER, "b", "apply").await.status == 200;
    until(LIMIT, "a database that is there again", again).await;
    assert_eq!(rig.world.effects().await, ["a", "b"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_gets_no_connection_waits_for_its_turn_and_no_longer_than_that() {
    let rig = Rig::new().await;
    let handler = ByType::new();
    let builder = rig.builder(handler.clone()).connections(1);
    let server = rig.start(builder).await;
    let port = server.port;
    let first = tokio::spawn(async move { event(port, SENDER, "a", "hold").await.unwrap() });
    handler.gate.reached().await;
    let second = tokio::spawn(async move { event(port, SENDER, "b", "apply").await.unwrap() });
    handler.gate.open();
    assert_eq!(first.await.unwrap().what(), (200, OK));
    assert_eq!(second.await.unwrap().what(), (200, OK));
    assert_eq!(rig.proxy.accepted(), 1);
    // None is opened, and whoever waits behind the first hears of it in time.
    rig.proxy.cut_connections();
    rig.proxy.swallow(Direction::Both);
    let builder = rig.builder(handler).connections(1).answer_within(Duration::from_millis(500));
    let server = rig.start(builder).await;
    for answer in join_all((0..5).map(|_| server.event(SENDER, "c", "apply"))).await {
        assert_eq!(answer.problem(), (503, "timed-out"));
    }
    assert_eq!(rig.world.effects().await, ["a", "b"]);
}

#[tokio::test]
async fn a_table_that_is_missing_is_the_stores_fault() {
    let rig = Rig::new().await;
    rig.world.client.batch_execute("drop table walpost.inbox cascade").await.unwrap();
    let server = rig.start(rig.builder(ByType::new())).await;
    for sender in [SENDER, QUEUED] {
        let refused = server.event(sender, "a", "apply").await;
        assert_eq!(refused.problem(), (503, "store-unavailable"), "{sender:?}");
    }
    assert_eq!(rig.world.effects().await, [""; 0]);
}

#[tokio::test]
async fn a_server_that_takes_no_writes_counts_as_away() {
    let rig = Rig::new().await;
    let server = rig.start(rig.builder(ByType::new())).await;
    let name = rig.world.database.name();
    for (value, answer) in [("on", None), ("off", Some(OK))] {
        let sql = format!("alter database {name} set default_transaction_read_only = {value}");
        let sql = format!("set default_transaction_read_only = off; {sql}");
        rig.world.client.batch_execute(&sql).await.unwrap();
        for sender in [SENDER, QUEUED] {
            let answered = server.event(sender, "a", "apply").await;
            match answer {
                Some(answer) => assert_eq!(answered.what(), (200, answer), "{sender:?}"),
                None => assert_eq!(answered.problem(), (503, "store-unavailable"), "{sender:?}"),
            }
        }
    }
}

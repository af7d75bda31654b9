//! Handlers with types of their own, behind a pooler in transaction mode.

use std::time::Duration;

use tokio_postgres::Transaction;
use walpost_inbox::{
    Database as Place, Event, Handler, HandlerError, Head, Processor, RetrySchedule, State,
};
use walpost_testkit::Pooler;

use crate::support::{World, ids, run};

const TYPES: &str = "create type mood as enum ('glad', 'sad'); \
    create type spot as (x int, mood mood); \
    create table typed (event_id text primary key, mood mood default 'glad', \
    spot spot default '(1,sad)', moods mood[] default '{sad}')";

/// Reads a column of another type for each event.
struct Typed;

impl Handler for Typed {
    type Work = ();

    fn select(&self, _: &Head) -> Option<()> {
        Some(())
    }

    async fn process(
        &self,
        tx: &Transaction<'_>,
        (): &(),
        event: &Event,
    ) -> Result<(), HandlerError> {
        let id = event.head().event_id();
        tx.execute("insert into typed (event_id) values ($1)", &[&id]).await?;
        let column = match (id, id.len()) {
            (id, _) if id.starts_with("new") => "colour",
            (id, _) if id.ends_with('1') => "spot",
            (id, _) if id.ends_with('2') => "moods",
            _ => "mood",
        };
        tx.query(&format!("select {column} from typed where event_id = $1"), &[&id]).await?;
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_with_its_own_types_goes_on_over_all_servers_of_a_pooler() {
    let world = World::new().await;
    world.client.batch_execute(TYPES).await.unwrap();
    let pooler = Pooler::before(&world.database).await;
    let builder = Processor::builder(Place::config(pooler.config()))
        .retries(RetrySchedule::new([Duration::from_millis(20); 2]))
        .without_listen()
        .poll_ms(20)
        .concurrency(2);
    let running = run(builder, Typed);
    world.receive("apply", ids("a", 60)).await;
    world.until(State::Succeeded, 60).await;
    let colour = "create type colour as enum ('red'); \
                  alter table typed add column colour colour default 'red'";
    world.client.batch_execute(colour).await.unwrap();
    world.receive("apply", ids("new", 10)).await;
    world.until(State::Succeeded, 70).await;
    let clients = pooler.clients();
    running.stop().await;
    assert_eq!(world.number("select count(*) from typed").await, 70);
    assert_eq!(world.number("select max(attempts)::bigint from walpost.inbox").await, 1);
    assert!(clients < 30, "{clients} connections");
}

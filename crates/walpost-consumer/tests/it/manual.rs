//! What the documents tell an operator to run, run.

use std::path::Path;

use walpost_consumer::{Builder, Database, Error, Event, HandlerError, OnReset};
use walpost_testkit as testkit;

use crate::support::{Ask, World, each, ids, run, stop_committed};

/// The blocks of SQL in docs/operations.md, which those in the documentation of
/// the crate repeat.
fn block(beginning: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |path: &str| std::fs::read_to_string(folder.join(path)).unwrap();
    let operations = read("../../docs/operations.md");
    let block = operations
        .split("```sql\n")
        .skip(1)
        .filter_map(|rest| rest.split("```").next())
        .find(|block| block.starts_with(beginning))
        .unwrap_or_else(|| panic!("no block of SQL begins with {beginning}"));
    let documentation = read("src/lib.rs").replace("//! ", "");
    assert!(documentation.contains(block), "the crate's documentation has another {beginning}");
    block.to_owned()
}

/// A role that may log in and nothing else, and a consumer that is it.
async fn as_role(world: &World) -> (String, Builder) {
    let role = testkit::unique_name("app");
    world.client.batch_execute(&format!("create role {role} login")).await.unwrap();
    let mut config = world.database.config();
    config.options(format!("-c role={role}"));
    (role, world.consumer().database(Database::config(config)))
}

/// Fails for events that begin with `bad`.
fn picky() -> Ask<impl Fn(&Event) -> Result<(), HandlerError>> {
    Ask(|event: &Event| match event.id() {
        id if id.starts_with("bad") => Err(HandlerError::park("no such customer")),
        _ => Ok(()),
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_role_is_told_the_grants_of_the_manual_and_they_are_all_that_it_needs() {
    let world = World::new(1).await;
    let (role, consumer) = as_role(&world).await;
    let refused = |consumer: Builder| async {
        run(consumer.handler(picky()).unwrap()).end().await.unwrap_err()
    };
    let error = refused(consumer.clone()).await;
    let Error::NotGranted { role: ref told, ref missing, ref grant, .. } = error else {
        panic!("{error}");
    };
    assert_eq!(*told, role);
    assert!(missing.starts_with("usage, "), "{missing}");
    let manual = block("grant usage on schema");
    assert_eq!(grant.replace('"', ""), manual.trim_end().replace('\n', " ").replace("app", &role));

    let usage = format!("grant usage on schema walpost to {role}");
    world.client.batch_execute(&usage).await.unwrap();
    let error = refused(consumer.clone()).await;
    assert!(
        error.to_string().contains(
            "lacks insert, select, update on consumer, delete, select on consumer_again, "
        ),
        "{error}"
    );
    world.client.batch_execute(grant).await.unwrap();
    let own = format!("grant insert on effect to {role}");
    world.client.batch_execute(&own).await.unwrap();

    let events = ids("a", 20);
    world.publish(0, &events[..10]).await;
    world.publish(0, ["bad"]).await;
    world.publish(0, &events[10..]).await;
    let consumer = consumer.dead_letter_topic(testkit::fresh_topic("dead", 1).await);
    let mut running = run(consumer.clone().handler(picky()).unwrap());
    running.until("the end", |s| (s.counts.applied, s.counts.parked) == (20, 1)).await;
    let letter = "select count(*) from walpost.consumer_parked where dead_letter_at is not null";
    world.until_number(letter, 1).await;
    stop_committed(running).await;
    for on_reset in [OnReset::Rerun, OnReset::Fill] {
        world.reset(&["--to-earliest"]).await;
        let mut running = run(consumer.clone().on_reset(on_reset).handler(picky()).unwrap());
        running
            .until("the end", |status| {
                status.counts.resets == 1
                    && status.partitions.values().all(|one| one.next_offset == Some(21))
            })
            .await;
        stop_committed(running).await;
    }
    assert_eq!(world.effects().await, each(&events, 2));
    let drop = format!("drop owned by {role}; drop role {role}");
    world.client.batch_execute(&drop).await.unwrap();
}

#[test]
fn the_contract_names_the_grants_of_the_manual() {
    let contract = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/sql-contract.md");
    let contract = std::fs::read_to_string(contract).unwrap();
    let told = contract.lines().find(|line| line.starts_with("Grants: ")).unwrap();
    let manual = block("grant usage on schema");
    let grants = manual.lines().filter_map(|line| {
        let (rights, tables) = line.strip_prefix("grant ")?.split_once(" on walpost.")?;
        Some((rights, tables.split_once(" to ")?.0.split(", walpost.")))
    });
    let mut count = 0;
    for (rights, tables) in grants {
        let rights = format!("`{rights}` on ");
        let of = told.split_once(&rights).unwrap_or_else(|| panic!("{rights:?} is not told")).1;
        let of = of.split_once("`select").map_or(of, |(of, _)| of);
        for table in tables {
            assert!(of.contains(&format!("`{table}`")), "{rights} {table} is not in {told}");
            count += 1;
        }
    }
    assert_eq!(count, 8, "{manual}");
}

#[tokio::test(flavor = "multi_thread")]
async fn functions_that_are_not_everybodys_to_call_are_granted_too() {
    let world = World::new(1).await;
    let (role, consumer) = as_role(&world).await;
    let revoke = "revoke execute on all functions in schema walpost from public";
    world.client.batch_execute(revoke).await.unwrap();
    let error = run(consumer.clone().handler(picky()).unwrap()).end().await.unwrap_err();
    let Error::NotGranted { ref missing, ref grant, .. } = error else { panic!("{error}") };
    assert!(missing.contains("execute on functions"), "{missing}");
    let own = format!("{grant} grant insert on effect to {role}");
    world.client.batch_execute(&own).await.unwrap();
    world.publish(0, ["a"]).await;
    let mut running = run(consumer.clone().handler(picky()).unwrap());
    running.until_applied(1).await;
    running.stop().await.unwrap();
    // One that only other functions call.
    let revoke = format!("revoke execute on function walpost.session_values() from {role}");
    world.client.batch_execute(&revoke).await.unwrap();
    let error = run(consumer.handler(picky()).unwrap()).end().await.unwrap_err();
    assert!(matches!(error, Error::NotGranted { .. }), "{error}");
    let drop = format!("drop owned by {role}; drop role {role}");
    world.client.batch_execute(&drop).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn parked_events_are_applied_after_all_by_the_statement_of_the_manual() {
    let world = World::new(1).await;
    world.publish(0, ["good", "bad0", "bad1"]).await;
    world.publish_without_id(0, "who am I").await;
    let mut running = run(world.consumer().handler(picky()).unwrap());
    running.until("the end", |s| (s.counts.applied, s.counts.parked) == (1, 3)).await;
    running.stop().await.unwrap();

    let look = block("select id, parked_at").replace("shipping", &world.name);
    let rows = world.client.query(&look, &[]).await.unwrap();
    let of = |id: &str| {
        let row = rows.iter().find(|row| row.get::<_, Option<&str>>("event_id") == Some(id));
        row.unwrap().get::<_, i64>("id").to_string()
    };
    let reason: &str = rows[0].get("reason");
    assert_eq!(reason, "the handler gave the event up: no such customer");
    let ask = block("select * from walpost.request_parked");
    let ask = ask.replace("[7]", &format!("[{}]", of("bad0")));
    let ask = ask.replace("[8]", &format!("[{}]", of("bad1")));
    // As a role that has what the manual names, and nothing else.
    let role = testkit::unique_name("operator");
    let grants = format!(
        "create role {role}; grant usage on schema walpost to {role}; \
         grant select, update on walpost.consumer_parked to {role}; \
         grant select on walpost.position to {role}; set role {role}"
    );
    world.client.batch_execute(&grants).await.unwrap();
    world.client.batch_execute(&ask).await.unwrap();
    world.client.batch_execute("reset role").await.unwrap();

    let mut running = run(world.consumer().handler(Ask(|_: &Event| Ok(()))).unwrap());
    running.until_applied(1).await;
    let left = "select count(*) from walpost.consumer_parked where request is not null";
    world.until_number(left, 0).await;
    running.stop().await.unwrap();
    assert_eq!(world.effects().await, each(&["good".to_owned(), "bad0".to_owned()], 1));
    let left = "select state from walpost.consumer_parked order by off";
    let left = world.client.query(left, &[]).await.unwrap();
    let left: Vec<&str> = left.iter().map(|row| row.get(0)).collect();
    assert_eq!(left, ["discarded", "parked"]);
    let drop = format!("drop owned by {role}; drop role {role}");
    world.client.batch_execute(&drop).await.unwrap();
}

//! `walpost consumer reset`: each target in each mode, exactly.

use serde_json::Value;

use crate::{
    cli::{stderr, stdout},
    consumer::{Rig, SPACING_MS},
};

impl Rig {
    /// Looks, then resets, and expects what was said: effects again, and
    /// offsets without any.
    fn reset(&self, args: &[&str], again: i64, without: i64) -> Value {
        let args = [&["reset", &self.name], args].concat();
        let looked = self.json(&args);
        let told = (&looked["effects_again"], &looked["without_effect"], &looked["done"]);
        assert_eq!(told, (&again.into(), &without.into(), &false.into()), "{args:?}: {looked}");
        let mut done = self.json(&[&args[..], &["--yes"]].concat());
        assert_eq!(done["done"], true, "{args:?}");
        done["done"] = false.into();
        assert_eq!(done, looked, "{args:?}");
        done
    }

    fn refused(&self, args: &[&str], exit: i32, parts: &[&str]) {
        let output = self.run(&[&["reset", &self.name], args, &["--yes"]].concat());
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(exit), "{args:?}: {text}");
        for part in parts {
            assert!(text.contains(part), "{args:?}: {part:?} is not in {text}");
        }
    }

    /// The time of the n-th event, as PostgreSQL writes it.
    async fn time(&self, number: i64) -> String {
        let at = self.first_ms + number * SPACING_MS;
        let query = "select to_timestamp($1::bigint / 1000.0)::text";
        self.client.query_one(query, &[&at]).await.unwrap().get(0)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rerun_to_each_target_makes_what_the_dry_run_said_once_more() {
    let mut rig = Rig::new().await;
    rig.publish(100);
    assert_eq!(rig.drain().await, 100);
    let time = rig.time(80).await;
    let mut effects = 100;
    for (target, again) in [
        (&["--to-earliest"][..], 100),
        (&["--to-offset", "90"], 10),
        (&["--shift-by", "-5"], 5),
        (&["--to-time", &time], 20),
    ] {
        rig.reset(target, again, 0);
        effects += again;
        assert_eq!(rig.drain().await, effects, "{target:?}");
        assert_eq!(rig.drain().await, effects, "a restart is no other reset");
    }
    rig.refused(&["--to-latest"], 5, &["there already"]);
    rig.reset(&["--to-offset", "50", "--reason", "a bug in shipping"], 50, 0);
    // Before it has run: what is done again counts from the new position.
    rig.reset(&["--shift-by", "-10"], 60, 0);
    assert_eq!(rig.drain().await, effects + 60);
    let shown = rig.json(&["show", &rig.name]);
    let reset = &shown["resets"][1];
    assert_eq!((&reset["reason"], &reset["mode"]), (&"a bug in shipping".into(), &"rerun".into()));
    assert_eq!((&reset["from_offset"], &reset["to_offset"]), (&100.into(), &50.into()));
    assert!(reset["asked_by"].is_string(), "{reset}");
    assert_eq!(shown["resets"].as_array().unwrap().len(), 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_counts_parked_and_discarded_events_apart_from_effects() {
    let mut rig = Rig::new().await;
    rig.publish(10);
    assert_eq!(rig.drain().await, 10);
    let park = "with parked as (insert into walpost.consumer_parked (consumer, pos_id, topic, part, \
                off, run, source, event_id, value, header_names, header_values, reason, attempts, \
                state, holds_key) \
                select q.consumer, q.id, q.topic, q.part, d.off, 0, d.source, d.event_id, ''::bytea, \
                '{id}', array[d.event_id::bytea], 'no', 1, \
                case d.off when 3 then 'discarded' else 'parked' end, false \
                from walpost.done d join walpost.position q on q.id = d.pos_id \
                where d.off in (2, 3, 4) returning event_id) \
                delete from effect e using parked p where e.event_id = p.event_id";
    assert_eq!(rig.client.execute(park, &[]).await.unwrap(), 3);
    for (args, again, parked) in [
        (&["--to-earliest"][..], 7, 3),
        (&["--to-offset", "4"], 5, 1),
        (&["--to-earliest", "--mode", "fill"], 0, 3),
        (&["--to-earliest", "--event-type", "even", "--event-type", "odd"], 7, 3),
    ] {
        let looked = rig.json(&[&["reset", &rig.name], args].concat());
        let counts = (&looked["effects_again"], &looked["parked"], &looked["without_effect"]);
        assert_eq!(counts, (&again.into(), &parked.into(), &0.into()), "{args:?}: {looked}");
    }
    let text = stdout(&rig.run(&["reset", &rig.name, "--to-earliest"]));
    assert!(text.contains("parked: events without an effect, which are tried again"), "{text}");
    // The dry run told the truth.
    rig.reset(&["--to-earliest"], 7, 0);
    assert_eq!(rig.drain().await, 7 + 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fill_to_each_target_makes_what_is_missing_and_nothing_else() {
    let mut rig = Rig::new().await;
    rig.publish(100);
    assert_eq!(rig.drain().await, 100);
    let time = rig.time(80).await;
    for (target, missing) in [
        (&["--to-earliest"][..], 10),
        (&["--to-offset", "90"], 1),
        (&["--shift-by", "-5"], 0),
        (&["--to-time", &time], 2),
    ] {
        for table in ["effect", "walpost.done"] {
            let lost = format!("delete from {table} where event_id like '%3'");
            assert_eq!(rig.client.execute(&lost, &[]).await.unwrap(), 10);
        }
        rig.reset(&[target, &["--mode", "fill"]].concat(), 0, missing);
        assert_eq!(rig.drain().await, 90 + missing, "{target:?}");
        rig.reset(&["--to-earliest", "--mode", "fill"], 0, 10 - missing);
        assert_eq!(rig.drain().await, 100, "{target:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_skip_to_each_target_passes_events_over_and_a_rerun_applies_them_after_all() {
    let mut rig = Rig::new().await;
    rig.publish(10);
    assert_eq!(rig.drain().await, 10);
    let mut effects = 10;
    for round in 0..4 {
        let from = 10 + round * 10;
        rig.publish(10);
        let (offset, time) = ((from + 4).to_string(), rig.time(from + 7).await);
        let (target, passed): (&[&str], i64) = match round {
            0 => (&["--to-latest"], 10),
            1 => (&["--to-offset", &offset], 4),
            2 => (&["--shift-by", "3"], 3),
            _ => (&["--to-time", &time], 7),
        };
        rig.reset(&[target, &["--mode", "skip"]].concat(), 0, passed);
        effects += 10 - passed;
        assert_eq!(rig.drain().await, effects, "{target:?}");
    }
    assert_eq!(effects, 26);
    rig.reset(&["--to-earliest"], 26, 24);
    assert_eq!(rig.drain().await, 26 + 50);
}

#[tokio::test(flavor = "multi_thread")]
async fn effects_that_the_guard_cannot_tell_are_not_made_again() {
    let mut rig = Rig::new().await;
    rig.publish(10);
    assert_eq!(rig.drain().await, 10);
    for (guard, told) in [("business key", "a business key as"), ("redis", "a key in Redis as")] {
        let change = "select walpost.change_consumer($1, null, $2)";
        rig.client.query_one(change, &[&rig.name, &guard]).await.unwrap();
        rig.refused(&["--to-offset", "5"], 2, &[told, "--mode fill"]);
        rig.refused(&["--to-earliest", "--event-type", "even"], 2, &[told, "cannot be chosen"]);
        let looked = rig.run(&["reset", &rig.name, "--to-offset", "5"]);
        assert_eq!(looked.status.code(), Some(2), "the dry run says so too");
    }
    rig.reset(&["--to-offset", "5", "--mode", "fill"], 0, 0);
    let change = "select walpost.change_consumer($1, null, 'rows')";
    rig.client.query_one(change, &[&rig.name]).await.unwrap();
    assert_eq!(rig.drain().await, 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_meant_is_refused_with_the_range_or_the_way() {
    let mut rig = Rig::new().await;
    rig.publish(100);
    rig.drain().await;
    rig.delete_records(40).await;
    let range = "from 40 to 100";
    rig.refused(&["--to-offset", "39"], 2, &["offset 39", range]);
    rig.refused(&["--to-offset", "101", "--mode", "skip"], 2, &["offset 101", range]);
    rig.refused(&["--shift-by", "-61"], 2, &[range]);
    rig.refused(&["--to-offset", "50", "--mode", "skip"], 2, &["skip goes forward"]);
    rig.publish(1);
    rig.refused(&["--to-latest"], 2, &["rerun goes back", "--mode skip"]);
    rig.refused(&["--to-time", "01/02/2026"], 2, &["is not a time in ISO 8601"]);
    rig.refused(&["--to-earliest", "--partition", "7"], 5, &["partition 7"]);
    rig.refused(&["--to-earliest", "--topic", "other"], 5, &["has read nothing"]);
    rig.refused(&["--to-earliest", "--mode", "fill", "--event-type", "even"], 2, &["leave --mode"]);
    rig.refused(&["--to-latest", "--mode", "skip", "--events-per-second", "5"], 2, &["leave it"]);
    rig.refused(&["--to-earliest", "--to-latest"], 2, &[]);
    rig.refused(&[], 2, &[]);
    let output = rig.run(&["reset", "nobody", "--to-earliest"]);
    assert_eq!(output.status.code(), Some(5), "{}", stderr(&output));
    assert_eq!(rig.number("select next_offset from walpost.position").await, 100);
    assert_eq!(rig.number("select count(*) from walpost.consumer_reset").await, 0);
    // From the oldest record that is kept.
    rig.reset(&["--to-earliest"], 60, 0);
    assert_eq!(rig.drain().await, 161);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "deep: takes long"]
async fn events_of_a_type_and_an_aggregate_run_once_more_and_no_others() {
    let mut rig = Rig::new().await;
    rig.publish(100);
    assert_eq!(rig.drain().await, 100);
    let of = |args: &[&'static str]| [&["--to-earliest"], args].concat();
    rig.reset(&of(&["--event-type", "even"]), 50, 0);
    assert_eq!(rig.drain().await, 150);
    rig.reset(&of(&["--aggregate", "k3", "--aggregate", "k4"]), 20, 0);
    assert_eq!(rig.drain().await, 170);
    rig.reset(&of(&["--event-type", "odd", "--aggregate", "k3", "--aggregate", "k4"]), 10, 0);
    assert_eq!(rig.drain().await, 180);
    rig.reset(&["--to-offset", "95", "--event-type", "odd"], 3, 0);
    assert_eq!(rig.drain().await, 183);
    let expected = "select count(*) from (select event_id::int as id, count(*) as n from effect \
                    group by 1) e where n = 1 + (id % 2 = 0)::int + (id % 10 in (3, 4))::int \
                    + (id % 10 = 3)::int + (id >= 95 and id % 2 = 1)::int";
    assert_eq!(rig.number(expected).await, 100);
    rig.refused(&of(&["--event-type", "neither"]), 5, &["no event in the range matches"]);
    rig.refused(&of(&["--event-type", "even", "--max", "49"]), 2, &["--max"]);
    assert_eq!(rig.number("select count(*) from walpost.consumer_again").await, 0);
    let shown = rig.json(&["show", &rig.name, "--resets", "1"]);
    let reset = &shown["resets"][0];
    assert_eq!((&reset["chosen_events"], &reset["chosen_by"]), (&3.into(), &"type odd".into()));

    // Events that were passed over are told apart, and applied; copies are not.
    rig.publish(10);
    rig.reset(&["--to-latest", "--mode", "skip"], 0, 10);
    rig.publish_copies(&["5", "105"]);
    assert_eq!(rig.drain().await, 183 + 1, "the first record of 105 was passed over");
    let told = rig.reset(&of(&["--aggregate", "k5"]), 11, 0);
    assert_eq!(told["copies"], 2);
    assert_eq!(rig.drain().await, 184 + 11);
    rig.reset(&["--to-offset", "100", "--aggregate", "k6"], 0, 1);
    assert_eq!(rig.drain().await, 195 + 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stale_offset_of_before_a_kill_does_not_win_over_a_reset() {
    for group_protocol in ["classic", "consumer"] {
        let rig = Rig::killed(100, group_protocol).await;
        // Members that are dead to us alone may still be in the group: then
        // Kafka keeps what it has.
        rig.reset(&["--to-offset", "40"], 60, 0);
        assert_eq!(rig.drain().await, 160, "{group_protocol}");
        assert_eq!(rig.drain().await, 160, "{group_protocol}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wish_that_kafkas_tool_left_is_told_and_replaced() {
    let mut rig = Rig::new().await;
    rig.publish(100);
    rig.drain().await;
    rig.reset_in_kafka(&["--to-offset", "30"]).await;
    let output = rig.run(&["reset", &rig.name, "--to-offset", "60"]);
    assert!(stdout(&output).contains("is 30, without a marker"), "{}", stdout(&output));
    rig.reset(&["--to-offset", "60"], 40, 0);
    assert_eq!(rig.json(&["sync-offsets", &rig.name])["kafka_holds"], "the same");
    assert_eq!(rig.drain().await, 140);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "deep: takes long"]
async fn a_consumer_that_runs_is_reset_under_way() {
    let mut rig = Rig::new().await;
    rig.publish(100);
    let running = rig.start(|builder| builder.session_timeout_ms(30_000));
    rig.until_at(100).await;
    let output = rig.run(&["reset", &rig.name, "--to-offset", "30", "--yes"]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stderr(&output).contains("has members"), "{}", stderr(&output));
    walpost_testkit::until(crate::consumer::LIMIT, "effects", async || rig.effects().await == 170)
        .await;
    running.stop().await;
    assert_eq!(rig.drain().await, 170);
}

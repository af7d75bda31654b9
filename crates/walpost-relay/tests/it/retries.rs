//! Parked events that are sent on or discarded by the relay that runs.

use tokio_postgres::Client;
use walpost_event::Message;
use walpost_relay::{ParkMode, REPLAY_HEADER, RunningRelay};
use walpost_testkit::until;

use crate::{
    parked_rows::waits_for_a_lock,
    parking::{allow_no_type, parked},
    rig::{Rig, SOON, interrupt, stop},
};

const WAL_NOW: &str = "select pg_current_wal_insert_lsn()::text";

/// Asks for something to be done with the rows that this is true of.
async fn ask(rig: &Rig, what: &str, which: &str) {
    let sql = format!(
        "update walpost.parked set requested = '{what}', requested_at = now() \
         where state = 'open' and {which}"
    );
    assert!(rig.client.execute(&sql, &[]).await.unwrap() > 0, "{which}");
}

/// Waits until the states of all rows, in the order of the stream, are these.
pub(crate) async fn states(rig: &Rig, expected: &str) {
    let sql = "select string_agg(state, ' ' order by generation, commit_lsn, ordinal) \
               from walpost.parked";
    let mut found = String::new();
    until(SOON, &format!("states {expected:?}"), async || {
        found = rig.client.query_one(sql, &[]).await.unwrap().get(0);
        found == expected
    })
    .await;
}

/// One text of the only row.
async fn text(rig: &Rig, expression: &str) -> Option<String> {
    let sql = format!("select ({expression})::text from walpost.parked");
    rig.client.query_one(&sql, &[]).await.unwrap().get(0)
}

/// What a record says of its being sent on.
pub(crate) fn replay(message: &Message) -> Option<String> {
    let header = message.headers.iter().find(|header| &*header.name == REPLAY_HEADER)?;
    Some(String::from_utf8(header.value.clone().unwrap().to_vec()).unwrap())
}

/// Inserts rising values for aggregate `a` until one lands in its place: the
/// rows are done a moment before the relay knows that none is left. How many
/// have landed then.
async fn until_free(rig: &Rig) -> usize {
    let mut count = rig.world.values().len();
    until(SOON, "an event in its place", async || {
        rig.insert("a", &[&(count + 10).to_string()]).await;
        count += 1;
        rig.landed(count).await;
        replay(rig.world.landed().last().unwrap()).is_none()
    })
    .await;
    let values = rig.world.values();
    let numbers = values.iter().map(|value| value.parse::<u32>().unwrap());
    assert!(numbers.is_sorted(), "{values:?}");
    count
}

/// `1` of aggregate `a` is parked as refused, and `2` and `3` wait behind it.
async fn three_parked(rig: &Rig) -> RunningRelay {
    rig.world.never("1");
    let relay = rig.streaming().await;
    rig.insert("a", &["1", "2", "3"]).await;
    rig.insert("b", &["0"]).await;
    assert_eq!(rig.landed(1).await, ["0"]);
    parked(rig, "rejected behind behind").await;
    relay
}

#[tokio::test]
async fn an_aggregate_is_sent_on_in_order_and_what_comes_meanwhile_overtakes_nothing() {
    let rig = Rig::new().await;
    let relay = three_parked(&rig).await;
    rig.world.mend();
    // The last of them is on its way when the next event comes.
    rig.world.hold_after(3);
    ask(&rig, "retry", "reason = 'rejected'").await;
    states(&rig, "done done sending").await;
    assert_eq!(rig.landed(3).await, ["0", "1", "2"]);
    rig.insert("a", &["4"]).await;
    states(&rig, "done done sending open").await;
    rig.world.hold(false);
    states(&rig, "done done done done").await;
    assert_eq!(rig.landed(5).await, ["0", "1", "2", "3", "4"]);

    let landed_count = until_free(&rig).await;
    let landed = rig.world.landed();
    let replays: Vec<bool> = landed[..5].iter().map(|one| replay(one).is_some()).collect();
    assert_eq!(replays, [false, true, true, true, true]);
    let says = replay(&landed[1]).unwrap();
    assert!(says.starts_with("parked:1:") && says.ends_with(":0"), "{says}");
    let names: Vec<&str> = landed[1].headers.iter().map(|header| &*header.name).collect();
    assert_eq!(names, ["id", "walpost-position", "walpost-source", REPLAY_HEADER]);
    assert_eq!(rig.world.sessions(), 1);
    stop(relay).await;

    // What was sent on keeps its identity, whoever reads the WAL next.
    let relay = rig.streaming().await;
    rig.insert("a", &["99"]).await;
    let values = rig.landed(landed_count + 1).await;
    assert_eq!((values.len(), &*values[landed_count]), (landed_count + 1, "99"));
    stop(relay).await;
}

#[tokio::test]
async fn while_events_keep_coming_none_overtakes_and_none_stays_behind() {
    let rig = Rig::new().await;
    let relay = three_parked(&rig).await;
    rig.world.mend();
    ask(&rig, "retry", "reason = 'rejected'").await;
    for value in 4..40 {
        rig.insert("a", &[&value.to_string()]).await;
    }
    rig.landed(40).await;
    let expected: Vec<String> = (0..40).map(|value| value.to_string()).collect();
    assert_eq!(rig.world.values(), expected);
    let open = "select count(*) from walpost.parked where state <> 'done'";
    until(SOON, "all done", async || rig.count(open).await == 0).await;
    stop(relay).await;
}

#[tokio::test]
async fn what_is_refused_again_is_parked_again_and_can_be_asked_for_again() {
    let rig = Rig::new().await;
    let relay = three_parked(&rig).await;
    for attempts in 1..3 {
        ask(&rig, "retry", "reason = 'rejected'").await;
        let refused = format!(
            "select count(*) from walpost.parked where attempts = {attempts} and state = 'open' \
             and requested is null and requested_at is null and sending_floor is null \
             and detail = 'outbox.event.order: too large'"
        );
        until(SOON, "another refusal", async || rig.count(&refused).await == 1).await;
    }
    assert_eq!((rig.world.values(), rig.world.sessions()), (vec!["0".to_owned()], 1));
    rig.world.mend();
    ask(&rig, "retry", "reason = 'rejected'").await;
    assert_eq!(rig.landed(4).await, ["0", "1", "2", "3"]);
    states(&rig, "done done done").await;
    stop(relay).await;
}

#[tokio::test]
async fn what_the_sink_refuses_afterwards_is_sent_alone_before_it_is_parked_again() {
    let rig = Rig::new().await;
    let relay = three_parked(&rig).await;
    rig.world.mend();
    rig.world.reject("1");
    let before = rig.world.sessions();
    ask(&rig, "retry", "reason = 'rejected'").await;
    let refused = "select count(*) from walpost.parked where attempts = 2 and state = 'open' \
                   and requested is null and detail = 'outbox.event.order: as the test has it'";
    until(SOON, "the second refusal", async || rig.count(refused).await == 1).await;
    rig.insert("b", &["9"]).await;
    assert_eq!(rig.landed(2).await, ["0", "9"]);
    until(SOON, "a session after each", async || rig.world.sessions() == before + 2).await;
    rig.world.mend();
    ask(&rig, "retry", "reason = 'rejected'").await;
    assert_eq!(rig.landed(5).await, ["0", "9", "1", "2", "3"]);
    stop(relay).await;
}

#[tokio::test]
async fn a_retry_that_died_on_its_way_is_made_once_more() {
    let rig = Rig::new().await;
    let relay = three_parked(&rig).await;
    rig.world.mend();
    rig.world.hold(true);
    let queued = rig.world.queued();
    ask(&rig, "retry", "reason = 'rejected'").await;
    until(SOON, "the retry on its way", async || rig.world.queued() > queued).await;
    states(&rig, "sending open open").await;
    interrupt(&rig, &relay).await;
    rig.world.hold(false);
    states(&rig, "done done done").await;
    assert_eq!(rig.landed(4).await, ["0", "1", "2", "3"]);
    stop(relay).await;
}

/// The first of three is in the sink, which answers nothing.
async fn one_being_sent() -> (Rig, RunningRelay) {
    let rig = Rig::new().await;
    let relay = three_parked(&rig).await;
    rig.world.mend();
    rig.world.hold(true);
    ask(&rig, "retry", "reason = 'rejected'").await;
    states(&rig, "sending open open").await;
    (rig, relay)
}

#[tokio::test]
async fn a_retry_that_landed_before_its_row_said_so_is_not_made_again() {
    let (rig, relay) = one_being_sent().await;
    let locked = rig.database.connect().await.unwrap();
    locked.batch_execute("begin; select from walpost.parked for update").await.unwrap();
    rig.world.hold(false);
    assert_eq!(rig.landed(2).await, ["0", "1"]);
    let writer = waits_for_a_lock(&rig, "%settled as%").await;
    rig.client.query("select pg_terminate_backend($1)", &[&writer]).await.unwrap();
    until(SOON, "the statement is gone", async || {
        let sql = "select count(*) from pg_stat_activity where pid = $1";
        rig.client.query_one(sql, &[&writer]).await.unwrap().get::<_, i64>(0) == 0
    })
    .await;
    locked.batch_execute("rollback").await.unwrap();
    states(&rig, "done done done").await;
    assert_eq!(rig.landed(4).await, ["0", "1", "2", "3"]);
    stop(relay).await;
}

#[tokio::test]
async fn the_record_of_a_retry_is_found_also_far_below_the_checkpoint() {
    let (rig, relay) = one_being_sent().await;
    let keep = "create table kept as select id, sending_floor from walpost.parked";
    rig.client.batch_execute(keep).await.unwrap();
    rig.world.hold(false);
    states(&rig, "done done done").await;
    rig.insert("b", &["7", "8", "9"]).await;
    rig.landed(7).await;
    let now = rig.lsn(WAL_NOW).await;
    until(SOON, "the checkpoint", async || rig.slot_position().await >= now).await;
    stop(relay).await;
    // As if it had died between the two commits, long ago.
    let back = "update walpost.parked p set state = 'sending', sending_floor = k.sending_floor \
                from kept k where k.id = p.id and k.sending_floor is not null";
    assert_eq!(rig.client.execute(back, &[]).await.unwrap(), 1);
    let relay = rig.streaming().await;
    states(&rig, "done done done").await;
    rig.insert("a", &["4"]).await;
    assert_eq!(rig.landed(8).await, ["0", "1", "2", "3", "7", "8", "9", "4"]);
    stop(relay).await;
}

/// Another takes the pipeline over and has not committed that yet.
async fn taking_over(rig: &Rig) -> Client {
    let other = rig.database.connect().await.unwrap();
    // The other slot name keeps the relay from taking the pipeline back.
    let take = "begin; update walpost.checkpoint set token = gen_random_uuid(), slot = 'other'";
    other.batch_execute(take).await.unwrap();
    other
}

/// A relay on its way to a statement like this when another takes over.
async fn a_take_over_wins_against(statement: &str, what: &str) {
    let mut rig = Rig::new().await;
    let relay = three_parked(&rig).await;
    stop(relay).await;
    // No checkpoint comes before the statement.
    rig.config.checkpoint_interval_ms = 60_000;
    let mut relay = rig.streaming().await;
    rig.insert("b", &["9"]).await;
    rig.landed(2).await;
    if statement == "%begun as%" {
        rig.world.mend();
    }
    let other = taking_over(&rig).await;
    ask(&rig, what, "reason = 'rejected'").await;
    waits_for_a_lock(&rig, statement).await;
    other.batch_execute("commit").await.unwrap();
    let ended = tokio::time::timeout(SOON, relay.finished()).await.expect("the relay ends");
    let error = ended.unwrap_err().to_string();
    assert!(error.contains("was started on slot \"other\""), "{error}");
    states(&rig, "open open open").await;
    let asked = "select count(*) from walpost.parked where requested is not null";
    assert_eq!(rig.count(asked).await, 1, "{statement}");
    assert_eq!(rig.world.values(), ["0", "9"], "{statement}");
}

#[tokio::test]
async fn a_relay_that_was_taken_over_sends_nothing_on_and_settles_nothing() {
    a_take_over_wins_against("%begun as%", "retry").await;
    a_take_over_wins_against("%settled as%", "retry").await;
    a_take_over_wins_against("%discarded as%", "discard").await;
}

#[tokio::test]
async fn discarding_the_first_frees_those_that_waited_behind_it() {
    let rig = Rig::new().await;
    let relay = three_parked(&rig).await;
    ask(&rig, "discard", "reason = 'rejected'").await;
    states(&rig, "discarded done done").await;
    assert_eq!(rig.landed(3).await, ["0", "2", "3"]);
    rig.insert("a", &["4"]).await;
    assert_eq!(rig.landed(4).await, ["0", "2", "3", "4"]);
    stop(relay).await;
}

#[tokio::test]
async fn what_was_to_be_discarded_while_nothing_ran_is_so_before_the_stream() {
    let rig = Rig::new().await;
    let relay = three_parked(&rig).await;
    stop(relay).await;
    ask(&rig, "discard", "true").await;
    let relay = rig.streaming().await;
    states(&rig, "discarded discarded discarded").await;
    rig.insert("a", &["4"]).await;
    assert_eq!(rig.landed(2).await, ["0", "4"]);
    assert_eq!(rig.count("select count(*) from walpost.parked").await, 3);
    stop(relay).await;
}

#[tokio::test]
async fn an_aggregate_is_free_also_when_somebody_settled_its_rows_by_hand() {
    let rig = Rig::new().await;
    let relay = three_parked(&rig).await;
    let by_hand = "update walpost.parked set state = 'discarded'";
    rig.client.batch_execute(by_hand).await.unwrap();
    until_free(&rig).await;
    stop(relay).await;
}

#[tokio::test]
async fn in_event_mode_each_is_sent_on_by_itself() {
    let mut rig = Rig::new().await;
    rig.config.park = ParkMode::Event;
    rig.world.never("2");
    rig.world.never("4");
    let relay = rig.streaming().await;
    rig.insert("a", &["1", "2", "3", "4", "5"]).await;
    assert_eq!(rig.landed(3).await, ["1", "3", "5"]);
    parked(&rig, "rejected rejected").await;
    rig.world.mend();
    ask(&rig, "retry", "ordinal = 3").await;
    states(&rig, "open done").await;
    assert_eq!(rig.landed(4).await, ["1", "3", "5", "4"]);
    ask(&rig, "retry", "ordinal = 1").await;
    states(&rig, "done done").await;
    assert_eq!(rig.landed(5).await, ["1", "3", "5", "4", "2"]);
    stop(relay).await;
}

#[tokio::test]
async fn a_row_without_a_route_gets_one_from_the_configuration_of_today() {
    let mut rig = Rig::new().await;
    allow_no_type(&rig).await;
    let relay = rig.streaming().await;
    let lost_route = "insert into walpost.outbox (aggregatetype, aggregateid, type, payload) \
                      values (null, 'a', 'Placed', '1'), (null, 'a', 'Placed', '2')";
    rig.client.batch_execute(lost_route).await.unwrap();
    parked(&rig, "unroutable behind").await;
    ask(&rig, "retry", "reason = 'unroutable'").await;
    let refused = "select count(*) from walpost.parked where state = 'open' \
                   and reason = 'unroutable' and requested is null and attempts = 0";
    until(SOON, "no route still", async || rig.count(refused).await == 1).await;
    stop(relay).await;

    rig.router.route_by_field = "type".to_owned();
    let relay = rig.streaming().await;
    ask(&rig, "retry", "reason = 'unroutable'").await;
    states(&rig, "done done").await;
    assert_eq!(rig.landed(2).await, ["1", "2"]);
    for (message, ordinal) in rig.world.landed().iter().zip(0..) {
        assert_eq!(&*message.topic, "outbox.event.Placed");
        assert_eq!(message.key.as_deref(), Some(&b"a"[..]));
        let names: Vec<&str> = message.headers.iter().map(|header| &*header.name).collect();
        assert_eq!(names, ["id", "walpost-position", "walpost-source", REPLAY_HEADER]);
        let position = message.headers[1].value.clone().unwrap();
        let position = String::from_utf8(position.to_vec()).unwrap();
        assert!(replay(message).unwrap().ends_with(&position), "{position}");
        assert!(position.ends_with(&format!(":{ordinal}")), "{position}");
    }
    stop(relay).await;
}

#[tokio::test]
async fn a_message_without_a_route_gets_one_too() {
    let mut rig = Rig::new().await;
    let relay = rig.streaming().await;
    let content = r#"{"id": "m1", "aggregateid": "a", "type": "Placed", "payload": {"n": 1}}"#;
    let emit = "select pg_logical_emit_message(true, 'walpost', $1)";
    rig.client.query(emit, &[&content]).await.unwrap();
    parked(&rig, "unroutable").await;
    stop(relay).await;
    rig.router.route_by_field = "type".to_owned();
    let relay = rig.streaming().await;
    ask(&rig, "retry", "true").await;
    states(&rig, "done").await;
    assert_eq!(rig.landed(1).await, [r#"{"n": 1}"#]);
    stop(relay).await;
}

#[tokio::test]
async fn what_was_left_out_is_not_sent_on_and_says_what_to_do() {
    let mut rig = Rig::new().await;
    rig.config.max_event_bytes = 100_000;
    let relay = rig.streaming().await;
    let emit = "select pg_logical_emit_message(true, 'walpost', repeat('x', 200000))";
    rig.client.query(emit, &[]).await.unwrap();
    parked(&rig, "oversize").await;
    ask(&rig, "retry", "true").await;
    until(SOON, "an answer", async || text(&rig, "requested").await.is_none()).await;
    let detail = text(&rig, "detail").await.unwrap();
    assert!(detail.contains("insert it again") && detail.contains("discard"), "{detail}");
    states(&rig, "open").await;
    stop(relay).await;
}

#[tokio::test]
async fn rows_of_an_earlier_generation_come_before_those_of_this_one() {
    let rig = Rig::new().await;
    let earlier = "insert into walpost.parked (pipeline, generation, commit_lsn, ordinal, source, \
                   aggregate_type, aggregate_id, reason, topic, record_key, record_value, \
                   record_headers) values \
                   ('shop', 7, '0/5', 0, 's', 'order', 'a', 'behind', 't', 'a', '2', '[]'), \
                   ('shop', 7, '0/3', 0, 's', 'order', 'a', 'rejected', 't', 'a', '1', '[]'), \
                   ('shop', 4294967295, 'FFFFFFFF/0', 0, 's', 'order', 'a', 'behind', 't', 'a', \
                    '3', '[]')";
    rig.client.batch_execute(earlier).await.unwrap();
    let relay = rig.streaming().await;
    rig.insert("a", &["4"]).await;
    let behind = "select count(*) from walpost.parked where reason = 'behind'";
    until(SOON, "the event waits", async || rig.count(behind).await == 3).await;
    ask(&rig, "retry", "reason = 'rejected'").await;
    assert_eq!(rig.landed(4).await, ["1", "2", "3", "4"]);
    stop(relay).await;
}

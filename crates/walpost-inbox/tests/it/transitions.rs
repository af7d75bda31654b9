//! Every step between states, legal and illegal, by plain SQL: the database
//! refuses, not the library.

use tokio_postgres::error::SqlState;
use walpost_inbox::State;

use crate::support::World;

const LEGAL: [(State, State); 11] = [
    (State::Pending, State::Processing),
    (State::Pending, State::Ignored),
    (State::Pending, State::Review),
    (State::Processing, State::Succeeded),
    (State::Processing, State::Failed),
    (State::Failed, State::Processing),
    (State::Failed, State::Failed),
    (State::Review, State::Pending),
    (State::Review, State::Ignored),
    // Nothing changes.
    (State::Succeeded, State::Succeeded),
    (State::Ignored, State::Ignored),
];

/// What makes a row fit its new state, so that only the step can be at fault.
fn fitting(to: State) -> &'static str {
    match to {
        State::Pending => "next_attempt_at = now(), lease_until = null, processed_at = null",
        State::Processing => {
            "fence = fence + 1, attempts = attempts + 1, lease_until = now() + interval '1 hour', \
             next_attempt_at = coalesce(next_attempt_at, now()), processed_at = null"
        }
        State::Failed => "reason = 'why', lease_until = null, processed_at = null",
        State::Review => "next_attempt_at = null, lease_until = null, processed_at = null",
        _ => {
            "next_attempt_at = null, lease_until = null, \
             processed_at = coalesce(processed_at, now())"
        }
    }
}

async fn matrix(world: &World) {
    for from in State::ALL {
        for to in State::ALL {
            let number = world.plant(from).await;
            // As its owner has begun, which only the step to succeeded looks at.
            let begun = format!("set local walpost.inbox = '{number}:1'");
            let step = format!(
                "update walpost.inbox set processing_state = '{to}', {} where seq = {number}",
                fitting(to)
            );
            let done = world.client.batch_execute(&format!("begin; {begun}; {step}; commit")).await;
            if LEGAL.contains(&(from, to)) {
                done.unwrap_or_else(|error| panic!("{from} to {to}: {error:?}"));
            } else {
                let error = done.expect_err(&format!("{from} to {to} was allowed"));
                assert_eq!(error.code().map(SqlState::code), Some("WP010"), "{from} to {to}");
                world.client.batch_execute("rollback").await.unwrap();
            }
        }
    }
}

#[tokio::test]
#[ignore = "deep: an older PostgreSQL"]
async fn every_step_is_allowed_or_refused_by_the_table_on_postgres_14() {
    matrix(&World::of(14).await).await;
}

#[tokio::test]
async fn every_step_is_allowed_or_refused_by_the_table_on_postgres_18() {
    matrix(&World::of(18).await).await;
}

/// What a statement about a planted row is refused with; `None` where it is not.
async fn refusal(world: &World, state: State, statement: &str) -> Option<String> {
    let number = world.plant(state).await;
    let sql = format!("{statement} where seq = {number}").replace("$seq", &number.to_string());
    let done = world.client.batch_execute(&format!("begin; {sql}; commit")).await;
    let code = done.err().map(|error| error.code().unwrap().code().to_owned());
    world.client.batch_execute("rollback").await.unwrap();
    code
}

#[tokio::test]
async fn a_claim_raises_the_fence_counts_the_attempt_and_waits_for_its_time() {
    let world = World::new().await;
    let claim = |columns: &str| {
        format!("update walpost.inbox set processing_state = 'processing', {columns}")
    };
    let good = "fence = fence + 1, attempts = attempts + 1, lease_until = now() + '1 hour'";
    for state in [State::Pending, State::Failed] {
        assert_eq!(refusal(&world, state, &claim(good)).await, None);
        for bad in [
            good.replace("fence + 1", "fence"),
            good.replace("fence + 1", "fence + 2"),
            good.replace("attempts + 1", "attempts"),
            good.replace("now() + '1 hour'", "now() - interval '1 hour'"),
            format!("{good}, next_attempt_at = now() - interval '1 hour'"),
        ] {
            assert_eq!(
                refusal(&world, state, &claim(&bad)).await.as_deref(),
                Some("WP010"),
                "{bad}"
            );
        }
    }
    let number = world.plant(State::Failed).await;
    let claim = format!("{} where seq = {number}", claim(good));
    for next in ["null", "now() + interval '1 hour'"] {
        let sql = format!("update walpost.inbox set next_attempt_at = {next} where seq = {number}");
        world.client.batch_execute(&sql).await.unwrap();
        let error = world.client.batch_execute(&claim).await.unwrap_err();
        assert_eq!(error.code().unwrap().code(), "WP010", "{next}");
    }
}

#[tokio::test]
async fn only_who_has_begun_with_the_fence_ends_a_claim_and_only_while_its_lease_holds() {
    let world = World::new().await;
    let succeed = "update walpost.inbox set processing_state = 'succeeded', lease_until = null, \
                   processed_at = now(), next_attempt_at = null";
    let begun = |marker: &str| format!("set local walpost.inbox = '{marker}'; {succeed}");
    let expired = "set local session_replication_role = replica; update walpost.inbox \
                   set lease_until = now() - interval '1 s' where seq = $seq; \
                   set local session_replication_role = origin";
    for (statement, code) in [
        (begun("$seq:1"), None),
        (succeed.to_owned(), Some("WP014")),
        (begun("$seq:2"), Some("WP014")),
        (begun("0:1"), Some("WP014")),
        (format!("{expired}; {}", begun("$seq:1")), Some("WP011")),
    ] {
        let refused = refusal(&world, State::Processing, &statement).await;
        assert_eq!(refused.as_deref(), code, "{statement}");
    }
    let fail = |reason: &str| {
        format!(
            "update walpost.inbox set processing_state = 'failed', lease_until = null, \
             reason = '{reason}'"
        )
    };
    for (statement, code) in [
        (fail("why"), None),
        (fail("lease_expired"), Some("WP011")),
        (format!("{expired}; {}", fail("lease_expired")), None),
        (format!("{expired}; {}", fail("why")), Some("WP011")),
        (format!("{}, attempts = attempts - 1", fail("why")), None),
        (format!("{}, attempts = attempts + 1", fail("why")), Some("WP010")),
        (format!("{}, fence = fence + 1", fail("why")), Some("WP010")),
    ] {
        let refused = refusal(&world, State::Processing, &statement).await;
        assert_eq!(refused.as_deref(), code, "{statement}");
    }
}

#[tokio::test]
async fn what_was_received_does_not_change_and_what_is_done_keeps_its_end() {
    let world = World::new().await;
    let set = |columns: &str| format!("update walpost.inbox set {columns}");
    for state in State::ALL {
        for columns in [
            "event_id = 'x'",
            "event_type = 'x'",
            "source = 'x'",
            "related_reference = 'x'",
            "received_at = now()",
            "payload_hash = 'x'",
            "payload_bytes = 7",
            "payload = 'x'",
        ] {
            let refused = refusal(&world, state, &set(columns)).await;
            assert_eq!(refused.as_deref(), Some("WP010"), "{state}: {columns}");
        }
        let refused = refusal(&world, state, &set("payload = null")).await;
        assert_eq!(refused.is_none(), state.is_terminal(), "{state}");
    }
    for state in [State::Succeeded, State::Ignored] {
        for columns in ["processed_at = now()", "attempts = 7", "fence = 7", "reason = 'x'"] {
            let refused = refusal(&world, state, &set(columns)).await;
            assert_eq!(refused.as_deref(), Some("WP010"), "{state}: {columns}");
        }
    }
}

#[tokio::test]
async fn an_event_begins_as_pending_with_times_and_hash_of_the_server() {
    let world = World::new().await;
    let insert = |columns: &str, values: &str| {
        format!(
            "insert into walpost.inbox (event_id, event_type, payload, {columns}) \
             values (gen_random_uuid()::text, 't', 'p', {values})"
        )
    };
    for (columns, values) in [
        ("processing_state, processed_at, next_attempt_at", "'succeeded', now(), null"),
        ("processing_state, next_attempt_at", "'review', null"),
        ("attempts", "1"),
        ("fence", "1"),
        ("reason", "'x'"),
    ] {
        let error = world.client.batch_execute(&insert(columns, values)).await.unwrap_err();
        assert_eq!(error.code().unwrap().code(), "WP010", "{columns}");
    }
    let faked = insert("received_at, payload_hash, payload_bytes", "'2000-01-01', 'x', 7");
    world.client.batch_execute(&faked).await.unwrap();
    let sql = "select count(*) from walpost.inbox where received_at > now() - interval '1 hour' \
               and payload_hash = sha256('p') and payload_bytes = 1";
    assert_eq!(world.number(sql).await, 1);
}

#[tokio::test]
async fn rows_leave_when_they_are_done_and_their_window_is_over() {
    let world = World::new().await;
    let leave = "delete from walpost.inbox";
    for state in State::ALL {
        assert_eq!(refusal(&world, state, leave).await.as_deref(), Some("WP012"), "{state}");
    }
    world
        .past_triggers(
            "update walpost.inbox set processed_at = now() - interval '91 days' \
                        where processed_at is not null",
        )
        .await;
    let done = "delete from walpost.inbox where processing_state in ('succeeded', 'ignored')";
    world.client.batch_execute(done).await.unwrap();
    assert_eq!(world.number("select count(*) from walpost.inbox").await, 4);
    // Without the window nobody knows, so nothing leaves.
    world.plant(State::Succeeded).await;
    world
        .past_triggers(
            "update walpost.inbox set processed_at = now() - interval '9 years' \
                        where processed_at is not null",
        )
        .await;
    world.client.batch_execute("delete from walpost.inbox_window").await.unwrap();
    let error = world.client.batch_execute(done).await.unwrap_err();
    assert_eq!(error.code().unwrap().code(), "WP012");
}

//! What lies between the two sides, and one of them away.

use std::time::Duration;

use walpost_testkit::{Direction, until};

use crate::stage::{LIMIT, Side, Stage, WAL_INLINE};

const MORE: i64 = 30;
/// Longer than finance waits for an answer: each request arrives, too late.
const TOO_LATE: Duration = Duration::from_secs(3);
const SLOW: Duration = Duration::from_millis(200);

/// What happens to bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Cut,
    /// Connections are there, and nothing arrives.
    HalfOpen,
    AnswersLost,
    /// Slow enough to be noticed, and too fast for anybody to give up.
    Slow,
    /// Requests arrive behind the end of their attempts.
    TooLate,
}

fn strike(stage: &Stage, fault: Fault) {
    match fault {
        Fault::Cut => stage.proxy.cut(),
        Fault::HalfOpen => stage.proxy.swallow(Direction::ToTarget),
        Fault::AnswersLost => stage.proxy.swallow(Direction::ToClient),
        Fault::Slow => stage.proxy.delay(Direction::Both, SLOW),
        Fault::TooLate => stage.proxy.delay(Direction::ToTarget, TOO_LATE),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_network_that_is_cut_half_open_slow_or_loses_answers_costs_attempts_and_nothing_else() {
    let mut stage = Stage::open(WAL_INLINE).await;
    stage.start(Side::Logistics, 0, None);
    stage.start(Side::Finance, 0, None);
    let mut invoices = 0;
    for fault in
        [Fault::Cut, Fault::HalfOpen, Fault::AnswersLost, Fault::Slow, Fault::TooLate, Fault::Cut]
    {
        let (failed, shipped) = (stage.failures().await, stage.shipments().await);
        strike(&stage, fault);
        invoices += MORE;
        stage.pay(invoices).await;
        until(LIMIT, "what comes of it", async || match fault {
            Fault::Cut | Fault::HalfOpen => stage.failures().await > failed,
            Fault::Slow => stage.shipments().await > shipped,
            // Logistics has shipped, and finance does not know.
            Fault::AnswersLost | Fault::TooLate => {
                stage.shipments().await > shipped && stage.failures().await > failed
            }
        })
        .await;
        if matches!(fault, Fault::Cut | Fault::HalfOpen) {
            assert_eq!(stage.shipments().await, shipped, "{fault:?}: something came through");
        }
        stage.proxy.restore();
        stage.proxy.cut_connections();
        stage.all_is_done_once(invoices).await;
    }
    let copies = "select count(*) from walpost.webhook_delivery where attempts > 1";
    assert!(stage.number(Side::Finance, copies).await > 0, "nothing was sent twice");
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_logistics_is_away_rows_wait_no_wal_is_held_and_then_all_of_them_ship() {
    let mut stage = Stage::open(WAL_INLINE).await;
    stage.start(Side::Finance, 0, None);
    stage.pay(MORE * 2).await;
    let now = "select (pg_current_wal_insert_lsn() - '0/0')::bigint";
    let paid = stage.number(Side::Finance, now).await;
    let confirmed = "select coalesce(max((confirmed_flush_lsn - '0/0')::bigint), 0) \
                     from pg_replication_slots";
    until(LIMIT, "the slot behind all payments", async || {
        stage.number(Side::Finance, confirmed).await >= paid
    })
    .await;
    until(LIMIT, "attempts in vain", async || stage.failures().await > 0).await;
    let waiting = "select count(*) from finance_outbox o join walpost.webhook_delivery d \
                   on d.event_id = o.id::text where o.delivery_status = 'pending' \
                   and o.delivered_at is null and d.state in ('pending', 'sending')";
    let events = MORE * 2 + MORE * 2 / 25;
    assert_eq!(stage.number(Side::Finance, waiting).await, events);
    stage.start(Side::Logistics, 0, None);
    stage.all_is_done_once(MORE * 2).await;
    stage.end().await;
}

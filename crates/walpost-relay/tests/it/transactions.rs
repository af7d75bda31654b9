//! All that may happen around an insert into the outbox, on every version.

use tokio_postgres::error::SqlState;
use walpost_relay::{POSITION_HEADER, RunningRelay};
use walpost_testkit::{postgres_of, unique_name, until};

use crate::rig::{Rig, SOON, interrupt, stop};

/// A relay, and what it has to have published so far.
struct Story {
    rig: Rig,
    relay: RunningRelay,
    expected: Vec<String>,
}

fn insert(value: &str) -> String {
    format!(
        "insert into walpost.outbox (aggregatetype, aggregateid, type, payload) \
         values ('order', 'a', 'Placed', '{value}');"
    )
}

impl Story {
    async fn on(version: u32) -> Self {
        let mut rig = Rig::on(postgres_of(version)).await;
        rig.config.settle_ms = 0;
        let relay = rig.streaming().await;
        Self { rig, relay, expected: Vec::new() }
    }

    async fn run(&self, sql: &str) {
        self.rig.client.batch_execute(sql).await.unwrap();
    }

    /// These come next, each once, and nothing else does.
    async fn brings(&mut self, values: impl IntoIterator<Item = impl ToString>) {
        self.expected.extend(values.into_iter().map(|value| value.to_string()));
        assert_eq!(self.rig.landed(self.expected.len()).await, self.expected);
    }

    async fn slot_follows(&self) {
        let written = self.rig.lsn("select pg_current_wal_insert_lsn()::text").await;
        until(SOON, "the slot follows", async || {
            // Something behind it: the server may write nothing by itself for long.
            self.run("select pg_logical_emit_message(false, 'other', '')").await;
            self.rig.slot_position().await >= written
        })
        .await;
    }

    /// COPY, and one INSERT of many rows, each with an end of the session in the
    /// middle.
    async fn many_rows_of_one_commit(&mut self) {
        let copy = "copy walpost.outbox (aggregatetype, aggregateid, type, payload) from program \
                    'for n in 1 2 3 4 5 6 7; do printf \"order\\ta\\tPlaced\\t$n\\n\"; done'";
        let rows = "insert into walpost.outbox (aggregatetype, aggregateid, type, payload) \
                    select 'order', 'a', 'Placed', to_jsonb(n) from generate_series(8, 300) n";
        for (sql, last) in [(copy, 7), (rows, 300)] {
            let before = self.rig.world.values().len();
            self.rig.world.hold_after(before + 3);
            self.run(sql).await;
            let some = async || self.rig.world.values().len() >= before + 3;
            until(SOON, "the first of them", some).await;
            interrupt(&self.rig, &self.relay).await;
            self.rig.world.hold(false);
            self.brings(before + 1..=last).await;
            let landed = self.rig.world.landed();
            let position = |index: usize| {
                let mut headers = landed[index].headers.iter();
                let header = headers.find(|header| &*header.name == POSITION_HEADER).unwrap();
                String::from_utf8(header.value.clone().unwrap().to_vec()).unwrap()
            };
            let (commit, _) = position(before).rsplit_once(':').map(own).unwrap();
            for ordinal in 0..last - before {
                assert_eq!(position(before + ordinal), format!("{commit}:{ordinal}"));
            }
        }
    }

    /// More than the 64 that a backend keeps in memory, every tenth undone.
    async fn subtransactions(&mut self) {
        self.run(
            "do $$ begin for n in 1001..1200 loop begin \
             insert into walpost.outbox (aggregatetype, aggregateid, type, payload) \
             values ('order', 'a', 'Placed', to_jsonb(n)); \
             if n % 10 = 0 then raise exception 'undone'; end if; \
             exception when raise_exception then null; end; end loop; end $$",
        )
        .await;
        self.brings((1001..1200).filter(|n| n % 10 != 0)).await;
        let [a, b, c, d, e] = [2001, 2002, 2003, 2004, 2005].map(|n| insert(&n.to_string()));
        self.run(&format!(
            "begin; {a} savepoint s1; {b} savepoint s2; {c} release s2; rollback to s1; {d} \
             savepoint s3; {e} release s3; commit"
        ))
        .await;
        self.brings([2001, 2004, 2005]).await;
    }

    /// A prepared transaction is an event once it is committed, and holds
    /// nobody up before.
    async fn prepared_transactions(&mut self) {
        let (kept, undone) = (unique_name("gid"), unique_name("gid"));
        for (gid, value) in [(&kept, "3001"), (&undone, "3002")] {
            let insert = insert(value);
            self.run(&format!("begin; {insert} prepare transaction '{gid}'")).await;
        }
        self.run(&insert("3003")).await;
        self.brings([3003]).await;
        self.slot_follows().await;
        interrupt(&self.rig, &self.relay).await;
        self.run(&format!("rollback prepared '{undone}'")).await;
        self.run(&format!("commit prepared '{kept}'")).await;
        self.run(&insert("3004")).await;
        self.brings([3001, 3004]).await;
    }

    /// Transactions that bring no event: the slot goes past them.
    async fn nothing_to_publish(&mut self) {
        let rolled_back = insert("4001");
        for _ in 0..20 {
            self.run("begin; select pg_current_xact_id(); commit").await;
            self.run(&format!("begin; {rolled_back} rollback")).await;
            self.run("begin; delete from walpost.outbox where payload = '1'; commit").await;
        }
        self.run("begin; create temporary table t (n int) on commit drop; commit").await;
        self.slot_follows().await;
        let deleted = insert("4002");
        self.run(&format!("begin; {deleted} delete from walpost.outbox; commit")).await;
        self.brings([4002]).await;
    }

    async fn other_columns(&mut self) {
        let [a, b, c] = [5001, 5002, 5003].map(|n| insert(&n.to_string()));
        let add = "alter table walpost.outbox add column tenant text default 'x';";
        let drop = "alter table walpost.outbox drop column headers, drop column tracestate;";
        self.run(&format!("begin; {a} {add} {b} {drop} {c} commit")).await;
        self.run(&insert("5004")).await;
        self.brings([5001, 5002, 5003, 5004]).await;
    }
}

fn own((a, b): (&str, &str)) -> (String, String) {
    (a.to_owned(), b.to_owned())
}

async fn every_kind_of_transaction(version: u32) {
    let mut story = Story::on(version).await;
    story.many_rows_of_one_commit().await;
    story.subtransactions().await;
    story.prepared_transactions().await;
    story.nothing_to_publish().await;
    story.other_columns().await;
    stop(story.relay).await;
}

#[tokio::test]
#[ignore = "deep: an older PostgreSQL"]
async fn every_kind_of_transaction_on_postgres_14() {
    every_kind_of_transaction(14).await;
}

#[tokio::test]
#[ignore = "deep: an older PostgreSQL"]
async fn every_kind_of_transaction_on_postgres_15() {
    every_kind_of_transaction(15).await;
}

#[tokio::test]
#[ignore = "deep: an older PostgreSQL"]
async fn every_kind_of_transaction_on_postgres_16() {
    every_kind_of_transaction(16).await;
}

#[tokio::test]
#[ignore = "deep: an older PostgreSQL"]
async fn every_kind_of_transaction_on_postgres_17() {
    every_kind_of_transaction(17).await;
}

#[tokio::test]
async fn every_kind_of_transaction_on_postgres_18() {
    every_kind_of_transaction(18).await;
}

/// Partitions that come and go while a relay streams. PostgreSQL 14 notices of
/// a table that it has met already only with the publication that it has become
/// a partition, or is none any more.
async fn partitions_come_and_go(version: u32) {
    let notice = match version {
        14 => "; create publication notice; drop publication notice",
        _ => "",
    };
    let mut rig = Rig::on(postgres_of(version)).await;
    rig.config.tables = vec!["public.ob".parse().unwrap()];
    rig.config.publication = "parts".into();
    // The relay looks at the tables meanwhile, and either may be the one that a
    // deadlock ends.
    let run = async |sql: &str| {
        while let Err(error) = rig.client.batch_execute(sql).await {
            assert_eq!(error.code(), Some(&SqlState::T_R_DEADLOCK_DETECTED), "{error}");
            rig.client.batch_execute("rollback").await.unwrap();
        }
    };
    run("create table ob (id uuid default gen_random_uuid(), aggregatetype text, \
         aggregateid text, type text, payload jsonb) partition by list (type); \
         create table ob_a partition of ob for values in ('a'); \
         create publication parts for table ob with (publish_via_partition_root = true)")
    .await;
    let row = |table: &str, kind: &str, value: u32| {
        format!("insert into {table} values (default, 'order', 'x', '{kind}', '{value}');")
    };
    let relay = rig.streaming().await;
    run(&row("ob", "a", 1)).await;
    run("create table ob_b partition of ob for values in ('b')").await;
    run(&(row("ob", "b", 2) + &row("ob_b", "b", 3))).await;
    // No event: it is no partition yet.
    run("create table ob_c (like ob including all)").await;
    run(&row("ob_c", "c", 0)).await;
    run(&format!(
        "begin; alter table ob attach partition ob_c for values in ('c'){notice}; commit"
    ))
    .await;
    run(&row("ob", "c", 4)).await;
    run(&format!("begin; alter table ob detach partition ob_b{notice}; commit")).await;
    run(&row("ob_b", "b", 0)).await;
    run(&row("ob", "a", 5)).await;
    assert_eq!(rig.landed(5).await, ["1", "2", "3", "4", "5"]);
    let topics = rig.world.landed().into_iter().map(|message| message.topic.to_string());
    assert!(topics.collect::<Vec<_>>().iter().all(|topic| topic == "outbox.event.order"));
    stop(relay).await;
}

#[tokio::test]
#[ignore = "deep: an older PostgreSQL"]
async fn partitions_that_come_later_are_published_on_postgres_14() {
    partitions_come_and_go(14).await;
}

#[tokio::test]
#[ignore = "deep: an older PostgreSQL"]
async fn partitions_that_come_later_are_published_on_postgres_15() {
    partitions_come_and_go(15).await;
}

#[tokio::test]
async fn partitions_that_come_later_are_published_on_postgres_18() {
    partitions_come_and_go(18).await;
}

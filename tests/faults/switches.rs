//! A pipeline under load goes from the WAL to polling and back, and the command
//! that switches it is killed between every two steps.

use tokio_postgres::Client;
use walpost_testkit::{Process, kafka, until};
use walpost_tests::{LIMIT, Shop, Writer, walpost_binary};

const POLLING: [(&str, &str); 2] =
    [("WALPOST_PIPELINE_SOURCE", "polling"), ("WALPOST_POLLING_POLL_INTERVAL_MS", "20")];

/// What `walpost check` asks for.
const COLUMNS: &str = "alter table walpost.outbox add status text not null default 'NEW', \
    add attempts int not null default 0, add next_attempt_at timestamptz, \
    add published_at timestamptz, add last_error text; \
    create index on walpost.outbox (seq, id) where status in ('NEW', 'FAILED'); \
    create index on walpost.outbox (aggregatetype, aggregateid, seq, id) \
    where status in ('NEW', 'FAILED')";

const PENDING: &str = "select count(*) from walpost.outbox where status = 'NEW'";

// What the command says of its steps.
const WAL_LEFT: &str = "everything up to there is published";
const SLOT_DROPPED: &str = "the slot is dropped";
const POLLING_LEFT: &str = "nobody polls any more";
const SLOT_MADE: &str = "the slot is made";
const CUT_NOTED: &str = "it is noted where the slot begins";
const ROWS_POLLED: &str = "rows polled that it does not bring";

async fn number(client: &Client, sql: &str) -> i64 {
    client.query_one(sql, &[]).await.unwrap().get(0)
}

/// Starts `walpost source switch`.
fn switch(shop: &Shop, to: &str) -> Process {
    let replacement = format!("{}.${{routedByValue}}", shop.name);
    let slot = format!("walpost_{}", shop.name);
    let env = [
        ("WALPOST_POSTGRES_URL", shop.database.url()),
        ("WALPOST_PIPELINE_NAME", shop.name.as_str()),
        ("WALPOST_PIPELINE_SLOT", slot.as_str()),
        ("WALPOST_PIPELINE_WAL_SENDER_TIMEOUT_MS", "60000"),
        ("WALPOST_ROUTER_TOPIC_REPLACEMENT", replacement.as_str()),
        ("WALPOST_POLLING_POLL_INTERVAL_MS", "20"),
    ];
    let args = ["source", "switch", "--to", to, "--json", "--kafka", kafka().bootstrap()];
    Process::start(walpost_binary(), args, env)
}

async fn says(process: &Process, text: &str) {
    until(LIMIT, text, async || process.log().contains(text)).await;
}

async fn ends(process: Process) {
    until(LIMIT, "the command's end", async || !process.is_running()).await;
    let log = process.log();
    assert!(process.wait(LIMIT).success(), "{log}");
    assert!(log.contains("\"already\":false"), "{log}");
}

/// Starts a transaction that writes two rows of an aggregate; its id.
async fn open(shop: &Shop, aggregate: &str) -> (Client, String) {
    let client = shop.connect().await;
    let insert = format!(
        "begin; insert into walpost.outbox (aggregatetype, aggregateid, type, payload) \
         values ('order', '{aggregate}', 'Placed', '1'), ('order', '{aggregate}', 'Placed', '2')"
    );
    client.batch_execute(&insert).await.unwrap();
    let xid = client.query_one("select pg_current_xact_id()::xid::text", &[]).await.unwrap();
    (client, xid.get(0))
}

/// Whoever makes a slot here waits for this transaction. Those of other databases
/// wait for it as well.
async fn is_waited_for(client: &Client, (_, xid): &(Client, String)) {
    let waits = format!(
        "select count(*) from pg_locks l join pg_replication_slots s on s.active_pid = l.pid \
         where s.database = current_database() and l.locktype = 'transactionid' \
         and not l.granted and l.transactionid = '{xid}'"
    );
    until(LIMIT, "the slot waits", async || number(client, &waits).await > 0).await;
}

/// A killed command's slot is made all the same; then the server notices.
async fn slots_are_nobodys(client: &Client) {
    let held = "select count(*) from pg_replication_slots \
                where active and database = current_database()";
    until(LIMIT, "the slot is nobody's", async || number(client, held).await == 0).await;
}

/// Has the slot wait for another transaction after `first`, and begins one that
/// is open when it is ready, and whatever `more` does.
async fn open_over_the_cut<T>(
    shop: &Shop,
    client: &Client,
    first: (Client, String),
    more: impl Future<Output = T>,
) -> (Client, T) {
    is_waited_for(client, &first).await;
    let second = open(shop, &format!("second-{}", first.1)).await;
    first.0.batch_execute("commit").await.unwrap();
    is_waited_for(client, &second).await;
    let (third, _) = open(shop, &format!("third-{}", second.1)).await;
    let more = more.await;
    second.0.batch_execute("commit").await.unwrap();
    (third, more)
}

/// Holds a row of the checkpoint, so that nothing more is noted.
async fn hold_notes(shop: &Shop) -> Client {
    let client = shop.connect().await;
    client.batch_execute("begin; select from walpost.checkpoint for update").await.unwrap();
    client
}

/// The command waits for the row.
async fn is_held(client: &Client) {
    let held = "select count(*) from pg_stat_activity where datname = current_database() \
                and wait_event_type = 'Lock' and query like 'update%checkpoint%'";
    until(LIMIT, "the note is held", async || number(client, held).await == 1).await;
}

/// Lets go of the row. What a killed command still asks for ends before, as it
/// would be noted after all.
async fn release(client: &Client, notes: Client) {
    let waiting = "from pg_stat_activity where datname = current_database() \
                   and wait_event_type = 'Lock' and query like 'update%checkpoint%'";
    let end = format!("select count(pg_terminate_backend(pid)) {waiting}");
    assert_eq!(number(client, &end).await, 1);
    let left = format!("select count(*) {waiting}");
    until(LIMIT, "nobody waits", async || number(client, &left).await == 0).await;
    drop(notes);
}

/// Holds the oldest row that is pending.
async fn hold_row(shop: &Shop) -> Client {
    let client = shop.connect().await;
    let hold = "begin; select from walpost.outbox where status = 'NEW' order by seq limit 1 \
                for update";
    client.batch_execute(hold).await.unwrap();
    client
}

async fn to_polling(shop: &Shop, client: &Client) {
    // While the WAL is still read.
    let first = open(shop, "first").await;
    let killed = switch(shop, "polling");
    is_waited_for(client, &first).await;
    killed.kill();
    first.0.batch_execute("commit").await.unwrap();
    slots_are_nobodys(client).await;
    // Before the rows are marked.
    let first = open(shop, "again").await;
    let killed = switch(shop, "polling");
    let (third, row) = open_over_the_cut(shop, client, first, hold_row(shop)).await;
    says(&killed, WAL_LEFT).await;
    killed.kill();
    // Before the end is noted.
    let killed = switch(shop, "polling");
    let marking = "select count(*) from pg_stat_activity where datname = current_database() \
                   and wait_event_type = 'Lock' and query like 'update%outbox%'";
    until(LIMIT, "marking", async || number(client, marking).await > 0).await;
    let notes = hold_notes(shop).await;
    drop(row);
    says(&killed, SLOT_DROPPED).await;
    is_held(client).await;
    killed.kill();
    release(client, notes).await;
    ends(switch(shop, "polling")).await;
    third.batch_execute("commit").await.unwrap();
}

async fn to_wal(shop: &Shop, client: &Client) {
    // Before the slot is made.
    let first = open(shop, "one").await;
    let killed = switch(shop, "wal");
    says(&killed, POLLING_LEFT).await;
    is_waited_for(client, &first).await;
    killed.kill();
    first.0.batch_execute("commit").await.unwrap();
    slots_are_nobodys(client).await;
    // Before it is noted where it begins.
    let first = open(shop, "once-more").await;
    let killed = switch(shop, "wal");
    says(&killed, POLLING_LEFT).await;
    let (early, notes) = open_over_the_cut(shop, client, first, hold_notes(shop)).await;
    says(&killed, SLOT_MADE).await;
    is_held(client).await;
    killed.kill();
    release(client, notes).await;
    early.batch_execute("commit").await.unwrap();
    // Before what it does not bring is polled.
    let first = open(shop, "two").await;
    let killed = switch(shop, "wal");
    says(&killed, POLLING_LEFT).await;
    let claims = shop.connect().await;
    let hold =
        format!("select pg_advisory_lock(hashtext('walpost polling'), hashtext('{}'))", shop.name);
    claims.batch_execute(&hold).await.unwrap();
    let (third, ()) = open_over_the_cut(shop, client, first, async {}).await;
    says(&killed, CUT_NOTED).await;
    killed.kill();
    drop(claims);
    // Before the end is noted.
    let row = hold_row(shop).await;
    let killed = switch(shop, "wal");
    says(&killed, POLLING_LEFT).await;
    let notes = hold_notes(shop).await;
    drop(row);
    says(&killed, ROWS_POLLED).await;
    is_held(client).await;
    killed.kill();
    release(client, notes).await;
    ends(switch(shop, "wal")).await;
    third.batch_execute("commit").await.unwrap();
}

#[tokio::test]
#[ignore = "deep: kills for half a minute"]
async fn a_pipeline_that_is_switched_under_load_by_commands_that_are_killed_repeats_nothing() {
    let shop = Shop::open(6).await;
    let client = shop.connect().await;
    client.batch_execute(COLUMNS).await.unwrap();
    let relay = shop.relay();
    shop.slot_made().await;
    let writers = [Writer::start(&shop, 0).await, Writer::start(&shop, 1).await];
    until(LIMIT, "load", async || writers[0].written() > 200).await;
    assert!(relay.terminate(LIMIT).success());
    to_polling(&shop, &client).await;
    let pollers = [shop.relay_with(&POLLING), shop.relay_with(&POLLING)];
    let published = "select count(*) from walpost.outbox where published_at is not null";
    let before = number(&client, published).await;
    until(LIMIT, "polled rows", async || number(&client, published).await > before + 500).await;
    for poller in &pollers {
        assert!(poller.terminate(LIMIT).success());
    }
    to_wal(&shop, &client).await;
    let relay = shop.relay();
    for writer in writers {
        writer.stop().await;
    }
    assert!(number(&client, PENDING).await > 0, "what the slot brings is not marked");
    let end = "select pg_current_wal_insert_lsn()::text";
    let end: String = client.query_one(end, &[]).await.unwrap().get(0);
    let (last, _) = open(&shop, "last").await;
    last.batch_execute("commit").await.unwrap();
    let done = format!("select count(*) from walpost.checkpoint where confirmed_lsn > '{end}'");
    until(LIMIT, "everything published", async || number(&client, &done).await == 1).await;
    assert!(relay.terminate(LIMIT).success());
    let report = shop.judge_published().await;
    println!("{report}");
    report.assert_exactly_once();
}

//! `walpost consumer prune`: what may be forgotten, and that nothing is reopened
//! by it.

use walpost_consumer::Retention;

use crate::{
    cli::{stderr, stdout},
    consumer::Rig,
};

impl Rig {
    /// Ages every effect.
    async fn age(&self, days: i32) {
        let sql = format!("update walpost.done set at = at - {days} * interval '1 day'");
        self.client.batch_execute(&sql).await.unwrap();
    }

    async fn remembered(&self) -> i64 {
        self.number("select count(*) from walpost.done").await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn effects_are_forgotten_when_they_are_old_and_their_records_gone_and_none_is_made_again() {
    let mut rig = Rig::new().await;
    rig.publish(100);
    assert_eq!(rig.drain().await, 100);
    let name = rig.name.clone();
    let prune = ["prune", &name, "--older-than", "30"];
    // Kafka keeps 7 days and closes a segment after 7, the outbox keeps 14.
    assert_eq!(rig.json(&prune)["effects"], 0, "they are young");
    rig.age(31).await;
    assert_eq!(rig.json(&prune)["effects"], 0, "their records can be read again");
    rig.delete_records(40).await;
    assert_eq!(rig.json(&prune)["effects"], 40);
    assert_eq!(rig.remembered().await, 100, "it was only counted");
    let output = rig.run(&[&prune[..], &["--yes"]].concat());
    assert_eq!(stdout(&output), "40 effects are forgotten\n", "{}", stderr(&output));
    assert_eq!(rig.remembered().await, 60);

    // Whatever reads everything again finds no record whose effect is forgotten.
    for mode in ["fill", "rerun"] {
        let args = ["reset", &name, "--to-earliest", "--mode", mode, "--yes"];
        assert!(rig.run(&args).status.success());
        let expected = if mode == "fill" { 100 } else { 160 };
        assert_eq!(rig.drain().await, expected, "{mode}");
    }
    rig.reset_in_kafka(&["--to-earliest"]).await;
    assert_eq!(rig.drain().await, 220);
    let reopened = "select count(*) from effect where event_id::int < 40";
    assert_eq!(rig.number(reopened).await, 40);
    // What is remembered still tells a copy.
    rig.publish_copies(&["40", "99"]);
    assert_eq!(rig.drain().await, 220);
}

#[tokio::test(flavor = "multi_thread")]
async fn forgetting_before_a_copy_can_no_longer_come_is_refused_with_the_figures() {
    let mut rig = Rig::new().await;
    rig.publish(10);
    rig.drain().await;
    rig.age(400).await;
    rig.delete_records(10).await;
    let name = rig.name.clone();
    let refused = |args: &[&str], parts: &[&str]| {
        let output = rig.run(&[&["prune", &name, "--yes"], args].concat());
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {text}");
        for part in parts {
            assert!(text.contains(part), "{args:?}: {part:?} is not in {text}");
        }
    };
    refused(&["--older-than", "20"], &["up to 14 ", "published for 14:", "use 28 days"]);
    refused(&["--older-than", "21", "--replay-days", "8"], &["use 22 days"]);
    refused(
        &["--older-than", "21", "--set", "retention.archive_days=30"],
        &["published for 44:", "use 58 days"],
    );
    rig.set_topic("retention.ms", "-1").await;
    refused(&["--older-than", "300"], &["for ever", "--accept-duplicates"]);
    assert_eq!(rig.remembered().await, 10);
    let args = ["prune", &name, "--older-than", "300", "--accept-duplicates", "--yes"];
    assert_eq!(rig.json(&args)["effects"], 10);
    assert_eq!(rig.remembered().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_forgets_by_itself_and_does_not_begin_with_too_short_a_memory() {
    let mut rig = Rig::new().await;
    rig.publish(100);
    rig.drain().await;
    rig.age(31).await;
    rig.delete_records(40).await;
    let short = rig.start(|builder| builder.retention(Retention::days(20).replay_days(7)));
    let text = short.end().await;
    assert!(text.contains("retention") && text.contains("use 21 days"), "{text}");
    assert_eq!(rig.remembered().await, 100);
    let running = rig.start(|builder| builder.retention(Retention::days(30).replay_days(7)));
    walpost_testkit::until(crate::consumer::LIMIT, "forgotten effects", async || {
        rig.remembered().await == 60
    })
    .await;
    running.stop().await;
    assert_eq!(rig.number("select min(off) from walpost.done").await, 40);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_piece_is_bounded_by_pages_and_read_without_the_rest_of_the_table() {
    let rig = Rig::new().await;
    let many = "insert into walpost.done (consumer, source, event_id, pos_id, off, run, at) \
                select 'c', 's', n::text, 7, n, 0, now() - interval '90 days' \
                from generate_series(1, 200000) n";
    rig.client.batch_execute(many).await.unwrap();
    let pages = "select pg_relation_size('walpost.done') / current_setting('block_size')::bigint";
    let pages = rig.number(pages).await;
    let piece =
        |page: i64| format!("select walpost.prune_done('c', '{{}}', '{{}}', now(), {page}, 16)");
    let scans = async || {
        let query = "select seq_scan from pg_stat_user_tables where relname = 'done'";
        rig.client.query("select pg_stat_force_next_flush()", &[]).await.unwrap();
        rig.number(query).await
    };
    let before = scans().await;
    let mut sizes = Vec::new();
    for page in (0..pages).step_by(16) {
        sizes.push(rig.number(&piece(page)).await);
    }
    assert_eq!(sizes.iter().sum::<i64>(), 200_000);
    assert!(sizes.iter().all(|size| *size < 16 * 300), "{sizes:?}");
    let row = rig.client.query_one(&piece(pages), &[]).await.unwrap();
    assert_eq!(row.get::<_, Option<i64>>(0), None);
    assert_eq!(scans().await, before, "a piece reads the whole table");
    rig.number("select count(*) from walpost.done").await;
    assert_eq!(scans().await, before + 1, "and that would show");
}
